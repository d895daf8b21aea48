//! The words that others read in the API: reasons, messages, names and keys. Nothing else writes any.

use ebb_agent::cluster::Eviction;
use ebb_kube::Time;
use ebb_kube::{Condition, NewEvent, PodStatus};
use ebb_policy::plan::NodeCondition;
use ebb_policy::signal::NodeConditionType;

/// The reason of the condition `DisruptionTarget` on a pod that ebb evicts.
const EVICTED_BY: &str = "EvictionByEbb";

/// The annotation of an Event with the decision behind it, as records and incidents name it.
const DECISION: &str = "ebb.dev/decision";

/// The taint for each condition.
pub(crate) const TAINTS: [(NodeConditionType, &str); 3] = [
    (NodeConditionType::MemoryPressure, "ebb.dev/memory-pressure"),
    (NodeConditionType::DiskPressure, "ebb.dev/disk-pressure"),
    (NodeConditionType::PidPressure, "ebb.dev/pid-pressure"),
];

/// The status of a pod that was evicted: its phase too, once nothing of it runs any more.
pub(crate) fn status(of: &Eviction, is_dead: bool) -> PodStatus {
    let condition = of.condition.then(|| Condition {
        of: "DisruptionTarget".to_owned(),
        status: true,
        reason: EVICTED_BY.to_owned(),
        message: of.message.clone(),
    });
    let phase = is_dead.then(|| ("Failed".to_owned(), of.reason.clone(), of.message.clone()));
    PodStatus { phase, condition }
}

/// The Event about a pod that was evicted. Its name follows from the decision: told twice it is one.
pub(crate) fn event(of: &Eviction, node: &str) -> NewEvent {
    let decision = (DECISION.to_owned(), of.decision());
    NewEvent {
        name: format!("{}.{:x}", of.name, fingerprint(&of.decision())),
        of: "Warning",
        reason: of.reason.clone(),
        message: of.message.clone(),
        annotations: of.annotations.iter().cloned().chain([decision]).collect(),
        at: Time(of.at),
        host: node.to_owned(),
    }
}

/// What a condition of the Node is about: the kubelet's name of it, and people's.
const fn names(of: NodeConditionType) -> (&'static str, &'static str) {
    match of {
        NodeConditionType::MemoryPressure => ("MemoryPressure", "memory"),
        NodeConditionType::DiskPressure => ("DiskPressure", "disk"),
        NodeConditionType::PidPressure => ("PIDPressure", "PIDs"),
    }
}

/// The type of a condition of the Node, as ebb names it.
pub(crate) fn condition_type(of: NodeConditionType) -> String {
    format!("Ebb{}", names(of).0)
}

/// A condition of the Node as ebb shows it: beside the kubelet's, never in its place.
pub(crate) fn condition(of: &NodeCondition) -> Condition {
    let (name, what) = names(of.condition_type);
    let (reason, message) = if of.status {
        (format!("EbbHas{name}"), format!("ebb finds too little {what} available"))
    } else {
        (format!("EbbHasNo{name}"), format!("ebb finds enough {what} available"))
    };
    Condition { of: condition_type(of.condition_type), status: of.status, reason, message }
}

/// The Event about a condition of the Node that has changed.
pub(crate) fn node_event(of: &NodeCondition, node: &str, at: Time) -> NewEvent {
    let Condition { reason, message, .. } = condition(of);
    NewEvent {
        name: format!("{node}.{:x}", fingerprint(&format!("{reason}/{}", at.0))),
        of: if of.status { "Warning" } else { "Normal" },
        reason,
        message,
        annotations: Vec::new(),
        at,
        host: node.to_owned(),
    }
}

/// FNV-1a: the same on every run and every machine.
fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
