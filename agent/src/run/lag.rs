//! Whether the loop keeps its own time. Where ebb itself is starved or held up its decisions come late, and whoever asks why is to find it on record.

use crate::testing;
use std::time::{Duration, Instant};

/// From here on a turn of the loop is late.
const LATE: Duration = Duration::from_millis(250);

/// Between two times that this is told.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// One turn of the loop. By a clock that stands still while the machine sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// When it was to begin at the latest.
    pub(super) due: Instant,
    pub(super) began: Instant,
    pub(super) ended: Instant,
    /// What was done.
    pub(super) what: &'static str,
}

/// Turns that were late.
#[derive(Debug, Default)]
pub(super) struct LagMonitor {
    told: Option<Instant>,
    /// Since then.
    late: u64,
    /// Nothing is told.
    is_silent: bool,
}

impl LagMonitor {
    /// Counts from here on. A test may say that its machine is busy, and that this is not what it is about.
    pub(super) fn begin() -> Self {
        Self { is_silent: testing::asks("EBB_TEST_BUSY_MACHINE").is_some(), ..Self::default() }
    }

    /// Takes in a turn; returns what to say of it, the first time and then once a minute.
    pub(super) fn observe(&mut self, turn: Turn) -> Option<String> {
        let overslept = turn.began.saturating_duration_since(turn.due);
        let took = turn.ended.saturating_duration_since(turn.began);
        if overslept.max(took) < LATE || self.is_silent {
            return None;
        }
        self.late += 1;
        if self.told.is_some_and(|told| turn.ended.duration_since(told) < TELL_EVERY) {
            return None;
        }
        self.told = Some(turn.ended);
        let late = std::mem::take(&mut self.late);
        let again = if late > 1 { format!(", one of {late} such times") } else { String::new() };
        Some(if overslept > took {
            format!("ebb began a turn {overslept:.0?} late: it was not given a processor{again}")
        } else {
            format!("ebb was held up for {took:.0?} by {}{again}", turn.what)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn that ends `at` seconds after the start, of these milliseconds.
    fn turn(start: Instant, at: u64, overslept: u64, took: u64) -> Turn {
        let ended = start + Duration::from_secs(at);
        let began = ended - Duration::from_millis(took);
        Turn { due: began - Duration::from_millis(overslept), began, ended, what: "a look" }
    }

    #[test]
    fn a_late_turn_is_told_with_its_reason_and_not_more_than_once_a_minute() {
        let start = Instant::now();
        let mut pace = LagMonitor::default();
        let mut tell = |at, overslept, took| pace.observe(turn(start, at, overslept, took));
        assert_eq!(tell(10, 249, 249), None);
        let first = tell(11, 20, 300).unwrap();
        assert_eq!(first, "ebb was held up for 300ms by a look");
        assert_eq!(tell(12, 0, 400), None);
        assert_eq!(tell(13, 5000, 0), None);
        let second = tell(71, 1000, 300).unwrap();
        assert_eq!(
            second,
            "ebb began a turn 1s late: it was not given a processor, one of 3 such times"
        );
        assert_eq!(tell(72, 0, 400), None);
    }

    #[test]
    fn a_turn_that_something_else_began_before_it_was_due_is_not_late() {
        let start = Instant::now();
        let mut early = turn(start, 10, 0, 10);
        early.due = early.ended + Duration::from_secs(100);
        assert_eq!(LagMonitor::default().observe(early), None);
    }
}
