//! What is remembered across restarts: when each image was first seen and when it was last in use, which pods were ended, and what the API server said of the node's pods.
//!
//! ```text
//!  History.images ──(changed enough)──┐
//!  Pods.evicted ────(changed)─────────┼─► thread ebb-memory ──one transaction──► images.redb
//!  pods by the API ─(changed)─────────┘
//! ```
//! Without this the longest unused image after a restart would be any image at all, a sandbox that was left when its pod was ended would be nobody's, and beside an API server that is away a critical pod would be like any other.
//! The store is an embedded database that survives a crash at any point; what a crash can cost is the last minute.
//! Whoever only looks, as a dry run and the commands do, reads the file as it is ([`look()`]): it is another's.
//! Writing waits for the disk, so it is done on a thread of its own; a store that cannot be used is said so once, and the agent goes on without.

mod attempts;
mod look;
mod memory;
mod outbox;

use crate::cluster::NodePods;
use crate::pods::Evicted;
use crate::threads::contain;
use attempts::Attempt;
use ebb_policy::Time;
use ebb_policy::history::ImageRecord;
pub use look::look;
pub use memory::{Memory, Remembered};
pub use outbox::OutboxFile;
use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable as _, TableDefinition};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The file's name.
const NAME: &str = "images.redb";

/// First seen and last in use, in milliseconds since the Unix epoch, by the name under which an image is remembered.
const IMAGES: TableDefinition<'_, &str, (u64, Option<u64>)> = TableDefinition::new("images");

/// Ids of sandboxes with spaces between them, by the UID of a pod that was ended.
const EVICTED: TableDefinition<'_, &str, &str> = TableDefinition::new("evicted");

/// What the API server said last of each pod of the node, as JSON, by the UID under which its kubelet runs it.
const PODS: TableDefinition<'_, &str, &str> = TableDefinition::new("pods");

/// Bytes that what is stored of a pod may have: its labels are as long as whoever made it likes, and the store is not to be.
const LONGEST_POD: usize = 16 << 10;

/// Whoever has the store open has it for one read or write: so often it is tried again, after so long.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// All that is remembered of images, by the names of `History`.
pub type Records = BTreeMap<String, ImageRecord>;

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("what is remembered in {}: {source}", path.display())]
pub struct StoreError {
    path: PathBuf,
    #[source]
    source: Box<redb::Error>,
}

impl StoreError {
    /// Whether somebody else has the store open.
    fn is_taken(&self) -> bool {
        matches!(*self.source, redb::Error::DatabaseAlreadyOpen)
    }
}

/// The file.
#[derive(Debug)]
pub struct ImageStore {
    /// `None` once it is dropped.
    database: Option<Database>,
    path: PathBuf,
    /// Ends after the database is closed.
    _attempt: Option<Attempt>,
}

impl Drop for ImageStore {
    fn drop(&mut self) {
        // To close a damaged file may end in a panic too.
        let _ = contain(|| drop(self.database.take()));
    }
}

impl ImageStore {
    /// Opens the store in `dir`, which is made if need be. A file that is no store (any more) is put aside as `images.redb.bad` and a new one begun.
    ///
    /// # Errors
    /// When neither works.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        Self::open_as(dir, false)
    }

    /// The same for the agent whose store it is: one at whose use the agent died three times in a row is put aside too.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_own(dir: &Path) -> Result<Self, StoreError> {
        Self::open_as(dir, true)
    }

    /// The same as soon as whoever only looks lets go of it.
    ///
    /// # Errors
    /// As [`Self::open`], and when somebody keeps it open.
    pub(crate) fn open_own_soon(dir: &Path) -> Result<Self, StoreError> {
        soon(|| Self::open_own(dir), StoreError::is_taken)
    }

    fn open_as(dir: &Path, is_own: bool) -> Result<Self, StoreError> {
        let path = dir.join(NAME);
        let failed = |source: redb::Error| StoreError { path: path.clone(), source: source.into() };
        fs::create_dir_all(dir).map_err(|e| failed(e.into()))?;
        if is_own && attempts::are_too_many(&path) {
            if path.exists() {
                put_aside(&path, &"ebb ended each time it used it")
                    .map_err(|e| failed(e.into()))?;
            }
            attempts::forget(&path);
        }
        let attempt = is_own.then(|| Attempt::begin(&path));
        let database = match create(&path) {
            Ok(database) => database,
            // Another agent has it; its memory is not ours to put aside.
            Err(error @ redb::DatabaseError::DatabaseAlreadyOpen) => {
                return Err(failed(error.into()));
            }
            Err(error) => {
                put_aside(&path, &error).map_err(|e| failed(e.into()))?;
                create(&path).map_err(|e| failed(e.into()))?
            }
        };
        Ok(Self { database: Some(database), path, _attempt: attempt })
    }

    /// Everything that is remembered; `None` when nothing ever was. Times after `now` are taken for `now`: the wall clock went back since.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn load(&self, now: Time) -> Result<Option<Records>, StoreError> {
        self.with(|database| images(database, now))
    }

    /// Makes the store hold `records` and nothing else, in one transaction.
    ///
    /// # Errors
    /// When it cannot be written; what it held before then still stands.
    pub fn save(&self, records: &Records) -> Result<(), StoreError> {
        self.with(|database| {
            let transaction = database.begin_write()?;
            {
                let mut table = transaction.open_table(IMAGES)?;
                table.retain(|name, _| records.contains_key(name))?;
                for (name, record) in records {
                    let ImageRecord { first_detected, last_used } = record;
                    let times = (first_detected.0, last_used.map(|time| time.0));
                    let is_known = table.get(name.as_str())?.is_some_and(|t| t.value() == times);
                    if !is_known {
                        table.insert(name.as_str(), times)?;
                    }
                }
            }
            Ok(transaction.commit()?)
        })
    }

    /// The pods that were ended.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn load_evicted(&self) -> Result<Evicted, StoreError> {
        self.with(evicted)
    }

    /// Makes the store hold these ended pods and no others, in one transaction.
    ///
    /// # Errors
    /// When it cannot be written; what it held before then still stands.
    pub fn save_evicted(&self, evicted: &Evicted) -> Result<(), StoreError> {
        self.with(|database| {
            let transaction = database.begin_write()?;
            {
                let mut table = transaction.open_table(EVICTED)?;
                table.retain(|uid, _| evicted.contains_key(uid))?;
                for (uid, sandboxes) in evicted {
                    let ids: Vec<&str> = sandboxes.iter().map(String::as_str).collect();
                    table.insert(uid.as_str(), ids.join(" ").as_str())?;
                }
            }
            Ok(transaction.commit()?)
        })
    }

    /// What the API server said of the node's pods. What another version of ebb wrote and this one cannot read is left out.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn load_pods(&self) -> Result<NodePods, StoreError> {
        self.with(pods)
    }

    /// Makes the store hold these pods and no others, in one transaction. One of more than 16 KiB stays as it was.
    ///
    /// # Errors
    /// When it cannot be written; what it held before then still stands.
    pub fn save_pods(&self, pods: &NodePods) -> Result<(), StoreError> {
        self.with(|database| {
            let transaction = database.begin_write()?;
            {
                let mut table = transaction.open_table(PODS)?;
                table.retain(|uid, _| pods.contains_key(uid))?;
                for (uid, pod) in pods {
                    let Ok(text) = serde_json::to_string(&**pod) else { continue };
                    if text.len() > LONGEST_POD {
                        continue;
                    }
                    let is_known = table.get(uid.as_str())?.is_some_and(|old| old.value() == text);
                    if !is_known {
                        table.insert(uid.as_str(), text.as_str())?;
                    }
                }
            }
            Ok(transaction.commit()?)
        })
    }

    /// Does `work` on the file; one that turns out to be damaged is put aside, so that the next to open it begins a new one.
    fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let Some(database) = &self.database else {
            unreachable!("it is there until it is dropped")
        };
        let done = contain(|| work(database)).unwrap_or_else(|panic| Err(damaged(panic).into()));
        done.map_err(|error| {
            if matches!(error, redb::Error::Corrupted(_))
                && let Err(error) = put_aside(&self.path, &error)
            {
                tracing::warn!(%error, path = %self.path.display(), "it cannot be put aside");
            }
            StoreError { path: self.path.clone(), source: error.into() }
        })
    }
}

/// Opens a store, as soon as nobody else has it where that is why it cannot be opened.
fn soon<T, E>(
    mut open: impl FnMut() -> Result<T, E>,
    is_taken: impl Fn(&E) -> bool,
) -> Result<T, E> {
    for _ in 0..TRIES {
        match open() {
            Err(error) if is_taken(&error) => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
    open()
}

/// A table as it is now; `None` where nothing was ever put into it.
fn table<V: redb::Value + 'static>(
    database: &impl ReadableDatabase,
    definition: TableDefinition<'_, &'static str, V>,
) -> Result<Option<ReadOnlyTable<&'static str, V>>, redb::Error> {
    match database.begin_read()?.open_table(definition) {
        Ok(table) => Ok(Some(table)),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn images(database: &impl ReadableDatabase, now: Time) -> Result<Option<Records>, redb::Error> {
    let Some(table) = table(database, IMAGES)? else { return Ok(None) };
    let mut records = Records::new();
    for entry in table.iter()? {
        let (name, times) = entry?;
        let (first, last) = times.value();
        let record = ImageRecord {
            first_detected: Time(first).min(now),
            last_used: last.map(|last| Time(last).min(now)),
        };
        records.insert(name.value().to_owned(), record);
    }
    Ok(Some(records))
}

fn evicted(database: &impl ReadableDatabase) -> Result<Evicted, redb::Error> {
    let Some(table) = table(database, EVICTED)? else { return Ok(Evicted::new()) };
    let mut evicted = Evicted::new();
    for entry in table.iter()? {
        let (uid, sandboxes) = entry?;
        let sandboxes = sandboxes.value().split(' ').filter(|id| !id.is_empty());
        evicted.insert(uid.value().to_owned(), sandboxes.map(str::to_owned).collect());
    }
    Ok(evicted)
}

fn pods(database: &impl ReadableDatabase) -> Result<NodePods, redb::Error> {
    let Some(table) = table(database, PODS)? else { return Ok(NodePods::new()) };
    let mut pods = NodePods::new();
    for entry in table.iter()? {
        let (uid, pod) = entry?;
        if let Ok(pod) = serde_json::from_str(pod.value()) {
            pods.insert(uid.value().to_owned(), Arc::new(pod));
        }
    }
    Ok(pods)
}

/// Opens the file, or makes it. The library panics on some files that are damaged.
fn create(path: &Path) -> Result<Database, redb::DatabaseError> {
    contain(|| Database::create(path)).unwrap_or_else(|panic| Err(damaged(panic).into()))
}

fn damaged(panic: String) -> redb::StorageError {
    redb::StorageError::Corrupted(panic)
}

fn put_aside(path: &Path, why: &impl std::fmt::Display) -> std::io::Result<()> {
    tracing::warn!(error = %why, path = %path.display(), "what was remembered is put aside");
    fs::rename(path, path.with_extension("redb.bad"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::NodePod;

    pub(super) fn record(first: u64, last: Option<u64>) -> ImageRecord {
        ImageRecord { first_detected: Time(first), last_used: last.map(Time) }
    }

    pub(super) fn records(list: &[(&str, ImageRecord)]) -> Records {
        list.iter().map(|(name, record)| ((*name).to_owned(), *record)).collect()
    }

    #[test]
    fn what_was_saved_is_there_after_a_restart_and_what_is_gone_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let store = ImageStore::open(&dir.path().join("deep/er")).unwrap();
        assert_eq!(store.load(Time(9)).unwrap(), None, "nothing was ever seen");
        store.save(&records(&[("a", record(1, None)), ("b", record(2, Some(3)))])).unwrap();
        let next = records(&[("b", record(2, Some(5)))]);
        store.save(&next).unwrap();
        drop(store);
        let store = ImageStore::open(&dir.path().join("deep/er")).unwrap();
        assert_eq!(store.load(Time(9)).unwrap(), Some(next));
    }

    #[test]
    fn pods_that_were_ended_are_kept_beside_the_images() {
        let dir = tempfile::tempdir().unwrap();
        let store = ImageStore::open(dir.path()).unwrap();
        assert!(store.load_evicted().unwrap().is_empty());
        let ended = |uid: &str, ids: &[&str]| {
            (uid.to_owned(), ids.iter().map(|id| (*id).to_owned()).collect())
        };
        let both: Evicted = [ended("u1", &["a", "b"]), ended("u2", &[])].into();
        store.save_evicted(&both).unwrap();
        store.save(&records(&[("a", record(1, None))])).unwrap();
        assert_eq!(store.load_evicted().unwrap(), both);
        let one: Evicted = [ended("u1", &["a"])].into();
        store.save_evicted(&one).unwrap();
        assert_eq!(store.load_evicted().unwrap(), one);
        assert_eq!(store.load(Time(9)).unwrap().unwrap().len(), 1);
    }

    #[test]
    fn what_was_said_of_pods_is_kept_beside_it_whoever_wrote_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = ImageStore::open(dir.path()).unwrap();
        assert!(store.load_pods().unwrap().is_empty());
        let pod = |name: &str, priority: i64| {
            let object = serde_json::json!({
                "metadata": { "namespace": "ns", "name": name, "uid": name, "labels": { "app": name } },
                "spec": { "priority": priority, "containers": [{
                    "name": "main", "resources": { "requests": { "memory": "64Mi" } },
                }] },
            });
            (name.to_owned(), Arc::new(NodePod::read(&object)))
        };
        let both: NodePods = [pod("a", 2_000_001_000), pod("b", 7)].into();
        store.save_pods(&both).unwrap();
        assert_eq!(store.load_pods().unwrap(), both);
        let one: NodePods = [pod("b", 8)].into();
        store.save_pods(&one).unwrap();
        assert_eq!(store.load_pods().unwrap(), one);
        let (name, mut long) = pod("long", 7);
        Arc::make_mut(&mut long).labels.insert("app".to_owned(), "x".repeat(LONGEST_POD));
        let many: NodePods = one.clone().into_iter().chain([(name, long)]).collect();
        store.save_pods(&many).unwrap();
        assert_eq!(store.load_pods().unwrap(), one, "what is too long is not kept");
        // As a version of ebb that says something else of pods leaves it.
        let newer = store.database.as_ref().unwrap().begin_write().unwrap();
        newer.open_table(PODS).unwrap().insert("c", r#"{"newer": 1}"#).unwrap();
        newer.commit().unwrap();
        assert_eq!(store.load_pods().unwrap(), one);
    }

    #[test]
    fn times_after_now_are_now() {
        let dir = tempfile::tempdir().unwrap();
        let store = ImageStore::open(dir.path()).unwrap();
        store.save(&records(&[("a", record(50, Some(60)))])).unwrap();
        let loaded = store.load(Time(9)).unwrap().unwrap();
        assert_eq!(loaded["a"], record(9, Some(9)));
    }

    #[test]
    fn a_file_that_is_no_store_is_put_aside_and_one_that_is_taken_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("images.redb"), vec![7; 9000]).unwrap();
        let store = ImageStore::open(dir.path()).unwrap();
        assert!(dir.path().join("images.redb.bad").exists());
        let error = ImageStore::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("images.redb"), "{error}");
        drop(store);
    }

    /// On some of these files the library panics.
    #[test]
    fn whatever_is_damaged_in_the_file_the_next_to_open_it_can_work() {
        let dir = tempfile::tempdir().unwrap();
        let known = records(&[("a", record(1, Some(2))), ("b", record(3, None))]);
        let file = dir.path().join("images.redb");
        ImageStore::open(dir.path()).unwrap().save(&known).unwrap();
        let whole = fs::read(&file).unwrap();
        for place in [0, 12, 100, 4096, 8192, 32_775, 32_776, 40_960] {
            for byte in [0, 8, 255] {
                let mut damaged = whole.clone();
                let place = place % whole.len();
                damaged[place] = byte;
                fs::write(&file, damaged).unwrap();
                // What can still be read is read, and what cannot is put aside by then.
                let _ = ImageStore::open(dir.path()).and_then(|store| store.load(Time(9)));
                let again = ImageStore::open(dir.path()).and_then(|store| {
                    store.save(&known)?;
                    store.load(Time(9))
                });
                assert_eq!(again.unwrap(), Some(known.clone()), "{byte} at {place}");
            }
        }
    }

    /// Some damage makes the library panic while it unwinds, which nothing contains.
    #[test]
    fn a_file_that_ends_the_process_each_time_is_put_aside_and_one_that_did_so_once_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let known = records(&[("a", record(1, Some(2)))]);
        let file = dir.path().join("images.redb");
        ImageStore::open(dir.path()).unwrap().save(&known).unwrap();
        std::mem::forget(Attempt::begin(&file));
        let load =
            || ImageStore::open_own(dir.path()).and_then(|store| store.load(Time(9))).unwrap();
        assert_eq!(load(), Some(known));
        for _ in 0..3 {
            std::mem::forget(Attempt::begin(&file));
        }
        assert_eq!(load(), None);
        assert!(file.with_extension("redb.bad").exists());
    }

    #[test]
    fn a_process_that_dies_in_the_middle_of_writing_leaves_the_last_whole_state() {
        let dir = tempfile::tempdir().unwrap();
        let store = ImageStore::open(dir.path()).unwrap();
        let whole = records(&[("a", record(1, Some(2)))]);
        store.save(&whole).unwrap();
        // A transaction that is never committed is what a crash leaves.
        let transaction = store.database.as_ref().unwrap().begin_write().unwrap();
        transaction.open_table(IMAGES).unwrap().insert("b", (1, None)).unwrap();
        std::mem::forget(transaction);
        let copy = dir.path().join("copy");
        fs::create_dir(&copy).unwrap();
        fs::copy(dir.path().join("images.redb"), copy.join("images.redb")).unwrap();
        let after = ImageStore::open(&copy).unwrap();
        assert_eq!(after.load(Time(9)).unwrap(), Some(whole));
    }
}
