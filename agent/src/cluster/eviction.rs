//! One eviction, as the API server is to be told of it, and how far it was.

use super::PodObject;
use ebb_policy::Signal;
use ebb_policy::plan::Evict;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The reason of a pod's status and of the Event about it, as the kubelet's.
const EVICTED: &str = "Evicted";

/// What the API server is to be told of one eviction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Eviction {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID of the object, and of the pod: no mirror is told of.
    pub uid: String,
    /// Seconds of grace that the pod is deleted with.
    pub grace: u64,
    /// Reason of status and Event.
    pub reason: String,
    /// Message of status and Event.
    pub message: String,
    /// Whether the pod gets the condition `DisruptionTarget`.
    pub condition: bool,
    /// Annotations of the Event.
    pub annotations: Vec<(String, String)>,
    /// When it was decided: milliseconds since the Unix epoch.
    pub at: u64,
    /// The API server is deleting the pod already: only the Event is left to write.
    #[serde(default)]
    pub is_deleting: bool,
}

/// How far an eviction was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Who.
    pub eviction: Eviction,
    /// The pod was gone, or another has its name.
    pub was_gone: bool,
    /// What could not be written for good, and why.
    pub refused: Vec<String>,
    /// From the order, or the reading of the outbox, until it was told.
    pub took: Duration,
}

impl Eviction {
    /// What is told of an eviction with `grace` that was decided at `at`, in milliseconds since the Unix epoch.
    pub(crate) fn of(evict: &Evict, pod: &PodObject, grace: Duration, at: u64) -> Self {
        let annotations = &evict.event.annotations;
        Self {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            // Whoever has no time is killed by then. The kubelet cuts the grace short that the runtime gives to all others, if it is told of less.
            grace: grace.as_secs().max(1),
            reason: evict.reason.clone(),
            message: evict.message.clone(),
            condition: evict.condition.is_some(),
            annotations: annotations.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            at,
            is_deleting: false,
        }
    }

    /// The same of a pod that the watchdog or the kernel's reflex has killed before anything was decided here.
    pub(crate) fn without_decision(pod: &PodObject, signal: Option<Signal>, at: u64) -> Self {
        Self {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            grace: 1,
            reason: EVICTED.to_owned(),
            message: without_decision(signal),
            condition: true,
            annotations: Vec::new(),
            at,
            is_deleting: false,
        }
    }

    /// The decision, as records and Events name it.
    #[must_use]
    pub fn decision(&self) -> String {
        format!("{}/{}", self.uid, self.at)
    }
}

/// The message about a pod that was killed before anything was decided of it, as the kubelet begins its own.
fn without_decision(signal: Option<Signal>) -> String {
    let resource =
        signal.map_or_else(|| "memory".to_owned(), |signal| signal.resource().to_string());
    format!("The node was low on resource: {resource}. ")
}
