//! Who goes if somebody must act at once and the loop cannot be asked: what it leaves behind for that, and when it will be heard of next.
//!
//! The loop writes it, the watchdog reads it.

use crate::clock::Boot;
use ebb_journal::metrics::Heartbeat;
use ebb_journal::{Need, Target};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Between two looks of the watchdog at a loop that is overdue or has not begun, or at a thread that is killing.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long past its own word the loop may be silent.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Candidates kept: more would not be reached before memory is out.
const CANDIDATES: usize = 16;

/// What to do when the loop cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastResort {
    /// What must be true of the node.
    pub need: Need,
    /// Whom to end, first one first.
    pub candidates: Vec<Candidate>,
}

/// One of whom to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Who it is.
    pub target: Target,
    /// Its processes may have been moved to another cgroup by whoever its tree was handed to: that it is gone does not say that what it held is.
    pub may_move: bool,
}

/// Shared by the loop, which writes it, and the watchdog, which reads it.
#[derive(Debug, Default)]
pub struct Standby {
    /// Nanoseconds since boot by which the loop will have written again; 0 before its first word.
    due: AtomicU64,
    last_resort: Mutex<Option<LastResort>>,
}

impl Standby {
    /// The loop's word that it is alive, and will be heard of again within `next`.
    pub fn beat(&self, next: Duration) {
        self.due.store(Boot::now().plus(next).0, Ordering::Release);
    }

    /// The loop's word that it waits no more: come late, it has as long for its turn as if it had come in time.
    ///
    /// What has it come late may have held up the watchdog too (a stopped process, a paused machine), and only the loop gets to know who has taken the memory meanwhile.
    pub fn awake(&self) {
        self.due.fetch_max(Boot::now().0, Ordering::AcqRel);
    }

    /// Leaves the policy's latest ranking.
    pub fn leave(&self, mut last_resort: Option<LastResort>) {
        if let Some(resort) = &mut last_resort {
            resort.candidates.truncate(CANDIDATES);
        }
        *self.last_resort.lock().unwrap_or_else(PoisonError::into_inner) = last_resort;
    }

    /// Whether the loop has not kept its word, at `now`.
    pub fn is_silent(&self, now: Boot) -> bool {
        let due = self.due.load(Ordering::Acquire);
        due != 0 && now >= Boot(due).plus(PATIENCE)
    }

    #[cfg(test)]
    pub(crate) fn silence(&self) {
        self.due.store(1, Ordering::Release);
    }

    /// How long the loop need not be looked at, at `now`. It may give a nearer word meanwhile, so that is never longer than what a loop that hangs may take to be noticed.
    pub(super) fn rest(&self, now: Boot) -> Duration {
        let due = self.due.load(Ordering::Acquire);
        if due == 0 {
            return LOOK_EVERY;
        }
        Boot(due).plus(PATIENCE).since(now).clamp(LOOK_EVERY, PATIENCE + LOOK_EVERY)
    }

    /// What to do if the loop is overdue at `now`, and by which word of its own: when it was to be heard of.
    pub(super) fn overdue(&self, now: Boot) -> Option<(Boot, LastResort)> {
        let word = Boot(self.due.load(Ordering::Acquire));
        if !self.is_silent(now) {
            return None;
        }
        // The loop may hang while it holds the lock: then there is nothing to be had from it.
        Some((word, self.last_resort.try_lock().ok()?.clone()?))
    }
}

impl Heartbeat for Standby {
    fn has_stopped(&self) -> bool {
        self.is_silent(Boot::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resort() -> LastResort {
        let target = Target::Process { pid: 1, start: 0 };
        let candidates = vec![Candidate { target, may_move: false }; 40];
        LastResort { need: Need::MemoryBelow { bytes: 1 }, candidates }
    }

    #[test]
    fn a_loop_that_keeps_its_word_is_left_alone_and_a_silent_one_is_not() {
        let standby = Standby::default();
        standby.leave(Some(resort()));
        assert_eq!(standby.overdue(Boot(u64::MAX)), None, "it has not begun");
        standby.beat(Duration::from_secs(10));
        let due = Boot(standby.due.load(Ordering::Acquire));
        assert_eq!(standby.overdue(due), None);
        let (word, kept) = standby.overdue(due.plus(PATIENCE)).unwrap();
        assert_eq!(word, due);
        assert_eq!(kept.candidates.len(), CANDIDATES);
    }

    #[test]
    fn a_loop_that_comes_late_has_its_turn() {
        let standby = Standby::default();
        standby.leave(Some(resort()));
        standby.due.store(1, Ordering::Release);
        let late = Boot::now();
        assert!(standby.is_silent(late));
        standby.awake();
        assert_eq!(standby.overdue(late.plus(PATIENCE / 2)), None);
        let (word, _) = standby.overdue(Boot::now().plus(PATIENCE)).unwrap();
        assert!(word >= late);
        // Woken early it has given no nearer word than before.
        standby.beat(Duration::from_secs(10));
        let due = standby.due.load(Ordering::Acquire);
        standby.awake();
        assert_eq!(standby.due.load(Ordering::Acquire), due);
    }

    #[test]
    fn a_loop_is_looked_at_when_it_may_be_overdue_and_no_later() {
        let standby = Standby::default();
        assert_eq!(standby.rest(Boot(1)), LOOK_EVERY, "it has not begun");
        let now = Boot(1_000_000_000_000);
        let rest = |due: Boot| {
            standby.due.store(due.0, Ordering::Release);
            standby.rest(now)
        };
        let soon = Duration::from_millis(100);
        assert_eq!(rest(now.plus(soon)), PATIENCE + soon);
        assert_eq!(rest(now.plus(PATIENCE * 9)), PATIENCE + LOOK_EVERY, "it may change its mind");
        assert_eq!(rest(Boot(1)), LOOK_EVERY, "it is overdue already");
    }

    #[test]
    fn a_loop_that_hangs_with_the_lock_in_hand_does_not_hang_the_watchdog() {
        let standby = Standby::default();
        standby.leave(Some(resort()));
        standby.beat(Duration::ZERO);
        let _held = standby.last_resort.lock().unwrap();
        assert_eq!(standby.overdue(Boot(u64::MAX)), None);
    }
}
