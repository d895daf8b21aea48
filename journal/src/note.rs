//! What a plan notes, with what its words need of the plan.

use crate::worded::Worded;
use ebb_policy::plan::{Note, SkipReason};
use ebb_policy::snapshot::ProtectedReason;
use ebb_policy::{Plan, Signal};

/// One of a plan's notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanNote {
    /// The note.
    pub note: Note,
    /// The signal that the plan handles: figures of the note have its unit.
    pub signal: Signal,
    /// Which list of pods, if any, the plan still waits for: workloads are skipped because of that.
    pub awaited: Option<ProtectedReason>,
}

impl PlanNote {
    /// `note`, which is one of `plan`'s.
    #[must_use]
    pub fn of(plan: &Plan, note: &Note) -> Self {
        Self {
            note: note.clone(),
            signal: plan.handled.as_ref().map_or(Signal::MemoryAvailable, |handled| handled.signal),
            awaited: awaited(plan),
        }
    }
}

/// All of a plan's notes.
#[must_use]
pub fn notes(plan: &Plan) -> Vec<Worded<PlanNote>> {
    plan.notes.iter().map(|note| PlanNote::of(plan, note).into()).collect()
}

/// Which list of pods, the runtime's or the API server's, a plan still waits for and skips workloads because of that; `None` where it waits for none.
#[must_use]
pub fn awaited(plan: &Plan) -> Option<ProtectedReason> {
    let is_skipped = |of: &ProtectedReason| {
        let reason = SkipReason::Protected { reason: *of };
        plan.skipped.iter().any(|kept| kept.reason == reason)
    };
    [ProtectedReason::Unlisted, ProtectedReason::Undescribed].into_iter().find(is_skipped)
}
