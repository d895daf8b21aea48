//! The processes of a cgroup and of everything below it, all of them or an error.
//!
//! Whatever depends on every member (protection) must know that it has seen every member: a list that cannot be read, or
//! that has processes of another pid namespace in it, says so.
//! Cgroups are followed to any depth, and lists are read in pieces, so neither nesting nor a crowd hides anybody.
//!
//! Nor does a process whose first thread has ended: it is moved without that thread, which stays where it was, and `cgroup.procs`
//! of where it lives does not list it. `cgroup.threads` lists its other threads.

use super::cgroup::Cgroup;
use super::file::{keyed, read_once};
use super::process::{status_field, threads};
use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// How much of a list is read at a time.
const PIECE: usize = 64 << 10;

/// Longest path that is opened at once; the kernel takes up to 4095 bytes.
const OPENED_AT_ONCE: usize = 2048;

/// Who is in a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Process ids, in ascending order.
    pub pids: Vec<i32>,
    /// Some live in a pid namespace that this process cannot see into: the kernel lists them as 0.
    pub has_hidden: bool,
}

impl Cgroup {
    /// Every process in this cgroup and below, by the procfs at `proc`.
    ///
    /// # Errors
    /// What the kernel says when one of the lists cannot be read. A cgroup below that has been removed meanwhile is none.
    pub fn members(&self, proc: &Path) -> io::Result<Members> {
        let mut found = Found { limit: usize::MAX, tids: Some(Vec::new()), ..Found::default() };
        self.collect(&mut found)?;
        let Found { mut pids, has_hidden, tids, .. } = found;
        pids.sort_unstable();
        let leaderless = leaderless(tids.unwrap_or_default(), &pids, proc);
        pids.extend(leaderless);
        pids.sort_unstable();
        pids.dedup();
        Ok(Members { pids, has_hidden })
    }

    /// Processes that this cgroup and those below list, at most `limit` of them: no promise that they are all still there, or that there are no others.
    ///
    /// Kernel files list a process of another pid namespace as 0; such entries are left out.
    #[must_use]
    pub fn processes(&self, limit: usize) -> Vec<i32> {
        let mut found = Found { limit, ..Found::default() };
        // What was found before the error stands.
        let _ = self.collect(&mut found);
        found.pids
    }

    fn collect(&self, found: &mut Found) -> io::Result<()> {
        // Listing a directory of some sixty files costs more than all else here, and most cgroups have none below.
        let stat = self.read("cgroup.stat", &mut found.buffer);
        if stat.and_then(|text| keyed(text, "nr_descendants")) == Some(0) {
            return self.with_dir(|dir| found.add(dir))?;
        }
        self.with_dir(|top| collect_below(top, found))?
    }
}

/// Adds the processes of `top` and of everything below it.
fn collect_below(top: BorrowedFd<'_>, found: &mut Found) -> io::Result<()> {
    let mut pending = vec![PathBuf::new()];
    // The directory opened last: what is directly below it need not be looked for from the top.
    let mut last: Option<(PathBuf, Dir)> = None;
    while let Some(path) = pending.pop() {
        let parent = last.as_ref().filter(|(above, _)| path.parent() == Some(above));
        let opened = match (parent, path.file_name()) {
            (Some((_, above)), Some(name)) => open_dir(above.as_fd(), Path::new(name)),
            _ => open_below(top, &path),
        };
        let mut dir = match opened.and_then(Dir::from_fd) {
            Ok(dir) => dir,
            Err(error) if is_gone(error) => continue,
            Err(error) => return Err(error.into()),
        };
        found.add(dir.as_fd())?;
        if found.pids.len() >= found.limit {
            return Ok(());
        }
        for entry in dir.iter() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) if is_gone(error) => break,
                Err(error) => return Err(error.into()),
            };
            let name = entry.file_name().to_bytes();
            if entry.file_type() == Some(Type::Directory) && !matches!(name, b"." | b"..") {
                pending.push(path.join(OsString::from_vec(name.to_vec())));
            }
        }
        last = Some((path, dir));
    }
    Ok(())
}

#[derive(Default)]
struct Found {
    pids: Vec<i32>,
    /// Threads, where they are to be found too.
    tids: Option<Vec<i32>>,
    has_hidden: bool,
    /// A list of processes has been read to its end.
    has_read: bool,
    limit: usize,
    buffer: Vec<u8>,
}

impl Found {
    /// Adds the processes of `dir` itself.
    fn add(&mut self, dir: BorrowedFd<'_>) -> io::Result<()> {
        let Self { pids, has_hidden, limit, buffer, .. } = self;
        let mut add = |pid| match pid {
            0 => *has_hidden = true,
            pid if pids.len() < *limit => pids.push(pid),
            _ => {}
        };
        match read_list(dir, "cgroup.procs", buffer, &mut add) {
            Ok(()) => self.has_read = true,
            // In a threaded cgroup the list is that of the domain above, which was read unless this is the first.
            Err(Errno::EOPNOTSUPP) if self.has_read => {}
            Err(error) if is_gone(error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let Some(tids) = &mut self.tids else { return Ok(()) };
        match read_list(dir, "cgroup.threads", &mut self.buffer, &mut |tid| tids.push(tid)) {
            Err(error) if !is_gone(error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Has `add` take each number of the list `name`.
fn read_list(
    dir: BorrowedFd<'_>,
    name: &str,
    buffer: &mut Vec<u8>,
    add: &mut dyn FnMut(i32),
) -> nix::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let list = File::from(openat(dir, name, flags, Mode::empty())?);
    buffer.resize(PIECE, 0);
    let (mut at, mut digits) = (0, None::<i32>);
    loop {
        let read = list
            .read_at(buffer, at)
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))?;
        if read == 0 {
            break;
        }
        at += read as u64;
        for byte in buffer.get(..read).unwrap_or_default() {
            match byte {
                b'0'..=b'9' => {
                    let so_far = digits.unwrap_or(0).saturating_mul(10);
                    digits = Some(so_far.saturating_add(i32::from(byte - b'0')));
                }
                _ => digits.take().into_iter().for_each(&mut *add),
            }
        }
    }
    digits.into_iter().for_each(add);
    Ok(())
}

/// The processes that some of the threads `tids` belong to and that are not among `pids`, which are in ascending order.
fn leaderless(mut tids: Vec<i32>, pids: &[i32], proc: &Path) -> Vec<i32> {
    tids.retain(|tid| *tid != 0 && pids.binary_search(tid).is_err());
    // Most processes have one thread. Of the others a list of threads costs less than to ask each thread.
    if !tids.is_empty() {
        let known: BTreeSet<i32> = pids.iter().flat_map(|pid| threads(proc, *pid)).collect();
        tids.retain(|tid| !known.contains(tid));
    }
    let process_of = |tid: i32| {
        let status = read_once(&proc.join(tid.to_string()).join("status")).ok()?;
        status_field(&status, "Tgid:")?.trim().parse().ok()
    };
    tids.into_iter().filter_map(process_of).collect()
}

fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::ENOENT | Errno::ENODEV)
}

fn open_dir(above: BorrowedFd<'_>, path: &Path) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    openat(above, path, flags, Mode::empty())
}

/// Opens a directory far below `top`, in steps that the kernel takes.
fn open_below(top: BorrowedFd<'_>, path: &Path) -> nix::Result<OwnedFd> {
    let mut at = open_dir(top, Path::new("."))?;
    let mut step = PathBuf::new();
    for name in path {
        step.push(name);
        if step.as_os_str().len() > OPENED_AT_ONCE {
            at = open_dir(at.as_fd(), &step)?;
            step.clear();
        }
    }
    if step.as_os_str().is_empty() { Ok(at) } else { open_dir(at.as_fd(), &step) }
}

#[cfg(test)]
mod tests {
    use super::super::cgroup::tests::fake;
    use super::*;
    use std::fs;

    #[test]
    fn processes_of_the_whole_subtree_are_found_and_foreign_ones_left_out() {
        let (dir, cgroup) =
            fake(&[("cgroup.procs", "10\n11\n0\n"), ("cgroup.stat", "nr_descendants 2\n")]);
        fs::create_dir_all(dir.path().join("x/y")).unwrap();
        fs::write(dir.path().join("x/y/cgroup.procs"), "12\n").unwrap();
        assert_eq!(cgroup.processes(100), [10, 11, 12]);
        assert_eq!(cgroup.processes(2), [10, 11]);
        assert!(cgroup.members(Path::new("/proc")).unwrap().has_hidden);
        fs::write(dir.path().join("cgroup.stat"), "nr_descendants 0\n").unwrap();
        assert_eq!(cgroup.processes(100), [10, 11], "the kernel says that there is nothing below");
    }

    #[test]
    fn a_process_whose_first_thread_stayed_elsewhere_is_found_by_its_other_threads() {
        let threads = "10\n11\n501\n502\n601\n0\n";
        let (_dir, cgroup) = fake(&[("cgroup.procs", "10\n"), ("cgroup.threads", threads)]);
        let proc = tempfile::tempdir().unwrap();
        for tid in ["10", "11"] {
            fs::create_dir_all(proc.path().join("10/task").join(tid)).unwrap();
        }
        // 601 has ended since.
        for (tid, process) in [("11", 10), ("501", 500), ("502", 500)] {
            fs::create_dir_all(proc.path().join(tid)).unwrap();
            let status = format!("Name:\tleak\nTgid:\t{process}\n");
            fs::write(proc.path().join(tid).join("status"), status).unwrap();
        }
        let members = cgroup.members(proc.path()).unwrap();
        assert_eq!(members, Members { pids: vec![10, 500], has_hidden: false });
    }

    #[test]
    fn a_list_of_more_than_a_mebibyte_is_read_to_its_end() {
        let all: Vec<i32> = (1_000_000..1_200_000).collect();
        let text: String = all.iter().map(|pid| format!("{pid}\n")).collect();
        assert!(text.len() > 1 << 20);
        let (_dir, cgroup) = fake(&[("cgroup.procs", &text)]);
        assert_eq!(
            cgroup.members(Path::new("/proc")).unwrap(),
            Members { pids: all, has_hidden: false }
        );
    }

    #[test]
    fn a_list_that_cannot_be_read_is_an_error_and_not_an_empty_one() {
        let (dir, cgroup) = fake(&[]);
        fs::create_dir(dir.path().join("cgroup.procs")).unwrap();
        assert!(cgroup.members(Path::new("/proc")).is_err());
    }

    #[test]
    fn nesting_beyond_the_longest_path_hides_nobody() {
        let (dir, cgroup) = fake(&[("cgroup.procs", "10\n")]);
        let mut at = open_dir(cgroup.dir().unwrap(), Path::new(".")).unwrap();
        let name = "n".repeat(200);
        for _ in 0..70 {
            nix::sys::stat::mkdirat(&at, name.as_str(), Mode::S_IRWXU).unwrap();
            at = open_dir(at.as_fd(), Path::new(&name)).unwrap();
        }
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT;
        let procs = openat(&at, "cgroup.procs", flags, Mode::S_IRUSR).unwrap();
        nix::unistd::write(&procs, b"70\n").unwrap();
        assert_eq!(cgroup.members(Path::new("/proc")).unwrap().pids, [10, 70]);
        drop(dir);
    }
}
