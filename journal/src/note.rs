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
    /// Workloads are skipped because the runtime has not listed its pods yet.
    pub is_waiting_for_pods: bool,
}

impl PlanNote {
    /// `note`, which is one of `plan`'s.
    #[must_use]
    pub fn of(plan: &Plan, note: &Note) -> Self {
        Self {
            note: note.clone(),
            signal: plan.handled.as_ref().map_or(Signal::MemoryAvailable, |handled| handled.signal),
            is_waiting_for_pods: unlisted(plan) > 0,
        }
    }
}

/// All of a plan's notes.
#[must_use]
pub fn notes(plan: &Plan) -> Vec<Worded<PlanNote>> {
    plan.notes.iter().map(|note| PlanNote::of(plan, note).into()).collect()
}

/// How many workloads a plan keeps for want of the container runtime's word on whose they are.
#[must_use]
pub fn unlisted(plan: &Plan) -> usize {
    let unlisted = SkipReason::Protected { reason: ProtectedReason::Unlisted };
    plan.skipped.iter().filter(|kept| kept.reason == unlisted).count()
}
