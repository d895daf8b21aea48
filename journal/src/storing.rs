//! Storing incident records on a thread of their own: a directory that hangs holds up neither a decision nor the records on standard output.
//!
//! ```text
//!  loop ─► (8 may wait) ─► thread ebb-incidents ─► directory
//!    ◄── Storing: why the latest is not stored, how many are lost
//! ```
//! What cannot be stored is tried again, with the next and after a while: the disk may be full, which an eviction is to change. No more than the latest is kept for that.

use crate::handover::{Handover, Inbox, Progress, Writing, handover};
use crate::incident::Incident;
use crate::job::Mode;
use std::io;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The name of the thread, for whoever starts it.
pub const STORER: &str = "ebb-incidents";

/// Records that may wait: each is as large as what was decided on.
const WAITING: usize = 8;

/// After which what could not be stored is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// After which a directory that has not answered is said to hang.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// What is done with each record.
pub(crate) type Store = Box<dyn FnMut(&Incident) -> io::Result<()> + Send>;

/// How storing goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Storing {
    /// Why the latest record is not stored; `None` where it is.
    pub trouble: Option<String>,
    /// Records that are lost for good.
    pub lost: u64,
}

#[derive(Debug)]
enum Item {
    Store(Box<Incident>),
    /// The process ends: what is kept is tried once more, and then lost.
    Last,
}

/// The way to the thread; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Storer {
    items: Handover<Item>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    storing: Storing,
    /// Since when the directory has not answered.
    waits_since: Option<Instant>,
}

impl Storer {
    /// Has `spawn` start the thread, which stores by `store` the records of an agent in this `mode`.
    ///
    /// # Errors
    /// When no thread can be made.
    pub(crate) fn start(
        store: Store,
        mode: Mode,
        spawn: impl FnOnce(Writing) -> io::Result<JoinHandle<()>>,
    ) -> io::Result<Self> {
        Self::start_with(store, mode, AGAIN_AFTER, spawn)
    }

    fn start_with(
        store: Store,
        mode: Mode,
        again_after: Duration,
        spawn: impl FnOnce(Writing) -> io::Result<JoinHandle<()>>,
    ) -> io::Result<Self> {
        let (items, inbox) = handover(WAITING);
        let shared = Arc::<Mutex<Shared>>::default();
        let mut work = Work { store, mode, shared: Arc::clone(&shared), kept: None };
        spawn(Box::new(move || work.until_nobody_is_left(&inbox, again_after)))?;
        Ok(Self { items, shared })
    }

    pub(crate) fn store(&self, incident: Incident) {
        self.items.put(Item::Store(Box::new(incident)));
    }

    /// Says that the process ends.
    pub(crate) fn last(&self) {
        self.items.put(Item::Last);
    }

    pub(crate) fn progress(&self) -> Progress {
        self.items.progress()
    }

    /// How many are lost by now, also of those that found no place to wait.
    pub(crate) fn lost(&self) -> u64 {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).storing.lost
            + self.items.dropped()
    }

    /// How storing goes; `None` where that cannot be told without waiting.
    pub(crate) fn storing(&self) -> Option<Storing> {
        let shared = match self.shared.try_lock() {
            Ok(shared) => shared,
            Err(TryLockError::Poisoned(shared)) => shared.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let mut storing = shared.storing.clone();
        if shared.waits_since.is_some_and(|since| since.elapsed() > STUCK_AFTER) {
            let what = "incident records are not stored: their directory does not answer";
            storing.trouble = Some(what.to_owned());
        }
        // Those that found no place to wait.
        storing.lost += self.items.dropped();
        Some(storing)
    }
}

/// What the thread has.
struct Work {
    store: Store,
    /// Of the agent whose records they are.
    mode: Mode,
    shared: Arc<Mutex<Shared>>,
    /// The latest that could not be stored.
    kept: Option<Box<Incident>>,
}

impl Work {
    fn until_nobody_is_left(&mut self, inbox: &Inbox<Item>, again_after: Duration) {
        loop {
            let item = match self.kept {
                Some(_) => inbox.next_within(again_after),
                None => inbox.next().ok_or(RecvTimeoutError::Disconnected),
            };
            match item {
                Ok(Item::Store(incident)) => self.store(Some(incident)),
                Ok(Item::Last) => {
                    self.store(None);
                    if let Some(lost) = self.kept.take() {
                        self.shared().storing.lost += 1;
                        tracing::error!(
                            incident = lost.name(self.mode),
                            "an incident record is lost"
                        );
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.store(None);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            inbox.has_done();
        }
    }

    /// Stores what is kept, then `incident`; of those that cannot be stored the latest is kept.
    fn store(&mut self, incident: Option<Box<Incident>>) {
        let all = self.kept.take().into_iter().chain(incident);
        for incident in all {
            self.shared().waits_since = Some(Instant::now());
            let stored = (self.store)(&incident);
            let shared = &mut *self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.waits_since = None;
            let Err(error) = stored else {
                if self.kept.is_none() {
                    shared.storing.trouble = None;
                }
                continue;
            };
            let name = incident.name(self.mode);
            shared.storing.trouble = Some(format!(
                "the record of incident {name} is not stored: {error}; it is kept and tried again until the next that cannot be stored"
            ));
            if self.kept.replace(incident).is_some() {
                shared.storing.lost += 1;
            }
        }
    }

    fn shared(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::tests::incident;
    use std::sync::mpsc::{Receiver, Sender, channel};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A directory that stores or does not, as is said each time; what it has stored is told.
    fn directory() -> (Storer, Sender<bool>, Receiver<u64>) {
        let ((say, may), (tell, stored)) = (channel(), channel());
        let store = move |incident: &Incident| match may.recv() {
            Ok(true) => {
                tell.send(incident.crossed_at).unwrap();
                Ok(())
            }
            _ => Err(io::ErrorKind::StorageFull.into()),
        };
        let spawn = |writing: Writing| std::thread::Builder::new().spawn(writing);
        let storer =
            Storer::start_with(Box::new(store), Mode::Enforce, Duration::from_millis(10), spawn);
        (storer.unwrap(), say, stored)
    }

    fn wait_for(storer: &Storer, is_so: impl Fn(&Storing) -> bool) -> Storing {
        let begun = Instant::now();
        loop {
            let now = storer.storing().filter(|storing| is_so(storing));
            if let Some(now) = now {
                return now;
            }
            assert!(begun.elapsed() < PATIENCE, "{:?}", storer.storing());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_cannot_be_stored_is_told_and_stored_once_it_can_be() {
        let (storer, say, stored) = directory();
        storer.store(incident(7));
        say.send(false).unwrap();
        let told = wait_for(&storer, |storing| storing.trouble.is_some());
        let why = told.trouble.unwrap();
        assert!(why.contains("7-memory.available") && why.contains("no storage space"), "{why}");
        assert_eq!(told.lost, 0);
        say.send(false).unwrap();
        say.send(true).unwrap();
        assert_eq!(stored.recv_timeout(PATIENCE), Ok(7));
        wait_for(&storer, |storing| *storing == Storing::default());
    }

    #[test]
    fn of_those_that_cannot_be_stored_the_latest_is_kept_and_the_others_count_as_lost() {
        let (storer, say, stored) = directory();
        storer.store(incident(1));
        say.send(false).unwrap();
        wait_for(&storer, |storing| storing.trouble.is_some());
        storer.store(incident(2));
        // Whether the first is tried once more by itself before the second comes is a matter of time.
        let lost = || {
            say.send(false).unwrap();
            storer.storing().is_some_and(|storing| storing.lost == 1)
        };
        let begun = Instant::now();
        while !lost() {
            assert!(begun.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(1));
        }
        let told = wait_for(&storer, |storing| storing.lost == 1);
        assert!(told.trouble.unwrap().contains("2-memory.available"));
        for _ in 0..1000 {
            say.send(true).unwrap();
        }
        assert_eq!(stored.recv_timeout(PATIENCE), Ok(2));
        storer.store(incident(3));
        assert_eq!(stored.recv_timeout(PATIENCE), Ok(3));
    }

    #[test]
    fn a_directory_that_hangs_holds_nobody_up_and_what_finds_no_place_is_lost() {
        let (storer, say, _stored) = directory();
        for at in 0..20 {
            storer.store(incident(at));
        }
        storer.last();
        assert!(!storer.progress().wait(Duration::from_millis(1)));
        let lost = storer.storing().unwrap().lost;
        assert!(lost >= 11, "8 wait, one is being stored: {lost}");
        drop(say);
        assert!(storer.progress().wait(PATIENCE));
    }

    #[test]
    fn the_end_tries_once_more_and_then_counts_it_as_lost() {
        let (storer, say, _stored) = directory();
        storer.store(incident(1));
        say.send(false).unwrap();
        storer.last();
        drop(say);
        assert!(storer.progress().wait(PATIENCE));
        assert_eq!(wait_for(&storer, |_| true).lost, 1);
    }
}
