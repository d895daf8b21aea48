//! A look at what an agent remembers, by whoever the file is not: a dry run, a command.
//!
//! Nothing is made, written, repaired, counted or put aside, and a store that cannot be read so is only told: what becomes of it is its owner's matter.

use super::{NAME, Remembered, StoreError, damaged, evicted, images, pods, soon};
use crate::threads::contain;
use ebb_policy::Time;
use redb::{DatabaseError, ReadOnlyDatabase};
use std::path::Path;
use std::sync::Arc;

/// What the store in `dir` holds; nothing where there is none. Times after `now` are taken for `now`.
///
/// # Errors
/// When the file cannot be read as it is.
pub fn look(dir: &Path, now: Time) -> Result<Remembered, StoreError> {
    let path = dir.join(NAME);
    if !path.exists() {
        return Ok(Remembered::default());
    }
    // The library panics on some files that are damaged.
    let read = contain(|| -> Result<Remembered, redb::Error> {
        let database = open(&path)?;
        Ok(Remembered {
            images: images(&database, now)?.map(Arc::new),
            evicted: evicted(&database)?,
            pods: Some(pods(&database)?),
        })
    });
    read.unwrap_or_else(|panic| Err(damaged(panic).into()))
        .map_err(|source| StoreError { path, source: source.into() })
}

fn open(path: &Path) -> Result<ReadOnlyDatabase, DatabaseError> {
    let is_taken = |error: &DatabaseError| matches!(error, DatabaseError::DatabaseAlreadyOpen);
    soon(|| ReadOnlyDatabase::open(path), is_taken)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{record, records};
    use super::super::{ImageStore, attempts::Attempt};
    use super::*;
    use std::collections::BTreeMap;
    use std::fs;

    /// Every file of a directory with what is in it.
    fn all(dir: &Path) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(dir).unwrap().flatten();
        let name = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        entries.map(|entry| (name(&entry), fs::read(entry.path()).unwrap())).collect()
    }

    #[test]
    fn a_look_tells_what_is_remembered_and_changes_no_byte() {
        let dir = tempfile::tempdir().unwrap();
        assert!(look(dir.path(), Time(9)).unwrap().images.is_none());
        assert!(all(dir.path()).is_empty(), "nothing is made");
        let known = records(&[("a", record(1, Some(20)))]);
        let store = ImageStore::open(dir.path()).unwrap();
        store.save(&known).unwrap();
        let ended = [("u1".to_owned(), ["s".to_owned()].into())].into();
        store.save_evicted(&ended).unwrap();
        drop(store);
        // Its owner died at it each time, and is to put it aside.
        let file = dir.path().join(NAME);
        for _ in 0..4 {
            std::mem::forget(Attempt::begin(&file));
        }
        let before = all(dir.path());
        let told = look(dir.path(), Time(9)).unwrap();
        assert_eq!(told.images.unwrap()["a"], record(1, Some(9)));
        assert_eq!(told.evicted, ended);
        assert_eq!(all(dir.path()), before);
    }

    #[test]
    fn a_damaged_store_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(NAME);
        ImageStore::open(dir.path()).unwrap().save(&records(&[("a", record(1, None))])).unwrap();
        let whole = fs::read(&file).unwrap();
        for place in [0, 12, 100, 4096, 8192, 32_775, 32_776, 40_960] {
            let mut bytes = whole.clone();
            let place = place % bytes.len();
            bytes[place] ^= 255;
            fs::write(&file, bytes).unwrap();
            let before = all(dir.path());
            // Whatever can be made of it.
            let _ = look(dir.path(), Time(9));
            assert_eq!(all(dir.path()), before, "at {place}");
        }
    }
}
