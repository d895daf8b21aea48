//! Warming up at start: the whole way from a threshold to the kill, with an executor that does nothing.
//!
//! What the way needs is touched, and therefore locked, before memory is short; on a node without memory the first use of
//! each page of the program would wait for the disk. It also shows at start what would fail in need.

use super::Agent;
use crate::act::{Actor, Job, Need, NotDone, Step};
use crate::clock::Boot;
use ebb_policy::snapshot::Observation;
use ebb_policy::{History, Signal, decide};

impl Agent {
    /// Decides as if no memory were available, and has `understudy`, which must be a dry run's, take hold of whoever would be ended.
    ///
    /// Nothing is kept of it: neither plan nor history. Returns what would have failed.
    pub(super) fn warm_up(&self, understudy: &mut Actor) -> Vec<String> {
        let mut snapshot = self.state.snapshot(Boot::now());
        let Some(now) = snapshot.signals.get(&Signal::MemoryAvailable).copied() else {
            return Vec::new();
        };
        snapshot.signals.insert(Signal::MemoryAvailable, Observation { available: 0, ..now });
        if snapshot.node.swap_total.is_some_and(|total| total > 0) {
            snapshot.node.swap_free = Some(0);
        }
        let (plan, _) = decide(&snapshot, &self.policy.limits, &History::default());
        let victims = plan.evictions().filter_map(|evict| self.state.target(&evict.workload));
        let mut failed = Vec::new();
        for target in victims {
            let need = Some(Need::MemoryBelow { bytes: u64::MAX });
            let acted = understudy.perform(Job {
                number: 0,
                target,
                step: Step::Kill,
                need,
                decision: None,
            });
            // One that is protected or has just gone is no fault of the way.
            if let Err(error @ (NotDone::UnknownNeed { .. } | NotDone::Failed { .. })) =
                acted.result
            {
                failed.push(format!("ending a workload, as rehearsed at start: {error}"));
            }
        }
        failed
    }
}
