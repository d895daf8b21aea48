//! Whom ebb would evict if one signal alone fell below its threshold now. Pure: the policy decides on a snapshot that says so.

use ebb_policy::limits::{Limits, Threshold};
use ebb_policy::plan::{EvictionCause, SkipReason, Strength, Subject};
use ebb_policy::snapshot::{Observation, Task, WorkloadKey};
use ebb_policy::{History, Millis, Plan, Signal, Snapshot, decide, observed};
use serde::Serialize;

/// Passes at most: reclaim on the node, a grace period, or waiting for what pods use of a disk comes before an eviction.
const PASSES: usize = 8;

/// Between two of them.
const APART: Millis = Millis(10_000);

/// What would happen.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WhatIf {
    /// Below which threshold.
    pub(super) strength: Strength,
    /// Whom the first pass that evicts anybody evicts; empty where none does.
    pub(super) victims: Vec<String>,
    /// The workload is one of them.
    pub(super) is_victim: bool,
    /// Why it is not, where the plan says so.
    pub(super) skipped: Option<SkipReason>,
}

/// The threshold of a signal that would act first: a hard one, where there is one.
pub(super) fn threshold(limits: &Limits, signal: Signal) -> Option<&Threshold> {
    let own = || limits.thresholds().iter().filter(|t| t.signal == signal && !t.inert);
    own().find(|t| t.strength() == Strength::Hard).or_else(|| own().next())
}

/// Whom ebb would evict if only this threshold were met; `None` where it can never be.
pub(super) fn what_if(
    snapshot: &Snapshot,
    limits: &Limits,
    history: &History,
    threshold: &Threshold,
    whom: &WorkloadKey,
) -> Option<WhatIf> {
    let mut short = snapshot.clone();
    short.tasks = Some(vec![Task::Eviction]);
    short.signals = observed(snapshot);
    let own = *short.signals.get(&threshold.signal)?;
    let least = u64::try_from(threshold.value.resolve(own.capacity).ceil()).ok()?;
    for (signal, seen) in &mut short.signals {
        seen.available = if *signal == threshold.signal {
            least.checked_sub(1)?.min(seen.available)
        } else if threshold.also.is_some_and(|also| also.signal == *signal) {
            0
        } else {
            seen.capacity.unwrap_or(u64::MAX)
        };
    }
    let mut history = history.clone();
    let mut last = None;
    for _ in 0..PASSES {
        let (plan, next) = decide(&short, limits, &history);
        let has_decided = for_the_node(&plan).next().is_some();
        last = Some(plan);
        if has_decided {
            break;
        }
        history = next;
        later(&mut short, threshold.grace);
    }
    let plan = last?;
    let victims: Vec<&WorkloadKey> = for_the_node(&plan).collect();
    let skipped = plan
        .skipped
        .iter()
        .find(|kept| matches!(&kept.subject, Subject::Workload { workload } if workload == whom));
    Some(WhatIf {
        strength: threshold.strength(),
        is_victim: victims.contains(&whom),
        skipped: skipped.map(|kept| kept.reason.clone()),
        victims: victims.into_iter().map(|key| key.name.clone()).collect(),
    })
}

/// Whom a plan evicts because the node is short.
fn for_the_node(plan: &Plan) -> impl Iterator<Item = &WorkloadKey> {
    let evictions = plan.evictions().filter(|evict| evict.cause == EvictionCause::NodePressure);
    evictions.map(|evict| &evict.workload)
}

/// The same node a little later, and past a grace period; what was measured of it is as new.
fn later(snapshot: &mut Snapshot, grace: Millis) {
    snapshot.taken_at = snapshot.taken_at.plus(Millis(APART.0.saturating_add(grace.0)));
    for Observation { observed_at, .. } in snapshot.signals.values_mut() {
        *observed_at = Some(snapshot.taken_at);
    }
    for stats in snapshot.workloads.iter_mut().filter_map(|workload| workload.stats.as_mut()) {
        let is_known = stats.disk_observed_at.is_some();
        stats.disk_observed_at = is_known.then_some(snapshot.taken_at);
    }
}
