//! Questions about a workload that follow from its state alone.
use crate::snapshot::{Phase, State, Workload};

/// The priority class of what the node cannot do without.
pub(crate) const NODE_CRITICAL: &str = "system-node-critical";
/// The priority class of what the cluster cannot do without.
const CLUSTER_CRITICAL: &str = "system-cluster-critical";
/// Priority from which a pod is critical to the system.
pub(crate) const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The priority of one of the two classes that every cluster has; `None` for others, which only an API server knows, and it writes their number into the pod's `priority`.
#[must_use]
pub fn class_priority(class: &str) -> Option<i32> {
    match class {
        CLUSTER_CRITICAL => Some(SYSTEM_CRITICAL_PRIORITY),
        NODE_CRITICAL => Some(SYSTEM_CRITICAL_PRIORITY + 1_000),
        _ => None,
    }
}

/// Whether a pod with these traits is critical: such pods are never evicted and always admitted.
pub(crate) fn is_critical(static_pod: bool, mirror: bool, priority: Option<i32>) -> bool {
    static_pod || mirror || priority.is_some_and(|p| p >= SYSTEM_CRITICAL_PRIORITY)
}

impl Workload {
    /// Priority; 0 when it has none.
    pub fn priority(&self) -> i32 {
        self.priority.unwrap_or(0)
    }

    /// Whether it is critical, and so never evicted.
    pub fn is_critical(&self) -> bool {
        is_critical(self.static_pod, self.mirror, self.priority)
    }

    /// Whether it is neither critical nor protected; who is either is never ended.
    pub fn may_be_ended(&self) -> bool {
        !self.is_critical() && self.protected.is_none()
    }

    /// Whether ebb has told all of it to end.
    pub(crate) fn is_dying(&self) -> bool {
        self.dying.is_some_and(|dying| dying.is_whole())
    }

    /// Whether nothing of it runs or will run any more.
    pub fn is_finished(&self) -> bool {
        match self.state {
            State::Terminated { .. } => true,
            State::Terminating { .. } => false,
            State::Active => matches!(self.phase, Phase::Succeeded | Phase::Failed),
        }
    }

    /// The part of its name after the namespace.
    pub(crate) fn short_name(&self) -> &str {
        self.key.name.rsplit('/').next().unwrap_or_default()
    }
}
