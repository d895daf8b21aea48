//! A walk over a directory that somebody else writes into, a bounded number of entries at a time.
//!
//! Every directory is opened relative to the one above it, never through a link, and only where it is on the filesystem that the walk began on:
//! whatever is renamed, linked or mounted meanwhile, nothing outside of the directory is ever read.
//! A file with several names counts once.

use ebb_policy::snapshot::FsUsage;
use nix::dir::{Dir, OwningIter};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Files with several names that are told apart in one walk; those beyond count once for each name.
const LINKED_AT_MOST: usize = 100_000;

/// Directories that are nested deeper are left out: each level keeps one open.
const DEEPEST: usize = 256;

const DIRECTORY: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// A walk that is under way.
#[derive(Debug)]
pub(crate) struct Walk {
    device: u64,
    /// Directories that are being read, the innermost last.
    open: Vec<Level>,
    linked: BTreeSet<u64>,
    bytes: u64,
    inodes: u64,
}

/// A directory that is being read.
#[derive(Debug)]
struct Level {
    /// To look at entries by name.
    dir: OwnedFd,
    entries: OwningIter,
}

/// Opens a directory by its path, of which the last component may not be a link; what is above it is the operator's.
///
/// # Errors
/// What the kernel says.
pub(crate) fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, DIRECTORY, Mode::empty())?)
}

/// Opens a directory in another by one name.
///
/// # Errors
/// What the kernel says, and `EINVAL` for a name that is none.
pub(crate) fn open_below(dir: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        return Err(Errno::EINVAL.into());
    }
    Ok(openat(dir, name, DIRECTORY, Mode::empty())?)
}

/// Names in a directory, at most `limit`; those that are not UTF-8 are nobody's whom ebb knows.
///
/// # Errors
/// What the kernel says.
pub(crate) fn names(dir: &OwnedFd, limit: usize) -> io::Result<Vec<String>> {
    let entries = Dir::from_fd(openat(dir, ".", DIRECTORY, Mode::empty())?)?.into_iter();
    let names = entries.take(limit).flatten().filter_map(|entry| {
        let name = entry.file_name().to_str().ok()?;
        (name != "." && name != "..").then(|| name.to_owned())
    });
    Ok(names.collect())
}

impl Walk {
    /// Begins at a directory.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn begin(dir: OwnedFd) -> io::Result<Self> {
        let about = fstat(&dir)?;
        let mut walk = Self {
            device: about.st_dev,
            open: Vec::new(),
            linked: BTreeSet::new(),
            bytes: bytes(&about),
            inodes: 1,
        };
        walk.open.push(Level::of(dir)?);
        Ok(walk)
    }

    /// Looks at entries until there are none left (true) or `left` is used up (false).
    pub(crate) fn go_on(&mut self, left: &mut u64) -> bool {
        while let Some(level) = self.open.last_mut() {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            match level.entries.next() {
                None => drop(self.open.pop()),
                // What vanishes while it is looked at takes up nothing.
                Some(entry) => drop(entry.map(|entry| self.count(entry.file_name()))),
            }
        }
        true
    }

    fn count(&mut self, name: &CStr) -> Option<()> {
        if matches!(name.to_bytes(), b"." | b"..") {
            return None;
        }
        let dir = &self.open.last()?.dir;
        let about = fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        if about.st_dev != self.device {
            return None;
        }
        let is_dir = SFlag::from_bits_truncate(about.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
        let has_other_names = !is_dir && about.st_nlink > 1;
        if has_other_names
            && self.linked.len() < LINKED_AT_MOST
            && !self.linked.insert(about.st_ino)
        {
            return None;
        }
        self.bytes = self.bytes.saturating_add(bytes(&about));
        self.inodes += 1;
        if is_dir && self.open.len() < DEEPEST {
            let below = openat(dir, name, DIRECTORY, Mode::empty()).ok()?;
            // Another may stand there by now, and something may be mounted on it.
            let is_it = fstat(&below)
                .is_ok_and(|now| (now.st_dev, now.st_ino) == (about.st_dev, about.st_ino));
            if is_it {
                self.open.push(Level::of(below).ok()?);
            }
        }
        Some(())
    }

    /// How many directories are open, one in the other.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    /// What was counted so far.
    pub(crate) fn usage(&self) -> FsUsage {
        FsUsage { used_bytes: Some(self.bytes), inodes_used: Some(self.inodes) }
    }
}

impl Level {
    fn of(dir: OwnedFd) -> io::Result<Self> {
        let entries = Dir::from_fd(dir.try_clone()?)?.into_iter();
        Ok(Self { dir, entries })
    }
}

/// What a file takes up, not how long it is.
fn bytes(about: &FileStat) -> u64 {
    u64::try_from(about.st_blocks).unwrap_or(0).saturating_mul(512)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn whole(path: &Path) -> FsUsage {
        let mut walk = Walk::begin(open_dir(path).unwrap()).unwrap();
        while !walk.go_on(&mut 2) {}
        walk.usage()
    }

    #[test]
    fn links_lead_nowhere_and_other_names_of_a_file_count_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, outside) = (dir.path().join("volume"), dir.path().join("outside"));
        fs::create_dir_all(volume.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("large"), vec![b'x'; 1 << 20]).unwrap();
        fs::write(volume.join("a/own"), vec![b'x'; 20_000]).unwrap();
        fs::hard_link(volume.join("a/own"), volume.join("a/b/again")).unwrap();
        symlink(&outside, volume.join("a/out")).unwrap();
        let usage = whole(&volume);
        assert_eq!(usage.inodes_used, Some(5), "three directories, a file, a link");
        assert!(usage.used_bytes.unwrap() < 100_000, "{usage:?}");
        assert!(open_dir(&volume.join("a/out")).is_err(), "a link is no directory");
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = open_dir(dir.path()).unwrap();
        fs::create_dir(dir.path().join("in")).unwrap();
        symlink("in", dir.path().join("link")).unwrap();
        assert!(open_below(&root, "in").is_ok());
        for name in ["", ".", "..", "in/..", "/", "link"] {
            assert!(open_below(&root, name).is_err(), "{name:?}");
        }
    }
}
