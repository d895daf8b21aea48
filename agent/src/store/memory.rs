//! The thread that writes what is remembered, so that nobody else waits for the disk.
//!
//! The store is opened for each write alone: commands read it in between, and a write waits for them.

use super::{ImageStore, Records, StoreError};
use crate::cluster::NodePods;
use crate::pods::Evicted;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// "Last in use" moves with every look while an image is in use; this much of it is not worth a write.
const WORTH_A_WRITE: u64 = 60_000;

/// After which what somebody else kept from being written is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// After which what could not be written is tried again, as where the disk was full.
const AGAIN_AFTER_FAILURE: Duration = Duration::from_secs(30);

/// What is to be kept.
#[derive(Debug)]
enum Keep {
    Images(Arc<Records>),
    Evicted(Evicted),
    Pods(NodePods),
}

/// What a store holds, or is to hold.
#[derive(Clone, Debug, Default)]
pub struct Remembered {
    /// Images; `None` when nothing is known of any.
    pub images: Option<Arc<Records>>,
    /// Pods that were ended.
    pub evicted: Evicted,
    /// What the API server said of the node's pods; `None` when it was not asked.
    pub pods: Option<NodePods>,
}

/// Keeps a store up to date from a thread of its own.
#[derive(Debug)]
pub struct Memory {
    saves: SyncSender<Keep>,
    thread: JoinHandle<()>,
    images: Arc<Records>,
    evicted: Evicted,
    pods: NodePods,
}

impl Memory {
    /// Keeps the store in `dir`, which holds `saved`. It is opened for each write alone, so that others can read it in between.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn start(dir: PathBuf, saved: Remembered) -> std::io::Result<Self> {
        let (saves, inbox) = sync_channel::<Keep>(1);
        let thread = crate::threads::spawn("ebb-memory", move || {
            let mut unsaved = Unsaved::default();
            loop {
                let more = unsaved.wait(&inbox);
                let is_over = matches!(more, Err(RecvTimeoutError::Disconnected));
                unsaved.save(&dir);
                if is_over {
                    break;
                }
            }
        })?;
        let Remembered { images, evicted, pods } = saved;
        let (images, pods) = (images.unwrap_or_default(), pods.unwrap_or_default());
        Ok(Self { saves, thread, images, evicted, pods })
    }

    /// Hands over `records` when they differ enough from what was handed over last, and the thread has kept up.
    pub fn note(&mut self, records: &Arc<Records>) {
        // A decision without images leaves them as they were.
        if !Arc::ptr_eq(&self.images, records)
            && is_worth_a_write(&self.images, records)
            && self.hand_over(Keep::Images(Arc::clone(records)))
        {
            self.images = Arc::clone(records);
        }
    }

    /// The same with the pods that were ended.
    pub fn note_evicted(&mut self, evicted: &Evicted) {
        if &self.evicted != evicted && self.hand_over(Keep::Evicted(evicted.clone())) {
            self.evicted.clone_from(evicted);
        }
    }

    /// The same with what the API server says of pods; false where the thread has not kept up, so that it is to be handed over again.
    pub fn note_pods(&mut self, pods: &NodePods) -> bool {
        if &self.pods == pods {
            return true;
        }
        let is_taken = self.hand_over(Keep::Pods(pods.clone()));
        if is_taken {
            self.pods.clone_from(pods);
        }
        is_taken
    }

    /// Whether the thread has taken it.
    fn hand_over(&self, keep: Keep) -> bool {
        self.saves.try_send(keep).is_ok()
    }

    /// Writes what is known and waits for that, but no longer than `patience`: the agent ends. Returns whether the thread came to its end, whatever came of writing.
    #[must_use]
    pub fn finish(self, last: Remembered, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let Self { saves, thread, images: _, evicted, pods } = self;
        let evicted = (evicted != last.evicted).then_some(Keep::Evicted(last.evicted));
        let images = last.images.map(Keep::Images);
        let pods = last.pods.filter(|last| *last != pods).map(Keep::Pods);
        let mut all = evicted.into_iter().chain(images).chain(pods);
        if !all.all(|keep| send_before(deadline, &saves, keep)) {
            return false;
        }
        drop(saves);
        let is_over = || thread.is_finished();
        is_so_before(deadline, is_over)
    }
}

/// Hands it over before `deadline`, or not at all; returns whether it did.
fn send_before(deadline: Instant, saves: &SyncSender<Keep>, keep: Keep) -> bool {
    let mut left = Some(keep);
    is_so_before(deadline, || {
        let Some(keep) = left.take() else { return true };
        match saves.try_send(keep) {
            Err(TrySendError::Full(keep)) => left = Some(keep),
            // The thread has died, which has been said.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
        }
        left.is_none()
    })
}

/// Asks again and again whether it is so, until it is or `deadline` has come.
fn is_so_before(deadline: Instant, mut is_so: impl FnMut() -> bool) -> bool {
    while !is_so() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// What was handed over and is not on disk yet, of each kind the latest.
#[derive(Debug, Default)]
struct Unsaved {
    images: Option<Arc<Records>>,
    evicted: Option<Evicted>,
    pods: Option<NodePods>,
    /// Why it could not be written, as was said.
    said: Option<String>,
    /// A write has failed, and not because somebody else has the store open.
    has_failed: bool,
}

impl Unsaved {
    /// Waits for more; only until the next attempt while something is left that could not be written.
    fn wait(&mut self, inbox: &Receiver<Keep>) -> Result<(), RecvTimeoutError> {
        let is_idle = self.images.is_none() && self.evicted.is_none() && self.pods.is_none();
        let keep = if is_idle {
            inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            inbox.recv_timeout(if self.has_failed { AGAIN_AFTER_FAILURE } else { AGAIN_AFTER })
        };
        match keep? {
            Keep::Images(records) => self.images = Some(records),
            Keep::Evicted(evicted) => self.evicted = Some(evicted),
            Keep::Pods(pods) => self.pods = Some(pods),
        }
        Ok(())
    }

    /// Writes what there is. What cannot be written stays, and why is said once.
    fn save(&mut self, dir: &Path) {
        let images = self.images.take().map(Keep::Images);
        let evicted = self.evicted.take().map(Keep::Evicted);
        let pods = self.pods.take().map(Keep::Pods);
        self.has_failed = false;
        let mut said = None;
        for keep in images.into_iter().chain(evicted).chain(pods) {
            let Err(error) = save_soon(dir, &keep) else { continue };
            self.has_failed |= !error.is_taken();
            let why = error.to_string();
            if self.said.as_ref().or(said.as_ref()) != Some(&why) {
                tracing::warn!(%error, "what is remembered was not written; it is tried again");
            }
            said = Some(why);
            match keep {
                Keep::Images(records) => self.images = Some(records),
                Keep::Evicted(evicted) => self.evicted = Some(evicted),
                Keep::Pods(pods) => self.pods = Some(pods),
            }
        }
        self.said = said;
    }
}

/// Saves as soon as whoever else has the store open lets go of it.
fn save_soon(dir: &Path, keep: &Keep) -> Result<(), StoreError> {
    let store = ImageStore::open_own_soon(dir)?;
    match keep {
        Keep::Images(records) => store.save(records),
        Keep::Evicted(evicted) => store.save_evicted(evicted),
        Keep::Pods(pods) => store.save_pods(pods),
    }
}

fn is_worth_a_write(saved: &Records, records: &Records) -> bool {
    saved.len() != records.len()
        || records.iter().any(|(name, now)| {
            saved.get(name).is_none_or(|saved| match (saved.last_used, now.last_used) {
                (Some(saved), Some(now)) => now.since(saved).0 >= WORTH_A_WRITE,
                (saved, now) => saved != now,
            })
        })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{record, records};
    use super::*;
    use crate::cluster::NodePod;
    use ebb_policy::Time;

    #[test]
    fn last_use_is_written_once_a_minute_and_everything_else_at_once() {
        let saved = records(&[("a", record(1, Some(1000)))]);
        let soon = records(&[("a", record(1, Some(30_000)))]);
        let later = records(&[("a", record(1, Some(61_000)))]);
        let more = records(&[("a", record(1, Some(1000))), ("b", record(2, None))]);
        let first_use = records(&[("a", record(1, None))]);
        assert!(!is_worth_a_write(&saved, &soon));
        assert!(is_worth_a_write(&saved, &later));
        assert!(is_worth_a_write(&saved, &more));
        assert!(is_worth_a_write(&first_use, &saved));
    }

    #[test]
    fn the_end_of_the_agent_writes_what_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let dir_of = || dir.path().to_owned();
        let mut memory = Memory::start(dir_of(), Remembered::default()).unwrap();
        memory.note(&Arc::new(records(&[("a", record(1, None))])));
        let images = records(&[("a", record(1, Some(7)))]);
        let evicted: Evicted = [("u1".to_owned(), ["s".to_owned()].into())].into();
        let pod = NodePod::read(&serde_json::json!({ "metadata": { "name": "p", "uid": "u2" } }));
        let pod = NodePod { problems: Vec::new(), ..pod };
        let pods: NodePods = [("u2".to_owned(), pod.into())].into();
        let last = Remembered { images: Some(Arc::new(images)), evicted, pods: Some(pods) };
        assert!(memory.finish(last.clone(), Duration::from_secs(60)));
        let store = ImageStore::open(dir.path()).unwrap();
        assert_eq!(store.load(Time(9)).unwrap().map(Arc::new), last.images);
        assert_eq!(store.load_evicted().unwrap(), last.evicted);
        assert_eq!(Some(store.load_pods().unwrap()), last.pods);
    }

    /// Opening a pipe that nobody writes to waits for ever, as a file on a mount that hangs does.
    #[test]
    fn a_directory_that_hangs_does_not_keep_the_agent_from_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let mode = nix::sys::stat::Mode::S_IRWXU;
        nix::unistd::mkfifo(&dir.path().join("images.redb.attempts"), mode).unwrap();
        let mut memory = Memory::start(dir.path().to_owned(), Remembered::default()).unwrap();
        memory.note(&Arc::new(records(&[("a", record(1, None))])));
        let images = Some(Arc::new(records(&[("a", record(1, Some(7)))])));
        let last = Remembered { images, ..Remembered::default() };
        let begun = Instant::now();
        assert!(!memory.finish(last, Duration::from_millis(20)));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    /// The disk may be full, which an eviction is to change.
    #[test]
    fn what_could_not_be_written_is_written_later() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let evicted: Evicted = [("u1".to_owned(), ["s".to_owned()].into())].into();
        let mut unsaved = Unsaved { evicted: Some(evicted.clone()), ..Unsaved::default() };
        std::fs::write(&gone, "no directory").unwrap();
        unsaved.save(&gone);
        assert!(unsaved.has_failed && unsaved.said.is_some());
        std::fs::remove_file(&gone).unwrap();
        unsaved.save(&gone);
        assert_eq!(ImageStore::open(&gone).unwrap().load_evicted().unwrap(), evicted);
        assert!(unsaved.evicted.is_none() && unsaved.said.is_none() && !unsaved.has_failed);
    }

    /// `ebb images` may have it open for longer than a write waits.
    #[test]
    fn what_another_process_kept_from_being_written_is_written_later() {
        let dir = tempfile::tempdir().unwrap();
        let evicted: Evicted = [("u1".to_owned(), ["s".to_owned()].into())].into();
        let mut unsaved = Unsaved { evicted: Some(evicted.clone()), ..Unsaved::default() };
        let taken = ImageStore::open(dir.path()).unwrap();
        unsaved.save(dir.path());
        drop(taken);
        let (_saves, inbox) = sync_channel::<Keep>(1);
        assert!(matches!(unsaved.wait(&inbox), Err(RecvTimeoutError::Timeout)));
        unsaved.save(dir.path());
        assert_eq!(ImageStore::open(dir.path()).unwrap().load_evicted().unwrap(), evicted);
        assert!(unsaved.evicted.is_none());
    }
}
