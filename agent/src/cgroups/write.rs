//! Writing values into the tree: each one verified, and none that may block without a deadline.
//!
//! A lowered `memory.max` is the one write that can end a process, so room is made first: the kernel is asked to reclaim, and what it cannot take back stays allowed until a later round finds it gone.
//! Writes that reclaim (`memory.max` when lowered, `memory.high`, `memory.reclaim`) go to a thread of their own and are left to themselves at their deadline.
//! Nothing is written outside the paths that the plan names, and no link is followed.

use super::beneath::{Beneath, open_in};
use crate::sense::file::{KeptFile, keyed, number_or_max};
use ebb_journal::cgroups::Written;
use ebb_policy::cgroups::compare::agrees;
use ebb_policy::cgroups::order::{Direction, Write};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Writes that may be stuck in the kernel at a time; while so many are, no other is begun.
const STUCK_AT_MOST: usize = 4;

/// What a limit that cannot be lowered to its value is left above what is in use: a 32nd of it, but at least this many bytes.
const LEAST_ROOM: u64 = 16 << 20;

/// Why a value was not written.
#[derive(Debug, Error)]
pub enum NotWritten {
    /// The cgroup is gone.
    #[error("{path}: the cgroup is gone")]
    Gone {
        /// Path of the cgroup.
        path: String,
    },
    /// The kernel refused it.
    #[error("{path}: cannot write {value:?} to {file}{hint}")]
    Refused {
        /// Path of the cgroup.
        path: String,
        /// The file.
        file: String,
        /// The value.
        value: String,
        /// What it means, where that is known.
        hint: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// It was written, but the file says something else.
    #[error("{path}: {file} says {found:?} after {value:?} was written")]
    NotKept {
        /// Path of the cgroup.
        path: String,
        /// The file.
        file: String,
        /// The value.
        value: String,
        /// What it says.
        found: String,
    },
    /// The kernel is still at it.
    #[error("{path}: {file} could not be written within {} ms; the kernel is still at it", deadline.as_millis())]
    Overdue {
        /// Path of the cgroup.
        path: String,
        /// The file.
        file: String,
        /// How long it was waited for.
        deadline: Duration,
    },
}

/// The hand that writes.
#[derive(Debug)]
pub struct Writer {
    root: Beneath,
    page: u64,
    deadline: Duration,
    stuck: Arc<AtomicUsize>,
}

impl Writer {
    /// A writer for the hierarchy mounted at `root`, whose pages have `page` bytes.
    #[must_use]
    pub fn new(root: &Path, page: u64, deadline: Duration) -> Writer {
        Writer { root: Beneath::new(root), page, deadline, stuck: Arc::new(AtomicUsize::new(0)) }
    }

    /// Writes one value and reads it back.
    ///
    /// # Errors
    /// Why the file does not say what it is to say. A limit that could only be lowered in part is no error: [`Written::wanted`] says so.
    pub fn write(&self, write: &Write) -> Result<Written, NotWritten> {
        let dir = self.root.dir(&write.path).map_err(|source| refused(write, source))?;
        let value =
            if write.needs_room() { self.make_room(&dir, write)? } else { write.value.clone() };
        let reclaims = write.needs_room() || write.file == "memory.high";
        let blocks = reclaims && !is_far_below(&dir, &value);
        if blocks {
            self.put_in_time(&dir, write, &write.file, &value)?;
        } else {
            put(&dir, &write.file, &value).map_err(|source| refused(write, source))?;
        }
        let now = get(&dir, &write.file).map_err(|source| refused(write, source))?;
        if !agrees(&write.file, &value, &now, self.page) {
            return Err(NotWritten::NotKept {
                path: write.path.clone(),
                file: write.file.clone(),
                value,
                found: now,
            });
        }
        Ok(Written {
            path: write.path.clone(),
            file: write.file.clone(),
            before: write.before.clone(),
            now,
            wanted: (value != write.value).then(|| write.value.clone()),
        })
    }

    /// Makes the cgroups `path` down to its last component and enables `controllers` on the way; what is there already stays.
    ///
    /// # Errors
    /// What the kernel says, naming the directory.
    pub fn create(&self, path: &str, controllers: &[&str]) -> io::Result<()> {
        let mut at = String::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            for controller in controllers {
                // One that cannot be enabled shows as files that are missing.
                let _ = self.root.write(&at, "cgroup.subtree_control", &format!("+{controller}"));
            }
            self.root.make(&at, part)?;
            at = format!("{at}/{part}");
        }
        Ok(())
    }

    /// Brings usage below a limit, as far as the kernel can; returns the limit that can be set now.
    fn make_room(&self, dir: &OwnedFd, write: &Write) -> Result<String, NotWritten> {
        let Ok(limit) = write.value.parse::<u64>() else { return Ok(write.value.clone()) };
        let usage = || get(dir, "memory.current").ok()?.parse::<u64>().ok();
        // Without knowing the usage there is nothing to make room for by.
        let Some(used) = usage() else { return Ok(write.value.clone()) };
        if used <= limit {
            return Ok(write.value.clone());
        }
        self.reclaim(dir, write, limit, used)?;
        let Some(used) = usage().filter(|used| *used > limit) else {
            return Ok(write.value.clone());
        };
        // Page cache that came back meanwhile is no obstacle: the kernel takes it again when the limit is written.
        let stuck = used.saturating_sub(page_cache(dir));
        let room = stuck.saturating_add((stuck / 32).max(LEAST_ROOM));
        if room <= limit {
            return Ok(write.value.clone());
        }
        // A step down, never up.
        let before = number_or_max(&write.before).flatten().unwrap_or(u64::MAX);
        Ok(if room >= before {
            write.before.clone()
        } else {
            (room / self.page * self.page).to_string()
        })
    }

    /// Asks the kernel to bring usage to `limit`: by `memory.reclaim`, before Linux 5.19 by `memory.high`, which is then put back.
    fn reclaim(
        &self,
        dir: &OwnedFd,
        write: &Write,
        limit: u64,
        used: u64,
    ) -> Result<(), NotWritten> {
        // A little more, so that what is charged in the meantime finds room.
        let bytes = used - limit + (limit / 64).min(LEAST_ROOM);
        let began = Instant::now();
        match self.put_in_time(dir, write, "memory.reclaim", &bytes.to_string()) {
            // Less than was asked for: that is all there was.
            Err(NotWritten::Refused { source, .. })
                if source.raw_os_error() == Some(libc::EAGAIN) =>
            {
                Ok(())
            }
            Err(NotWritten::Gone { .. }) if began.elapsed() < self.deadline => {
                let Ok(high) = get(dir, "memory.high") else { return Ok(()) };
                let lowered = self.put_in_time(dir, write, "memory.high", &limit.to_string());
                let restored = put(dir, "memory.high", &high);
                lowered.and(restored.map_err(|source| refused(write, source)))
            }
            other => other,
        }
    }

    /// Writes on a thread of its own and waits until the deadline.
    fn put_in_time(
        &self,
        dir: &OwnedFd,
        write: &Write,
        file: &str,
        value: &str,
    ) -> Result<(), NotWritten> {
        let overdue = || NotWritten::Overdue {
            path: write.path.clone(),
            file: file.to_owned(),
            deadline: self.deadline,
        };
        if self.stuck.load(Ordering::Acquire) >= STUCK_AT_MOST {
            return Err(overdue());
        }
        let fail = |source| {
            refused(
                &Write { file: file.to_owned(), value: value.to_owned(), ..write.clone() },
                source,
            )
        };
        let target = open_for_writing(dir, file).map_err(fail)?;
        let (sender, done) = channel();
        let (content, stuck) = (value.to_owned(), Arc::clone(&self.stuck));
        stuck.fetch_add(1, Ordering::AcqRel);
        let spawned = crate::threads::spawn("ebb-cgroup-write", move || {
            let result = put_into(target, &content);
            stuck.fetch_sub(1, Ordering::AcqRel);
            // Whoever waited may have given up.
            let _ = sender.send(result);
        });
        if let Err(source) = spawned {
            self.stuck.fetch_sub(1, Ordering::AcqRel);
            return Err(fail(source));
        }
        match done.recv_timeout(self.deadline) {
            Ok(result) => result.map_err(fail),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(overdue()),
        }
    }

    /// Asks the kernel to take back this many bytes from a cgroup and from all below it, within the deadline. Less than was asked for is no error.
    ///
    /// # Errors
    /// Why it could not be asked; [`NotWritten::Gone`] also before Linux 5.19.
    pub fn reclaim_bytes(&self, path: &str, bytes: u64) -> Result<(), NotWritten> {
        let write = Write {
            path: path.to_owned(),
            file: "memory.reclaim".to_owned(),
            value: bytes.to_string(),
            before: String::new(),
            direction: Direction::Lower,
        };
        let dir = self.root.dir(path).map_err(|source| refused(&write, source))?;
        match self.put_in_time(&dir, &write, &write.file, &write.value) {
            Err(NotWritten::Refused { source, .. })
                if source.raw_os_error() == Some(libc::EAGAIN) =>
            {
                Ok(())
            }
            other => other,
        }
    }

    /// Whether a cgroup is there.
    #[must_use]
    pub fn is_there(&self, path: &str) -> bool {
        self.root.is_there(path)
    }
}

fn open_for_writing(dir: &OwnedFd, file: &str) -> io::Result<OwnedFd> {
    open_in(dir, file, OFlag::O_WRONLY | OFlag::O_TRUNC)
}

fn put(dir: &OwnedFd, file: &str, value: &str) -> io::Result<()> {
    put_into(open_for_writing(dir, file)?, value)
}

/// One write: the kernel takes a value whole or not at all.
fn put_into(file: OwnedFd, value: &str) -> io::Result<()> {
    File::from(file).write_all(value.as_bytes())
}

fn get(dir: &OwnedFd, file: &str) -> io::Result<String> {
    let kept = KeptFile::from_fd(open_in(dir, file, OFlag::O_RDONLY)?);
    Ok(kept.read_value(&mut Vec::new())?.trim_end().to_owned())
}

/// Whether so little is in use that a limit of `value` bytes gives the kernel nothing to reclaim, as in a cgroup that was just made.
fn is_far_below(dir: &OwnedFd, value: &str) -> bool {
    let used = get(dir, "memory.current").ok().and_then(|used| used.parse::<u64>().ok());
    match (used, number_or_max(value)) {
        (_, Some(None)) => true,
        (Some(used), Some(Some(limit))) => used <= limit / 2,
        _ => false,
    }
}

/// Bytes of page cache that the kernel can take back, tmpfs not among them.
fn page_cache(dir: &OwnedFd) -> u64 {
    let stat = get(dir, "memory.stat").unwrap_or_default();
    ["active_file", "inactive_file"].iter().filter_map(|key| keyed(&stat, key)).sum()
}

fn refused(write: &Write, source: io::Error) -> NotWritten {
    let hint = match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ENODEV) => {
            return NotWritten::Gone { path: write.path.clone() };
        }
        Some(Errno::EROFS) => {
            ": the cgroup file system is mounted read-only here; mount it writable"
        }
        Some(Errno::EACCES | Errno::EPERM) => {
            ": ebb may not; it needs to be root in the host's cgroup namespace"
        }
        Some(Errno::EBUSY) => ": children or processes stand against it",
        _ => "",
    };
    let Write { path, file, value, .. } = write.clone();
    NotWritten::Refused { path, file, value, hint, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MIB: u64 = 1 << 20;

    /// A kernel of before 5.19, made of files: it has no `memory.reclaim`.
    fn tree(current: u64, page_cache: u64) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("pod");
        fs::create_dir(&dir).unwrap();
        for (file, text) in [
            ("memory.current", current.to_string()),
            ("memory.stat", format!("anon 1\nactive_file 0\ninactive_file {page_cache}\n")),
            ("memory.high", "max".to_owned()),
            ("memory.max", "max".to_owned()),
        ] {
            fs::write(dir.join(file), text).unwrap();
        }
        root
    }

    fn lower(root: &Path, to: u64, before: &str) -> Result<Written, NotWritten> {
        Writer::new(root, 4096, Duration::from_secs(5)).write(&Write {
            path: "/pod".to_owned(),
            file: "memory.max".to_owned(),
            value: to.to_string(),
            before: before.to_owned(),
            direction: Direction::Lower,
        })
    }

    #[test]
    fn a_limit_goes_no_lower_than_what_cannot_be_taken_back_and_some_room() {
        let root = tree(100 * MIB, 10 * MIB);
        let written = lower(root.path(), 50 * MIB, "max").unwrap();
        assert_eq!(written.now, (106 * MIB).to_string());
        assert_eq!(written.wanted, Some((50 * MIB).to_string()));
        let high = fs::read_to_string(root.path().join("pod/memory.high")).unwrap();
        assert_eq!(high, "max", "what was lowered to reclaim is put back");
    }

    #[test]
    fn a_step_down_is_never_a_step_up() {
        let root = tree(100 * MIB, 0);
        let written = lower(root.path(), 50 * MIB, &(101 * MIB).to_string()).unwrap();
        assert_eq!(written.now, (101 * MIB).to_string());
    }

    #[test]
    fn page_cache_is_no_obstacle() {
        let root = tree(100 * MIB, 80 * MIB);
        let written = lower(root.path(), 50 * MIB, "max").unwrap();
        assert_eq!((written.now, written.wanted), ((50 * MIB).to_string(), None));
    }

    #[test]
    fn a_cgroup_that_is_gone_is_told_apart_from_a_refusal() {
        let root = tempfile::tempdir().unwrap();
        assert!(matches!(lower(root.path(), 1, "max"), Err(NotWritten::Gone { .. })));
    }
}
