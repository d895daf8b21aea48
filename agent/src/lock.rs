//! One agent that acts on a node: a lock on a file in the state directory, held for as long as the process lives.
//!
//! The kernel lets go of it however the process ends, so none is ever stale.
//! It is a file of root's and not an abstract socket: a socket's name is seen in one network namespace only, and anybody may take it first.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The file's name.
const NAME: &str = "lock";

/// Of what a holder says of itself no more is read.
const READ_AT_MOST: u64 = 4096;

/// The lock, held.
#[derive(Debug)]
pub struct NodeLock {
    _file: File,
}

/// Why the lock is not had.
#[derive(Debug, thiserror::Error)]
pub enum NotLocked {
    /// Another process has it.
    #[error("another ebb that enforces runs on this node: {holder} holds {}; stop it, or run this one without --enforce beside it", path.display())]
    Held {
        /// What it says of itself, without control characters.
        holder: String,
        /// The file.
        path: PathBuf,
    },
    /// There is no place for it.
    #[error("{}: {error}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        #[source]
        error: io::Error,
    },
}

impl NodeLock {
    /// Takes the lock in the directory `state`, which is made if it is not there, without waiting.
    ///
    /// # Errors
    /// Another process has it, or there is no place for it.
    pub fn take(state: &Path) -> Result<Self, NotLocked> {
        let path = state.join(NAME);
        let unusable = |error| NotLocked::Unusable { path: path.clone(), error };
        std::fs::create_dir_all(state).map_err(unusable)?;
        let mut options = File::options();
        // Whoever can open it can lock it.
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let mut file = options.open(&path).map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = holder(&file);
                return Err(NotLocked::Held { holder, path });
            }
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        let words = std::env::args_os().map(|word| escaped(&word.to_string_lossy()));
        let words = words.collect::<Vec<_>>().join(" ");
        file.set_len(0).map_err(unusable)?;
        file.write_all(format!("process {} ({words})", std::process::id()).as_bytes())
            .map_err(unusable)?;
        Ok(Self { _file: file })
    }

    /// The process that holds the lock in `state`; `None` when none does, or it cannot be told. Takes nothing, not even for a moment: an agent that starts meanwhile gets it. `proc` is where procfs is mounted.
    #[must_use]
    pub fn holder(state: &Path, proc: &Path) -> Option<i32> {
        let inode = std::fs::metadata(state.join(NAME)).ok()?.ino();
        holder_of(inode, &std::fs::read_to_string(proc.join("locks")).ok()?)
    }
}

/// Who holds a lock of the whole file `inode`, by the text of `/proc/locks`: `1: FLOCK  ADVISORY  WRITE 712 fe:00:1837 0 EOF`.
fn holder_of(inode: u64, locks: &str) -> Option<i32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, file, ..] = words.as_slice() else { return None };
        let is_it = file.rsplit(':').next()?.parse() == Ok(inode);
        if is_it { pid.parse().ok() } else { None }
    })
}

/// What the holder says of itself.
fn holder(file: &File) -> String {
    let mut text = Vec::new();
    // Without its words it is still there.
    let _ = file.take(READ_AT_MOST).read_to_end(&mut text);
    if text.is_empty() {
        return "a process that has not said which".to_owned();
    }
    escaped(&String::from_utf8_lossy(&text))
}

/// Control characters written out.
fn escaped(text: &str) -> String {
    let show = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(show).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_is_told_who_has_it_and_one_after_the_first_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let first = NodeLock::take(&state).unwrap();
        let refused = NodeLock::take(&state).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {} (", std::process::id())), "{refused}");
        drop(first);
        NodeLock::take(&state).unwrap();
    }

    #[test]
    fn who_holds_it_is_told_without_taking_it() {
        let dir = tempfile::tempdir().unwrap();
        let proc = Path::new("/proc");
        assert_eq!(NodeLock::holder(dir.path(), proc), None);
        let lock = NodeLock::take(dir.path()).unwrap();
        let own = i32::try_from(std::process::id()).ok();
        assert_eq!(NodeLock::holder(dir.path(), proc), own);
        drop(lock);
        assert_eq!(NodeLock::holder(dir.path(), proc), None);
    }

    #[test]
    fn what_a_holder_says_reaches_nobody_raw() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        std::fs::write(&path, "process 1 (\x1b[2J\nx)").unwrap();
        let held = File::open(&path).unwrap();
        held.lock().unwrap();
        let refused = NodeLock::take(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("\\u{1b}[2J\\nx"), "{refused}");
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("kept");
        std::fs::write(&kept, "kept").unwrap();
        std::os::unix::fs::symlink(&kept, dir.path().join(NAME)).unwrap();
        let refused = NodeLock::take(dir.path()).unwrap_err();
        assert!(matches!(refused, NotLocked::Unusable { .. }), "{refused}");
        assert_eq!(std::fs::read_to_string(kept).unwrap(), "kept");
    }
}
