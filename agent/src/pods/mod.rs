//! The pod book: which pods there are, put together in one place.
//!
//! ```text
//!  runtime: sandboxes, containers ──┐
//!  manifests, or the API server's ──┼─ by UID, else by name ─► the pods, each once
//!  objects: requests, limits        │                          whose each cgroup is (see `owners`)
//!  cgroups: by path ────────────────┘                          what is not known yet
//! ```
//! Nothing is asked for here, and nothing measured: what pods use is added in `state`. What the runtime does not list any more is forgotten with the next list.
//! The reconciler of cgroups, which decides by manifests, asks `sources`; both go by the same list and the same rules.

mod described;
mod listed;
mod owners;
pub mod sources;

use crate::sense::pod_dirs::PodName;
use crate::sense::runtime::{ContainerSeen, Inventory, PodSeen};
pub use described::Described;
use described::is_false_mirror;
use ebb_journal::Payload;
use ebb_policy::Snapshot;
use ebb_policy::snapshot::{ContainerState, Sandbox, State, Workload, WorkloadKey, WorkloadKind};
use listed::Listed;
use owners::Owners;
pub(crate) use owners::{Owner, Standing, Unowned};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// UIDs of pods that ebb has evicted, for as long as anything of them is left, each with the ids of the sandboxes and containers that it had then: with another one it is a pod that was started again.
pub type Evicted = BTreeMap<String, BTreeSet<String>>;

/// The pods of a node.
#[derive(Debug, Default)]
pub struct PodBook {
    /// What the runtime listed last; `None` before it has.
    inventory: Option<Arc<Inventory>>,
    described: Option<Described>,
    evicted: Evicted,
    /// Containers that have ended since a decision was made about them.
    exited: BTreeSet<String>,
    /// A sandbox has ended that no decision was made about.
    sandbox_ended: bool,
    /// Nothing but pods may be evicted.
    pods_only: bool,
    /// There is a runtime, whether or not it has told anything yet.
    has_runtime: bool,
    /// The API server has yet to tell of pods: one without a description may be critical.
    awaits_descriptions: bool,
    /// The pods, put together whenever what they are made of changes.
    pods: Vec<PodEntry>,
    /// Whose each cgroup is.
    owners: Owners,
}

/// One pod, without what was measured of it.
#[derive(Debug)]
pub(crate) struct PodEntry {
    /// What is said of it, and what has become of it.
    pub(crate) workload: Workload,
    /// A manifest, or the API server's object, tells of it.
    pub(crate) is_described: bool,
    /// Its containers, by their places in the runtime's list.
    containers: Vec<usize>,
}

impl PodBook {
    /// Says whether cgroups that belong to no pod are workloads too.
    pub fn set_pods_only(&mut self, pods_only: bool) {
        self.pods_only = pods_only;
    }

    /// Says that there is a runtime: what may be its container waits until it has told.
    pub fn expect_runtime(&mut self) {
        self.has_runtime = true;
    }

    /// Says whether the API server has yet to tell of pods: until it has, a pod without a description is not evicted. Returns whether it had before.
    pub fn await_descriptions(&mut self, awaits: bool) -> bool {
        std::mem::replace(&mut self.awaits_descriptions, awaits)
    }

    /// Whether a pod without a description is not evicted yet.
    #[must_use]
    pub fn awaits_descriptions(&self) -> bool {
        self.awaits_descriptions
    }

    /// Whether cgroups that belong to no pod are no workloads.
    #[must_use]
    pub fn pods_only(&self) -> bool {
        self.pods_only
    }

    /// Takes in what the runtime has.
    pub fn observe(&mut self, mut inventory: Inventory) {
        self.exited.extend(std::mem::take(&mut inventory.exited));
        self.note_ended_sandboxes(&inventory);
        let there: BTreeSet<&str> =
            inventory.containers.iter().map(|c| c.container.id.as_str()).collect();
        self.exited.retain(|id| there.contains(id.as_str()));
        let pods = inventory.pods.iter().map(|pod| pod.sandbox.pod_uid.as_str());
        let owners = inventory.containers.iter().map(|c| c.container.pod_uid.as_str());
        let known: BTreeSet<&str> = pods.chain(owners).collect();
        self.evicted.retain(|uid, had| {
            let mut own = ids(&inventory, uid);
            known.contains(uid.as_str()) && own.all(|id| had.contains(id))
        });
        self.owners = Owners::of(&inventory);
        self.inventory = Some(Arc::new(inventory));
        self.put_together();
    }

    /// Takes in what is said of pods; where that is complete, every source of pods has reported.
    pub fn observe_described(&mut self, described: Described) {
        self.described = Some(described);
        self.put_together();
    }

    /// What the runtime listed last; `None` before it has.
    #[must_use]
    pub fn inventory(&self) -> Option<&Arc<Inventory>> {
        self.inventory.as_ref()
    }

    /// The pods, each once: those of the runtime, then those that are only described. None before the runtime has listed.
    pub(crate) fn pods(&self) -> &[PodEntry] {
        &self.pods
    }

    /// The containers of a pod, those that have ended too.
    pub(crate) fn containers_of<'a>(
        &'a self,
        pod: &'a PodEntry,
    ) -> impl Iterator<Item = &'a ContainerSeen> {
        let listed = self.inventory.as_deref();
        let places = pod.containers.iter();
        places.filter_map(move |place| listed?.containers.get(*place))
    }

    /// All pods. One that has ended is measured too: what it still has on disk counts as on its way back, and must not count once it is back.
    #[must_use]
    pub fn names(&self) -> Vec<PodName> {
        let names = self.pods.iter().filter_map(|pod| {
            let WorkloadKey { name, uid, .. } = &pod.workload.key;
            Some(PodName { uid: uid.clone()?, name: name.clone() })
        });
        names.collect()
    }

    /// Notes that ebb evicts this pod, and with it containers that no list names yet: what is left of it once it has terminated may go.
    pub(crate) fn note_evicted(&mut self, uid: &str, unlisted: impl Iterator<Item = String>) {
        let had = self.inventory.iter().flat_map(|inventory| ids(inventory, uid));
        let had = had.map(str::to_owned).chain(unlisted).collect();
        self.evicted.insert(uid.to_owned(), had);
        self.put_together();
    }

    /// Takes that back: nothing was done to the pod.
    pub fn forget_evicted(&mut self, uid: &str) {
        if self.evicted.remove(uid).is_some() {
            self.put_together();
        }
    }

    /// The pods that ebb has evicted.
    #[must_use]
    pub fn evicted(&self) -> &Evicted {
        &self.evicted
    }

    /// Takes in whom an earlier run has evicted; what has changed since shows with the next list.
    pub fn remember_evicted(&mut self, evicted: Evicted) {
        self.evicted = evicted;
        self.put_together();
    }

    /// Notes which sandboxes have ended since the last list. As long as its sandbox is ready a pod counts as running, so what was decided of its dead containers until then is decided again.
    fn note_ended_sandboxes(&mut self, inventory: &Inventory) {
        let Some(last) = &self.inventory else { return };
        let was_ready = |id: &str| {
            let mut before = last.pods.iter().map(|pod| &pod.sandbox);
            before.any(|sandbox| sandbox.ready && sandbox.id == id)
        };
        for pod in &inventory.pods {
            let Sandbox { id, pod_uid, ready, .. } = &pod.sandbox;
            if *ready || !was_ready(id) {
                continue;
            }
            self.sandbox_ended = true;
            let own = inventory.containers.iter().map(|seen| &seen.container);
            let dead = own.filter(|c| &c.pod_uid == pod_uid && c.state == ContainerState::Exited);
            self.exited.extend(dead.map(|container| container.id.clone()));
        }
    }

    /// Forgets what has ended: a decision has been made about it.
    pub fn forget_exited(&mut self) {
        self.exited.clear();
        self.sandbox_ended = false;
    }

    /// Whether containers or sandboxes have ended that no decision was made about.
    #[must_use]
    pub fn has_exited(&self) -> bool {
        self.sandbox_ended || !self.exited.is_empty()
    }

    /// Whose the cgroup at `path` below the mount is; `None` when it is no pod's.
    #[must_use]
    pub fn owner(&self, path: &Path) -> Option<Owner> {
        self.owners.owner(path)
    }

    /// The cgroups of the containers of the pod `uid` that run; `id_of` finds a cgroup's id by its path below the mount.
    pub fn payloads(
        &self,
        uid: &str,
        root: &Path,
        id_of: impl Fn(&Path) -> Option<u64>,
    ) -> Vec<Payload> {
        let running = self.containers(uid).filter(|c| c.container.state != ContainerState::Exited);
        running
            .filter_map(|c| c.cgroup.as_ref())
            .filter_map(|path| Some(Payload { id: id_of(path)?, path: root.join(path) }))
            .collect()
    }

    /// Whether somebody else sees to the end of the pod `uid`: its kubelet, or whoever gave its manifest, which is still there.
    ///
    /// Its sandbox and what it left behind are theirs then. The kubelet reads there how its containers ended, and starts them again beside it; it removes them when the pod is deleted.
    #[must_use]
    pub fn is_anothers(&self, uid: &str) -> bool {
        let pods = || self.inventory.iter().flat_map(|inventory| &inventory.pods);
        let is_own = |pod: &&PodSeen| pod.sandbox.pod_uid == uid;
        let may_be_described =
            |pod: &PodSeen| self.description(pod).is_some() || self.some_are_not_described();
        self.pods_only || pods().filter(is_own).any(may_be_described)
    }

    /// Whether everything that tells of pods was read: one that is not described is deleted.
    pub(crate) fn all_are_described(&self) -> bool {
        self.described.as_ref().is_some_and(|described| described.is_complete)
    }

    /// Whether pods are described, but perhaps not all.
    fn some_are_not_described(&self) -> bool {
        self.described.as_ref().is_some_and(|described| !described.is_complete)
    }

    fn description(&self, pod: &PodSeen) -> Option<&Workload> {
        self.described.as_ref()?.of(pod)
    }

    /// UIDs of pods that ebb has evicted, of which nothing runs any more but the sandbox, and whose end nobody else sees to.
    #[must_use]
    pub fn only_sandboxes_left(&self) -> Vec<String> {
        let pods = || self.inventory.iter().flat_map(|inventory| &inventory.pods);
        let is_left = |uid: &&String| {
            let mut containers = self.containers(uid).map(|seen| seen.container.state);
            pods().any(|pod| &pod.sandbox.pod_uid == *uid && pod.sandbox.ready)
                && containers.all(|state| state == ContainerState::Exited)
        };
        let evicted = self.evicted.keys().filter(is_left);
        evicted.filter(|uid| !self.is_anothers(uid)).cloned().collect()
    }

    /// Ids of the containers of the pod `uid` that run, and of its sandboxes.
    #[must_use]
    pub fn parts(&self, uid: &str) -> (Vec<String>, Vec<String>) {
        let running = self.containers(uid).filter(|c| c.container.state == ContainerState::Running);
        let pods = self.inventory.iter().flat_map(|inventory| &inventory.pods);
        let sandboxes = pods.filter(|pod| pod.sandbox.pod_uid == uid);
        (
            running.map(|c| c.container.id.clone()).collect(),
            sandboxes.map(|pod| pod.sandbox.id.clone()).collect(),
        )
    }

    /// Adds what the runtime lists; returns whether it has listed anything yet.
    pub(crate) fn fill(&self, snapshot: &mut Snapshot) -> bool {
        let Some(inventory) = &self.inventory else { return false };
        snapshot.sources_ready = self.all_are_described();
        snapshot.containers = inventory.containers.iter().map(|c| c.container.clone()).collect();
        snapshot.sandboxes = inventory.pods.iter().map(|pod| pod.sandbox.clone()).collect();
        snapshot.exited = self.exited.iter().cloned().collect();
        true
    }

    /// The containers of the pod `uid`, those that have ended too.
    pub(crate) fn containers<'a>(
        &'a self,
        uid: &'a str,
    ) -> impl Iterator<Item = &'a ContainerSeen> {
        let all = self.inventory.iter().flat_map(|inventory| &inventory.containers);
        all.filter(move |c| c.container.pod_uid == uid)
    }

    /// What a cgroup counts as that belongs to no pod of which the runtime has told.
    pub(crate) fn standing(&self, unowned: Unowned<'_>) -> Standing {
        if self.pods_only || self.has_runtime {
            self.owners.standing(unowned, self.pods_only)
        } else {
            Standing::Workload
        }
    }

    /// Who the pod `uid` is; `None` when nobody has told of it.
    #[must_use]
    pub fn key_of(&self, uid: &str) -> Option<WorkloadKey> {
        let mut keys = self.pods.iter().map(|pod| &pod.workload.key);
        keys.find(|key| key.uid.as_deref() == Some(uid)).cloned()
    }

    /// Makes one pod of all that is known of each.
    fn put_together(&mut self) {
        self.pods.clear();
        let Some(inventory) = &self.inventory else { return };
        let mut named = BTreeSet::new();
        let mut pods = Vec::new();
        for (uid, listed) in Listed::all(inventory) {
            let spec = self.description(listed.newest);
            named.extend(spec.map(|spec| spec.key.name.clone()));
            let mut workload = spec.cloned().unwrap_or_default();
            workload.key = WorkloadKey {
                name: listed.newest.name.clone(),
                uid: Some(uid.to_owned()),
                ..WorkloadKey::default()
            };
            workload.kind = WorkloadKind::Pod;
            workload.static_pod = listed.newest.is_static;
            let evicted = self.evicted.contains_key(uid);
            let is_anothers = self.pods_only || spec.is_some() || self.some_are_not_described();
            // What is left of it goes for that; who sees to its end may want to read it first.
            workload.evicted = evicted && !is_anothers;
            workload.evicted_from_outside = workload.evicted;
            workload.deleted = self.all_are_described() && spec.is_none();
            // Its kubelet is about to start it again.
            let restarts = evicted && is_anothers && !workload.deleted;
            if !listed.runs() && !restarts {
                workload.state = State::Terminated { at: None };
            }
            let mounted = listed.containers().flat_map(|seen| &seen.mounted_images).cloned();
            workload.mounted_images = mounted.collect::<BTreeSet<_>>().into_iter().collect();
            let (is_described, containers) = (spec.is_some(), listed.places);
            pods.push(PodEntry { workload, is_described, containers });
        }
        // A pod that has not begun to run is known, so that nothing of it is taken for an unknown pod's.
        let waiting = self.described.iter().flat_map(|described| &described.pods);
        let waiting = waiting.filter(|spec| !named.contains(&spec.key.name));
        let is_false =
            |spec: &Workload| inventory.pods.iter().any(|pod| is_false_mirror(spec, pod));
        let waiting = waiting.filter(|spec| !is_false(spec)).cloned();
        pods.extend(waiting.map(|workload| PodEntry {
            workload,
            is_described: true,
            containers: Vec::new(),
        }));
        self.pods = pods;
    }
}

/// Ids of the sandboxes and containers of the pod `uid`.
fn ids<'a>(inventory: &'a Inventory, uid: &'a str) -> impl Iterator<Item = &'a str> {
    let sandboxes = inventory.pods.iter().map(|pod| &pod.sandbox);
    let sandboxes = sandboxes.filter(move |s| s.pod_uid == uid).map(|s| s.id.as_str());
    let containers = inventory.containers.iter().map(|seen| &seen.container);
    let containers = containers.filter(move |c| c.pod_uid == uid).map(|c| c.id.as_str());
    sandboxes.chain(containers)
}
