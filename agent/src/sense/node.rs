//! The node as a whole: one cheap reading of what the node-level signals need.

use super::Roots;
use super::file::KeptFile;
use super::meminfo::MemInfo;
use super::psi::Stall;
use super::set_aside::SetAside;
use super::zram::ZramSensor;
use crate::clock::Boot;
use nix::sys::statfs::{PROC_SUPER_MAGIC, statfs};
use nix::unistd::{SysconfVar, sysconf};
use std::io;

/// One reading of the node.
#[derive(Clone, Copy, Debug)]
pub struct NodeReading {
    /// When it was taken.
    pub at: Boot,
    /// Memory.
    pub memory: MemInfo,
    /// Threads that exist now (field 4 of `/proc/loadavg`).
    pub tasks: Option<u64>,
    /// Threads that can exist: the smaller of `pid_max` and `threads-max`.
    pub task_limit: Option<u64>,
    /// `/proc/pressure/memory`.
    pub memory_stall: Stall,
    /// `/proc/pressure/io`.
    pub io_stall: Stall,
}

impl NodeReading {
    /// Threads that can still be made: the limit less what exists, as the kubelet's `pid.available`.
    #[must_use]
    pub fn pids_available(&self) -> Option<u64> {
        Some(self.task_limit?.saturating_sub(self.tasks?))
    }
}

/// Reads the node again and again from files kept open.
#[derive(Debug)]
pub struct NodeSensor {
    meminfo: KeptFile,
    loadavg: Option<KeptFile>,
    memory_pressure: Option<KeptFile>,
    io_pressure: Option<KeptFile>,
    /// `pid_max` and `threads-max`: read anew each time, because both can be changed while the node runs.
    task_limits: [Option<KeptFile>; 2],
    zram: ZramSensor,
    set_aside: SetAside,
    buffer: Vec<u8>,
}

impl NodeSensor {
    /// Opens what there is; only `meminfo` must be there.
    ///
    /// # Errors
    /// When `meminfo` cannot be opened.
    pub fn open(roots: &Roots) -> io::Result<Self> {
        let kept = |name: &str| KeptFile::open(&roots.proc.join(name)).ok();
        Ok(Self {
            meminfo: KeptFile::open(&roots.proc.join("meminfo"))?,
            loadavg: kept("loadavg"),
            memory_pressure: kept("pressure/memory"),
            io_pressure: kept("pressure/io"),
            task_limits: [kept("sys/kernel/pid_max"), kept("sys/kernel/threads-max")],
            zram: ZramSensor::open(roots),
            set_aside: SetAside::default(),
            buffer: Vec::new(),
        })
    }

    /// Reads the node now.
    ///
    /// # Errors
    /// When `meminfo` cannot be read or has no total; what else cannot be read is `None` in the reading.
    pub fn read(&mut self) -> io::Result<NodeReading> {
        let mut reading = self.read_headroom()?;
        (reading.memory_stall, reading.io_stall) = self.read_stall();
        Ok(reading)
    }

    /// Reads what can run out alone, memory and task ids: of stall the reading knows nothing.
    ///
    /// What the kernel has set aside since the last call, for a moment as far as can be told, counts in [`MemInfo::available`].
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_headroom(&mut self) -> io::Result<NodeReading> {
        let begun = Boot::now();
        let mut memory = self.read_memory()?;
        let at = Boot::now();
        let set_aside = self.set_aside.take(begun, at, &memory);
        memory.available = memory.available.map(|available| available.saturating_add(set_aside));
        let buffer = &mut self.buffer;
        let tasks = self.loadavg.as_ref().and_then(|f| parse_tasks(f.read_value(buffer).ok()?));
        let task_limit = task_limit(&self.task_limits, buffer);
        Ok(NodeReading {
            at,
            memory,
            tasks,
            task_limit,
            memory_stall: Stall::default(),
            io_stall: Stall::default(),
        })
    }

    /// Reads how long tasks have stalled for memory, and for disks.
    pub fn read_stall(&mut self) -> (Stall, Stall) {
        let buffer = &mut self.buffer;
        let mut stall = |file: &Option<KeptFile>| {
            let text = file.as_ref().and_then(|f| f.read_value(buffer).ok());
            text.map(Stall::parse).unwrap_or_default()
        };
        (stall(&self.memory_pressure), stall(&self.io_pressure))
    }

    /// Reads memory and swap alone: the cheapest look there is, for re-checking need just before acting.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_memory(&mut self) -> io::Result<MemInfo> {
        let mut memory = MemInfo::parse(self.meminfo.read_value(&mut self.buffer)?)?;
        memory.zram = self.zram.read(memory.swap_total, &mut self.buffer);
        Ok(memory)
    }
}

/// Whether what is read there comes from the kernel that this runs on: a procfs, whoever mounted it.
#[must_use]
pub fn is_of_this_kernel(roots: &Roots) -> bool {
    statfs(&roots.proc).is_ok_and(|stat| stat.filesystem_type() == PROC_SUPER_MAGIC)
}

/// Processors that are online; one where that is not told.
#[must_use]
pub fn processors() -> u64 {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    online.and_then(|online| u64::try_from(online).ok()).unwrap_or(1)
}

/// The number of threads in `/proc/loadavg`: the part behind the slash of its fourth field.
fn parse_tasks(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// min(`pid_max`, `threads-max`), as the kubelet computes the capacity of `pid.available`.
///
/// A file that is there and cannot be read makes the limit unknown: the other one may be the larger.
fn task_limit(files: &[Option<KeptFile>], buffer: &mut Vec<u8>) -> Option<u64> {
    let mut lowest: Option<u64> = None;
    for file in files.iter().flatten() {
        let limit = file.read_value(buffer).ok()?.trim().parse::<u64>().ok()?;
        lowest = Some(lowest.map_or(limit, |other| other.min(limit)));
    }
    lowest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_the_second_half_of_the_fourth_field() {
        assert_eq!(parse_tasks("0.00 0.01 0.05 1/123 4567\n"), Some(123));
        assert_eq!(parse_tasks("0.00 0.01\n"), None);
    }

    #[test]
    fn a_node_without_pressure_files_has_unknown_stall_not_zero() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("meminfo"), "MemTotal: 100 kB\n").unwrap();
        let roots = Roots { proc: dir.path().into(), cgroup: dir.path().into() };
        let reading = NodeSensor::open(&roots).unwrap().read().unwrap();
        assert_eq!(reading.memory_stall, Stall::default());
        assert_eq!((reading.tasks, reading.task_limit), (None, None));
    }

    #[test]
    fn a_limit_of_task_ids_that_is_raised_or_lowered_counts_from_the_next_reading_on() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("sys/kernel")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("meminfo", "MemTotal: 100 kB\n");
        write("loadavg", "0.00 0.01 0.05 1/123 4567\n");
        write("sys/kernel/pid_max", "1000\n");
        write("sys/kernel/threads-max", "2000\n");
        let roots = Roots { proc: dir.path().into(), cgroup: dir.path().into() };
        let mut sensor = NodeSensor::open(&roots).unwrap();
        let mut available = || sensor.read_headroom().unwrap().pids_available();
        assert_eq!(available(), Some(877));
        write("sys/kernel/pid_max", "4194304\n");
        assert_eq!(available(), Some(1877));
        write("sys/kernel/threads-max", "200\n");
        assert_eq!(available(), Some(77));
        write("sys/kernel/threads-max", "\n");
        assert_eq!(available(), None, "one that cannot be told is not the higher one");
    }

    #[test]
    fn files_that_somebody_made_are_no_procfs() {
        assert!(is_of_this_kernel(&Roots::default()));
        let dir = tempfile::tempdir().unwrap();
        let made = Roots { proc: dir.path().into(), cgroup: dir.path().into() };
        assert!(!is_of_this_kernel(&made));
    }

    #[test]
    fn the_real_node_can_be_read() {
        let reading = NodeSensor::open(&Roots::default()).unwrap().read().unwrap();
        assert!(reading.memory.available.unwrap() <= reading.memory.total);
        assert!(processors() > 0);
        assert!(reading.tasks.unwrap() > 0 && reading.task_limit.unwrap() > 0);
    }
}
