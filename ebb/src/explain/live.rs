//! A workload on its node as one look finds it: what keeps it safe, and for each signal where it ranks and whether it goes next. Pure.

use super::what_if::{self, WhatIf};
use crate::rank::untouchable;
use ebb_agent::cluster::NodePod;
use ebb_agent::config::Config;
use ebb_policy::plan::{Evict, Ranked, SkipReason, ThresholdStatus};
use ebb_policy::snapshot::{OwnerRef, Preference, Task, Workload, WorkloadKey, WorkloadKind};
use ebb_policy::{History, Signal, Snapshot, decide, rank};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A workload of this node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Live<'a> {
    pub(super) workload: &'a WorkloadKey,
    pub(super) kind: WorkloadKind,
    #[serde(flatten)]
    pub(super) standing: Standing,
    pub(super) priority: i32,
    pub(super) preference: Preference,
    pub(super) owner: Option<&'a OwnerRef>,
    pub(super) disruption_budget: Option<Budget<'a>>,
    /// What the API server has of a pod; absent where that is not known.
    pub(super) object: Option<Object>,
    /// What this look would have ebb do to it now.
    pub(super) evicted_now: Option<Box<Evict>>,
    pub(super) signals: Vec<OfSignal>,
}

impl Live<'_> {
    /// What it is.
    pub(super) fn word(&self) -> &'static str {
        match self.kind {
            WorkloadKind::Pod => "pod",
            WorkloadKind::Cgroup => "cgroup",
            WorkloadKind::Process => "process",
        }
    }
}

/// Whether it may be evicted at all.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "standing")]
pub(super) enum Standing {
    /// It may be.
    Candidate,
    /// It may not be, whatever is short.
    Safe {
        /// Why.
        skipped: SkipReason,
    },
    /// Nothing of it runs any more.
    Finished,
}

/// The budget that leaves it the least room.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Budget<'a> {
    pub(super) name: &'a str,
    pub(super) disruptions_allowed: u32,
}

/// What matters of the pod's object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Object {
    pub(super) is_deleting: bool,
    pub(super) is_mirror: bool,
    /// What is wrong with it.
    pub(super) problems: Vec<String>,
}

/// Where it stands for one signal.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OfSignal {
    pub(super) signal: Signal,
    pub(super) thresholds: Vec<ThresholdStatus>,
    /// Its place among the candidates; absent where it is none.
    pub(super) ranked: Option<Ranked>,
    pub(super) candidates: usize,
    /// What would happen if this signal alone fell below its threshold now; absent where nothing is observed of it.
    pub(super) if_short: Option<WhatIf>,
}

/// Explains a workload of a snapshot.
pub(super) fn explain<'a>(
    snapshot: &'a Snapshot,
    config: &Config,
    history: &History,
    workload: &'a Workload,
    object: Option<&'a Arc<NodePod>>,
) -> Live<'a> {
    let limits = &config.limits;
    let mut eviction_alone = snapshot.clone();
    eviction_alone.tasks = Some(vec![Task::Eviction]);
    let (now, _) = decide(&eviction_alone, limits, history);
    let evicted_now = now.evictions().find(|evict| evict.workload == workload.key);
    let mut thresholds: BTreeMap<Signal, Vec<ThresholdStatus>> = BTreeMap::new();
    for status in &now.thresholds {
        thresholds.entry(status.signal).or_default().push(status.clone());
    }
    let may_go: BTreeMap<&WorkloadKey, bool> = snapshot
        .workloads
        .iter()
        .map(|workload| (&workload.key, untouchable(workload).is_none()))
        .collect();
    let signals = thresholds.into_iter().map(|(signal, thresholds)| {
        let mut ranking = rank(snapshot, limits, history, signal);
        ranking.retain(|ranked| may_go.get(&ranked.workload).is_some_and(|may| *may));
        let place = ranking.iter().position(|ranked| ranked.workload == workload.key);
        let candidates = ranking.len();
        let ranked = place.map(|place| Ranked {
            place: u32::try_from(place + 1).unwrap_or(u32::MAX),
            ..ranking.swap_remove(place)
        });
        let threshold = what_if::threshold(limits, signal);
        let if_short = threshold.and_then(|threshold| {
            what_if::what_if(snapshot, limits, history, threshold, &workload.key)
        });
        OfSignal { signal, thresholds, ranked, candidates, if_short }
    });
    let standing = match untouchable(workload) {
        _ if workload.is_finished() => Standing::Finished,
        Some(skipped) => Standing::Safe { skipped },
        None => Standing::Candidate,
    };
    Live {
        workload: &workload.key,
        kind: workload.kind,
        standing,
        priority: workload.priority(),
        preference: workload.preference,
        owner: workload.owner.as_ref(),
        disruption_budget: workload.disruption_budget.as_ref().map(|budget| Budget {
            name: &budget.name,
            disruptions_allowed: budget.disruptions_allowed,
        }),
        object: object.map(|object| Object {
            is_deleting: object.is_deleting,
            is_mirror: object.is_mirror,
            problems: object.problems(&config.contract).collect(),
        }),
        evicted_now: evicted_now.cloned().map(Box::new),
        signals: signals.collect(),
    }
}
