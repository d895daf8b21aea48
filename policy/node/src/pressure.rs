//! Which thresholds are met, since when, which node conditions follow, and which thresholds may act now.
//!
//! ```text
//!  observed ──less than value──► met ──grace passed──► may act ──newer observation──► drives the pass
//!                                 │                       │
//!                                 ▼                       └─ stays met until its minimum reclaim is reached
//!                           node condition, which stays for the transition period
//! ```
use crate::{
    History, Millis, Quantity, Signal,
    history::{MetThreshold, ThresholdId},
    limits::{AlsoBelow, Limits, Threshold},
    observe::Observations,
    plan::{
        AlsoBelowStatus, EventType, NodeCondition, NodeEvent, Note, Plan, Strength, ThresholdState,
        ThresholdStatus,
    },
    signal::NodeConditionType,
    snapshot::{FsLayout, Snapshot},
};
use alloc::{collections::BTreeSet, format, string::ToString, vec::Vec};

/// The thresholds in force, in the order in which they are handled: memory first, hard before soft, then by signal.
///
/// Where there is no swap, or nothing is told of it, memory alone decides: waiting for swap to run short would leave the node to the OOM killer.
pub(crate) fn in_force(
    limits: &Limits,
    tells_swap: bool,
    layout: Option<FsLayout>,
    passes: u8,
    notes: &mut Vec<Note>,
) -> Vec<Threshold> {
    let mut thresholds = Vec::new();
    let mut configured = BTreeSet::new();
    for threshold in limits.thresholds() {
        match threshold.signal {
            Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree => {
                notes.push(Note::ContainerFsOverridden { signal: threshold.signal });
                configured.insert((threshold.signal, threshold.strength()));
            }
            _ => {
                let on_swap = |also: &AlsoBelow| also.signal == Signal::SwapAvailable;
                let also = threshold.also.filter(|also| tells_swap || !on_swap(also));
                thresholds.push(Threshold { also, ..*threshold });
            }
        }
    }
    if let Some(layout) = layout {
        // The kubelet appends to a copy of its list, which counts from the second pass on; an entry that is there already it overwrites in place, for the first pass too.
        let all = passes > 0 || !limits.options().quirks.container_fs_from_second_pass;
        let derived = container_fs(&thresholds, layout);
        let derived =
            derived.into_iter().filter(|t| all || configured.contains(&(t.signal, t.list)));
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
                also: None,
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
            also_below: None,
        };
        let second = second(threshold, observations);
        status.also_below = second.status();
        if let Second::Unknown { signal } = second {
            plan.notes.push(Note::NoObservation { signal });
        } else if !threshold.inert
            && let Some(seen) = observations.get(&threshold.signal)
        {
            status.threshold = Some(threshold.value.resolve(seen.capacity));
            status.available = Some(seen.available);
            status.state = ThresholdState::Clear;
            let mut below = threshold.is_met(seen.available, seen.capacity, false);
            if let Second::Enough { signal: also, available, threshold: bound } = second {
                if below {
                    let signal = threshold.signal;
                    let threshold = bound;
                    let note = Note::NotShortOfBoth { signal, also, available, threshold };
                    plan.notes.push(note);
                }
                below = false;
            }
            status.by_minimum_reclaim = !below
                && !matches!(second, Second::Enough { .. })
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

/// Where the second signal of a threshold stands.
#[derive(Clone, Copy, Debug)]
enum Second {
    /// The threshold is on one signal.
    None,
    /// Nothing was observed of it.
    Unknown { signal: Signal },
    /// It is short too.
    Short { signal: Signal, available: u64, threshold: Quantity },
    /// There is enough of it.
    Enough { signal: Signal, available: u64, threshold: Quantity },
}

impl Second {
    fn status(self) -> Option<AlsoBelowStatus> {
        let (signal, threshold, available) = match self {
            Second::None => return None,
            Second::Unknown { signal } => (signal, None, None),
            Second::Short { signal, available, threshold }
            | Second::Enough { signal, available, threshold } => {
                (signal, Some(threshold), Some(available))
            }
        };
        Some(AlsoBelowStatus { signal, threshold, available })
    }
}

fn second(threshold: &Threshold, observations: &Observations) -> Second {
    let Some(AlsoBelow { signal, value }) = threshold.also else { return Second::None };
    let Some(seen) = observations.get(&signal) else { return Second::Unknown { signal } };
    let (available, threshold) = (seen.available, value.resolve(seen.capacity));
    if threshold > Quantity::count(available) {
        Second::Short { signal, available, threshold }
    } else {
        Second::Enough { signal, available, threshold }
    }
}

/// Whether less than its value (with the minimum reclaim on top, if asked for) is left of the threshold's signal, and of the second one where it has one.
pub(crate) fn is_met(threshold: &Threshold, observations: &Observations, with_min: bool) -> bool {
    let seen = observations.get(&threshold.signal);
    seen.is_some_and(|seen| threshold.is_met(seen.available, seen.capacity, with_min))
        && matches!(second(threshold, observations), Second::None | Second::Short { .. })
}

/// Since when a threshold is met, if it is.
pub(crate) fn met_since(met: &[MetThreshold], id: &ThresholdId) -> Option<crate::Time> {
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
