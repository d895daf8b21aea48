//! Who goes if somebody must act at once and the loop cannot be asked: what it leaves behind for that, and when it will be heard of next.
//!
//! The loop writes it, the watchdog reads it.

use crate::clock::Boot;
use crate::threads::precede;
use ebb_journal::metrics::Heartbeat;
use ebb_journal::{Need, Target};
use ebb_policy::Time;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Between two looks of the watchdog at a loop that has not begun, or at a thread that is killing.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long past its own word the loop may be silent.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// How long past its word the watchdog begins to listen, and how often it looks from then on.
const LISTEN_AFTER: Duration = Duration::from_secs(1);
const LISTEN_EVERY: Duration = Duration::from_millis(250);

/// Candidates kept: more would not be reached before memory is out.
const CANDIDATES: usize = 16;

/// What to do when the loop cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastResort {
    /// What must be true of the node.
    pub need: Need,
    /// Whom to end, first one first.
    pub candidates: Vec<Candidate>,
    /// When that was decided.
    pub decision: Option<Time>,
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
    /// The loop's thread while it goes before whatever is not real-time; 0 while it does not.
    precedes: AtomicI32,
}

impl Standby {
    /// The loop's word that it is alive, and will be heard of again within `next`.
    pub fn beat(&self, next: Duration) {
        self.due.store(Boot::now().plus(next).0, Ordering::Release);
    }

    /// The loop's word that it waits no more: come late, it has as long for its turn as if it had come in time.
    ///
    /// Only the loop gets to know who has taken the memory meanwhile.
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

    /// The loop's word that its thread goes before whatever is not real-time, or no more.
    pub(crate) fn precedes(&self, thread: Option<i32>) {
        self.precedes.store(thread.unwrap_or(0), Ordering::Release);
    }

    /// Takes that back from a loop that is stuck: one that spins would keep a processor from everybody.
    pub(crate) fn take_precedence_back(&self) {
        let thread = self.precedes.swap(0, Ordering::AcqRel);
        if thread != 0
            && let Err(error) = precede(thread, false)
        {
            tracing::error!(%error, "the loop is stuck and keeps its real-time priority");
        }
    }

    /// Whether the loop has not kept its word, at `now`.
    pub fn is_silent(&self, now: Boot) -> bool {
        self.broken_word(now).is_some_and(|due| now >= due.plus(PATIENCE))
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
        let listen_at = Boot(due).plus(LISTEN_AFTER);
        listen_at.since(now).clamp(LISTEN_EVERY, PATIENCE + LOOK_EVERY)
    }

    /// The word that the loop has not kept at `now`: when it was to be heard of.
    pub(super) fn broken_word(&self, now: Boot) -> Option<Boot> {
        let due = self.due.load(Ordering::Acquire);
        (due != 0 && now >= Boot(due)).then_some(Boot(due))
    }

    /// Whether the loop has not been heard of since it gave that word.
    pub(super) fn still_stands(&self, word: Boot) -> bool {
        self.due.load(Ordering::Acquire) == word.0
    }

    /// What the loop has left.
    pub(super) fn last_resort(&self) -> Option<LastResort> {
        // The loop may hang while it holds the lock: then there is nothing to be had from it.
        self.last_resort.try_lock().ok()?.clone()
    }
}

/// How long the loop has been silent in time in which it could have spoken: the watchdog's own.
///
/// What holds up all of ebb, as a stopped process or a paused machine, holds up the watchdog too.
/// By the clock alone the loop is then long overdue when both come back, and the watchdog would be faster than a loop that
/// reads the node anew, and knows who takes the memory now.
#[derive(Debug, Default)]
pub(super) struct Silence {
    word: Option<Boot>,
    looked: Boot,
    lasted: Duration,
}

impl Silence {
    /// Takes in a look at `now`, at which the loop has broken `word`, or none; returns whether it has been silent for too long.
    pub(super) fn is_too_long(&mut self, word: Option<Boot>, now: Boot) -> bool {
        if self.word == word {
            // The watchdog rests no longer than that while it listens: a look that comes later was held up itself.
            self.lasted += now.since(self.looked).min(LOOK_EVERY);
        } else {
            *self = Self { word, ..Self::default() };
        }
        self.looked = now;
        word.is_some() && self.lasted >= PATIENCE
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
        LastResort { need: Need::MemoryBelow { bytes: 1 }, candidates, decision: None }
    }

    #[test]
    fn a_loop_that_keeps_its_word_is_left_alone_and_a_silent_one_is_not() {
        let standby = Standby::default();
        standby.leave(Some(resort()));
        assert_eq!(standby.last_resort().unwrap().candidates.len(), CANDIDATES);
        assert_eq!(standby.broken_word(Boot(u64::MAX)), None, "it has not begun");
        standby.beat(Duration::from_secs(10));
        let due = Boot(standby.due.load(Ordering::Acquire));
        assert_eq!(standby.broken_word(Boot(due.0 - 1)), None);
        assert_eq!(standby.broken_word(due), Some(due));
        assert!(!standby.is_silent(due) && standby.is_silent(due.plus(PATIENCE)));
        assert!(standby.still_stands(due));
        standby.beat(Duration::from_secs(20));
        assert!(!standby.still_stands(due));
    }

    #[test]
    fn a_loop_that_comes_late_has_its_turn() {
        let standby = Standby::default();
        standby.due.store(1, Ordering::Release);
        let late = Boot::now();
        assert!(standby.is_silent(late));
        standby.awake();
        assert!(!standby.is_silent(late));
        let word = standby.broken_word(Boot::now()).unwrap();
        assert!(word >= late);
        // Woken early it has given no nearer word than before.
        standby.beat(Duration::from_secs(10));
        let due = standby.due.load(Ordering::Acquire);
        standby.awake();
        assert_eq!(standby.due.load(Ordering::Acquire), due);
    }

    /// Looks every quarter of a second until the loop has been silent for too long; returns how many.
    fn looks(silence: &mut Silence, word: Boot, from: Boot) -> u32 {
        let mut count = 0;
        while !silence.is_too_long(Some(word), from.plus(LISTEN_EVERY * count)) {
            count += 1;
        }
        count
    }

    #[test]
    fn a_loop_that_is_silent_while_the_watchdog_listens_is_stuck() {
        let (mut silence, word) = (Silence::default(), Boot(1));
        assert_eq!(looks(&mut silence, word, Boot(1_000_000_000)), 8);
        // Until it gives another word.
        assert!(!silence.is_too_long(None, Boot(4_000_000_000)));
        assert_eq!(looks(&mut silence, Boot(2), Boot(5_000_000_000)), 8);
        assert_eq!(looks(&mut silence, Boot(3), Boot(9_000_000_000)), 8);
    }

    /// In the middle of a turn the loop gives no word when it comes back.
    #[test]
    fn a_loop_that_was_held_up_together_with_the_watchdog_is_not() {
        let (mut silence, word, stopped) = (Silence::default(), Boot(1), Boot(1_000_000_000));
        assert!(!silence.is_too_long(Some(word), stopped));
        let back = stopped.plus(Duration::from_secs(60));
        assert_eq!(looks(&mut silence, word, back), 6, "a minute counts as one late look");
        let mut silence = Silence::default();
        assert_eq!(looks(&mut silence, word, back), 8, "it has not been listened to before");
    }

    #[test]
    fn a_loop_is_listened_to_when_it_may_be_overdue_and_no_earlier() {
        let standby = Standby::default();
        assert_eq!(standby.rest(Boot(1)), LOOK_EVERY, "it has not begun");
        let now = Boot(1_000_000_000_000);
        let rest = |due: Boot| {
            standby.due.store(due.0, Ordering::Release);
            standby.rest(now)
        };
        let soon = Duration::from_millis(100);
        assert_eq!(rest(now.plus(soon)), LISTEN_AFTER + soon);
        assert_eq!(rest(now.plus(PATIENCE * 9)), PATIENCE + LOOK_EVERY, "it may change its mind");
        assert_eq!(rest(Boot(1)), LISTEN_EVERY, "it is overdue already");
    }

    #[test]
    fn a_loop_that_hangs_with_the_lock_in_hand_does_not_hang_the_watchdog() {
        let standby = Standby::default();
        standby.leave(Some(resort()));
        let _held = standby.last_resort.lock().unwrap();
        assert_eq!(standby.last_resort(), None);
    }
}
