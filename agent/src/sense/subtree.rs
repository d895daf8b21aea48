//! The directories of a cgroup and of everything below it, one after the other, in time and memory that grow with their number and with nothing else.
//!
//! Whoever a subtree was handed to chooses its shape, and ebb walks it while memory is short: neither depth nor the length of names may cost more than it has cost them.
//! So each directory is opened by its name from the one above, names are held and no paths, and only the innermost directories stay open.
//!
//! ```text
//!  next ─► a directory ─► descend ─► the names below it ─► next ─► …
//!    └─ up by `..` where the one above was closed, if that is still the one
//! ```
//! No link is followed, and nothing outside of the subtree is read.

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fstat};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Directories that stay open, each in the one before it: few workloads are nested deeper, and descriptors are scarce.
const OPEN_AT_ONCE: usize = 8;

/// A walk that is under way.
#[derive(Debug)]
pub(super) struct Subtree<'a> {
    top: BorrowedFd<'a>,
    /// Directories with others below them, from the top to where the walk is; the last of them is open.
    levels: Vec<Level>,
    /// Names that are still to be opened, each with the number of levels above it.
    pending: Vec<(usize, CString)>,
}

#[derive(Debug)]
struct Level {
    /// Device and inode.
    id: (u64, u64),
    /// `None` while the walk is far below.
    dir: Option<Dir>,
}

impl<'a> Subtree<'a> {
    /// Begins at `top`, which is the first directory.
    pub(super) fn of(top: BorrowedFd<'a>) -> Self {
        Self { top, levels: Vec::new(), pending: vec![(0, c".".to_owned())] }
    }

    /// Opens the next directory; `None` after the last. One that has been removed meanwhile is none.
    ///
    /// # Errors
    /// What the kernel says, and that a directory has been moved to another one.
    pub(super) fn next(&mut self) -> io::Result<Option<OwnedFd>> {
        while let Some((above, name)) = self.pending.pop() {
            self.climb(above)?;
            let parent = self.levels.last().and_then(|level| level.dir.as_ref());
            match open_dir(parent.map_or(self.top, AsFd::as_fd), &name) {
                Ok(dir) => return Ok(Some(dir)),
                Err(error) if is_gone(error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Has those follow that are directly below `dir`, which [`Self::next`] returned last.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn descend(&mut self, dir: OwnedFd) -> io::Result<()> {
        let about = fstat(&dir)?;
        // A directory has a link from each that is directly below it, and two more. Listing some sixty files for nothing costs more than all else here.
        if about.st_nlink == 2 {
            return Ok(());
        }
        let (before, above) = (self.pending.len(), self.levels.len() + 1);
        let mut dir = Dir::from_fd(dir)?;
        for entry in dir.iter() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) if is_gone(error) => break,
                Err(error) => return Err(error.into()),
            };
            let name = entry.file_name();
            if entry.file_type() == Some(Type::Directory)
                && !matches!(name.to_bytes(), b"." | b"..")
            {
                self.pending.push((above, name.to_owned()));
            }
        }
        if self.pending.len() > before {
            self.levels.push(Level { id: (about.st_dev, about.st_ino), dir: Some(dir) });
            let far = self.levels.len().checked_sub(OPEN_AT_ONCE + 1);
            if let Some(far) = far.and_then(|far| self.levels.get_mut(far)) {
                far.dir = None;
            }
        }
        Ok(())
    }

    /// Goes back up until there are `above` levels.
    fn climb(&mut self, above: usize) -> io::Result<()> {
        while self.levels.len() > above {
            let below = self.levels.pop().and_then(|level| level.dir);
            let (Some(below), Some(level)) = (below, self.levels.last_mut()) else { continue };
            if level.dir.is_some() {
                continue;
            }
            // Also from one that has been removed. That this one cannot be reached must not hide what is still to be opened in it.
            let dir = open_dir(below.as_fd(), c"..")?;
            let about = fstat(&dir)?;
            if (about.st_dev, about.st_ino) != level.id {
                return Err(io::Error::other("a directory was moved while its subtree was read"));
            }
            level.dir = Some(Dir::from_fd(dir)?);
        }
        Ok(())
    }
}

/// Whether an error says that the cgroup has been removed.
pub(super) fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::ENOENT | Errno::ENODEV)
}

/// Opens a directory in another.
fn open_dir(above: BorrowedFd<'_>, name: &CStr) -> nix::Result<OwnedFd> {
    #[cfg(test)]
    tests::count();
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    openat(above, name, flags, Mode::empty())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use nix::sys::stat::mkdirat;
    use std::cell::Cell;
    use std::fs;
    use std::path::Path;

    thread_local! {
        static OPENED: Cell<usize> = const { Cell::new(0) };
    }

    /// Counts a directory that is opened.
    pub(super) fn count() {
        OPENED.set(OPENED.get() + 1);
    }

    /// How many this thread has opened so far.
    pub(in crate::sense) fn opened() -> usize {
        OPENED.get()
    }

    /// Which of two directories of a level has more below it, as they are listed.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::sense) enum Deep {
        First,
        Last,
    }

    pub(in crate::sense) fn open(path: &Path) -> OwnedFd {
        OwnedFd::from(fs::File::open(path).unwrap())
    }

    /// Makes `depth` levels of two directories with long names, the next level in one of them; has `visit` see the other, and then the lowest.
    pub(in crate::sense) fn comb(
        top: &Path,
        depth: usize,
        deep: Deep,
        mut visit: impl FnMut(BorrowedFd<'_>),
    ) {
        let mut at = open(top);
        for _ in 0..depth {
            for name in ["a", "b"] {
                mkdirat(&at, name.repeat(250).as_str(), Mode::S_IRWXU).unwrap();
            }
            let mut list = Dir::from_fd(at.try_clone().unwrap()).unwrap();
            let mut names: Vec<CString> =
                list.iter().map(|entry| entry.unwrap().file_name().to_owned()).collect();
            names.retain(|name| name.to_bytes().len() == 250);
            if matches!(deep, Deep::First) {
                names.reverse();
            }
            let [shallow, deep] = names.as_slice() else { panic!("{names:?}") };
            visit(open_dir(at.as_fd(), shallow).unwrap().as_fd());
            at = open_dir(at.as_fd(), deep).unwrap();
        }
        visit(at.as_fd());
    }

    /// Walks on to the end; returns how many directories there were.
    fn rest(walk: &mut Subtree<'_>) -> usize {
        let mut seen = 0;
        while let Some(dir) = walk.next().unwrap() {
            walk.descend(dir).unwrap();
            seen += 1;
        }
        seen
    }

    #[test]
    fn a_deep_walk_holds_each_name_once_and_few_descriptors() {
        const DEPTH: usize = 100;
        for deep in [Deep::First, Deep::Last] {
            let dir = tempfile::tempdir().unwrap();
            comb(dir.path(), DEPTH, deep, |_| {});
            let top = open(dir.path());
            let mut walk = Subtree::of(top.as_fd());
            let mut seen = 0;
            while let Some(at) = walk.next().unwrap() {
                walk.descend(at).unwrap();
                seen += 1;
                let names: usize = walk.pending.iter().map(|(_, name)| name.count_bytes()).sum();
                assert!(names <= 250 * (DEPTH + 1), "{deep:?}: {names} bytes");
                let open = walk.levels.iter().filter(|level| level.dir.is_some()).count();
                assert!(open <= OPEN_AT_ONCE, "{deep:?}: {open}");
            }
            assert_eq!(seen, 2 * DEPTH + 1);
        }
    }

    /// A chain `long` of more directories than stay open, with `other` beside its first.
    fn chain() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("long").join("x/".repeat(2 * OPEN_AT_ONCE))).unwrap();
        fs::create_dir(dir.path().join("other")).unwrap();
        dir
    }

    /// A walk over it that has come to its bottom, and has not been to the other.
    fn at_the_bottom(top: &OwnedFd) -> Subtree<'_> {
        let mut walk = Subtree::of(top.as_fd());
        for _ in 0..2 + 2 * OPEN_AT_ONCE {
            let at = walk.next().unwrap().unwrap();
            walk.descend(at).unwrap();
            // Whatever comes first on this file system.
            walk.pending.sort_by_key(|(_, name)| name.as_c_str() == c"long");
        }
        walk
    }

    #[test]
    fn what_is_removed_below_the_walk_hides_nothing_above() {
        let dir = chain();
        let top = open(dir.path());
        let mut walk = at_the_bottom(&top);
        fs::remove_dir_all(dir.path().join("long")).unwrap();
        assert_eq!(rest(&mut walk), 1, "the other");
    }

    #[test]
    fn the_way_back_leads_to_where_the_walk_came_from_or_nowhere() {
        let (dir, elsewhere) = (chain(), chain());
        let top = open(dir.path());
        let mut walk = at_the_bottom(&top);
        fs::remove_dir_all(elsewhere.path().join("long")).unwrap();
        fs::rename(dir.path().join("long"), elsewhere.path().join("long")).unwrap();
        assert!(walk.next().is_err());
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("in/below")).unwrap();
        fs::create_dir(dir.path().join("out")).unwrap();
        std::os::unix::fs::symlink("../out", dir.path().join("in/link")).unwrap();
        let top = open(&dir.path().join("in"));
        assert_eq!(rest(&mut Subtree::of(top.as_fd())), 2);
        let mut walk = Subtree::of(top.as_fd());
        let first = walk.next().unwrap().unwrap();
        walk.descend(first).unwrap();
        fs::remove_dir(dir.path().join("in/below")).unwrap();
        std::os::unix::fs::symlink("../out", dir.path().join("in/below")).unwrap();
        assert!(walk.next().is_err(), "put in its place after it was listed");
    }
}
