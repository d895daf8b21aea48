//! A walk over a directory that somebody else writes into, a bounded number of entries at a time.
//!
//! ```text
//!  top ─► passed: place and inode are kept ─► … ─► held open ─► … ─► innermost: is read
//!                              ▲── `..`, if that is still the same one ──┘
//! ```
//! Every directory is opened relative to the one above it by one name, never through a link, and only where nothing is mounted on it:
//! whatever is renamed, linked or mounted meanwhile, nothing outside of the directory is ever read.
//! It goes as deep as directories go. Few stay open; the others are found again by `..`, which leads elsewhere once something was moved, so it counts only where it leads back to the same directory.
//! A volume within the filesystem (btrfs) belongs to the directory, and whatever is mounted does not.
//! What was left out is told by [`Walk::is_whole`]: then there is at least what was counted.
//! A file with several names counts once.

use ebb_policy::snapshot::FsUsage;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom, StatxAttributes, StatxFlags, makedev, open,
    openat, seek, statx,
};
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Files with several names that are told apart in one walk; those beyond count once for each name.
const LINKED_AT_MOST: usize = 100_000;

/// Directories of a walk that are open at most, the top and the innermost.
const OPEN: usize = 32;

/// Directories between those that are remembered, 24 bytes each. What is nested deeper is left out.
const DEEPEST: usize = 100_000;

/// Bytes of entries that are read ahead. The fewer they are, the fewer are gone before they are looked at.
const READ_AHEAD: usize = 2048;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A walk that is under way.
#[derive(Debug)]
pub(crate) struct Walk {
    /// The top, and the innermost directories.
    open: Vec<Level>,
    /// Those between the top and the next that is open.
    passed: Vec<Passed>,
    tally: Tally,
}

/// A directory that is being read.
#[derive(Debug)]
struct Level {
    dir: OwnedFd,
    id: Id,
    /// What was read and not looked at yet.
    ahead: VecDeque<Entry>,
    /// It was read just now.
    is_fresh: bool,
    /// Where the entries that were not looked at begin.
    reached: u64,
}

/// An entry of a directory.
#[derive(Debug)]
struct Entry {
    name: CString,
    /// Where the next one is.
    next: u64,
}

/// A directory that is read on once everything below it is.
#[derive(Debug)]
struct Passed {
    id: Id,
    reached: u64,
}

/// What was counted.
#[derive(Debug)]
struct Tally {
    /// The filesystem of the top.
    device: u64,
    linked: BTreeSet<Id>,
    bytes: u64,
    inodes: u64,
    is_whole: bool,
}

/// Which inode it is; on btrfs each volume has a device number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    device: u64,
    inode: u64,
}

/// What a name stands for.
#[derive(Debug)]
struct About {
    id: Id,
    bytes: u64,
    names: u32,
    is_dir: bool,
    /// Something is mounted there; `None` where the kernel does not say (before 5.8).
    is_mount: Option<bool>,
}

/// How far reading a directory came.
#[derive(Debug)]
enum Read {
    /// To its end.
    All,
    /// To a directory in it.
    Below(Level),
    /// As far as was allowed.
    Part,
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
        return Err(Errno::INVAL.into());
    }
    Ok(openat(dir, name, DIRECTORY, Mode::empty())?)
}

/// Names in a directory, at most `limit`; those that are not UTF-8 are nobody's whom ebb knows.
///
/// # Errors
/// What the kernel says.
pub(crate) fn names(dir: &OwnedFd, limit: usize) -> io::Result<Vec<String>> {
    let dir = openat(dir, ".", DIRECTORY, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); READ_AHEAD];
    let mut entries = RawDir::new(&dir, &mut buffer);
    let mut names = Vec::new();
    for _ in 0..limit {
        let Some(entry) = entries.next() else { break };
        let entry = entry?;
        if let Ok(name) = entry.file_name().to_str()
            && !is_dots(entry.file_name())
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

impl Walk {
    /// Begins at a directory.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn begin(dir: OwnedFd) -> io::Result<Self> {
        let about = About::of_open(&dir)?;
        let tally = Tally {
            device: about.id.device,
            linked: BTreeSet::new(),
            bytes: about.bytes,
            inodes: 1,
            is_whole: true,
        };
        Ok(Self { open: vec![Level::new(dir, about.id)], passed: Vec::new(), tally })
    }

    /// Looks at entries until there are none left (true) or `left` is used up (false).
    pub(crate) fn go_on(&mut self, left: &mut u64) -> bool {
        let mut buffer = [MaybeUninit::uninit(); READ_AHEAD];
        while let Some(level) = self.open.last_mut() {
            match self.tally.read(level, &mut buffer, left) {
                Read::All => self.leave(),
                Read::Below(level) => self.enter(level),
                Read::Part => return false,
            }
        }
        true
    }

    fn enter(&mut self, below: Level) {
        if self.passed.len() >= DEEPEST {
            self.tally.is_whole = false;
            return;
        }
        if self.open.len() >= OPEN {
            // The top stays: nothing leads back to it but itself.
            let Level { dir: _, id, ahead: _, is_fresh: _, reached } = self.open.remove(1);
            self.passed.push(Passed { id, reached });
        }
        self.open.push(below);
    }

    fn leave(&mut self) {
        let Some(below) = self.open.pop() else { return };
        if self.open.len() > 1 {
            return;
        }
        let Some(above) = self.passed.pop() else { return };
        match Level::above(&below, &above) {
            Ok(Some(level)) => self.open.push(level),
            // It was moved, or one above it: where the others are nobody knows.
            Ok(None) | Err(_) => {
                self.passed.clear();
                self.tally.is_whole = false;
            }
        }
    }

    /// Whether nothing was left out so far. Else there is at least what was counted.
    pub(crate) fn is_whole(&self) -> bool {
        self.tally.is_whole
    }

    /// What was counted so far.
    pub(crate) fn usage(&self) -> FsUsage {
        FsUsage { used_bytes: Some(self.tally.bytes), inodes_used: Some(self.tally.inodes) }
    }
}

impl Level {
    fn new(dir: OwnedFd, id: Id) -> Self {
        Self { dir, id, ahead: VecDeque::new(), is_fresh: false, reached: 0 }
    }

    /// Opens a directory that is known to be `id`; `None` when another one stands there by now, or something is mounted on it.
    fn open(dir: &OwnedFd, name: &CStr, id: Id) -> Result<Option<Self>, Errno> {
        let dir = openat(dir, name, DIRECTORY, Mode::empty())?;
        let about = About::of_open(&dir)?;
        let is_it = about.id == id && about.is_mount != Some(true);
        Ok(is_it.then(|| Self::new(dir, id)))
    }

    /// Goes back up from a directory; `None` when it is in another one by now.
    fn above(below: &Self, above: &Passed) -> Result<Option<Self>, Errno> {
        let Some(mut level) = Self::open(&below.dir, c"..", above.id)? else { return Ok(None) };
        level.reached = above.reached;
        level.go_back()?;
        Ok(Some(level))
    }

    /// Forgets what was read and not looked at: it is read again.
    fn go_back(&mut self) -> Result<(), Errno> {
        self.ahead.clear();
        seek(&self.dir, SeekFrom::Start(self.reached))?;
        Ok(())
    }

    /// Reads some entries.
    fn read_ahead(&mut self, buffer: &mut [MaybeUninit<u8>]) -> Result<(), Errno> {
        self.is_fresh = true;
        let mut entries = RawDir::new(&self.dir, buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let (name, next) = (entry.file_name().to_owned(), entry.next_entry_cookie());
            self.ahead.push_back(Entry { name, next });
            if entries.is_buffer_empty() {
                break;
            }
        }
        Ok(())
    }
}

impl Tally {
    /// Reads on in a directory, as far as the next directory in it.
    fn read(&mut self, level: &mut Level, buffer: &mut [MaybeUninit<u8>], left: &mut u64) -> Read {
        while *left > 0 {
            *left -= 1;
            if level.ahead.is_empty() {
                match level.read_ahead(buffer) {
                    // What was deleted is empty.
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(_) => self.is_whole = false,
                }
            }
            let Some(entry) = level.ahead.pop_front() else { return Read::All };
            if !is_dots(&entry.name) {
                match About::of(&level.dir, &entry.name) {
                    // What was read before others were walked says nothing of now: it is read again.
                    Err(Errno::NOENT) if !level.is_fresh => {
                        self.is_whole &= level.go_back().is_ok();
                        continue;
                    }
                    // It was deleted, or has another name, which may have been passed already.
                    Err(_) => self.is_whole = false,
                    Ok(about) => {
                        if let Some(below) = self.count(&level.dir, &entry.name, &about) {
                            level.is_fresh = false;
                            level.reached = entry.next;
                            return Read::Below(below);
                        }
                    }
                }
            }
            level.reached = entry.next;
        }
        level.is_fresh = false;
        Read::Part
    }

    /// Counts what stands there, and opens it if it is a directory.
    fn count(&mut self, dir: &OwnedFd, name: &CStr, about: &About) -> Option<Level> {
        match about.is_mount {
            Some(false) => {}
            Some(true) => return None,
            None if about.id.device == self.device => {}
            None => {
                self.is_whole = false;
                return None;
            }
        }
        let has_other_names = !about.is_dir && about.names > 1;
        if has_other_names && self.linked.len() < LINKED_AT_MOST && !self.linked.insert(about.id) {
            return None;
        }
        self.bytes = self.bytes.saturating_add(about.bytes);
        self.inodes += 1;
        if !about.is_dir {
            return None;
        }
        let below = Level::open(dir, name, about.id).ok().flatten();
        self.is_whole &= below.is_some();
        below
    }
}

impl About {
    /// What stands at a name, a link for itself.
    fn of(dir: &OwnedFd, name: &CStr) -> Result<Self, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
        let about = statx(dir, name, flags, StatxFlags::BASIC_STATS)?;
        let is_told = about.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
        Ok(Self {
            id: Id {
                device: makedev(about.stx_dev_major, about.stx_dev_minor),
                inode: about.stx_ino,
            },
            // What it takes up, not how long it is.
            bytes: about.stx_blocks.saturating_mul(512),
            names: about.stx_nlink,
            is_dir: FileType::from_raw_mode(about.stx_mode.into()) == FileType::Directory,
            is_mount: is_told.then(|| about.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
        })
    }

    /// What is open.
    fn of_open(dir: &OwnedFd) -> Result<Self, Errno> {
        Self::of(dir, c"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mkdirat;
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::process::Command;

    fn whole(path: &Path) -> FsUsage {
        let mut walk = Walk::begin(open_dir(path).unwrap()).unwrap();
        while !walk.go_on(&mut 2) {}
        assert!(walk.is_whole());
        walk.usage()
    }

    /// A directory with directories in one another, each with what `fill` makes in it; too deep to be named by a path, or to be removed by the standard library.
    struct Deep {
        dir: tempfile::TempDir,
        levels: usize,
    }

    impl Deep {
        fn new(levels: usize, fill: impl Fn(usize, &OwnedFd)) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let mut at = open_dir(dir.path()).unwrap();
            for level in 0..levels {
                mkdirat(&at, "d", Mode::RWXU).unwrap();
                at = open_below(&at, "d").unwrap();
                fill(level, &at);
            }
            Self { dir, levels }
        }

        fn walk(&self) -> Walk {
            Walk::begin(open_dir(self.dir.path()).unwrap()).unwrap()
        }

        /// The directory below so many others.
        fn level(&self, level: usize) -> PathBuf {
            self.dir.path().join("d/".repeat(level))
        }
    }

    impl Drop for Deep {
        fn drop(&mut self) {
            let removed = Command::new("rm").arg("-rf").arg(self.dir.path()).status();
            assert!(removed.is_ok_and(|status| status.success()), "{} levels", self.levels);
        }
    }

    fn write_in(dir: &OwnedFd, name: &str, bytes: usize) {
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let file = openat(dir, name, flags, Mode::RUSR | Mode::WUSR).unwrap();
        File::from(file).write_all(&vec![b'x'; bytes]).unwrap();
    }

    #[test]
    fn what_is_nested_deeper_than_can_be_held_open_is_counted_like_anything_else() {
        let deep = Deep::new(3_000, |level, dir| {
            if level == 2_999 {
                write_in(dir, "large", 1 << 20);
            }
        });
        let mut walk = deep.walk();
        let mut most = 0;
        while !walk.go_on(&mut 1) {
            most = most.max(walk.open.len());
        }
        assert!(walk.is_whole());
        assert_eq!(walk.usage().inodes_used, Some(3_002));
        assert!(walk.usage().used_bytes.unwrap() >= 1 << 20);
        assert_eq!(most, OPEN);
    }

    #[test]
    fn a_directory_is_read_on_where_it_was_left_for_those_below_it() {
        // More names than are read ahead, of which any may come before the directory.
        let deep = Deep::new(3 * OPEN, |_, dir| {
            for n in 0..150 {
                write_in(dir, &format!("file-with-a-long-name-{n}"), 1);
            }
            for n in 0..3 {
                mkdirat(dir, format!("empty-{n}"), Mode::RWXU).unwrap();
            }
        });
        let usage = whole(deep.dir.path());
        assert_eq!(usage.inodes_used, Some(1 + 3 * 32 * (1 + 150 + 3)));
    }

    /// Walks to the bottom of directories `levels` deep.
    fn at_the_bottom(deep: &Deep) -> Walk {
        let mut walk = deep.walk();
        while walk.open.len() + walk.passed.len() <= deep.levels {
            assert!(!walk.go_on(&mut 1));
        }
        walk
    }

    #[test]
    fn a_directory_that_is_moved_away_leads_nowhere_and_the_walk_says_what_it_lacks() {
        let deep = Deep::new(100, |_, dir| write_in(dir, "own", 1));
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("large"), vec![b'x'; 1 << 20]).unwrap();
        fs::create_dir(deep.dir.path().join("beside")).unwrap();
        let mut walk = at_the_bottom(&deep);
        fs::rename(deep.level(50), outside.path().join("moved")).unwrap();
        while !walk.go_on(&mut 2) {}
        assert!(!walk.is_whole());
        let usage = walk.usage();
        assert!(usage.used_bytes.unwrap() < 1 << 20, "{usage:?}");
        // All directories, `beside`, and the files of those below the one that was moved.
        assert!((101 + 1 + 51..=202).contains(&usage.inodes_used.unwrap()), "{usage:?}");
        let moved = outside.path().join("moved");
        fs::rename(moved, deep.dir.path().join("back")).unwrap();
    }

    #[test]
    fn one_that_is_moved_near_the_top_is_still_held_and_nothing_is_lost() {
        let deep = Deep::new(OPEN - 1, |_, dir| write_in(dir, "own", 1));
        let outside = tempfile::tempdir().unwrap();
        let mut walk = at_the_bottom(&deep);
        fs::rename(deep.level(5), outside.path().join("moved")).unwrap();
        while !walk.go_on(&mut 2) {}
        assert!(walk.is_whole());
        assert_eq!(walk.usage().inodes_used, Some(1 + 2 * 31));
    }

    #[test]
    fn what_goes_while_it_is_looked_at_may_be_elsewhere_and_what_went_before_is_gone() {
        for is_fresh in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            for name in ["a", "b", "c"] {
                fs::write(dir.path().join(name), "").unwrap();
            }
            let mut walk = Walk::begin(open_dir(dir.path()).unwrap()).unwrap();
            let top = walk.open.last_mut().unwrap();
            top.read_ahead(&mut [MaybeUninit::uninit(); READ_AHEAD]).unwrap();
            top.is_fresh = is_fresh;
            fs::remove_file(dir.path().join("b")).unwrap();
            assert!(walk.go_on(&mut 100));
            assert_eq!(walk.usage().inodes_used, Some(3));
            assert_eq!(walk.is_whole(), !is_fresh);
        }
    }

    #[test]
    fn a_directory_that_something_is_mounted_on_is_none_of_its_own() {
        let root = open_dir(Path::new("/")).unwrap();
        let mut walk = Walk::begin(root.try_clone().unwrap()).unwrap();
        let before = walk.usage();
        let proc = About::of(&root, c"proc").unwrap();
        assert_eq!(proc.is_mount, Some(true));
        assert!(walk.tally.count(&root, c"proc", &proc).is_none());
        assert_eq!((walk.usage(), walk.is_whole()), (before, true));
        assert_eq!(About::of(&root, c"proc/self").unwrap().is_mount, Some(false));
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
