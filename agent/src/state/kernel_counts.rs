//! What programs in the kernel count by cgroup, summed up by workload: who waits for memory and who reclaims it.
//!
//! A program knows the cgroup that a task lives in, which may lie below the workload's; one that is not in the tree any more counts for nobody.

use super::NodeState;
use super::pod_usage::plus_kernel_counts;
use super::tracked::Tracked;
use crate::clock::Boot;
use crate::sense::tree::{MAX_DEPTH, Tree};
use ebb_policy::snapshot::KernelCounts;
use ebb_probes::{CgroupTotals, Totals};
use std::collections::BTreeMap;

impl NodeState {
    /// Takes in what the probes had counted by `at`.
    pub fn observe_totals(&mut self, totals: &Totals, at: Boot) {
        let direct: Option<u64> = totals.cgroups.values().map(|c| c.direct_reclaims).sum();
        let kswapd = totals.kswapd_wakes.as_ref().map(|nodes| nodes.values().sum());
        // Where nothing was counted yet it is not known whether anybody counts.
        let direct = direct.filter(|_| !totals.cgroups.is_empty());
        self.direct_reclaims = direct.or(self.direct_reclaims);
        self.kswapd_wakes = kswapd.or(self.kswapd_wakes);
        let Some(any) = totals.cgroups.values().next() else { return };
        // A workload that was not counted has had nothing to count.
        let none = of(any, |_| 0, Some(self.clock.time(at)));
        for tracked in self.cgroups.values_mut() {
            tracked.kernel_counts = Some(none);
        }
        for (cgroup, told) in &totals.cgroups {
            let Some(tracked) = workload_of(*cgroup, &self.tree, &mut self.cgroups) else {
                continue;
            };
            let own = of(told, |value| value, none.at);
            tracked.kernel_counts = plus_kernel_counts(tracked.kernel_counts, Some(own));
        }
    }
}

fn of(
    told: &CgroupTotals,
    value: impl Fn(u64) -> u64,
    at: Option<ebb_policy::Time>,
) -> KernelCounts {
    KernelCounts {
        at,
        stall_us: told.stall_ns.map(|ns| value(ns / 1000)),
        direct_reclaims: told.direct_reclaims.map(&value),
        own_reclaims: told.memcg_reclaims.map(&value),
    }
}

/// The workload that a cgroup belongs to: itself, or the nearest above it.
fn workload_of<'a>(
    cgroup: u64,
    tree: &Tree,
    workloads: &'a mut BTreeMap<u64, Tracked>,
) -> Option<&'a mut Tracked> {
    let mut at = cgroup;
    for _ in 0..=MAX_DEPTH {
        if workloads.contains_key(&at) {
            return workloads.get_mut(&at);
        }
        let parent = tree.get(at)?.parent;
        if parent == at {
            return None;
        }
        at = parent;
    }
    None
}
