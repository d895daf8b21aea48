//! What a plan notes, with what its words need of the plan.

use crate::worded::Worded;
use ebb_policy::plan::{Note, SkipReason};
use ebb_policy::snapshot::ProtectedReason;
use ebb_policy::{Plan, Signal};
use std::mem::discriminant;

/// Notes of one kind that are shown.
const SHOWN: usize = 10;

/// One of a plan's notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanNote {
    /// The note.
    pub note: Note,
    /// The signal that the plan handles: figures of the note have its unit.
    pub signal: Signal,
    /// Which list of pods, if any, the plan still waits for: workloads are skipped because of that.
    pub awaited: Option<ProtectedReason>,
    /// Notes of the same kind that are not shown.
    pub more: u64,
}

impl PlanNote {
    /// `note`, which is one of `plan`'s.
    #[must_use]
    pub fn of(plan: &Plan, note: &Note) -> Self {
        Self {
            note: note.clone(),
            signal: plan.handled.as_ref().map_or(Signal::MemoryAvailable, |handled| handled.signal),
            awaited: awaited(plan),
            more: 0,
        }
    }
}

/// A plan's notes, ten of each kind at most: workloads at their own limit may be any number.
#[must_use]
pub fn notes(plan: &Plan) -> Vec<Worded<PlanNote>> {
    let mut shown: Vec<PlanNote> = Vec::new();
    for note in &plan.notes {
        let kind = discriminant(note);
        let mut same = shown.iter_mut().filter(|shown| discriminant(&shown.note) == kind);
        match same.nth(SHOWN - 1) {
            Some(last) => last.more += 1,
            None => shown.push(PlanNote::of(plan, note)),
        }
    }
    shown.into_iter().map(Worded::from).collect()
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
