//! One cgroup: its directory held open, so that what is read is of that cgroup and of no other that later gets its name.
//!
//! Every file is opened relative to the held directory.
//! When the cgroup is removed its files fail to open, also after a new one was made at the same path.

use super::file::{KeptFile, keyed, number_or_max};
use super::psi::Stall;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, fstat};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A cgroup whose directory is held open.
#[derive(Debug)]
pub struct Cgroup {
    dir: OwnedFd,
    current: Option<KeptFile>,
    stat: Option<KeptFile>,
    id: u64,
}

/// What a cgroup uses, in bytes unless said; what its kernel or its controllers do not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// `memory.current`.
    pub current: Option<u64>,
    /// `anon` of `memory.stat`.
    pub anon: Option<u64>,
    /// `file`: page cache, shared memory included.
    pub file: Option<u64>,
    /// `active_file`.
    pub active_file: Option<u64>,
    /// `inactive_file`.
    pub inactive_file: Option<u64>,
    /// `shmem`: tmpfs and shared memory, which ending one process may not give back.
    pub shmem: Option<u64>,
    /// Kernel memory: `kernel`, or the sum of stacks, page tables and slab where the kernel has no such line.
    pub kernel: Option<u64>,
    /// `workingset_refault_file`, or `workingset_refault` of kernels before 5.9: pages, cumulative.
    pub refaults: Option<u64>,
    /// `memory.swap.current`.
    pub swap: Option<u64>,
    /// `memory.min`.
    pub min: Option<u64>,
    /// `memory.low`.
    pub low: Option<u64>,
    /// `memory.max`; `Some(None)` is no limit.
    pub max: Option<Option<u64>>,
    /// `memory.high`; `Some(None)` is no limit.
    pub high: Option<Option<u64>>,
    /// `max` of `memory.events`: how often an allocation ran into `memory.max`, cumulative.
    pub max_events: Option<u64>,
    /// `oom_kill` of `memory.events`: processes the kernel killed, cumulative.
    pub oom_kills: Option<u64>,
    /// `memory.pressure` totals.
    pub stall: Stall,
    /// `pids.current`: threads.
    pub pids: Option<u64>,
}

impl Cgroup {
    /// Opens the cgroup `id` at `path`.
    ///
    /// # Errors
    /// `NotFound` when there is no directory, or when the one there is another cgroup.
    pub fn open(path: &Path, id: u64) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let dir = open(path, flags, Mode::empty())?;
        if fstat(&dir)?.st_ino != id {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "another cgroup has this name now",
            ));
        }
        Ok(Self { dir, current: None, stat: None, id })
    }

    /// The cgroup's id.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The held directory, for opening what is below it.
    #[must_use]
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Opens one file of this cgroup.
    ///
    /// # Errors
    /// What the kernel says, `ENOENT` when the controller or the kernel lacks it or the cgroup is gone.
    pub fn open_file(&self, name: &str, flags: OFlag) -> io::Result<OwnedFd> {
        Ok(openat(&self.dir, name, flags | OFlag::O_CLOEXEC, Mode::empty())?)
    }

    /// `memory.current` in bytes, through a descriptor kept open.
    pub fn read_current(&mut self, buffer: &mut Vec<u8>) -> Option<u64> {
        if self.current.is_none() {
            self.current = self.keep("memory.current");
        }
        self.current.as_ref()?.read_value(buffer).ok()?.trim().parse().ok()
    }

    /// Reads what changes by the millisecond, `memory.current` and `memory.stat`, through descriptors kept open; the rest of `usage` stays as it is.
    pub fn read_memory(&mut self, usage: &mut Usage, buffer: &mut Vec<u8>) {
        usage.current = self.read_current(buffer);
        self.read_stat(usage, buffer);
    }

    /// Reads `memory.stat` alone, through a descriptor kept open; the rest of `usage` stays as it is.
    pub fn read_stat(&mut self, usage: &mut Usage, buffer: &mut Vec<u8>) {
        if self.stat.is_none() {
            self.stat = self.keep("memory.stat");
        }
        let Some(stat) = self.stat.as_ref().and_then(|f| f.read_value(buffer).ok()) else { return };
        let mut slots = Stat::default();
        slots.fill(stat);
        usage.anon = slots.anon;
        usage.file = slots.file;
        usage.active_file = slots.active_file;
        usage.inactive_file = slots.inactive_file;
        usage.shmem = slots.shmem;
        usage.refaults = slots.refault_file.or(slots.refault);
        usage.kernel = slots
            .kernel
            .or_else(|| Some(slots.kernel_stack? + slots.page_tables.unwrap_or(0) + slots.slab?));
    }

    /// Reads everything that ranking may look at: some ten files.
    pub fn read_usage(&mut self, buffer: &mut Vec<u8>) -> Usage {
        let mut usage = Usage::default();
        self.read_memory(&mut usage, buffer);
        let number =
            |cgroup: &Self, name, buffer: &mut Vec<u8>| number_or_max(cgroup.read(name, buffer)?);
        usage.swap = number(self, "memory.swap.current", buffer).flatten();
        usage.min = number(self, "memory.min", buffer).map(|n| n.unwrap_or(u64::MAX));
        usage.low = number(self, "memory.low", buffer).map(|n| n.unwrap_or(u64::MAX));
        usage.max = number(self, "memory.max", buffer);
        usage.high = number(self, "memory.high", buffer);
        usage.pids = number(self, "pids.current", buffer).flatten();
        if let Some(events) = self.read("memory.events", buffer) {
            usage.max_events = keyed(events, "max");
            usage.oom_kills = keyed(events, "oom_kill");
        }
        usage.stall = self.read("memory.pressure", buffer).map(Stall::parse).unwrap_or_default();
        usage
    }

    /// Whether some process lives in this cgroup or below; `None` when the cgroup is gone.
    pub fn populated(&self, buffer: &mut Vec<u8>) -> Option<bool> {
        keyed(self.read("cgroup.events", buffer)?, "populated").map(|n| n == 1)
    }

    /// The processes in this cgroup and below, at most `limit` of them, read without any promise that they are all still there.
    ///
    /// Kernel files list a process of another pid namespace as 0; such entries are left out.
    pub fn processes(&self, limit: usize) -> Vec<i32> {
        let mut pids = Vec::new();
        let mut buffer = Vec::new();
        // Listing a directory of some sixty files costs more than all else here, and most cgroups have none below.
        let is_leaf =
            self.read("cgroup.stat", &mut buffer).and_then(|t| keyed(t, "nr_descendants"))
                == Some(0);
        if is_leaf {
            own_processes(&self.dir, &mut pids, limit, &mut buffer);
            return pids;
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        if let Ok(dir) = openat(&self.dir, ".", flags, Mode::empty()) {
            collect(dir, &mut pids, limit, &mut buffer, 0);
        }
        pids
    }

    fn read<'a>(&self, name: &str, buffer: &'a mut Vec<u8>) -> Option<&'a str> {
        let file = self.keep(name)?;
        file.read_value(buffer).ok()
    }

    fn keep(&self, name: &str) -> Option<KeptFile> {
        self.open_file(name, OFlag::O_RDONLY).ok().map(KeptFile::from_fd)
    }
}

/// Adds the processes of `dir` itself to `pids`.
fn own_processes(dir: impl AsFd, pids: &mut Vec<i32>, limit: usize, buffer: &mut Vec<u8>) {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let Ok(procs) = openat(dir, "cgroup.procs", flags, Mode::empty()).map(KeptFile::from_fd) else {
        return;
    };
    if let Ok(text) = procs.read(buffer) {
        let own = text.lines().filter_map(|l| l.trim().parse::<i32>().ok()).filter(|pid| *pid > 0);
        pids.extend(own.take(limit.saturating_sub(pids.len())));
    }
}

/// Adds the processes of `dir` and of every cgroup below it to `pids`, deepest last.
fn collect(dir: OwnedFd, pids: &mut Vec<i32>, limit: usize, buffer: &mut Vec<u8>, depth: usize) {
    if pids.len() >= limit || depth > 64 {
        return;
    }
    own_processes(&dir, pids, limit, buffer);
    let Ok(mut listing) = nix::dir::Dir::from_fd(dir) else { return };
    let mut below = Vec::new();
    for entry in listing.iter().flatten() {
        let is_dir = entry.file_type() == Some(nix::dir::Type::Directory);
        if is_dir && !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            below.push(entry.file_name().to_owned());
        }
    }
    for name in below {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        if let Ok(child) = openat(&listing, name.as_c_str(), flags, Mode::empty()) {
            collect(child, pids, limit, buffer, depth + 1);
        }
    }
}

/// The lines of `memory.stat` that are used, in one pass over its 36 to 71 lines.
#[derive(Default)]
struct Stat {
    anon: Option<u64>,
    file: Option<u64>,
    active_file: Option<u64>,
    inactive_file: Option<u64>,
    shmem: Option<u64>,
    kernel: Option<u64>,
    kernel_stack: Option<u64>,
    page_tables: Option<u64>,
    slab: Option<u64>,
    refault_file: Option<u64>,
    refault: Option<u64>,
}

impl Stat {
    fn fill(&mut self, text: &str) {
        for line in text.lines() {
            let Some((key, value)) = line.split_once(' ') else { continue };
            let slot = match key {
                "anon" => &mut self.anon,
                "file" => &mut self.file,
                "active_file" => &mut self.active_file,
                "inactive_file" => &mut self.inactive_file,
                "shmem" => &mut self.shmem,
                "kernel" => &mut self.kernel,
                "kernel_stack" => &mut self.kernel_stack,
                "pagetables" => &mut self.page_tables,
                "slab" => &mut self.slab,
                "workingset_refault_file" => &mut self.refault_file,
                "workingset_refault" => &mut self.refault,
                _ => continue,
            };
            *slot = value.trim().parse().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    fn fake(files: &[(&str, &str)]) -> (tempfile::TempDir, Cgroup) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let id = fs::metadata(dir.path()).unwrap().ino();
        let cgroup = Cgroup::open(dir.path(), id).unwrap();
        (dir, cgroup)
    }

    #[test]
    fn every_value_comes_from_its_file_and_a_missing_file_is_unknown() {
        let (_dir, mut cgroup) = fake(&[
            ("memory.current", "1000\n"),
            (
                "memory.stat",
                "anon 600\nfile 300\nkernel_stack 10\npagetables 20\nslab 30\ninactive_file 200\nworkingset_refault 5\n",
            ),
            ("memory.max", "max\n"),
            ("memory.low", "64\n"),
            ("memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\n"),
        ]);
        let usage = cgroup.read_usage(&mut Vec::new());
        assert_eq!(
            (usage.current, usage.anon, usage.inactive_file),
            (Some(1000), Some(600), Some(200))
        );
        assert_eq!(usage.kernel, Some(60), "kernels before 5.18 have no kernel line");
        assert_eq!(usage.refaults, Some(5));
        assert_eq!((usage.max, usage.low, usage.min), (Some(None), Some(64), None));
        assert_eq!((usage.max_events, usage.oom_kills), (Some(7), Some(2)));
        assert_eq!(usage.pids, None);
    }

    #[test]
    fn a_cgroup_made_anew_under_the_same_name_is_not_the_one_that_was_asked_for() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a");
        fs::create_dir(&path).unwrap();
        let old = fs::metadata(&path).unwrap().ino();
        fs::rename(&path, parent.path().join("b")).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(Cgroup::open(&path, old).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn processes_of_the_whole_subtree_are_found_and_foreign_ones_left_out() {
        let (dir, cgroup) =
            fake(&[("cgroup.procs", "10\n11\n0\n"), ("cgroup.stat", "nr_descendants 2\n")]);
        fs::create_dir_all(dir.path().join("x/y")).unwrap();
        fs::write(dir.path().join("x/y/cgroup.procs"), "12\n").unwrap();
        assert_eq!(cgroup.processes(100), [10, 11, 12]);
        assert_eq!(cgroup.processes(2), [10, 11]);
        fs::write(dir.path().join("cgroup.stat"), "nr_descendants 0\n").unwrap();
        assert_eq!(cgroup.processes(100), [10, 11], "the kernel says that there is nothing below");
    }
}
