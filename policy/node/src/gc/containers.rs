//! Dead containers, then sandboxes, then logs.
//!
//! Containers are taken in units of pod and container name: first whole units of pods that are gone,
//! then the oldest beyond the number kept per unit, then the oldest beyond the number kept on the node.
use super::pods::Pods;
use crate::{
    Secs,
    limits::ContainerGcPolicy,
    plan::{
        Action, Plan, RemoveContainer, RemoveLogDir, RemoveLogLink, RemoveReason, RemoveSandbox,
        SkipReason, Skipped, Subject,
    },
    snapshot::{Container, ContainerState, LogLink, Sandbox, Snapshot},
};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

/// Dead containers of one name in one pod, the newest first.
type Units<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a Container>>;

/// Fills the plan with what to remove. `need_room` also takes what belongs to pods that have merely ended.
/// Returns the ids of the containers that go.
pub(crate) fn collect<'a>(
    snapshot: &'a Snapshot,
    policy: ContainerGcPolicy,
    need_room: bool,
    plan: &mut Plan,
) -> BTreeSet<&'a str> {
    let Snapshot { containers, sandboxes: boxes, log_dirs, log_links, .. } = snapshot;
    if containers.is_empty() && boxes.is_empty() && log_dirs.is_empty() && log_links.is_empty() {
        return BTreeSet::new();
    }
    let pods = Pods::new(snapshot);
    let mut removal = Removal { plan, removed: BTreeSet::new() };
    let mut units = dead(snapshot, policy, &mut removal);
    if snapshot.sources_ready {
        units.retain(|(uid, _), unit| match pods.runtime_removable(uid, need_room) {
            None => true,
            Some(reason) => {
                removal.oldest_first(unit, 0, reason);
                false
            }
        });
    }
    if let Some(most) = policy.max_per_container {
        shorten(&mut units, most, RemoveReason::PerContainerLimit, &mut removal);
    }
    if let Some(most) = policy.max_containers {
        fit_node(&mut units, most, &mut removal);
    }
    for container in units.into_values().flatten() {
        removal.keep(Subject::Container { id: container.id.clone() }, SkipReason::Newest);
    }
    sandboxes(snapshot, &pods, need_room, &mut removal);
    logs(snapshot, &pods, &mut removal);
    removal.removed
}

/// Dead containers that are old enough, by unit.
fn dead<'a>(
    snapshot: &'a Snapshot,
    policy: ContainerGcPolicy,
    removal: &mut Removal<'a, '_>,
) -> Units<'a> {
    let newest = snapshot.taken_at.minus(policy.min_age);
    let mut units = Units::new();
    for container in &snapshot.containers {
        let subject = || Subject::Container { id: container.id.clone() };
        if container.state == ContainerState::Running {
            removal.keep(subject(), SkipReason::Running);
        } else if container.created_at > newest {
            let wait = container.created_at.since(newest);
            removal.keep(subject(), SkipReason::TooYoung { wait: Secs(wait.0.div_ceil(1000)) });
        } else {
            let unit = (container.pod_uid.as_str(), container.name.as_str());
            units.entry(unit).or_default().push(container);
        }
    }
    for unit in units.values_mut() {
        newest_first(unit);
    }
    units
}

pub(super) fn newest_first(containers: &mut [&Container]) {
    containers.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| b.id.cmp(&a.id)));
}

/// Leaves the newest `most` of each unit.
fn shorten<'a>(
    units: &mut Units<'a>,
    most: u64,
    reason: RemoveReason,
    removal: &mut Removal<'a, '_>,
) {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    for unit in units.values_mut() {
        removal.oldest_first(unit, most, reason);
    }
}

/// Leaves `most` on the node: as many of each unit as there is room for, at least one; then the newest of all.
fn fit_node<'a>(units: &mut Units<'a>, most: u64, removal: &mut Removal<'a, '_>) {
    let total = |units: &Units<'_>| units.values().map(Vec::len).sum::<usize>();
    let room = usize::try_from(most).unwrap_or(usize::MAX);
    if total(units) <= room {
        return;
    }
    let each = (room / units.len().max(1)).max(1);
    shorten(units, each as u64, RemoveReason::NodeLimit, removal);
    if total(units) > room {
        let mut all: Vec<&Container> = units.values().flatten().copied().collect();
        newest_first(&mut all);
        removal.oldest_first(&mut all, room, RemoveReason::NodeLimit);
        let removed = &removal.removed;
        for unit in units.values_mut() {
            unit.retain(|container| !removed.contains(container.id.as_str()));
        }
    }
}

/// Sandboxes that are neither ready nor own a container that stays: all of a pod that is gone, else all but the newest.
fn sandboxes<'a>(
    snapshot: &'a Snapshot,
    pods: &Pods<'_>,
    need_room: bool,
    removal: &mut Removal<'a, '_>,
) {
    let owners: BTreeSet<&str> = snapshot
        .containers
        .iter()
        .filter(|container| !removal.removed.contains(container.id.as_str()))
        .filter_map(|container| container.sandbox_id.as_deref())
        .collect();
    let mut by_pod: BTreeMap<&str, Vec<&Sandbox>> = BTreeMap::new();
    for sandbox in &snapshot.sandboxes {
        by_pod.entry(&sandbox.pod_uid).or_default().push(sandbox);
    }
    for (uid, mut sandboxes) in by_pod {
        sandboxes.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| b.id.cmp(&a.id)));
        let gone = pods.runtime_removable(uid, need_room);
        let stay = usize::from(gone.is_none());
        for (place, sandbox) in sandboxes.iter().enumerate().rev() {
            let subject = Subject::Sandbox { id: sandbox.id.clone() };
            if sandbox.ready {
                removal.keep(subject, SkipReason::Running);
            } else if owners.contains(sandbox.id.as_str()) {
                removal.keep(subject, SkipReason::InUse);
            } else if place < stay {
                removal.keep(subject, SkipReason::Newest);
            } else {
                removal.plan.actions.push(Action::RemoveSandbox(RemoveSandbox {
                    id: sandbox.id.clone(),
                    pod_uid: sandbox.pod_uid.clone(),
                    reason: gone.unwrap_or(RemoveReason::Superseded),
                }));
            }
        }
    }
}

/// Log directories of pods that are gone, and links whose target is gone while their container is known to have ended.
fn logs(snapshot: &Snapshot, pods: &Pods<'_>, removal: &mut Removal<'_, '_>) {
    let mut dirs: Vec<_> = snapshot.log_dirs.iter().collect();
    dirs.sort_by(|a, b| a.path.cmp(&b.path));
    for dir in dirs {
        let subject = Subject::LogDir { path: dir.path.clone() };
        if !snapshot.sources_ready {
            removal.keep(subject, SkipReason::SourcesNotReady);
        } else if let Some(reason) = pods.content_removable(&dir.pod_uid) {
            removal.plan.actions.push(Action::RemoveLogDir(RemoveLogDir {
                path: dir.path.clone(),
                pod_uid: dir.pod_uid.clone(),
                reason,
            }));
        } else {
            removal.keep(subject, SkipReason::PodActive);
        }
    }
    let mut links: Vec<_> = snapshot.log_links.iter().collect();
    links.sort_by(|a, b| a.path.cmp(&b.path));
    for link in links {
        if is_dangling(link) {
            removal.plan.actions.push(Action::RemoveLogLink(RemoveLogLink {
                path: link.path.clone(),
                reason: RemoveReason::Dangling,
            }));
        } else {
            removal.keep(Subject::LogLink { path: link.path.clone() }, SkipReason::MayBeRotating);
        }
    }
}

/// A link is left alone while its container may still run: rotation moves a log away for a moment.
fn is_dangling(link: &LogLink) -> bool {
    let ended = link.container_state == Some(ContainerState::Exited);
    !link.target_exists && (link.status_failed || ended)
}

pub(super) fn remove(container: &Container, reason: RemoveReason) -> Action {
    Action::RemoveContainer(RemoveContainer {
        id: container.id.clone(),
        name: container.name.clone(),
        pod_uid: container.pod_uid.clone(),
        state: container.state,
        kill_first: container.state == ContainerState::Unknown,
        reason,
    })
}

/// What goes, and what is kept.
struct Removal<'a, 'p> {
    plan: &'p mut Plan,
    removed: BTreeSet<&'a str>,
}

impl<'a> Removal<'a, '_> {
    /// Removes from the old end until `stay` are left of a list with the newest first.
    fn oldest_first(&mut self, unit: &mut Vec<&'a Container>, stay: usize, reason: RemoveReason) {
        while unit.len() > stay
            && let Some(container) = unit.pop()
        {
            self.removed.insert(&container.id);
            self.plan.actions.push(remove(container, reason));
        }
    }

    fn keep(&mut self, subject: Subject, reason: SkipReason) {
        self.plan.skipped.push(Skipped { subject, reason });
    }
}
