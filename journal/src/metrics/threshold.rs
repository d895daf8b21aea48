//! Each threshold: its limit, where it stands, and when it was last decided on, met and acted on.

use super::Known;
use ebb_policy::plan::{Strength, ThresholdState, ThresholdStatus};
use ebb_policy::{Signal, Time};

/// Where a threshold may stand, as the label `state` has it.
pub(super) const STATES: [&str; 6] = ["unobserved", "clear", "grace", "stale", "met", "inert"];
/// Its strength, as the label of that name has it.
pub(super) const STRENGTHS: [&str; 2] = ["hard", "soft"];

/// The thresholds of a signal, hard and soft.
pub(super) type OfSignal = [OfThreshold; STRENGTHS.len()];

/// A threshold; all of it is unknown where there is none.
#[derive(Debug, Default)]
pub(super) struct OfThreshold {
    pub(super) limit: Known,
    /// Its place in [`STATES`].
    pub(super) state: Known,
    /// Milliseconds since the Unix epoch, as those below.
    pub(super) evaluated: Known,
    pub(super) met: Known,
    pub(super) acted: Known,
}

impl OfThreshold {
    /// Takes in where it stood at `at`.
    fn take(&self, at: Time, status: &ThresholdStatus) {
        self.limit.set(status.threshold.and_then(|limit| u64::try_from(limit.ceil()).ok()));
        let (state, is_evaluated, is_met) = match status.state {
            ThresholdState::Unobserved => (0, false, false),
            ThresholdState::Clear => (1, true, false),
            ThresholdState::Grace => (2, true, true),
            ThresholdState::Stale => (3, true, true),
            ThresholdState::Met => (4, true, true),
            ThresholdState::Inert => (5, true, false),
        };
        self.state.set(Some(state));
        for (is_so, when) in [(is_evaluated, &self.evaluated), (is_met, &self.met)] {
            if is_so {
                when.set(Some(at.0));
            }
        }
    }

    /// There is no such threshold any more. When it was acted on stays true.
    fn forget(&self) {
        for what in [&self.limit, &self.state, &self.evaluated, &self.met] {
            what.set(None);
        }
    }
}

/// The place of a strength in [`STRENGTHS`].
pub(super) fn at(strength: Strength) -> usize {
    match strength {
        Strength::Hard => 0,
        Strength::Soft => 1,
    }
}

/// Takes in a decision of `at`; thresholds that it did not judge stay what they are.
pub(super) fn judge(
    all: &[OfSignal],
    when: Time,
    decided: &[ThresholdStatus],
    is_judged: impl Fn(Signal) -> bool,
) {
    for (signal, of) in Signal::ALL.into_iter().zip(all) {
        for (strength, of) in [Strength::Hard, Strength::Soft].into_iter().zip(of) {
            let is_it =
                |status: &&ThresholdStatus| (status.signal, status.strength) == (signal, strength);
            match decided.iter().find(is_it) {
                None => of.forget(),
                Some(status) if is_judged(signal) => of.take(when, status),
                Some(_) => {}
            }
        }
    }
}
