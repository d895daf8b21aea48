//! After a container's end, at once: the newest dead ones of its name stay, at least one; of a pod that is gone none do.
use super::{
    containers::{newest_first, remove},
    pods::Pods,
};
use crate::{
    limits::ContainerGcPolicy,
    plan::{Action, Plan, RemoveReason},
    snapshot::{Container, ContainerState, Snapshot},
};
use alloc::{collections::BTreeSet, string::String, vec::Vec};

pub(crate) fn collect(snapshot: &Snapshot, policy: ContainerGcPolicy, plan: &mut Plan) {
    if snapshot.exited.is_empty() {
        return;
    }
    let pods = Pods::new(snapshot);
    let stay = policy
        .max_per_container
        .map_or(1, |most| usize::try_from(most).unwrap_or(usize::MAX).max(1));
    let ended: BTreeSet<&str> = snapshot.exited.iter().map(String::as_str).collect();
    let died = snapshot.containers.iter().filter(|c| ended.contains(c.id.as_str()));
    let died: BTreeSet<(&str, &str)> =
        died.map(|container| (container.pod_uid.as_str(), container.name.as_str())).collect();
    let mut going = already_going(snapshot, plan);
    for (uid, name) in died {
        let gone = pods.content_removable(uid);
        let of_unit = |container: &&Container| {
            container.pod_uid == uid
                && (gone.is_some() || container.name == name)
                && container.state == ContainerState::Exited
                && !going.contains(container.id.as_str())
        };
        let mut dead: Vec<&Container> = snapshot.containers.iter().filter(of_unit).collect();
        newest_first(&mut dead);
        let stay = if gone.is_some() { 0 } else { stay };
        for container in dead.iter().skip(stay).rev() {
            going.insert(&container.id);
            let reason = gone.unwrap_or(RemoveReason::PerContainerLimit);
            plan.actions.push(remove(container, reason));
        }
    }
}

/// Containers that the plan removes for other reasons.
fn already_going<'a>(snapshot: &'a Snapshot, plan: &Plan) -> BTreeSet<&'a str> {
    let planned: BTreeSet<&str> = plan
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::RemoveContainer(container) => Some(container.id.as_str()),
            _ => None,
        })
        .collect();
    snapshot.containers.iter().map(|c| c.id.as_str()).filter(|id| planned.contains(id)).collect()
}
