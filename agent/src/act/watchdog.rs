//! When the loop or the thread that kills is stuck while memory runs out, something must still act.
//!
//! The loop leaves two things where the watchdog's thread can see them: when it will be heard of next at the latest, and the ranking that the policy made last.
//! If the first is overdue and the node is below the hard threshold, the watchdog has the first of the ranking that may be killed killed, under the same checks.
//! The thread that kills leaves since when it is at its present order. If that is too long ago another thread takes over: its queue, and an [`Actor`] of its own.

use super::release::Releaser;
use super::worker::{self, Order, Seat};
use super::{Acted, Actor, Job, Need, NotDone, Refusal, Step, Target};
use crate::clock::Boot;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// Between two looks of the watchdog at a loop that is overdue or has not begun, or at a thread that is killing.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long past its own word the loop may be silent.
const PATIENCE: Duration = Duration::from_secs(2);

/// A kill takes less than a millisecond, or half a second for each container where the kernel has no `cgroup.kill`. Who takes over meanwhile kills nobody twice over: a process dies once.
const KILL_PATIENCE: Duration = Duration::from_secs(1);

/// How long an exiting candidate is waited for, as the loop waits for those it has had killed.
const EXIT_PATIENCE: Duration = Duration::from_secs(3);

/// Candidates kept: more would not be reached before memory is out.
const CANDIDATES: usize = 16;

/// What to do when the loop cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastResort {
    /// What must be true of the node.
    pub need: Need,
    /// Whom to end, first one first.
    pub targets: Vec<Target>,
}

/// Shared by the loop, which writes it, and the watchdog, which reads it.
#[derive(Debug, Default)]
pub struct Lifeline {
    /// Nanoseconds since boot by which the loop will have written again; 0 before its first word.
    due: AtomicU64,
    last_resort: Mutex<Option<LastResort>>,
}

impl Lifeline {
    /// The loop's word that it is alive, and will be heard of again within `next`.
    pub fn beat(&self, next: Duration) {
        self.due.store(Boot::now().plus(next).0, Ordering::Release);
    }

    /// Leaves the policy's latest ranking.
    pub fn leave(&self, mut last_resort: Option<LastResort>) {
        if let Some(resort) = &mut last_resort {
            resort.targets.truncate(CANDIDATES);
        }
        *self.last_resort.lock().unwrap_or_else(PoisonError::into_inner) = last_resort;
    }

    /// How long the loop need not be looked at, at `now`. It may give a nearer word meanwhile, so that is never longer than what a loop that hangs may take to be noticed.
    fn rest(&self, now: Boot) -> Duration {
        let due = self.due.load(Ordering::Acquire);
        if due == 0 {
            return LOOK_EVERY;
        }
        Boot(due).plus(PATIENCE).since(now).clamp(LOOK_EVERY, PATIENCE + LOOK_EVERY)
    }

    /// What to do if the loop is overdue at `now`.
    fn overdue(&self, now: Boot) -> Option<LastResort> {
        let due = self.due.load(Ordering::Acquire);
        if due == 0 || now < Boot(due).plus(PATIENCE) {
            return None;
        }
        // The loop may hang while it holds the lock: then there is nothing to be had from it.
        self.last_resort.try_lock().ok()?.clone()
    }
}

/// Starts the watchdog's thread, which lives as long as somebody takes results.
///
/// It kills nobody itself: it hands the work to a thread that does, and hands that thread's seat on when it hangs.
///
/// # Errors
/// When no thread can be made.
pub(super) fn guard(
    lifeline: Arc<Lifeline>,
    seat: Arc<Seat>,
    orders: SyncSender<Order>,
    releaser: Releaser,
    results: Sender<Acted>,
) -> io::Result<Thread> {
    let thread = crate::threads::spawn("ebb-watchdog", move || {
        let mut all_hang = false;
        while !results.is_closed() {
            let is_busy = seat.busy_for(Boot::now()).is_some() || releaser.is_busy();
            let rest = if is_busy { LOOK_EVERY } else { lifeline.rest(Boot::now()) };
            // Whoever hands over a job ends the rest early.
            std::thread::park_timeout(rest);
            let now = Boot::now();
            releaser.attend(now);
            if let Some(busy) = seat.busy_for(now).filter(|busy| *busy > KILL_PATIENCE) {
                // Before the next job can be told of. A full channel is no reason to wait: the loop that would read it is stuck.
                if let Some(job) = seat.take_job() {
                    let _ = results.try_send(worker::hung(job, busy));
                }
                let is_taken_over = seat.hand_over();
                if is_taken_over {
                    tracing::error!(?busy, "the thread that kills hangs: another takes over");
                } else if !all_hang {
                    tracing::error!(
                        ?busy,
                        "every thread that kills hangs: nobody is killed until one comes back"
                    );
                }
                all_hang = !is_taken_over;
            } else {
                all_hang = false;
            }
            let Some(resort) = lifeline.overdue(now) else { continue };
            // One at a time: what waits is no newer than this.
            if !seat.stands_in.swap(true, Ordering::AcqRel)
                && orders.try_send(Order::StandIn(resort)).is_err()
            {
                seat.stands_in.store(false, Ordering::Release);
            }
        }
    })?;
    Ok(thread.thread().clone())
}

/// Kills the first candidate that can be killed, in place of the loop; `None` when none could, or none need be.
///
/// A candidate that is exiting is as good as killed: nobody behind it goes for memory that is on its way back. `awaited` is
/// that one, and since when it is waited for.
pub(super) fn stand_in(
    resort: &LastResort,
    actor: &mut Actor,
    awaited: &mut Option<(Target, Boot)>,
) -> Option<Acted> {
    for (target, number) in resort.targets.iter().zip(1..) {
        let job = Job {
            number: u64::MAX / 2 + number,
            target: target.clone(),
            step: Step::Kill,
            need: Some(resort.need.clone()),
        };
        let mut acted = actor.perform(job);
        match acted.result {
            Ok(_) => {
                tracing::error!(?target, "the loop is stuck and memory is out: the watchdog acted");
                acted.by_watchdog = true;
                return Some(acted);
            }
            Err(NotDone::Refused(Refusal::Exiting)) => {
                let now = Boot::now();
                let (_, since) = match awaited.take().filter(|(one, _)| one == target) {
                    Some(same) => awaited.insert(same),
                    None => awaited.insert((target.clone(), now)),
                };
                if now.since(*since) < EXIT_PATIENCE {
                    return None;
                }
            }
            Err(_) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resort() -> LastResort {
        let target = Target::Process { pid: 1, start: 0 };
        LastResort { need: Need::MemoryBelow { bytes: 1 }, targets: vec![target; 40] }
    }

    #[test]
    fn a_loop_that_keeps_its_word_is_left_alone_and_a_silent_one_is_not() {
        let lifeline = Lifeline::default();
        lifeline.leave(Some(resort()));
        assert_eq!(lifeline.overdue(Boot(u64::MAX)), None, "it has not begun");
        lifeline.beat(Duration::from_secs(10));
        let due = Boot(lifeline.due.load(Ordering::Acquire));
        assert_eq!(lifeline.overdue(due), None);
        let kept = lifeline.overdue(due.plus(PATIENCE)).unwrap();
        assert_eq!(kept.targets.len(), CANDIDATES);
    }

    #[test]
    fn a_loop_is_looked_at_when_it_may_be_overdue_and_no_later() {
        let lifeline = Lifeline::default();
        assert_eq!(lifeline.rest(Boot(1)), LOOK_EVERY, "it has not begun");
        let now = Boot(1_000_000_000_000);
        let rest = |due: Boot| {
            lifeline.due.store(due.0, Ordering::Release);
            lifeline.rest(now)
        };
        let soon = Duration::from_millis(100);
        assert_eq!(rest(now.plus(soon)), PATIENCE + soon);
        assert_eq!(rest(now.plus(PATIENCE * 9)), PATIENCE + LOOK_EVERY, "it may change its mind");
        assert_eq!(rest(Boot(1)), LOOK_EVERY, "it is overdue already");
    }

    #[test]
    fn a_loop_that_hangs_with_the_lock_in_hand_does_not_hang_the_watchdog() {
        let lifeline = Lifeline::default();
        lifeline.leave(Some(resort()));
        lifeline.beat(Duration::ZERO);
        let _held = lifeline.last_resort.lock().unwrap();
        assert_eq!(lifeline.overdue(Boot(u64::MAX)), None);
    }
}
