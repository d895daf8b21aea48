//! The processes of a cgroup and of everything below it, all of them or an error.
//!
//! Whatever depends on every member (protection) must know that it has seen every member: a list that cannot be read, or
//! that has processes of another pid namespace in it, says so.
//! Cgroups are followed to any depth, and lists are read in pieces, so neither nesting nor a crowd hides anybody.
//!
//! Nor does a process whose first thread has ended: it is moved without that thread, which stays where it was, and `cgroup.procs`
//! of where it lives does not list it. `cgroup.threads` lists its other threads.

use super::cgroup::Cgroup;
use super::file::{KeptFile, keyed, read_once};
use super::process::{status_field, threads};
use super::subtree::{Subtree, is_gone};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// How much of a list is read at a time; the kernel gives about a page. From 64 KiB on a buffer would be mapped, and its pages taken and cleared, for each cgroup anew.
const PIECE: usize = 4 << 10;

/// Threads for each process that may be asked about, where their number is limited.
const THREADS_EACH: usize = 8;

/// Who is in a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Process ids, in ascending order.
    pub pids: Vec<i32>,
    /// Those of them whose first thread has ended, in ascending order: `cgroup.kill` does not reach them.
    pub leaderless: Vec<i32>,
    /// Some live in a pid namespace that this process cannot see into: the kernel lists them as 0.
    pub has_hidden: bool,
    /// The process of each thread that is not the first of one, by its id.
    threads: BTreeMap<i32, i32>,
}

impl Cgroup {
    /// Every process in this cgroup and below, by the procfs at `proc`. Of threads that were there `before` it is known whose they are.
    ///
    /// # Errors
    /// What the kernel says when one of the lists cannot be read, or whose a thread is. A cgroup below that has been removed meanwhile is none.
    pub fn members(&self, proc: &Path, before: &Members) -> io::Result<Members> {
        let found = self.members_up_to(usize::MAX / THREADS_EACH, proc, before)?;
        Ok(found.unwrap_or_default())
    }

    /// The same of a cgroup with at most `limit` processes and eight times as many threads; `None` where there are more.
    ///
    /// # Errors
    /// As [`Self::members`].
    pub fn members_up_to(
        &self,
        limit: usize,
        proc: &Path,
        before: &Members,
    ) -> io::Result<Option<Members>> {
        let mut found =
            Found { limit: limit.saturating_add(1), tids: Some(Vec::new()), ..Found::default() };
        self.collect(&mut found)?;
        let Found { mut pids, has_hidden, tids, .. } = found;
        let mut tids = tids.unwrap_or_default();
        if pids.len() > limit || tids.len() > limit * THREADS_EACH {
            return Ok(None);
        }
        pids.sort_unstable();
        tids.sort_unstable();
        let mut members = Members { has_hidden, ..Members::default() };
        if !tids.is_empty() {
            let dead = |pid: &&i32| tids.binary_search(pid).is_err();
            members.leaderless = pids.iter().filter(dead).copied().collect();
        }
        // Hidden are those of another pid namespace, and for a moment a thread that has just ended.
        members.has_hidden |= pids.is_empty() && tids.contains(&0);
        tids.retain(|tid| *tid != 0 && pids.binary_search(tid).is_err());
        members.threads = whose(&tids, proc, before)?;
        for (tid, process) in &members.threads {
            if pids.binary_search(process).is_err() {
                members.pids.push(*process);
                // Otherwise it was born between the two lists.
                members.leaderless.extend((tid != process).then_some(*process));
            }
        }
        members.pids.extend(pids);
        for list in [&mut members.pids, &mut members.leaderless] {
            list.sort_unstable();
            list.dedup();
        }
        Ok(Some(members))
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

    /// How many tasks this cgroup and those below list: for where no controller counts them. `None` when a list cannot be read.
    #[must_use]
    pub fn tasks(&self) -> Option<u64> {
        let limit = usize::MAX / THREADS_EACH;
        let mut found = Found { limit, tids: Some(Vec::new()), ..Found::default() };
        self.collect(&mut found).ok()?;
        let listed = found.tids.map_or(0, |tids| tids.len()).max(found.pids.len());
        u64::try_from(listed).ok()
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
    let mut subtree = Subtree::of(top);
    while let Some(dir) = subtree.next()? {
        // One small file in place of two lists and of some sixty names, for each cgroup of a tree in which nobody lives.
        if is_empty(dir.as_fd(), &mut found.buffer) {
            continue;
        }
        found.add(dir.as_fd())?;
        if found.is_full() {
            return Ok(());
        }
        subtree.descend(dir)?;
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
    fn is_full(&self) -> bool {
        let most = self.limit.saturating_mul(THREADS_EACH);
        self.pids.len() >= self.limit || self.tids.as_ref().is_some_and(|tids| tids.len() >= most)
    }

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
        let most = limit.saturating_mul(THREADS_EACH);
        let Some(tids) = &mut self.tids else { return Ok(()) };
        let mut add = |tid| {
            if tids.len() < most {
                tids.push(tid);
            }
        };
        match read_list(dir, "cgroup.threads", &mut self.buffer, &mut add) {
            Err(error) if !is_gone(error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Whether the kernel says that nobody lives in the cgroup or below.
fn is_empty(dir: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> bool {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let Ok(events) = openat(dir, "cgroup.events", flags, Mode::empty()) else { return false };
    let events = KeptFile::from_fd(events);
    events.read_value(buffer).is_ok_and(|text| keyed(text, "populated") == Some(0))
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

/// The process of each of these threads that still lives.
fn whose(tids: &[i32], proc: &Path, before: &Members) -> io::Result<BTreeMap<i32, i32>> {
    let mut found = BTreeMap::new();
    let mut siblings = BTreeMap::new();
    for tid in tids {
        let known = before.threads.get(tid).or_else(|| siblings.get(tid)).copied();
        let process = match known {
            Some(process) => process,
            None => {
                let Some(process) = process_of(*tid, proc)? else { continue };
                // The others of a process cost one list, not one file each.
                siblings.extend(threads(proc, process).map(|sibling| (sibling, process)));
                process
            }
        };
        found.insert(*tid, process);
    }
    Ok(found)
}

/// The process that a thread belongs to; `None` when it has ended.
fn process_of(tid: i32, proc: &Path) -> io::Result<Option<i32>> {
    let status = match read_once(&proc.join(tid.to_string()).join("status")) {
        Ok(status) => status,
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    Ok(status_field(&status, "Tgid:").and_then(|field| field.trim().parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::super::cgroup::tests::fake;
    use super::super::subtree::tests::{Deep, comb, opened};
    use super::*;
    use std::fs;

    fn all_of(cgroup: &Cgroup) -> io::Result<Members> {
        cgroup.members(Path::new("/proc"), &Members::default())
    }

    #[test]
    fn processes_of_the_whole_subtree_are_found_and_foreign_ones_left_out() {
        let (dir, cgroup) =
            fake(&[("cgroup.procs", "10\n11\n0\n"), ("cgroup.stat", "nr_descendants 2\n")]);
        fs::create_dir_all(dir.path().join("x/y")).unwrap();
        fs::write(dir.path().join("x/y/cgroup.procs"), "12\n").unwrap();
        assert_eq!(cgroup.processes(100), [10, 11, 12]);
        assert_eq!(cgroup.processes(2), [10, 11]);
        assert!(all_of(&cgroup).unwrap().has_hidden);
        fs::write(dir.path().join("cgroup.stat"), "nr_descendants 0\n").unwrap();
        assert_eq!(cgroup.processes(100), [10, 11], "the kernel says that there is nothing below");
    }

    /// A procfs with these threads, each of a process.
    fn procfs(threads: &[(i32, i32)]) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        for (tid, process) in threads {
            let task = proc.path().join(format!("{process}/task/{tid}"));
            fs::create_dir_all(task).unwrap();
            fs::create_dir_all(proc.path().join(tid.to_string())).unwrap();
            let status = format!("Name:\tleak\nTgid:\t{process}\n");
            fs::write(proc.path().join(format!("{tid}/status")), status).unwrap();
        }
        proc
    }

    #[test]
    fn a_process_whose_first_thread_stayed_elsewhere_is_found_by_its_other_threads() {
        let threads = "10\n11\n501\n502\n601\n0\n";
        let (dir, cgroup) = fake(&[("cgroup.procs", "10\n12\n"), ("cgroup.threads", threads)]);
        // 601 has ended since; 12 has, and a thread of it has not.
        let proc = procfs(&[(11, 10), (501, 500), (502, 500)]);
        let found = cgroup.members(proc.path(), &Members::default()).unwrap();
        assert_eq!((found.pids.as_slice(), found.has_hidden), ([10, 12, 500].as_slice(), false));
        assert_eq!(found.leaderless, [12, 500]);
        // Of whom it is known nobody is asked again; of newcomers it is.
        let proc = procfs(&[(503, 500)]);
        fs::write(dir.path().join("cgroup.threads"), "10\n11\n12\n502\n503\n").unwrap();
        let again = cgroup.members(proc.path(), &found).unwrap();
        assert_eq!((again.pids, again.leaderless), (vec![10, 12, 500], vec![500]));
        fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        fs::write(dir.path().join("cgroup.threads"), "0\n").unwrap();
        assert!(cgroup.members(proc.path(), &found).unwrap().has_hidden, "of another namespace");
    }

    #[test]
    fn of_a_crowd_no_more_is_read_than_is_wanted() {
        let (dir, cgroup) = fake(&[("cgroup.procs", "10\n11\n"), ("cgroup.threads", "10\n11\n")]);
        let proc = procfs(&[]);
        let up_to = |limit| cgroup.members_up_to(limit, proc.path(), &Members::default()).unwrap();
        assert_eq!(up_to(2).unwrap().pids, [10, 11]);
        assert_eq!(up_to(1), None);
        let threads: String = (10..40).map(|tid| format!("{tid}\n")).collect();
        fs::write(dir.path().join("cgroup.threads"), threads).unwrap();
        assert_eq!(up_to(2), None, "too many threads");
    }

    #[test]
    fn where_nobody_lives_nobody_is_looked_for() {
        let (dir, cgroup) =
            fake(&[("cgroup.procs", "10\n"), ("cgroup.stat", "nr_descendants 1\n")]);
        let below = dir.path().join("x");
        fs::create_dir(&below).unwrap();
        fs::write(below.join("cgroup.procs"), "12\n").unwrap();
        fs::write(below.join("cgroup.events"), "populated 0\n").unwrap();
        assert_eq!(all_of(&cgroup).unwrap().pids, [10]);
        fs::write(below.join("cgroup.events"), "populated 1\n").unwrap();
        assert_eq!(all_of(&cgroup).unwrap().pids, [10, 12]);
    }

    #[test]
    fn a_list_of_more_than_a_mebibyte_is_read_to_its_end() {
        let all: Vec<i32> = (1_000_000..1_200_000).collect();
        let text: String = all.iter().map(|pid| format!("{pid}\n")).collect();
        assert!(text.len() > 1 << 20);
        let (_dir, cgroup) = fake(&[("cgroup.procs", &text)]);
        assert_eq!(all_of(&cgroup).unwrap().pids, all);
    }

    #[test]
    fn a_list_that_cannot_be_read_is_an_error_and_not_an_empty_one() {
        let (dir, cgroup) = fake(&[]);
        fs::create_dir(dir.path().join("cgroup.procs")).unwrap();
        assert!(all_of(&cgroup).is_err());
    }

    #[test]
    fn nesting_hides_nobody_and_no_cgroup_is_looked_for_from_the_top() {
        const DEPTH: usize = 150;
        for deep in [Deep::First, Deep::Last] {
            let (dir, cgroup) = fake(&[("cgroup.procs", "10\n")]);
            let mut everybody = vec![10];
            comb(dir.path(), DEPTH, deep, |at| {
                let pid = 1000 + i32::try_from(everybody.len()).unwrap();
                everybody.push(pid);
                let flags = OFlag::O_WRONLY | OFlag::O_CREAT;
                let procs = openat(at, "cgroup.procs", flags, Mode::S_IRUSR).unwrap();
                nix::unistd::write(&procs, format!("{pid}\n").as_bytes()).unwrap();
            });
            let before = opened();
            assert_eq!(all_of(&cgroup).unwrap().pids, everybody, "{deep:?}");
            // Each once, and those with others below once more on the way back.
            let opened = opened() - before;
            assert!(opened <= 3 * DEPTH + 1, "{deep:?}: {opened}");
        }
    }
}
