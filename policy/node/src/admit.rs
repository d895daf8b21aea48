//! Whether a pod may start on a node under pressure, and the report of kills by the kernel.
use crate::{
    History,
    message::EVICTED,
    plan::{AdmissionAnswer, EventType, NodeEvent, Plan},
    signal::NodeConditionType,
    snapshot::{Qos, Snapshot},
};
use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use ebb_model::priority::is_critical;

/// Answers every pod that asks, by the conditions that hold.
pub(crate) fn answer(snapshot: &Snapshot, history: &History, plan: &mut Plan) {
    let names: Vec<&str> = history.conditions.iter().map(|condition| condition.name()).collect();
    let only_memory = history.conditions.len() == 1
        && history.conditions.contains(&NodeConditionType::MemoryPressure);
    let mut pods: Vec<_> = snapshot.admissions.iter().collect();
    pods.sort_by(|a, b| a.key.cmp(&b.key));
    for pod in pods {
        let admit = names.is_empty()
            || is_critical(pod.static_pod, pod.mirror, pod.priority)
            || (only_memory && (pod.qos != Qos::BestEffort || pod.tolerates_memory_pressure));
        let refused = |text: String| (!admit).then_some(text);
        plan.admissions.push(AdmissionAnswer {
            workload: pod.key.clone(),
            admit,
            phase: refused("Failed".to_string()),
            reason: refused(EVICTED.to_string()),
            message: refused(format!("The node had condition: [{}]. ", names.join(" "))),
        });
    }
}

/// Kills for want of memory of the node itself, as events; those inside a cgroup's own limit concern nobody else.
pub(crate) fn report_oom_kills(snapshot: &Snapshot, plan: &mut Plan) {
    let mut kills: Vec<_> =
        snapshot.oom_kills.iter().filter(|kill| kill.constraint.as_deref() == Some("/")).collect();
    kills.sort_by(|a, b| (a.pid, &a.victim).cmp(&(b.pid, &b.victim)));
    for kill in kills {
        plan.events.push(NodeEvent {
            event_type: EventType::Warning,
            reason: "SystemOOM".to_string(),
            message: format!(
                "System OOM encountered, victim process: {}, pid: {}",
                kill.victim, kill.pid
            ),
        });
    }
}
