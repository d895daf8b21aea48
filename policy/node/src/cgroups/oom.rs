//! `oom_score_adj` of a container's processes: who goes first when the kernel itself has to choose.
use crate::snapshot::{ContainerKind, Qos};
use alloc::{format, string::String};
use ebb_model::amounts::MEMORY;
use ebb_model::pod::{Container, Pod};

/// What must go last of all that may go.
const GUARANTEED: i64 = -997;
const BEST_EFFORT: i64 = 1000;

/// The score, and the rule behind it. `memory_capacity` is the node's memory in bytes; 0 counts as 1.
#[must_use]
pub(super) fn score(pod: &Pod, container: &Container, memory_capacity: u64) -> (i64, String) {
    if pod.is_node_critical() {
        return (GUARANTEED, String::from("system-node-critical: -997"));
    }
    match pod.qos() {
        Qos::Guaranteed => return (GUARANTEED, String::from("Guaranteed: -997")),
        Qos::BestEffort => return (BEST_EFFORT, String::from("BestEffort: 1000")),
        Qos::Burstable => {}
    }
    let capacity = i128::from(memory_capacity.max(1));
    let share = extra_share(pod);
    let by_request = |request: u64| 1000 - 1000 * (i128::from(request) + share) / capacity;
    let request = container.resources.requests.value(MEMORY);
    let mut score = by_request(request);
    let mut rule = format!("Burstable: 1000 - 1000·({request} + {share})/{capacity}");
    if container.kind == ContainerKind::Sidecar {
        let regular = pod.containers.iter().filter(|c| c.kind == ContainerKind::Regular);
        if let Some(least) = regular.map(|c| c.resources.requests.value(MEMORY)).min() {
            score = score.min(by_request(least));
            rule += &format!(", at most that of the smallest regular container ({least})");
        }
    }
    // Between what is guaranteed and what is best effort, whatever the request.
    let lowest = i128::from(1000 + GUARANTEED);
    let bounded = if score == i128::from(BEST_EFFORT) { score - 1 } else { score.max(lowest) };
    (i64::try_from(bounded).unwrap_or(BEST_EFFORT - 1), rule)
}

/// What the pod asks for beyond its containers, divided among all of them; 0 unless the pod as a whole has a memory request.
fn extra_share(pod: &Pod) -> i128 {
    let Some(whole) = &pod.resources else { return 0 };
    if !whole.requests.has(MEMORY) {
        return 0;
    }
    let count = pod.containers.iter().filter(|c| c.kind != ContainerKind::Ephemeral).count();
    let beyond = i128::from(whole.requests.value(MEMORY))
        - i128::from(pod.container_requests().value(MEMORY));
    beyond.max(0) / i128::try_from(count.max(1)).unwrap_or(1)
}
