//! The runtime's list by pod: its sandboxes, of which an earlier one may be left, and its containers, of which some may have ended.

use crate::sense::runtime::{ContainerSeen, Inventory, PodSeen};
use ebb_policy::snapshot::ContainerState;
use std::collections::BTreeMap;
use std::path::Path;

/// What the runtime lists of one pod.
#[derive(Debug)]
pub(super) struct Listed<'a> {
    inventory: &'a Inventory,
    /// The sandbox that was made last: it has the name that counts.
    pub(super) newest: &'a PodSeen,
    sandboxes: Vec<&'a PodSeen>,
    /// Its containers, by their places in the list.
    pub(super) places: Vec<usize>,
}

impl<'a> Listed<'a> {
    /// The pods of a list, by UID. A container without a sandbox belongs to none.
    pub(super) fn all(inventory: &'a Inventory) -> BTreeMap<&'a str, Self> {
        let mut pods: BTreeMap<&str, Self> = BTreeMap::new();
        for pod in &inventory.pods {
            let listed = pods.entry(&pod.sandbox.pod_uid).or_insert_with(|| Self {
                inventory,
                newest: pod,
                sandboxes: Vec::new(),
                places: Vec::new(),
            });
            // Of two that were made at once, the one that is listed last.
            if pod.sandbox.created_at >= listed.newest.sandbox.created_at {
                listed.newest = pod;
            }
            listed.sandboxes.push(pod);
        }
        for (place, seen) in inventory.containers.iter().enumerate() {
            if let Some(listed) = pods.get_mut(seen.container.pod_uid.as_str()) {
                listed.places.push(place);
            }
        }
        pods
    }

    /// Its containers, those that have ended too.
    pub(super) fn containers(&self) -> impl Iterator<Item = &'a ContainerSeen> {
        self.places.iter().filter_map(|place| self.inventory.containers.get(*place))
    }

    /// Its containers that have not ended.
    pub(super) fn alive(&self) -> impl Iterator<Item = &'a ContainerSeen> {
        self.containers().filter(|seen| seen.container.state != ContainerState::Exited)
    }

    /// Whether something of it runs, if only its sandbox.
    pub(super) fn runs(&self) -> bool {
        let is_running = |seen: &ContainerSeen| seen.container.state == ContainerState::Running;
        self.sandboxes.iter().any(|pod| pod.sandbox.ready) || self.containers().any(is_running)
    }

    /// The cgroup below the mount of a sandbox or of a container that has not ended, where the runtime tells one: the pod's own cgroup is above it.
    pub(super) fn inside(&self) -> Option<&'a Path> {
        let sandboxes = self.sandboxes.iter().filter_map(|pod| pod.cgroup.as_deref());
        let mut all = sandboxes.chain(self.alive().filter_map(|seen| seen.cgroup.as_deref()));
        all.next()
    }
}

/// Whether two lists have the same pods with the same containers that have not ended.
pub(super) fn is_same(a: &Inventory, b: &Inventory) -> bool {
    let (a, b) = (Listed::all(a), Listed::all(b));
    let pairs = || a.values().zip(b.values());
    let is_same_container = |a: &ContainerSeen, b: &ContainerSeen| {
        (&a.container.id, &a.container.name, &a.cgroup, a.asked)
            == (&b.container.id, &b.container.name, &b.cgroup, b.asked)
    };
    let is_same_pod = |a: &Listed<'_>, b: &Listed<'_>| {
        (&a.newest.name, a.newest.is_static, a.inside())
            == (&b.newest.name, b.newest.is_static, b.inside())
            && a.alive().count() == b.alive().count()
            && a.alive().zip(b.alive()).all(|(a, b)| is_same_container(a, b))
    };
    a.keys().eq(b.keys()) && pairs().all(|(a, b)| is_same_pod(a, b))
}
