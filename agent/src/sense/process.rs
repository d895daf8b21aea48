//! Processes in `/proc`: identity, size and protection.
//!
//! A process is known by its pid together with its start time, or by a pidfd; a pid alone may be another process by the time it is used.
//! On a host whose memory controller is on cgroup v1, processes are the workloads, ranked by resident memory.

use super::file::{KeptFile, read_once};
use ebb_model::ProcessId;
use std::ops::Add;
use std::path::Path;

/// Whether `pid` is ebb itself.
#[must_use]
pub fn is_self(pid: i32) -> bool {
    u32::try_from(pid) == Ok(std::process::id())
}

/// What `/proc/PID/stat` says of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its identity.
    pub id: ProcessId,
    /// The parent's pid.
    pub parent: i32,
    /// The command name, up to 15 bytes; bytes that are not text are replaced.
    pub comm: String,
    /// One letter: `R`, `S`, `D`, `Z`, …
    pub state: char,
    /// Number of threads.
    pub threads: u64,
    /// Resident memory, in bytes.
    pub rss: u64,
}

impl Process {
    /// Reads one process; `None` when it is gone.
    #[must_use]
    pub fn read(proc: &Path, pid: i32) -> Option<Self> {
        Self::read_into(&mut Vec::new(), proc, pid)
    }

    fn read_into(buffer: &mut Vec<u8>, proc: &Path, pid: i32) -> Option<Self> {
        let stat =
            KeptFile::open(&proc.join(format!("{pid}/stat"))).ok()?.read_bytes(buffer).ok()?;
        Self::parse(&String::from_utf8_lossy(stat), page_size())
    }

    /// Every process that exists at some time during the walk.
    ///
    /// # Errors
    /// Only when `proc` itself cannot be listed.
    pub fn all(proc: &Path) -> std::io::Result<Vec<Self>> {
        let pids = std::fs::read_dir(proc)?.flatten();
        let mut buffer = Vec::new();
        Ok(pids
            .filter_map(|e| e.file_name().to_str()?.parse().ok())
            .filter_map(|pid| Self::read_into(&mut buffer, proc, pid))
            .collect())
    }

    /// Parses the text of a `stat` file. The command name may hold anything, spaces and brackets too, so fields are counted from its last bracket.
    fn parse(stat: &str, page: u64) -> Option<Self> {
        let (pid, rest) = stat.split_once(" (")?;
        let (comm, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Numbered as in proc(5), where the state is field 3.
        let field = |n: usize| fields.get(n - 3).copied();
        Some(Self {
            id: ProcessId { pid: pid.trim().parse().ok()?, start_time: field(22)?.parse().ok()? },
            parent: field(4)?.parse().ok()?,
            comm: comm.to_owned(),
            state: field(3)?.chars().next()?,
            threads: field(20)?.parse().ok()?,
            rss: field(24)?.parse::<u64>().ok()?.saturating_mul(page),
        })
    }

    /// Whether it is a thread of the kernel: kthreadd or one of its children.
    #[must_use]
    pub fn is_kernel_thread(&self) -> bool {
        self.id.pid == 2 || self.parent == 2
    }
}

/// `/proc/PID/oom_score_adj`, -1000 to 1000; `None` when the process is gone.
#[must_use]
pub fn oom_score_adj(proc: &Path, pid: i32) -> Option<i32> {
    let text = read_once(&proc.join(pid.to_string()).join("oom_score_adj")).ok()?;
    text.trim().parse().ok().filter(|score| (-1000..=1000).contains(score))
}

/// Memory by whether others may share it, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Anonymous memory.
    pub own: u64,
    /// Shared memory: that of memfd and of anonymous mappings which are shared, and files of tmpfs.
    pub shared: u64,
}

impl Held {
    /// What is held here beyond `other`.
    #[must_use]
    pub fn beyond(self, other: Self) -> Self {
        Self {
            own: self.own.saturating_sub(other.own),
            shared: self.shared.saturating_sub(other.shared),
        }
    }

    /// Both.
    #[must_use]
    pub fn all(self) -> u64 {
        self.own.saturating_add(self.shared)
    }
}

impl Add for Held {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            own: self.own.saturating_add(other.own),
            shared: self.shared.saturating_add(other.shared),
        }
    }
}

/// `RssAnon` and `RssShmem` of `/proc/PID/status`: memory that it has resident, whichever cgroup it is charged to; `None` when the process is gone.
///
/// A first thread that has ended has none, whatever the others share: then the next one is asked.
#[must_use]
pub fn resident_memory(proc: &Path, pid: i32) -> Option<Held> {
    let own = |tid: i32| {
        let text = read_once(&proc.join(tid.to_string()).join("status")).ok()?;
        let own = status_bytes(&text, "RssAnon:")?;
        // Every kernel that tells the one tells the other.
        let shared = status_bytes(&text, "RssShmem:").unwrap_or(0);
        Some(Held { own, shared })
    };
    own(pid).or_else(|| threads(proc, pid).find_map(own))
}

/// The threads of the process `pid`; none when it is gone.
pub(super) fn threads(proc: &Path, pid: i32) -> impl Iterator<Item = i32> {
    let listed = std::fs::read_dir(proc.join(pid.to_string()).join("task"));
    let entries = listed.into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// What `/proc/PID/status` says behind `name`, which ends in a colon.
pub(super) fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// The same of a size, in bytes.
#[must_use]
pub fn status_bytes(status: &str, name: &str) -> Option<u64> {
    let kib: u64 = status_field(status, name)?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The kernel's page size, in bytes.
pub(crate) fn page_size() -> u64 {
    // SAFETY: sysconf has no preconditions; it reads a constant of the process.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let stat = "17 (a) b (c) S 1 17 17 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 3 0 987654 1000000 250 18446744073709551615 0";
        let process = Process::parse(stat, 4096).unwrap();
        assert_eq!(process.id, ProcessId { pid: 17, start_time: 987_654 });
        assert_eq!(process.comm, "a) b (c");
        assert_eq!((process.state, process.parent, process.threads), ('S', 1, 3));
        assert_eq!(process.rss, 250 * 4096);
    }

    #[test]
    fn a_cut_file_is_no_process() {
        assert_eq!(Process::parse("17 (a) S 1 17", 4096), None);
        assert_eq!(Process::parse("", 4096), None);
    }

    #[test]
    fn memory_is_told_by_a_thread_that_lives() {
        let proc = tempfile::tempdir().unwrap();
        let write = |at: &str, text: &str| {
            std::fs::create_dir_all(proc.path().join(at)).unwrap();
            std::fs::write(proc.path().join(at).join("status"), text).unwrap();
        };
        write("7", "State:\tZ (zombie)\nTgid:\t7\n");
        write("8", "Tgid:\t7\nRssAnon:\t      12 kB\nRssShmem:\t       3 kB\n");
        assert_eq!(resident_memory(proc.path(), 7), None);
        for tid in ["7", "8"] {
            std::fs::create_dir_all(proc.path().join("7/task").join(tid)).unwrap();
        }
        let held = Held { own: 12 << 10, shared: 3 << 10 };
        assert_eq!(resident_memory(proc.path(), 7), Some(held));
    }

    #[test]
    fn this_process_finds_itself() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let me = Process::read(Path::new("/proc"), pid).unwrap();
        assert_eq!(me.id.pid_t(), pid);
        assert!(me.rss > 0 && me.id.start_time > 0);
        assert!(!me.is_kernel_thread());
    }
}
