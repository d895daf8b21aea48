//! Priorities that every cluster has, and which pods are critical by them.

/// The priority class of what the node cannot do without.
pub const NODE_CRITICAL: &str = "system-node-critical";
/// The priority class of what the cluster cannot do without.
const CLUSTER_CRITICAL: &str = "system-cluster-critical";
/// Priority from which a pod is critical to the system.
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

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
pub fn is_critical(static_pod: bool, mirror: bool, priority: Option<i32>) -> bool {
    static_pod || mirror || priority.is_some_and(|p| p >= SYSTEM_CRITICAL_PRIORITY)
}
