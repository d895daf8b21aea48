//! Pressure stall information: reading the files, and asking the kernel to wake ebb.
//!
//! Averages lag by seconds, so the `total` counters are used, but for cgroups whose pressure must last anyway; a trigger is a descriptor that becomes readable with `POLLPRI` when stall within a window passes a limit.
//! Which windows are allowed depends on kernel and privilege, so [`Trigger::best`] tries them from the shortest and says which one the kernel took.

use ebb_policy::StallShare;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Cumulative stall time of one resource, in microseconds since boot (or since the cgroup was made).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stall {
    /// At least one task was stalled.
    pub some_us: Option<u64>,
    /// Every runnable task was stalled.
    pub full_us: Option<u64>,
}

impl Stall {
    /// Parses a pressure file; lines or fields that are missing stay `None`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let total = |kind: &str| {
            let line = text.lines().find(|l| l.split_ascii_whitespace().next() == Some(kind))?;
            line.split_ascii_whitespace().find_map(|f| f.strip_prefix("total="))?.parse().ok()
        };
        Self { some_us: total("some"), full_us: total("full") }
    }
}

/// The file that tells of the memory pressure of `cgroup`, a path from the root of the hierarchy mounted at `root`.
#[must_use]
pub fn of_cgroup(root: &Path, cgroup: &str) -> PathBuf {
    root.join(cgroup.trim_start_matches('/')).join("memory.pressure")
}

/// `avg10` of the line `full`: hundredths of a percent; `None` when there is none.
#[must_use]
pub fn full_avg10(text: &str) -> Option<StallShare> {
    let line = text.lines().find(|line| line.starts_with("full "))?;
    let share = line.split_ascii_whitespace().find_map(|field| field.strip_prefix("avg10="))?;
    StallShare::parse(share)
}

/// Trigger windows to try, shortest first, as (stall, window) in microseconds.
///
/// Since Linux 6.4 there is no lower bound for the privileged; before, 500 ms; without `CAP_SYS_RESOURCE` only multiples of 2 s.
const WINDOWS: [(u32, u32); 3] = [(4_000, 40_000), (50_000, 500_000), (200_000, 2_000_000)];

/// The window of triggers on cgroups, in microseconds.
pub const CGROUP_WINDOW_US: u32 = 2_000_000;

/// A trigger that the kernel has accepted.
#[derive(Debug)]
pub struct Trigger {
    file: File,
    /// Stall within the window that fires it, in microseconds.
    pub stall_us: u32,
    /// The window, in microseconds.
    pub window_us: u32,
}

impl Trigger {
    /// Registers the shortest window that this kernel and these privileges allow on `path`.
    ///
    /// # Errors
    /// The last refusal, when every window was refused: no PSI, no permission, or a file that is not a pressure file.
    pub fn best(path: &Path) -> io::Result<Self> {
        let mut refusal = io::Error::from(io::ErrorKind::Unsupported);
        for (stall_us, window_us) in WINDOWS {
            // The file that was refused cannot be reused: a descriptor holds at most one trigger.
            let mut file = open(path)?;
            match file.write_all(format!("some {stall_us} {window_us}\0").as_bytes()) {
                Ok(()) => return Ok(Self { file, stall_us, window_us }),
                Err(e) => refusal = e,
            }
        }
        Err(refusal)
    }

    /// Registers for all tasks of a cgroup waiting `stall_us` microseconds within two seconds, the window that every kernel grants without a capability; `path` is its `memory.pressure`.
    ///
    /// # Errors
    /// What the kernel says: no such cgroup, no PSI, no permission; `Unsupported` for a file of another filesystem, which is not written to.
    pub fn of_cgroup(path: &Path, stall_us: u32) -> io::Result<Self> {
        let mut file = open(path)?;
        if fstatfs(&file)?.filesystem_type() != CGROUP2_SUPER_MAGIC {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "not a file of cgroup v2"));
        }
        file.write_all(format!("full {stall_us} {CGROUP_WINDOW_US}\0").as_bytes())?;
        Ok(Self { file, stall_us, window_us: CGROUP_WINDOW_US })
    }

    /// The inode of its file: that of the same name is another once the cgroup was made anew.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.ino())
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    options.open(path)
}

impl AsFd for Trigger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Trigger {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_and_missing_lines_are_unknown() {
        let text = "some avg10=0.12 avg60=0.00 avg300=0.00 total=3487\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=12\n";
        assert_eq!(Stall::parse(text), Stall { some_us: Some(3487), full_us: Some(12) });
        let cpu_on_5_10 = "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!(Stall::parse(cpu_on_5_10), Stall { some_us: Some(9), full_us: None });
        assert_eq!(Stall::parse(""), Stall::default());
    }

    #[test]
    fn the_average_over_ten_seconds_is_that_of_all_tasks() {
        let text = "some avg10=99.00 avg60=0.00 avg300=0.00 total=3\nfull avg10=72.31 avg60=1.00 avg300=0.00 total=2\n";
        assert_eq!(full_avg10(text), Some(StallShare(7231)));
        assert_eq!(full_avg10("some avg10=99.00 avg60=0.00 avg300=0.00 total=3\n"), None);
        assert_eq!(full_avg10("full avg10=x total=3\n"), None);
    }

    #[test]
    fn what_is_no_cgroups_file_is_not_written_to() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "full avg10=72.31\n").unwrap();
        assert!(Trigger::of_cgroup(file.path(), 1000).is_err());
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "full avg10=72.31\n");
    }

    #[test]
    fn a_file_that_does_not_exist_is_an_error_not_a_trigger() {
        assert!(Trigger::best(Path::new("/nonexistent/pressure")).is_err());
    }
}
