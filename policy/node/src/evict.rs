//! Putting an eviction together: grace period, what is said, what is counted.
use crate::{
    Quantity, Secs, Signal, Time,
    limits::Limits,
    message::EVICTED,
    plan::{
        EventType, Evict, EvictionCause, PodCondition, PodEvent, PressureGrounds, RankKey, Strength,
    },
    snapshot::{State, Workload},
};
use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};

/// Seconds that a workload gets when the node cannot wait.
pub(crate) const IMMEDIATE: Secs = Secs(1);

/// Seconds after which an end is overdue at the earliest.
const LEAST_WAIT: u64 = 10;

/// Grace of a soft eviction: the configured most, or less if the pod asks for less. A negative most ends as one second.
pub(crate) fn soft_grace(workload: &Workload, limits: &Limits) -> Secs {
    let most = u64::try_from(limits.max_pod_grace()).unwrap_or(0);
    Secs(workload.termination_grace.map_or(most, |asked| asked.0.min(most)))
}

/// The grace that takes effect: at least a second, and never longer than that of an end already under way.
pub(crate) fn effective_grace(workload: &Workload, grace: Secs, now: Time) -> Secs {
    let ongoing = match workload.state {
        State::Terminating { since, deadline: Some(deadline) } => {
            Some(deadline.since(since.unwrap_or(now)).0.div_ceil(1000))
        }
        _ => None,
    };
    Secs(grace.0.min(ongoing.unwrap_or(u64::MAX)).max(1))
}

/// What differs between evictions.
pub(crate) struct Grounds {
    pub(crate) cause: EvictionCause,
    pub(crate) grace: Secs,
    /// There is no time even for a second of grace.
    pub(crate) at_once: bool,
    pub(crate) message: String,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) metric: String,
    pub(crate) threshold: Option<Shortage>,
    pub(crate) memory_pressure: Option<PressureGrounds>,
    pub(crate) expected_free: Option<u64>,
    pub(crate) why: Vec<RankKey>,
}

/// The threshold behind an eviction.
#[derive(Clone, Copy)]
pub(crate) struct Shortage {
    pub(crate) signal: Signal,
    pub(crate) strength: Strength,
    pub(crate) threshold: Quantity,
    pub(crate) available: u64,
}

pub(crate) fn evict(workload: &Workload, grounds: Grounds, now: Time) -> Evict {
    let Grounds {
        cause,
        grace,
        at_once,
        message,
        annotations,
        metric,
        threshold,
        memory_pressure,
        expected_free,
        why,
    } = grounds;
    let grace = if at_once { Secs(0) } else { effective_grace(workload, grace, now) };
    let (reason, condition_message) = match cause {
        EvictionCause::Preemption => (
            "Preempting",
            Some("Pod was preempted by Kubelet to accommodate a critical pod.".to_string()),
        ),
        EvictionCause::NodePressure | EvictionCause::MemoryPressure => {
            (EVICTED, Some(message.clone()))
        }
        EvictionCause::EmptyDirLimit
        | EvictionCause::PodStorageLimit
        | EvictionCause::ContainerStorageLimit => (EVICTED, None),
    };
    Evict {
        workload: workload.key.clone(),
        cause,
        signal: threshold.map(|shortage| shortage.signal),
        strength: threshold.map(|shortage| shortage.strength),
        threshold: threshold.map(|shortage| shortage.threshold),
        threshold_value: threshold
            .map(|shortage| u64::try_from(shortage.threshold.ceil().max(0)).unwrap_or(u64::MAX)),
        available: threshold.map(|shortage| shortage.available),
        memory_pressure,
        grace,
        overdue_after: Secs(grace.0.saturating_add(grace.0 / 2).max(LEAST_WAIT)),
        expected_free,
        phase: "Failed".to_string(),
        reason: reason.to_string(),
        condition: condition_message.map(|message| PodCondition {
            condition_type: "DisruptionTarget".to_string(),
            status: "True".to_string(),
            reason: "TerminationByKubelet".to_string(),
            message,
        }),
        event: PodEvent {
            event_type: EventType::Warning,
            reason: reason.to_string(),
            message: message.clone(),
            annotations,
        },
        message,
        metric,
        why,
    }
}
