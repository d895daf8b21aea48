//! The one place where a cgroup's path is opened: every directory and every file is resolved by the kernel below the hierarchy's root, and nowhere else.
//!
//! `openat2` refuses what leads out of the root (`..`, absolute links), every symbolic link and every magic link, so that no name of a pod, a container or a manifest can move a read or a write to another place, whatever was overlooked when the name was checked.
//! The root itself is the operator's word: links on the way to it are followed.

use crate::sense::file::KeptFile;
use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Paths of cgroups below one mount. Cheap to clone: nothing is held open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beneath {
    root: PathBuf,
}

impl Beneath {
    /// What is below `root`, a cgroup mount.
    #[must_use]
    pub fn new(root: &Path) -> Beneath {
        Beneath { root: root.to_owned() }
    }

    /// Where `path` is, for messages and for a target that is known by its id as well; never to be opened.
    #[must_use]
    pub fn shown(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Opens the directory of the cgroup `path`, for files to be opened in it.
    ///
    /// # Errors
    /// What the kernel says: `EXDEV` for a path that leads out of the root, `ELOOP` for one with a link in it.
    pub fn dir(&self, path: &str) -> io::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = open(&self.root, flags, Mode::empty())?;
        match path.trim_start_matches('/') {
            "" => Ok(root),
            below => Ok(beneath(&root, Path::new(below), flags)?),
        }
    }

    /// Whether the cgroup `path` is there.
    #[must_use]
    pub fn is_there(&self, path: &str) -> bool {
        self.dir(path).is_ok()
    }

    /// The id of the cgroup `path`.
    ///
    /// # Errors
    /// As [`Beneath::dir`].
    pub fn id(&self, path: &str) -> io::Result<u64> {
        let about: FileStat = fstat(self.dir(path)?)?;
        Ok(about.st_ino)
    }

    /// The content of a file of the cgroup `path`.
    ///
    /// # Errors
    /// As [`Beneath::dir`], and what reading says.
    pub fn read(&self, path: &str, file: &str) -> io::Result<String> {
        read_in(&self.dir(path)?, file)
    }

    /// Writes to a file of the cgroup `path` that is there; none is made.
    ///
    /// # Errors
    /// As [`Beneath::dir`], and what writing says.
    pub fn write(&self, path: &str, file: &str, value: &str) -> io::Result<()> {
        write_in(&self.dir(path)?, file, value)
    }

    /// Names of the cgroups directly below `path`, in order; none where it is not there. Links are not cgroups.
    #[must_use]
    pub fn children(&self, path: &str) -> Vec<String> {
        let Ok(dir) = self.dir(path) else { return Vec::new() };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let listing = beneath(&dir, Path::new("."), flags).and_then(Dir::from_fd);
        let Ok(mut listing) = listing else { return Vec::new() };
        let mut names: Vec<String> = listing
            .iter()
            .flatten()
            .filter(|entry| match entry.file_type() {
                Some(kind) => kind == Type::Directory,
                None => fstatat(&dir, entry.file_name(), AtFlags::AT_SYMLINK_NOFOLLOW)
                    .is_ok_and(|about| about.st_mode & libc::S_IFMT == libc::S_IFDIR),
            })
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
            .filter(|name| name != "." && name != "..")
            .collect();
        names.sort();
        names
    }

    /// Makes the cgroup `name` below `path`; one that is there already is right.
    ///
    /// # Errors
    /// As [`Beneath::dir`], and that `name` is more than one plain name.
    pub fn make(&self, path: &str, name: &str) -> io::Result<()> {
        let name = plain(name)?;
        match mkdirat(self.dir(path)?, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the cgroup `name` below `path`, which must have none below it.
    ///
    /// # Errors
    /// As [`Beneath::make`], and `EBUSY` while something runs in it.
    pub fn remove(&self, path: &str, name: &str) -> io::Result<()> {
        Ok(unlinkat(self.dir(path)?, plain(name)?, UnlinkatFlags::RemoveDir)?)
    }
}

/// Opens a file of a cgroup for reading.
///
/// # Errors
/// What the kernel says.
pub(super) fn open_in(dir: &OwnedFd, file: &str, flags: OFlag) -> io::Result<OwnedFd> {
    Ok(beneath(dir, Path::new(plain(file)?), flags | OFlag::O_CLOEXEC)?)
}

/// The content of a file of a cgroup.
///
/// # Errors
/// What the kernel says.
pub(super) fn read_in(dir: &OwnedFd, file: &str) -> io::Result<String> {
    let fd = open_in(dir, file, OFlag::O_RDONLY)?;
    let mut buffer = Vec::new();
    KeptFile::from_fd(fd).read(&mut buffer).map(str::to_owned)
}

/// Writes to a file of a cgroup that is there: asking the kernel to make one hides that there is none.
///
/// # Errors
/// What the kernel says.
pub(super) fn write_in(dir: &OwnedFd, file: &str, value: &str) -> io::Result<()> {
    File::from(open_in(dir, file, OFlag::O_WRONLY | OFlag::O_TRUNC)?).write_all(value.as_bytes())
}

fn beneath(dir: impl AsFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let how = OpenHow::new().flags(flags).resolve(
        ResolveFlag::RESOLVE_BENEATH
            | ResolveFlag::RESOLVE_NO_SYMLINKS
            | ResolveFlag::RESOLVE_NO_MAGICLINKS,
    );
    openat2(dir, path, how)
}

/// A name that stays in its directory.
fn plain(name: &str) -> io::Result<&str> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        let what = format!("{name:?} is not a plain name");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A root with a cgroup in it, and a directory beside it that nothing here may touch.
    fn case() -> (tempfile::TempDir, Beneath) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("cgroup/kubepods/pod1")).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("outside/memory.max"), "untouched").unwrap();
        fs::write(dir.path().join("cgroup/kubepods/pod1/memory.max"), "max\n").unwrap();
        let beneath = Beneath::new(&dir.path().join("cgroup"));
        (dir, beneath)
    }

    #[test]
    fn a_cgroup_below_the_root_is_read_written_made_and_removed() {
        let (_dir, beneath) = case();
        assert_eq!(beneath.read("/kubepods/pod1", "memory.max").unwrap().trim(), "max");
        beneath.write("/kubepods/pod1", "memory.max", "4096").unwrap();
        assert_eq!(beneath.read("/kubepods/pod1", "memory.max").unwrap(), "4096");
        beneath.make("/kubepods", "pod2").unwrap();
        beneath.make("/kubepods", "pod2").unwrap();
        assert_eq!(beneath.children("/kubepods"), ["pod1", "pod2"]);
        beneath.remove("/kubepods", "pod2").unwrap();
        assert!(beneath.is_there("/") && !beneath.is_there("/kubepods/pod2"));
    }

    #[test]
    fn no_path_name_or_link_leads_out_of_the_root() {
        let (dir, beneath) = case();
        let outside = dir.path().join("outside");
        symlink(&outside, dir.path().join("cgroup/kubepods/link")).unwrap();
        symlink(outside.join("memory.max"), dir.path().join("cgroup/kubepods/pod1/pids.max"))
            .unwrap();
        for path in ["/../outside", "/kubepods/../../outside", "/kubepods/link"] {
            assert!(beneath.dir(path).is_err(), "{path}");
            assert!(beneath.write(path, "memory.max", "0").is_err(), "{path}");
            assert!(beneath.make(path, "made").is_err(), "{path}");
            assert!(beneath.remove(path, "memory.max").is_err(), "{path}");
            assert_eq!(beneath.children(path), [""; 0], "{path}");
        }
        for file in ["../../../outside/memory.max", "pids.max", "", "..", "a/b"] {
            assert!(beneath.write("/kubepods/pod1", file, "0").is_err(), "{file}");
            assert!(beneath.read("/kubepods/pod1", file).is_err(), "{file}");
        }
        assert!(beneath.make("/kubepods", "../../outside/made").is_err());
        assert!(beneath.remove("/kubepods", "../../outside").is_err());
        assert_eq!(beneath.children("/kubepods"), ["pod1"], "a link is no cgroup");
        let left: Vec<_> = fs::read_dir(&outside).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(fs::read_to_string(outside.join("memory.max")).unwrap(), "untouched");
    }
}
