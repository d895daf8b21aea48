//! What memory was available when a victim was chosen, and what the victim had of it: whether it is still the one to go shows in what both are at the crossing.

use crate::act::Target;
use crate::state::{NodeState, UNEXPLAINED};

/// Bytes; `None` where that is not known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Baseline {
    available: Option<u64>,
    had: Option<u64>,
}

impl Baseline {
    /// As it is now, of the `victim` if there is one.
    pub(super) fn now(state: &mut NodeState, victim: Option<&Target>) -> Self {
        Self {
            available: state.memory_available(),
            had: victim.and_then(|victim| state.memory_now(victim)),
        }
    }

    /// Whether the victim has taken what memory has fallen by since. Else it may be somebody who came since, and whom only another reading finds.
    pub(super) fn still_explains(self, state: &mut NodeState, victim: Option<&Target>) -> bool {
        let Self { available, had } = Self::now(state, victim);
        self.explains(available, had)
    }

    /// The same where the victim has so much `now`.
    fn explains(self, available: Option<u64>, now: Option<u64>) -> bool {
        let Some(fall) = self.fall(available) else { return false };
        let Some(took) = now.zip(self.had).map(|(now, had)| now.saturating_sub(had)) else {
            return false;
        };
        fall < UNEXPLAINED || took >= fall / 2
    }

    /// Whether memory has fallen by so little since that it does not matter who took it.
    pub(super) fn is_little(self, available: Option<u64>) -> bool {
        self.fall(available).is_some_and(|fall| fall < UNEXPLAINED)
    }

    fn fall(self, available: Option<u64>) -> Option<u64> {
        Some(self.available?.saturating_sub(available?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_fell_since_must_have_gone_to_the_victim_or_be_little() {
        let before = Baseline { available: Some(160 * MIB), had: Some(300 * MIB) };
        let explained = |available: u64, has: Option<u64>| {
            before.explains(Some(available * MIB), has.map(|has| has * MIB))
        };
        assert!(explained(99, Some(361)) && explained(99, Some(340)));
        assert!(!explained(99, Some(300)), "somebody else has taken 61 MiB");
        assert!(!explained(99, Some(250)), "nor has one that gets smaller");
        assert!(explained(150, Some(300)), "10 MiB are nobody's who matters");
        assert!(!explained(99, None) && !explained(150, None), "it is gone, or nobody knows");
        assert!(!before.explains(None, Some(400 * MIB)));
        assert!(before.is_little(Some(145 * MIB)) && !before.is_little(Some(144 * MIB)));
        assert!(!before.is_little(None));
    }
}
