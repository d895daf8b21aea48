//! What ebb has changed on a cgroup, so that it and nothing else is put back.
//!
//! A mark is an attribute of the cgroup's directory in the `trusted` space, which takes `CAP_SYS_ADMIN` to write: the owner
//! of a delegated cgroup can neither forge nor remove it. Without that capability it is a file in ebb's state directory,
//! named by this boot and the cgroup's id, since a path or an id of another boot is somebody else's.
//! Where neither can be had no mark is made, and a step that could not be undone is not taken.

use crate::sense::file::read_once;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the attribute.
const ATTRIBUTE: &str = "trusted.ebb.steps";

/// Values that were written to `memory.high` and are remembered: the last, and the one before, should the last not have been written.
const WRITTEN_AT_MOST: usize = 2;

/// What was done to one cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Mark {
    /// `memory.high` before the first step, as the file wrote it.
    pub(super) high_before: String,
    /// What ebb has written to it since, in bytes.
    #[serde(default)]
    pub(super) written: Vec<u64>,
    /// ebb has frozen it.
    #[serde(default)]
    pub(super) is_frozen: bool,
}

impl Mark {
    /// Notes a value that is about to be written.
    pub(super) fn write(&mut self, high: u64) {
        self.written.push(high);
        let over = self.written.len().saturating_sub(WRITTEN_AT_MOST);
        self.written.drain(..over);
    }
}

/// Where marks are kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    /// For cgroups that cannot carry one; `None` where there is no state directory.
    dir: Option<PathBuf>,
}

impl Marks {
    /// Keeps what cgroups cannot carry in `state`, and forgets what is there of an earlier boot.
    pub(super) fn within(state: &Path, proc: &Path) -> Self {
        let Ok(boot) = read_once(&proc.join("sys/kernel/random/boot_id")) else {
            return Self::default();
        };
        let all = state.join("steps");
        let dir = all.join(boot.trim());
        for old in fs::read_dir(&all).into_iter().flatten().flatten() {
            if old.path() != dir {
                // What stays is never read again.
                let _ = fs::remove_dir_all(old.path());
            }
        }
        Self { dir: Some(dir) }
    }

    /// The mark of the cgroup `id`, whose directory is at `at`; a link is followed.
    ///
    /// # Errors
    /// When it cannot be read or is none of ebb's.
    pub(super) fn get(&self, id: u64, at: &Path) -> io::Result<Option<Mark>> {
        let value = match xattr::get_deref(at, ATTRIBUTE) {
            Ok(Some(value)) => value,
            Ok(None) | Err(_) => match self.file(id).map(fs::read) {
                Some(Ok(value)) => value,
                Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Some(Err(_)) | None => return Ok(None),
            },
        };
        serde_json::from_slice(&value).map(Some).map_err(io::Error::other)
    }

    /// Marks the cgroup `id`, whose directory is at `at`.
    ///
    /// # Errors
    /// When there is no place for a mark.
    pub(super) fn set(&self, id: u64, at: &Path, mark: &Mark) -> io::Result<()> {
        let value = serde_json::to_vec(mark).map_err(io::Error::other)?;
        let Err(error) = xattr::set_deref(at, ATTRIBUTE, &value) else { return Ok(()) };
        let Some(file) = self.file(id) else {
            let why = "what to put back cannot be noted, neither on the cgroup (CAP_SYS_ADMIN) nor in a state directory (--state)";
            return Err(io::Error::new(error.kind(), format!("{why}: {error}")));
        };
        if let Some(dir) = file.parent() {
            fs::create_dir_all(dir)?;
        }
        let new = file.with_extension("new");
        fs::write(&new, value)?;
        fs::rename(new, file)
    }

    /// Takes the mark away.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn clear(&self, id: u64, at: &Path) -> io::Result<()> {
        if xattr::get_deref(at, ATTRIBUTE).is_ok_and(|mark| mark.is_some()) {
            xattr::remove_deref(at, ATTRIBUTE)?;
        }
        match self.file(id).map(fs::remove_file) {
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn file(&self, id: u64) -> Option<PathBuf> {
        Some(self.dir.as_ref()?.join(id.to_string()))
    }
}
