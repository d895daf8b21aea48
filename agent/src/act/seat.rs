//! The place of the thread that kills: what whoever has it is told, and what others can see of it.
//!
//! Orders come in over one queue; since when the present one takes is on record, so that the watchdog can hand the seat on when its holder hangs.

use super::standby::LastResort;
use super::{Acted, Job, NotDone, Target};
use crate::clock::Boot;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a thread that kills is told.
#[derive(Debug)]
pub(super) enum Order {
    /// Take hold of this one: a job for it may follow.
    Hold(Target),
    Do(Job),
    /// The loop is stuck, and has not been heard of since it gave this word: kill the first of these that can be killed.
    StandIn {
        word: Boot,
        resort: LastResort,
    },
}

/// The place of the thread that kills: whoever has it takes orders.
pub(super) struct Seat {
    pub(super) inbox: Mutex<Receiver<Order>>,
    /// What the one who has it is at.
    post: Mutex<Arc<Post>>,
    /// Those that can take over.
    spares: Mutex<VecDeque<SyncSender<Arc<Post>>>>,
    /// An order to stand in for the loop has not been dealt with.
    pub(super) stands_in: AtomicBool,
    /// How often somebody was killed in the loop's place.
    pub(super) stood_in: Arc<AtomicU64>,
}

/// What one holder of the seat is at.
#[derive(Debug, Default)]
pub(super) struct Post {
    /// Nanoseconds since boot at which it began its present order; 0 between two.
    busy_since: AtomicU64,
    /// The job that it is at.
    job: Mutex<Option<Job>>,
    /// Somebody else has taken over.
    replaced: AtomicBool,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seat {
    pub(super) fn new(inbox: Receiver<Order>) -> Self {
        Self {
            inbox: Mutex::new(inbox),
            post: Mutex::default(),
            spares: Mutex::default(),
            stands_in: AtomicBool::new(false),
            stood_in: Arc::default(),
        }
    }

    pub(super) fn spares(&self) -> MutexGuard<'_, VecDeque<SyncSender<Arc<Post>>>> {
        lock(&self.spares)
    }

    /// For how long the present order has been worked at, at `now`; `None` between two.
    pub(super) fn busy_for(&self, now: Boot) -> Option<Duration> {
        let since = lock(&self.post).busy_since.load(Ordering::Acquire);
        (since != 0).then(|| now.since(Boot(since)))
    }

    /// Gives the seat to the next thread that can have it; false when all hang.
    pub(super) fn hand_over(&self) -> bool {
        let Some(next) = self.spares().pop_front() else { return false };
        let post = Arc::new(Post::default());
        let before = std::mem::replace(&mut *lock(&self.post), Arc::clone(&post));
        before.replaced.store(true, Ordering::Release);
        self.stands_in.store(false, Ordering::Release);
        // A thread that can take over waits for nothing else.
        next.try_send(post).is_ok()
    }

    /// The job at which the holder of the seat is, for whoever is to tell that it hangs; once.
    pub(super) fn take_job(&self) -> Option<Job> {
        lock(&lock(&self.post).job).take()
    }
}

impl Post {
    pub(super) fn begin(&self, job: Option<&Job>) {
        *lock(&self.job) = job.cloned();
        self.busy_since.store(Boot::now().0.max(1), Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.busy_since.store(0, Ordering::Release);
        *lock(&self.job) = None;
    }

    pub(super) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }
}

/// What is told of a job whose thread hangs.
pub(super) fn hung(job: Job, since: Duration) -> Acted {
    let begun = Boot(Boot::now().0.saturating_sub(u64::try_from(since.as_nanos()).unwrap_or(0)));
    Acted { job, begun, result: Err(NotDone::Hung), by_watchdog: false }
}
