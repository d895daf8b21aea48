//! Steps below ending a workload: reclaim from it, slow it down, stop it, and undo the last two.
//!
//! A cgroup that is slowed down or stopped carries a mark (an extended attribute of its directory) that says what to put back.
//! The mark is written before the step is taken and lives as long as the cgroup, so a later ebb can undo what an earlier one left behind.

use super::victim::HeldCgroup;
use serde::Serialize;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// Name of the mark. Its value is the `memory.high` to put back, as the file wrote it.
const MARK: &str = "user.ebb.high_before";

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Rung {
    /// Ask the kernel to take this many bytes from it (`memory.reclaim`, Linux 5.19). May block for long.
    Reclaim {
        /// Bytes.
        bytes: u64,
    },
    /// Slow it down above this many bytes (`memory.high`). May block for long.
    Throttle {
        /// Bytes.
        high: u64,
    },
    /// Stop it (`cgroup.freeze`); it is let go again after this long, whatever happens to the loop.
    Freeze {
        /// Milliseconds.
        thaw_after_ms: u64,
    },
    /// Undo a throttle and a freeze.
    Release,
}

/// Takes one step on a held cgroup.
pub(super) fn take(held: &HeldCgroup, rung: Rung) -> io::Result<()> {
    match rung {
        Rung::Reclaim { bytes } => match held.write("memory.reclaim", &bytes.to_string()) {
            // The kernel got back less than was asked for: that is all there was.
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => Ok(()),
            other => other,
        },
        Rung::Throttle { high } => {
            mark(held)?;
            held.write("memory.high", &high.to_string())
        }
        Rung::Freeze { .. } => {
            mark(held)?;
            held.write("cgroup.freeze", "1")
        }
        Rung::Release => release(held),
    }
}

/// Puts back what the mark says, and takes the mark away last; a cgroup without one is left as it is.
pub(super) fn release(held: &HeldCgroup) -> io::Result<()> {
    let Some(high) = xattr::get_deref(directory(held), MARK)? else { return Ok(()) };
    held.write("cgroup.freeze", "0")?;
    held.write("memory.high", &String::from_utf8_lossy(&high))?;
    xattr::remove_deref(directory(held), MARK)
}

/// Whether the cgroup at `path` carries the mark of an earlier step.
pub(super) fn is_marked(path: &Path) -> bool {
    xattr::get(path, MARK).is_ok_and(|mark| mark.is_some())
}

/// Notes what `memory.high` is before it is changed; a mark that is there already is the older and the right one.
fn mark(held: &HeldCgroup) -> io::Result<()> {
    if xattr::get_deref(directory(held), MARK)?.is_some() {
        return Ok(());
    }
    let high = held.read("memory.high")?;
    xattr::set_deref(directory(held), MARK, high.trim().as_bytes())
}

/// The held directory under a name that leads to it and nowhere else. It is a link, so it has to be followed.
fn directory(held: &HeldCgroup) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", held.cgroup.dir().as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::cgroup::Cgroup;
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    fn fake(high: &str) -> (tempfile::TempDir, HeldCgroup) {
        // Not /tmp, which may be a tmpfs of a kernel that keeps no attributes for users there.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        fs::write(dir.path().join("memory.high"), high).unwrap();
        fs::write(dir.path().join("cgroup.freeze"), "0").unwrap();
        let id = fs::metadata(dir.path()).unwrap().ino();
        let cgroup = Cgroup::open(dir.path(), id).unwrap();
        (dir, HeldCgroup { cgroup, processes: Vec::new(), checked: Vec::new() })
    }

    fn read(dir: &tempfile::TempDir, file: &str) -> String {
        fs::read_to_string(dir.path().join(file)).unwrap()
    }

    #[test]
    fn release_puts_back_what_was_there_before_the_first_step() {
        let (dir, held) = fake("9000000");
        take(&held, Rung::Throttle { high: 5_000_000 }).unwrap();
        take(&held, Rung::Freeze { thaw_after_ms: 1 }).unwrap();
        take(&held, Rung::Throttle { high: 4_000_000 }).unwrap();
        assert!(is_marked(dir.path()));
        assert_eq!(read(&dir, "cgroup.freeze"), "1");
        take(&held, Rung::Release).unwrap();
        assert_eq!(
            (read(&dir, "memory.high").as_str(), read(&dir, "cgroup.freeze").as_str()),
            ("9000000", "0")
        );
        assert!(!is_marked(dir.path()));
    }

    #[test]
    fn what_ebb_never_touched_is_not_released() {
        let (dir, held) = fake("9000000");
        fs::write(dir.path().join("cgroup.freeze"), "1").unwrap();
        take(&held, Rung::Release).unwrap();
        assert_eq!(read(&dir, "cgroup.freeze"), "1", "somebody else has stopped it");
    }
}
