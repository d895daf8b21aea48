//! One cgroup: its directory held open, so that what is read is of that cgroup and of no other that later gets its name.
//!
//! Every file is opened relative to the held directory.
//! When the cgroup is removed its files fail to open, also after a new one was made at the same path.

use super::block;
use super::descriptors::{Descriptors, Permit};
use super::file::{KeptFile, keyed, number_or_max};
use super::psi::Stall;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, fstat};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The id of the cgroup that has the path now; `None` when there is none.
#[must_use]
pub fn id_at(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|dir| dir.ino())
}

/// A cgroup whose directory is held open.
#[derive(Debug)]
pub struct Cgroup {
    dir: Dir,
    current: Option<KeptFile>,
    stat: Option<KeptFile>,
    events: Option<KeptFile>,
    id: u64,
}

/// How its directory is reached.
#[derive(Debug)]
enum Dir {
    /// Held open.
    Held {
        dir: OwnedFd,
        /// Given back with it; without one it is held for a moment only.
        _permit: Option<Permit>,
    },
    /// Opened for each reading, and checked to be the same: there are no descriptors left to hold it.
    At(PathBuf),
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
    /// `zswap` of `memory.stat`, which is `memory.zswap.current`: memory that zswap takes for its swapped pages.
    pub zswap: Option<u64>,
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

/// What the processes of a cgroup have written, running totals in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// `wbytes` of `io.stat` by device number; `None` without the io controller.
    pub devices: Option<BTreeMap<u64, u64>>,
    /// `file_dirty` of `memory.stat`: page cache that is still to be written, on whatever filesystem.
    pub dirty: Option<u64>,
}

impl Cgroup {
    /// Opens the cgroup `id` at `path`.
    ///
    /// # Errors
    /// `NotFound` when there is no directory, or when the one there is another cgroup.
    pub fn open(path: &Path, id: u64) -> io::Result<Self> {
        Ok(Self {
            dir: Dir::Held { dir: open_dir(path, id)?, _permit: None },
            current: None,
            stat: None,
            events: None,
            id,
        })
    }

    /// The same for a cgroup that is to be read for as long as it is there: held open if `descriptors` has enough left for that, else found anew for each reading.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn follow(path: &Path, id: u64, descriptors: &Descriptors) -> io::Result<Self> {
        let dir = open_dir(path, id)?;
        let dir = match descriptors.take() {
            Some(permit) => Dir::Held { dir, _permit: Some(permit) },
            None => Dir::At(path.to_owned()),
        };
        Ok(Self { dir, current: None, stat: None, events: None, id })
    }

    /// Whether its directory is held open.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.dir, Dir::Held { .. })
    }

    /// The cgroup's id.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The held directory, for opening what is below it; `None` when it is not held.
    #[must_use]
    pub fn dir(&self) -> Option<BorrowedFd<'_>> {
        match &self.dir {
            Dir::Held { dir, .. } => Some(dir.as_fd()),
            Dir::At(_) => None,
        }
    }

    /// Has `use_it` use the directory.
    pub(super) fn with_dir<T>(&self, use_it: impl FnOnce(BorrowedFd<'_>) -> T) -> io::Result<T> {
        match &self.dir {
            Dir::Held { dir, .. } => Ok(use_it(dir.as_fd())),
            Dir::At(path) => Ok(use_it(open_dir(path, self.id)?.as_fd())),
        }
    }

    /// Opens one file of this cgroup.
    ///
    /// # Errors
    /// What the kernel says, `ENOENT` when the controller or the kernel lacks it or the cgroup is gone.
    pub fn open_file(&self, name: &str, flags: OFlag) -> io::Result<OwnedFd> {
        Ok(self.with_dir(|dir| openat(dir, name, flags | OFlag::O_CLOEXEC, Mode::empty()))??)
    }

    /// `memory.current` in bytes, through a descriptor kept open.
    pub fn read_current(&mut self, buffer: &mut Vec<u8>) -> Option<u64> {
        if self.current.is_none() {
            self.current = self.keep("memory.current");
        }
        let value = self.current.as_ref()?.read_value(buffer).ok()?.trim().parse().ok();
        if !self.is_held() {
            self.current = None;
        }
        value
    }

    /// Reads what changes by the millisecond, `memory.current` and `memory.stat`, through descriptors kept open, and `memory.swap.current` where something was swapped out; the rest of `usage` stays as it is.
    pub fn read_memory(&mut self, usage: &mut Usage, buffer: &mut Vec<u8>) {
        usage.current = self.read_current(buffer);
        self.read_stat(usage, buffer);
        if usage.swap.is_some_and(|swap| swap > 0) {
            usage.swap = self.read_swap(buffer);
        }
    }

    fn read_swap(&self, buffer: &mut Vec<u8>) -> Option<u64> {
        number_or_max(self.read("memory.swap.current", buffer)?).flatten()
    }

    /// Reads `memory.stat` alone, through a descriptor kept open; the rest of `usage` stays as it is.
    pub fn read_stat(&mut self, usage: &mut Usage, buffer: &mut Vec<u8>) {
        if self.stat.is_none() {
            self.stat = self.keep("memory.stat");
        }
        let Some(stat) = self.stat.as_ref().and_then(|f| f.read_value(buffer).ok()) else { return };
        let mut slots = Stat::default();
        slots.fill(stat);
        if !self.is_held() {
            self.stat = None;
        }
        usage.anon = slots.anon;
        usage.file = slots.file;
        usage.active_file = slots.active_file;
        usage.inactive_file = slots.inactive_file;
        usage.shmem = slots.shmem;
        usage.zswap = slots.zswap;
        usage.refaults = slots.refault_file.or(slots.refault);
        usage.kernel = slots
            .kernel
            .or_else(|| Some(slots.kernel_stack? + slots.page_tables.unwrap_or(0) + slots.slab?));
    }

    /// `pgscan` of `memory.stat`: pages that the kernel looked through to reclaim memory from it, a running total; `None` where the kernel does not tell.
    pub fn read_pages_scanned(&self, buffer: &mut Vec<u8>) -> Option<u64> {
        keyed(self.read("memory.stat", buffer)?, "pgscan")
    }

    /// Reads everything that ranking may look at: some ten files.
    pub fn read_usage(&mut self, buffer: &mut Vec<u8>) -> Usage {
        let mut usage = Usage::default();
        self.read_memory(&mut usage, buffer);
        let number =
            |cgroup: &Self, name, buffer: &mut Vec<u8>| number_or_max(cgroup.read(name, buffer)?);
        usage.swap = self.read_swap(buffer);
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

    /// Whether some process lives in this cgroup or below, through a descriptor kept open; `None` when the cgroup is gone.
    pub fn read_populated(&mut self, buffer: &mut Vec<u8>) -> Option<bool> {
        if self.events.is_none() {
            self.events = self.keep("cgroup.events");
        }
        let text = self.events.as_ref()?.read_value(buffer).ok()?;
        let populated = keyed(text, "populated").map(|n| n == 1);
        if !self.is_held() {
            self.events = None;
        }
        populated
    }

    /// Reads what its processes have written to disks, of which `io.stat` tells once it is written back and `memory.stat` before.
    pub fn read_writes(&self, buffer: &mut Vec<u8>) -> Writes {
        let devices = self.read("io.stat", buffer).map(written_by_device);
        let dirty = self.read("memory.stat", buffer).and_then(|stat| keyed(stat, "file_dirty"));
        Writes { devices, dirty }
    }

    /// Whether some process lives in this cgroup or below; `None` when the cgroup is gone.
    pub fn populated(&self, buffer: &mut Vec<u8>) -> Option<bool> {
        keyed(self.read("cgroup.events", buffer)?, "populated").map(|n| n == 1)
    }

    pub(super) fn read<'a>(&self, name: &str, buffer: &'a mut Vec<u8>) -> Option<&'a str> {
        let file = self.keep(name)?;
        file.read_value(buffer).ok()
    }

    fn keep(&self, name: &str) -> Option<KeptFile> {
        self.open_file(name, OFlag::O_RDONLY).ok().map(KeptFile::from_fd)
    }
}

/// `wbytes` of each line of `io.stat`.
fn written_by_device(text: &str) -> BTreeMap<u64, u64> {
    let of = |line: &str| {
        let (device, counts) = line.split_once(' ')?;
        let written = counts.split(' ').find_map(|count| count.strip_prefix("wbytes="))?;
        Some((block::parse(device)?, written.parse().ok()?))
    };
    text.lines().filter_map(of).collect()
}

/// Opens the directory of the cgroup `id` at `path`.
fn open_dir(path: &Path, id: u64) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let dir = open(path, flags, Mode::empty())?;
    if fstat(&dir)?.st_ino != id {
        return Err(io::Error::new(io::ErrorKind::NotFound, "another cgroup has this name now"));
    }
    Ok(dir)
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
    zswap: Option<u64>,
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
                "zswap" => &mut self.zswap,
                "workingset_refault" => &mut self.refault,
                _ => continue,
            };
            *slot = value.trim().parse().ok();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs;

    /// A cgroup of these files, and the directory that it is.
    pub(in crate::sense) fn fake(files: &[(&str, &str)]) -> (tempfile::TempDir, Cgroup) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let id = fs::metadata(dir.path()).unwrap().ino();
        let cgroup = Cgroup::open(dir.path(), id).unwrap();
        (dir, cgroup)
    }

    #[test]
    fn one_that_cannot_be_held_for_want_of_descriptors_is_read_all_the_same() {
        use crate::sense::descriptors::Descriptors;
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("memory.current"), "7\n").unwrap();
        std::fs::write(dir.path().join("memory.stat"), "anon 5\n").unwrap();
        std::fs::write(dir.path().join("cgroup.procs"), "12\n").unwrap();
        let id = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(dir.path()).unwrap());
        let descriptors = Descriptors::of(3);
        let mut held = Cgroup::follow(dir.path(), id, &descriptors).unwrap();
        let mut other = Cgroup::follow(dir.path(), id, &descriptors).unwrap();
        assert_eq!((held.is_held(), other.is_held()), (true, false));
        assert_eq!(held.read_usage(&mut Vec::new()), other.read_usage(&mut Vec::new()));
        std::fs::write(dir.path().join("memory.current"), "8\n").unwrap();
        let usage = other.read_usage(&mut Vec::new());
        assert_eq!((usage.current, usage.anon), (Some(8), Some(5)));
        assert_eq!(other.processes(9), [12]);
        drop(held);
        assert!(Cgroup::follow(dir.path(), id, &descriptors).unwrap().is_held(), "given back");
    }

    #[test]
    fn every_value_comes_from_its_file_and_a_missing_file_is_unknown() {
        let (_dir, mut cgroup) = fake(&[
            ("memory.current", "1000\n"),
            (
                "memory.stat",
                "anon 600\nzswap 40\nzswapped 90\nfile 300\nkernel_stack 10\npagetables 20\nslab 30\ninactive_file 200\nworkingset_refault 5\n",
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
        assert_eq!((usage.refaults, usage.zswap), (Some(5), Some(40)));
        assert_eq!((usage.max, usage.low, usage.min), (Some(None), Some(64), None));
        assert_eq!((usage.max_events, usage.oom_kills), (Some(7), Some(2)));
        assert_eq!(usage.pids, None);
    }

    #[test]
    fn what_was_written_is_told_by_device_and_what_is_still_dirty_beside_it() {
        let (_dir, cgroup) = fake(&[
            (
                "io.stat",
                "8:0 rbytes=1 wbytes=200 rios=3 wios=4 dbytes=0 dios=0\n253:1 rbytes=5\n7:0 wbytes=9\n",
            ),
            ("memory.stat", "anon 1\nfile_mapped 2\nfile_dirty 4096\nfile_writeback 8192\n"),
        ]);
        let writes = cgroup.read_writes(&mut Vec::new());
        let devices = [("8:0", 200), ("7:0", 9)].map(|(d, n)| (block::parse(d).unwrap(), n));
        assert_eq!(writes, Writes { devices: Some(devices.into()), dirty: Some(4096) });
        let (_dir, scanned) = fake(&[("memory.stat", "pgscan_kswapd 3\npgscan 40\npgsteal 7\n")]);
        assert_eq!(scanned.read_pages_scanned(&mut Vec::new()), Some(40));
        let (_dir, cgroup) = fake(&[]);
        assert_eq!(cgroup.read_pages_scanned(&mut Vec::new()), None);
        assert_eq!(cgroup.read_writes(&mut Vec::new()), Writes::default());
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
}
