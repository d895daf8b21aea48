//! Handing something over to a thread that does what may block: whoever hands over never waits.
//!
//! There is room for so many; what finds none is dropped and counted, and how far the thread is can be asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// All that such a thread does, until there is nobody left who could hand anything over.
pub type Writing = Box<dyn FnOnce() + Send>;

/// The side of whoever hands over; cheap to clone.
#[derive(Debug)]
pub(crate) struct Handover<T> {
    items: SyncSender<T>,
    dropped: Arc<AtomicU64>,
    progress: Progress,
}

/// The side of the thread.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    items: Receiver<T>,
    dropped: Arc<AtomicU64>,
    progress: Progress,
}

/// How far the thread is, for whoever waits for it.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    given: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
}

/// Both sides, with room for so many that wait.
pub(crate) fn handover<T>(room: usize) -> (Handover<T>, Inbox<T>) {
    let (sender, receiver) = sync_channel(room);
    let (dropped, progress) = (Arc::<AtomicU64>::default(), Progress::default());
    let inbox =
        Inbox { items: receiver, dropped: Arc::clone(&dropped), progress: progress.clone() };
    (Handover { items: sender, dropped, progress }, inbox)
}

impl<T> Handover<T> {
    /// Hands it over, or drops it where there is no room.
    pub(crate) fn put(&self, item: T) {
        match self.items.try_send(item) {
            Ok(()) => self.progress.given.fetch_add(1, Ordering::Release),
            Err(_) => self.dropped.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// How many were dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress.clone()
    }
}

// Not derived: that would ask for items that can be cloned.
impl<T> Clone for Handover<T> {
    fn clone(&self) -> Self {
        let Self { items, dropped, progress } = self;
        Self { items: items.clone(), dropped: Arc::clone(dropped), progress: progress.clone() }
    }
}

impl<T> Inbox<T> {
    /// The next; `None` once there is nobody left who could hand anything over.
    pub(crate) fn next(&self) -> Option<T> {
        self.items.recv().ok()
    }

    /// The next, waited for no longer than `patience`.
    pub(crate) fn next_within(&self, patience: Duration) -> Result<T, RecvTimeoutError> {
        self.items.recv_timeout(patience)
    }

    /// Says that one is dealt with.
    pub(crate) fn has_done(&self) {
        self.progress.done.fetch_add(1, Ordering::Release);
    }

    /// Counts what was taken and came to nothing.
    pub(crate) fn drop_more(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// How many were dropped since that was last asked, for a thread that tells so itself.
    pub(crate) fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

impl Progress {
    /// How many were handed over that are not dealt with.
    #[must_use]
    pub fn left(&self) -> u64 {
        let done = self.done.load(Ordering::Acquire);
        self.given.load(Ordering::Acquire).saturating_sub(done)
    }

    /// Waits until what is handed over by now is dealt with, but no longer than `patience`; returns whether it is.
    pub fn wait(&self, patience: Duration) -> bool {
        let (given, begun) = (self.given.load(Ordering::Acquire), Instant::now());
        while self.done.load(Ordering::Acquire) < given {
            if begun.elapsed() >= patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}
