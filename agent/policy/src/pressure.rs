//! Which thresholds are met, since when, which node conditions follow, and which thresholds may act now.
//!
//! ```text
//!  observed ──less than value──► met ──grace passed──► may act ──newer observation──► drives the pass
//!                                 │                       │
//!                                 ▼                       └─ stays met until its minimum reclaim is reached
//!                           node condition, which stays for the transition period
//! ```
use crate::{
    History, Millis, Signal,
    history::{MetThreshold, ThresholdId},
    limits::{Limits, Threshold},
    observe::Observations,
    plan::{
        EventType, NodeCondition, NodeEvent, Note, Plan, Strength, ThresholdState, ThresholdStatus,
    },
    signal::NodeConditionType,
    snapshot::{FsLayout, Snapshot},
};
use alloc::{collections::BTreeSet, format, string::ToString, vec::Vec};

/// The thresholds in force, in the order in which they are handled: memory first, hard before soft, then by signal.
pub(crate) fn in_force(
    limits: &Limits,
    layout: Option<FsLayout>,
    passes: u8,
    notes: &mut Vec<Note>,
) -> Vec<Threshold> {
    let mut thresholds = Vec::new();
    for threshold in limits.thresholds() {
        match threshold.signal {
            Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree => {
                notes.push(Note::ContainerFsOverridden { signal: threshold.signal });
            }
            _ => thresholds.push(*threshold),
        }
    }
    if let Some(layout) = layout
        && (passes > 0 || !limits.options().quirks.container_fs_from_second_pass)
    {
        let derived = container_fs(&thresholds, layout);
        thresholds.extend(derived);
    }
    thresholds.sort_by_key(|t| (!t.signal.is_memory(), t.strength(), t.signal, t.list));
    thresholds
}

/// The four derived thresholds of the writable layers' filesystem: copies of those of the filesystem that it shares.
fn container_fs(thresholds: &[Threshold], layout: FsLayout) -> [Threshold; 4] {
    let (bytes, inodes) = match layout {
        FsLayout::Single | FsLayout::SplitImageFs => {
            (Signal::NodeFsAvailable, Signal::NodeFsInodesFree)
        }
        FsLayout::DedicatedImageFs => (Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
    };
    let copy = |from: Signal, strength: Strength, to: Signal| {
        let source = thresholds.iter().rfind(|t| t.signal == from && t.strength() == strength);
        match source {
            Some(source) => Threshold { signal: to, list: strength, ..*source },
            None => Threshold {
                signal: to,
                list: strength,
                value: crate::limits::ThresholdValue::Amount(crate::Quantity::ZERO),
                grace: Millis(0),
                min_reclaim: None,
                inert: true,
            },
        }
    };
    [
        copy(bytes, Strength::Hard, Signal::ContainerFsAvailable),
        copy(bytes, Strength::Soft, Signal::ContainerFsAvailable),
        copy(inodes, Strength::Hard, Signal::ContainerFsInodesFree),
        copy(inodes, Strength::Soft, Signal::ContainerFsInodesFree),
    ]
}

/// Judges every threshold, sets conditions and their events in the plan, and returns those that may act, in their order.
pub(crate) fn judge(
    snapshot: &Snapshot,
    limits: &Limits,
    thresholds: &[Threshold],
    observations: &Observations,
    history: &mut History,
    plan: &mut Plan,
) -> Vec<Threshold> {
    let now = snapshot.taken_at;
    let mut first_observed = Vec::new();
    let mut met = Vec::new();
    let mut acting = Vec::new();
    let mut raised = BTreeSet::new();
    for threshold in thresholds {
        let id = threshold.id();
        let mut status = ThresholdStatus {
            signal: threshold.signal,
            strength: threshold.strength(),
            state: if threshold.inert { ThresholdState::Inert } else { ThresholdState::Unobserved },
            threshold: None,
            available: None,
            by_minimum_reclaim: false,
            since: None,
            grace_left: None,
        };
        if !threshold.inert
            && let Some(seen) = observations.get(&threshold.signal)
        {
            status.threshold = Some(threshold.value.resolve(seen.capacity));
            status.available = Some(seen.available);
            status.state = ThresholdState::Clear;
            let below = threshold.is_met(seen.available, seen.capacity, false);
            status.by_minimum_reclaim = !below
                && history.met.contains(&id)
                && threshold.is_met(seen.available, seen.capacity, true);
            if below || status.by_minimum_reclaim {
                let since = met_since(&history.first_observed, &id).unwrap_or(now);
                let passed = now.since(since);
                status.since = Some(since);
                raised.insert(threshold.signal.condition());
                first_observed.push(MetThreshold { threshold: id.clone(), since });
                if passed < threshold.grace {
                    status.state = ThresholdState::Grace;
                    status.grace_left = Some(Millis(threshold.grace.0 - passed.0));
                } else {
                    met.push(id);
                    let last = history.last_observations.get(&threshold.signal).copied().flatten();
                    let stale =
                        matches!((seen.observed_at, last), (Some(at), Some(last)) if at <= last);
                    if stale {
                        status.state = ThresholdState::Stale;
                    } else {
                        status.state = ThresholdState::Met;
                        acting.push(*threshold);
                    }
                }
            }
        } else if !threshold.inert {
            plan.notes.push(Note::NoObservation { signal: threshold.signal });
        }
        plan.thresholds.push(status);
    }
    first_observed.sort();
    met.sort();
    history.first_observed = first_observed;
    history.met = met;
    history.last_observations =
        observations.iter().map(|(signal, seen)| (*signal, seen.observed_at)).collect();
    conditions(snapshot, limits, &raised, history, plan);
    acting
}

fn met_since(met: &[MetThreshold], id: &ThresholdId) -> Option<crate::Time> {
    met.iter().find(|met| met.threshold == *id).map(|met| met.since)
}

/// A condition holds while it was observed within the transition period.
fn conditions(
    snapshot: &Snapshot,
    limits: &Limits,
    raised: &BTreeSet<NodeConditionType>,
    history: &mut History,
    plan: &mut Plan,
) {
    let now = snapshot.taken_at;
    for condition in raised {
        history.conditions_last_observed.insert(*condition, now);
    }
    let mut holding = BTreeSet::new();
    for (condition, at) in &history.conditions_last_observed {
        if now.since(*at) < limits.pressure_transition_period() {
            holding.insert(*condition);
        }
    }
    for condition in NodeConditionType::ALL {
        let holds = holding.contains(&condition);
        if holds != history.conditions.contains(&condition) {
            plan.events.push(transition(condition, holds, snapshot.node.name.as_deref()));
        }
        plan.conditions.push(describe(condition, holds, history));
    }
    history.conditions = holding;
}

/// Shows the conditions as the last pass left them.
pub(crate) fn repeat_conditions(history: &History, plan: &mut Plan) {
    plan.conditions = NodeConditionType::ALL
        .map(|condition| describe(condition, history.conditions.contains(&condition), history))
        .into();
}

fn describe(condition: NodeConditionType, holds: bool, history: &History) -> NodeCondition {
    let (reason, message) = match (condition, holds) {
        (NodeConditionType::MemoryPressure, true) => {
            ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available")
        }
        (NodeConditionType::MemoryPressure, false) => {
            ("KubeletHasSufficientMemory", "kubelet has sufficient memory available")
        }
        (NodeConditionType::DiskPressure, true) => {
            ("KubeletHasDiskPressure", "kubelet has disk pressure")
        }
        (NodeConditionType::DiskPressure, false) => {
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure")
        }
        (NodeConditionType::PidPressure, true) => {
            ("KubeletHasInsufficientPID", "kubelet has insufficient PID available")
        }
        (NodeConditionType::PidPressure, false) => {
            ("KubeletHasSufficientPID", "kubelet has sufficient PID available")
        }
    };
    NodeCondition {
        condition_type: condition,
        status: holds,
        reason: reason.to_string(),
        message: message.to_string(),
        last_observed: history.conditions_last_observed.get(&condition).copied(),
    }
}

fn transition(condition: NodeConditionType, holds: bool, node: Option<&str>) -> NodeEvent {
    let reason = match (condition, holds) {
        (NodeConditionType::MemoryPressure, true) => "NodeHasInsufficientMemory",
        (NodeConditionType::MemoryPressure, false) => "NodeHasSufficientMemory",
        (NodeConditionType::DiskPressure, true) => "NodeHasDiskPressure",
        (NodeConditionType::DiskPressure, false) => "NodeHasNoDiskPressure",
        (NodeConditionType::PidPressure, true) => "NodeHasInsufficientPID",
        (NodeConditionType::PidPressure, false) => "NodeHasSufficientPID",
    };
    let message = match node {
        Some(node) => format!("Node {node} status is now: {reason}"),
        None => format!("Node status is now: {reason}"),
    };
    NodeEvent { event_type: EventType::Normal, reason: reason.to_string(), message }
}
