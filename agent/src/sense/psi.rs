//! Pressure stall information: reading the files, and asking the kernel to wake ebb.
//!
//! Averages lag by seconds, so only the `total` counters are used; a trigger is a descriptor that becomes readable with `POLLPRI` when stall within a window passes a limit.
//! Which windows are allowed depends on kernel and privilege, so [`Trigger::best`] tries them from the shortest and says which one the kernel took.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

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

/// Trigger windows to try, shortest first, as (stall, window) in microseconds.
///
/// Since Linux 6.4 there is no lower bound for the privileged; before, 500 ms; without `CAP_SYS_RESOURCE` only multiples of 2 s.
const WINDOWS: [(u32, u32); 3] = [(4_000, 40_000), (50_000, 500_000), (200_000, 2_000_000)];

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
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
                .open(path)?;
            match file.write_all(format!("some {stall_us} {window_us}\0").as_bytes()) {
                Ok(()) => return Ok(Self { file, stall_us, window_us }),
                Err(e) => refusal = e,
            }
        }
        Err(refusal)
    }
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
    fn a_file_that_does_not_exist_is_an_error_not_a_trigger() {
        assert!(Trigger::best(Path::new("/nonexistent/pressure")).is_err());
    }
}
