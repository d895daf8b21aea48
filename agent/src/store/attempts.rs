//! How often in a row the use of a file was begun and never ended: a library that brings the process down on a damaged file would else do so at every start.
//!
//! ```text
//!  begin ─► images.redb.attempts holds n + 1 ─┬─ use ends ─► it is removed
//!                                             └─ process dies ─► counted when the next begins
//! ```
//! A process may be killed in the middle for other reasons, and the file be whole: so it takes several in a row.

use std::fs;
use std::path::{Path, PathBuf};

/// So many uses in a row that did not end speak against the file.
const TOO_MANY: u32 = 3;

/// One use of a file, ended when this is dropped.
#[derive(Debug)]
pub(super) struct Attempt {
    count: PathBuf,
}

impl Attempt {
    /// Notes that `file` is used from now on. Where that cannot be written it is not counted.
    pub(super) fn begin(file: &Path) -> Self {
        let attempt = Self { count: count_of(file) };
        let begun = unfinished(file).saturating_add(1);
        if let Err(error) = fs::write(&attempt.count, begun.to_string()) {
            tracing::debug!(%error, path = %attempt.count.display(), "the use of the file is not counted");
        }
        attempt
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.count);
    }
}

/// Whether the last uses of `file` all ended with the process.
pub(super) fn are_too_many(file: &Path) -> bool {
    unfinished(file) >= TOO_MANY
}

/// Forgets them: the file is another now.
pub(super) fn forget(file: &Path) {
    let _ = fs::remove_file(count_of(file));
}

/// What is unreadable counts for nothing.
fn unfinished(file: &Path) -> u32 {
    fs::read_to_string(count_of(file)).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn count_of(file: &Path) -> PathBuf {
    file.with_added_extension("attempts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_that_did_not_end_are_counted_until_one_ends() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("images.redb");
        for _ in 0..TOO_MANY {
            assert!(!are_too_many(&file));
            std::mem::forget(Attempt::begin(&file));
        }
        assert!(are_too_many(&file));
        drop(Attempt::begin(&file));
        assert!(!are_too_many(&file));
    }

    #[test]
    fn a_count_that_is_none_counts_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("images.redb");
        fs::write(count_of(&file), "many").unwrap();
        assert!(!are_too_many(&file));
        drop(Attempt::begin(&file));
        assert!(!count_of(&file).exists());
    }
}
