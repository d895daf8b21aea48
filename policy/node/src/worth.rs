//! Who frees so little that evicting it would not matter, and is skipped.
//!
//! ```text
//!  frees less than a share of the threshold                          ─► skipped: it is not what fills the node
//!  all candidates together cannot free what is needed
//!     ├─ the threshold is above all that there is                     ─► nobody is evicted: it can never be resolved
//!     └─ else: frees less than a share of what is needed              ─► skipped: it brings the node no closer
//! ```
//! The need itself is no measure as long as it can be covered: right after the crossing it is a few pages, and any idle pod would do.
//! Who frees an unknown amount is never skipped for it: unknown is not little.
use crate::{
    need::Need,
    plan::{Note, SkipReason},
};
use alloc::vec::Vec;

/// What a candidate must free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worth {
    /// Units that it must free at least.
    least: u64,
    /// The threshold is above the capacity.
    out_of_reach: bool,
}

impl Worth {
    /// What candidates that free these amounts must free each, beside what is dying; notes when they cannot suffice.
    pub(crate) fn of(
        need: &Need<'_>,
        dying: u64,
        candidates: impl Iterator<Item = Option<u64>>,
        notes: &mut Vec<Note>,
    ) -> Worth {
        let options = need.limits.options();
        let least = least_of_threshold(need.goal, options.min_freed_of_threshold);
        let mut reclaimable = dying;
        let mut is_known = true;
        let mut any = false;
        for free in candidates {
            any = true;
            match free {
                Some(free) if free >= least => reclaimable = reclaimable.saturating_add(free),
                Some(_) => {}
                None => is_known = false,
            }
        }
        let share = options.min_freed_of_need;
        if !any || share == 0 || !is_known || reclaimable >= need.need {
            return Worth { least, out_of_reach: false };
        }
        let capacity = need.capacity.filter(|capacity| need.goal > *capacity);
        notes.push(match capacity {
            Some(capacity) => Note::ThresholdOutOfReach { threshold: need.goal, capacity },
            None => Note::CannotSuffice { wanted: need.need, reclaimable },
        });
        let least = least.max(percent(need.need, share));
        Worth { least, out_of_reach: capacity.is_some() }
    }

    /// Why one that frees so much is not evicted.
    pub(crate) fn refusal(self, free: Option<u64>) -> Option<SkipReason> {
        if self.out_of_reach {
            return Some(SkipReason::ThresholdOutOfReach);
        }
        let frees = free.filter(|free| *free < self.least)?;
        Some(SkipReason::FreesTooLittle { frees, least: self.least })
    }
}

/// What must be freed at least, of a threshold of so many units.
pub(crate) fn least_of_threshold(threshold: u64, share: u32) -> u64 {
    percent(threshold, share)
}

fn percent(of: u64, share: u32) -> u64 {
    u64::try_from(u128::from(of) * u128::from(share) / 100).unwrap_or(u64::MAX)
}
