//! Pods, containers and images as the runtime last told, enriched with what manifests say and the cgroups say.
//!
//! ```text
//!  runtime: sandboxes, containers ──┐
//!  manifests, or the API server's ──┼─ by UID, else by name ─► one Workload for each pod
//!  objects: requests, limits        │
//!  cgroups: memory, processes ──────┘  by path                 (what other cgroups count as: see `owners`)
//! ```
//! Nothing is asked for here. What the runtime does not list any more is forgotten with the next inventory.

mod owners;

use crate::clock::{Boot, Clock};
use crate::sense::logs::Logs;
use crate::sense::manifests::Manifests;
use crate::sense::pod_dirs::{Figure, PodName, PodSizes};
use crate::sense::runtime::{ContainerSeen, DiskUsage, Images, Inventory, PodSeen};
use ebb_journal::Payload;
use ebb_policy::snapshot::{
    ContainerState, ContainerStats, FsUsage, KernelCounts, LocalLimit, MemoryUsage,
    ProtectedReason, Sandbox, State, Stats, VolumeSpec, VolumeStats, VolumeType, Workload,
    WorkloadKey, WorkloadKind,
};
use ebb_policy::{Snapshot, Time};
pub(super) use owners::Owner;
use owners::{Owners, Standing, Stranger};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// UIDs of pods that ebb has evicted, for as long as anything of them is left, each with the ids of the sandboxes and containers that it had then: with another one it is a pod that was started again.
pub type Evicted = BTreeMap<String, BTreeSet<String>>;

/// Pods by their manifests.
#[derive(Clone, Debug, Default)]
pub struct Manifested {
    /// What is said of each.
    pub pods: Vec<Workload>,
    /// Every manifest was read: a pod that has none is deleted.
    pub is_complete: bool,
}

impl From<&Manifests> for Manifested {
    fn from(found: &Manifests) -> Self {
        let pods = found.all().into_iter().map(Workload::from).collect();
        Self { pods, is_complete: !found.is_incomplete }
    }
}

/// What is known of pods.
#[derive(Debug, Default)]
pub struct Pods {
    inventory: Option<Inventory>,
    images: Option<Images>,
    manifests: Option<Manifested>,
    usage: Option<DiskUsage>,
    logs: Logs,
    evicted: Evicted,
    exited: BTreeSet<String>,
    /// A sandbox has ended that no decision was made about.
    sandbox_ended: bool,
    /// Nothing but pods may be ended.
    pods_only: bool,
    /// There is a runtime, whether or not it has told anything yet.
    has_runtime: bool,
    /// The API server has yet to tell of pods: one without a description may be critical.
    awaits_descriptions: bool,
    /// The pods, put together whenever what they are made of changes.
    known: Vec<Known>,
    /// Whose each cgroup is.
    owners: Owners,
}

/// A cgroup that is followed as a workload.
#[derive(Debug)]
pub struct Measured<'a> {
    /// Below the mount.
    pub path: &'a Path,
    /// The leading part of that which the administrator named.
    pub named: &'a Path,
    /// When it was first read, or was last known to belong to a pod.
    pub since: Boot,
    /// The pod that it belongs to, where the runtime has told of one.
    pub owner: Option<&'a Owner>,
    /// What was read of it.
    pub workload: Workload,
    /// What becomes of it.
    pub fate: Fate,
}

/// What becomes of a cgroup that is followed as a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nobody has ended it here.
    Runs,
    /// It is on its way out, or would be but for the dry run.
    Terminating,
    /// It was killed here, and nothing runs in it any more.
    Terminated,
}

/// One pod, without what was measured of it.
#[derive(Debug)]
struct Known {
    workload: Workload,
    /// A manifest, or the API server's object, tells of it.
    is_described: bool,
    /// Its containers, by their places in the inventory.
    containers: Vec<usize>,
}

impl Pods {
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
        if let Some(images) = inventory.images.take() {
            self.images = Some(images);
        }
        self.owners = Owners::of(&inventory);
        self.inventory = Some(inventory);
        self.put_together();
    }

    /// Takes in what the manifests say; where they are complete, every source of pods has reported.
    pub fn observe_manifests(&mut self, manifested: Manifested) {
        self.manifests = Some(manifested);
        self.put_together();
    }

    /// Takes in what containers and volumes take up on disk.
    pub fn observe_usage(&mut self, mut usage: DiskUsage) {
        let before = self.usage.take().unwrap_or_default();
        let keep_newer = |now: &mut BTreeMap<String, Figure>, before: BTreeMap<String, Figure>| {
            for (name, then) in before {
                if let Some(figure) = now.get_mut(&name).filter(|figure| figure.at < then.at) {
                    *figure = then;
                }
            }
        };
        for (uid, sizes) in before.pods {
            if let Some(known) = usage.pods.get_mut(&uid) {
                keep_newer(&mut known.logs, sizes.logs);
                keep_newer(&mut known.volumes, sizes.volumes);
            }
        }
        self.usage = Some(usage);
    }

    /// Takes in what was measured at once of pods' directories, which is newer than what was walked.
    pub fn observe_sizes(&mut self, sizes: BTreeMap<String, PodSizes>) {
        let usage = self.usage.get_or_insert_default();
        for (uid, sizes) in sizes {
            let known = usage.pods.entry(uid).or_default();
            known.volumes.retain(|name, _| sizes.volume_names.contains(name));
            known.volume_names = sizes.volume_names;
            known.volumes.extend(sizes.volumes);
            known.logs.extend(sizes.logs);
        }
    }

    /// All pods. One that has ended is measured too: what it still has on disk counts as on its way back, and must not count once it is back.
    #[must_use]
    pub fn names(&self) -> Vec<PodName> {
        let names = self.known.iter().filter_map(|known| {
            let WorkloadKey { name, uid, .. } = &known.workload.key;
            Some(PodName { uid: uid.clone()?, name: name.clone() })
        });
        names.collect()
    }

    /// Takes in which logs there are.
    pub fn observe_logs(&mut self, logs: Logs) {
        self.logs = logs;
    }

    /// Notes that ebb ends this pod, and with it containers that no list names yet: what is left of it when it has ended may go.
    pub(super) fn note_evicted(&mut self, uid: &str, unlisted: impl Iterator<Item = String>) {
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

    /// The pods that ebb has ended.
    #[must_use]
    pub fn evicted(&self) -> &Evicted {
        &self.evicted
    }

    /// Takes in what an earlier run has ended; what has changed since shows with the next inventory.
    pub fn remember_evicted(&mut self, evicted: Evicted) {
        self.evicted = evicted;
        self.put_together();
    }

    /// Notes which sandboxes have ended since the last inventory. As long as its sandbox is ready a pod counts as running, so what was decided of its dead containers until then is decided again.
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

    /// The images, as last told.
    #[must_use]
    pub fn images(&self) -> Option<&Images> {
        self.images.as_ref()
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
            |pod: &PodSeen| self.manifest(pod).is_some() || self.manifests_are_incomplete();
        self.pods_only || pods().filter(is_own).any(may_be_described)
    }

    /// Whether every pod that has a manifest is known by it.
    fn manifests_are_complete(&self) -> bool {
        self.manifests.as_ref().is_some_and(|manifested| manifested.is_complete)
    }

    fn manifests_are_incomplete(&self) -> bool {
        self.manifests.as_ref().is_some_and(|manifested| !manifested.is_complete)
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

    fn containers<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a ContainerSeen> {
        let all = self.inventory.iter().flat_map(|inventory| &inventory.containers);
        all.filter(move |c| c.container.pod_uid == uid)
    }

    /// Makes workloads of the pods and of the cgroups that belong to none; returns the UIDs of pods of which something runs that is not on its way out.
    pub fn add_workloads<'a>(
        &self,
        snapshot: &mut Snapshot,
        cgroups: impl Iterator<Item = Measured<'a>>,
        clock: &Clock,
    ) -> BTreeSet<Arc<str>> {
        let mut usage: BTreeMap<Arc<str>, Parts> = BTreeMap::new();
        for cgroup in cgroups {
            if let Some(Owner { uid, is_payload, .. }) = cgroup.owner {
                let parts = usage.entry(Arc::clone(uid)).or_default();
                match cgroup.fate {
                    Fate::Runs => parts.running.add(&cgroup.workload, *is_payload),
                    Fate::Terminating => parts.terminating.add(&cgroup.workload, *is_payload),
                    Fate::Terminated => {}
                }
                continue;
            }
            let mut workload = cgroup.workload;
            let is_of_a_pod = workload.key.uid.is_some();
            let stranger = Stranger { named: cgroup.named, is_of_a_pod, since: cgroup.since };
            match self.standing(stranger) {
                Standing::Workload => {}
                Standing::Unlisted => {
                    workload.protected = workload.protected.or(Some(ProtectedReason::Unlisted));
                }
                Standing::NoWorkload => continue,
            }
            snapshot.workloads.push(workload);
        }
        let running = usage.iter().filter(|(_, parts)| parts.running.has_payload);
        let running = running.map(|(uid, _)| Arc::clone(uid)).collect();
        let usage: BTreeMap<Arc<str>, Usage> =
            usage.into_iter().map(|(uid, parts)| (uid, parts.candidate())).collect();
        for known in &self.known {
            let mut workload = known.workload.clone();
            let of = workload.key.uid.as_deref().and_then(|uid| usage.get(uid));
            workload.stats = self.stats(known, of, snapshot.taken_at, clock);
            self.add_volumes(&mut workload);
            let runs = of.filter(|usage| usage.has_payload);
            let is_unknown = self.awaits_descriptions && !known.is_described;
            let own = workload.protected;
            let own = own.or(is_unknown.then_some(ProtectedReason::Undescribed));
            workload.protected = match runs {
                Some(usage) => usage.protected.filter(|_| !usage.has_candidate).or(own),
                None => Some(ProtectedReason::NothingRuns),
            };
            workload.local_limit = of.and_then(|usage| usage.local_limit);
            snapshot.workloads.push(workload);
        }
        running
    }

    /// Says of pods of which something lives that the operator's own list of workloads leaves them out, rather than that nothing of them runs. `lives` tells it of a cgroup by its path below the mount.
    pub fn tell_unchosen(&self, snapshot: &mut Snapshot, lives: impl Fn(&Path) -> bool) {
        let spared = snapshot.workloads.iter_mut();
        for pod in spared.filter(|w| w.protected == Some(ProtectedReason::NothingRuns)) {
            let Some(uid) = pod.key.uid.as_deref() else { continue };
            let mut cgroups = self.containers(uid).filter_map(|seen| seen.cgroup.as_deref());
            if cgroups.any(&lives) {
                pod.protected = Some(ProtectedReason::Configured);
            }
        }
    }

    fn standing(&self, stranger: Stranger<'_>) -> Standing {
        if self.pods_only || self.has_runtime {
            self.owners.standing(stranger, self.pods_only)
        } else {
            Standing::Workload
        }
    }

    /// Who the pod `uid` is; `None` when nobody has told of it.
    #[must_use]
    pub fn key_of(&self, uid: &str) -> Option<WorkloadKey> {
        let mut keys = self.known.iter().map(|known| &known.workload.key);
        keys.find(|key| key.uid.as_deref() == Some(uid)).cloned()
    }

    /// Adds what the runtime has and the logs beside it.
    pub fn add_runtime(&self, snapshot: &mut Snapshot) {
        let Some(inventory) = &self.inventory else { return };
        snapshot.sources_ready = self.manifests_are_complete();
        snapshot.containers = inventory.containers.iter().map(|c| c.container.clone()).collect();
        snapshot.sandboxes = inventory.pods.iter().map(|pod| pod.sandbox.clone()).collect();
        snapshot.exited = self.exited.iter().cloned().collect();
        snapshot.log_dirs.clone_from(&self.logs.dirs);
        snapshot.log_links.clone_from(&self.logs.links);
        if let Some(images) = &self.images {
            snapshot.images.clone_from(&images.list);
            snapshot.layers.clone_from(&images.layers);
        }
    }

    /// One workload for each pod: those of the runtime, then those that only a manifest knows.
    fn put_together(&mut self) {
        self.known.clear();
        let Some(inventory) = &self.inventory else { return };
        let mut by_uid: BTreeMap<&str, Vec<&PodSeen>> = BTreeMap::new();
        for pod in &inventory.pods {
            by_uid.entry(&pod.sandbox.pod_uid).or_default().push(pod);
        }
        let mut containers: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, seen) in inventory.containers.iter().enumerate() {
            containers.entry(&seen.container.pod_uid).or_default().push(place);
        }
        let mut named = BTreeSet::new();
        let mut known = Vec::with_capacity(by_uid.len());
        for (uid, sandboxes) in by_uid {
            let Some(newest) = sandboxes.iter().max_by_key(|pod| pod.sandbox.created_at) else {
                continue;
            };
            let spec = self.manifest(newest);
            named.extend(spec.map(|spec| spec.key.name.clone()));
            let own = containers.remove(uid).unwrap_or_default();
            let seen = || own.iter().filter_map(|place| inventory.containers.get(*place));
            let runs = sandboxes.iter().any(|pod| pod.sandbox.ready)
                || seen().any(|c| c.container.state == ContainerState::Running);
            let mut workload = spec.cloned().unwrap_or_default();
            workload.key = WorkloadKey {
                name: newest.name.clone(),
                uid: Some(uid.to_owned()),
                ..WorkloadKey::default()
            };
            workload.kind = WorkloadKind::Pod;
            workload.static_pod = newest.is_static;
            let evicted = self.evicted.contains_key(uid);
            let is_anothers = self.pods_only || spec.is_some() || self.manifests_are_incomplete();
            // What is left of it goes for that; who sees to its end may want to read it first.
            workload.evicted = evicted && !is_anothers;
            workload.evicted_from_outside = workload.evicted;
            workload.deleted = self.manifests_are_complete() && spec.is_none();
            // Its kubelet is about to start it again.
            let restarts = evicted && is_anothers && !workload.deleted;
            if !runs && !restarts {
                workload.state = State::Terminated { at: None };
            }
            let mounted = seen().flat_map(|c| &c.mounted_images).cloned();
            workload.mounted_images = mounted.collect::<BTreeSet<_>>().into_iter().collect();
            known.push(Known { workload, is_described: spec.is_some(), containers: own });
        }
        // A pod that has not begun to run is known, so that nothing of it is taken for an unknown pod's.
        let waiting = self.manifests.iter().flat_map(|manifested| &manifested.pods);
        let waiting = waiting.filter(|spec| !named.contains(&spec.key.name));
        let is_false = |spec: &Workload| inventory.pods.iter().any(|pod| is_no_mirror(spec, pod));
        let waiting = waiting.filter(|spec| !is_false(spec)).cloned();
        known.extend(waiting.map(|workload| Known {
            workload,
            is_described: true,
            containers: Vec::new(),
        }));
        self.known = known;
    }

    /// What the manifests say of a pod: by UID, else by name. A static pod's name has the node's name after a dash.
    fn manifest(&self, pod: &PodSeen) -> Option<&Workload> {
        let manifests = &self.manifests.as_ref()?.pods;
        let by_uid = |spec: &&Workload| has_uid_of(spec, pod) && !is_no_mirror(spec, pod);
        let by_name = |spec: &&Workload| {
            spec.key.uid.is_none()
                && (spec.key.name == pod.name
                    || pod.is_static
                        && pod
                            .name
                            .strip_prefix(&spec.key.name)
                            .is_some_and(|rest| rest.starts_with('-')))
        };
        manifests.iter().find(by_uid).or_else(|| manifests.iter().find(by_name))
    }

    /// Adds the volumes that are there and that no manifest tells of.
    fn add_volumes(&self, workload: &mut Workload) {
        let uid = workload.key.uid.as_deref();
        let own = uid.and_then(|uid| self.usage.as_ref()?.pods.get(uid));
        for name in own.iter().flat_map(|own| &own.volume_names) {
            if workload.volumes.iter().all(|volume| &volume.name != name) {
                workload.volumes.push(VolumeSpec {
                    name: name.clone(),
                    volume_type: VolumeType::EmptyDir,
                    medium: None,
                    size_limit: None,
                });
            }
        }
    }

    fn stats(
        &self,
        known: &Known,
        cgroups: Option<&Usage>,
        now: Time,
        clock: &Clock,
    ) -> Option<Stats> {
        let inventory = self.inventory.as_ref()?;
        let containers =
            known.containers.iter().filter_map(|place| inventory.containers.get(*place));
        let disk = self.usage.as_ref();
        let own = disk.and_then(|disk| disk.pods.get(known.workload.key.uid.as_deref()?));
        let mut each: Vec<ContainerStats> = Vec::new();
        let mut oldest: Option<Boot> = None;
        let mut take = |figure: Option<&Figure>| {
            let figure = figure?;
            oldest = Some(oldest.map_or(figure.at, |at| at.min(figure.at)));
            Some(figure.usage)
        };
        for seen in containers {
            let layer = take(disk.and_then(|disk| disk.layers.get(&seen.container.id)));
            // The runtime measures what runs: of a name of which nothing runs there is nothing to wait for.
            if layer.is_none() && seen.container.state == ContainerState::Exited {
                continue;
            }
            let stats = match each.iter_mut().find(|stats| stats.name == seen.container.name) {
                Some(stats) => stats,
                None => {
                    let name = seen.container.name.clone();
                    let logs = take(own.and_then(|own| own.logs.get(&name)));
                    each.push(ContainerStats { name, logs, ..ContainerStats::default() });
                    each.last_mut()?
                }
            };
            stats.rootfs = plus_fs(stats.rootfs, layer);
        }
        let disk_known = own.is_some() || each.iter().any(|c| c.rootfs.is_some());
        if cgroups.is_none() && !disk_known {
            return None;
        }
        let volumes = own.iter().flat_map(|own| &own.volumes);
        let volumes: Vec<VolumeStats> = volumes
            .filter_map(|(name, figure)| {
                let FsUsage { used_bytes, inodes_used } = take(Some(figure))?;
                Some(VolumeStats { name: name.clone(), used_bytes, inodes_used })
            })
            .collect();
        let parts = each.iter().flat_map(|c| [c.rootfs, c.logs]).flatten();
        let bytes = parts.filter_map(|fs| fs.used_bytes);
        let bytes = bytes.chain(volumes.iter().filter_map(|volume| volume.used_bytes));
        Some(Stats {
            observed_at: cgroups.and_then(|usage| usage.observed_at).or(Some(now)),
            memory: cgroups.and_then(|usage| usage.memory),
            kernel_counts: cgroups.and_then(|usage| usage.kernel_counts),
            process_count: cgroups.and_then(|usage| usage.processes),
            ephemeral_storage: disk_known.then(|| bytes.fold(0, u64::saturating_add)),
            containers: each,
            volumes,
            disk_observed_at: oldest.map(|at| clock.time(at)),
            disk_growth: None,
        })
    }
}

/// The cgroups of one pod: what runs (the sandbox with it), and what is on its way out.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    running: Usage,
    terminating: Usage,
}

impl Parts {
    /// What is to be judged of the pod: what was started since something of it was killed, and all of it where nothing was.
    fn candidate(self) -> Usage {
        if self.running.has_payload || !self.terminating.has_payload {
            return self.running;
        }
        let (a, b) = (self.terminating, self.running);
        Usage {
            observed_at: a.observed_at.max(b.observed_at),
            memory: plus_memory(a.memory, b.memory),
            processes: plus(a.processes, b.processes),
            kernel_counts: plus_kernel_counts(a.kernel_counts, b.kernel_counts),
            ..a
        }
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

/// What the cgroups of one pod use together.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    observed_at: Option<Time>,
    memory: Option<MemoryUsage>,
    processes: Option<u64>,
    kernel_counts: Option<KernelCounts>,
    /// Something runs beside the sandbox.
    has_payload: bool,
    /// Why one of its containers must not be killed, if so; the others may be.
    protected: Option<ProtectedReason>,
    /// One of its containers may be killed.
    has_candidate: bool,
    /// Of a container that is at its own limit.
    local_limit: Option<LocalLimit>,
}

impl Usage {
    fn add(&mut self, workload: &Workload, is_payload: bool) {
        let is_empty = workload.protected == Some(ProtectedReason::NothingRuns);
        if is_payload && !is_empty {
            self.has_payload = true;
            self.protected = self.protected.or(workload.protected);
            self.has_candidate |= workload.protected.is_none();
            if workload.local_limit.is_some_and(|limit| limit.at_limit) {
                self.local_limit = workload.local_limit;
            }
        }
        if let Some(stats) = &workload.stats {
            self.observed_at = self.observed_at.max(stats.observed_at);
            self.processes = plus(self.processes, stats.process_count);
            self.memory = plus_memory(self.memory, stats.memory);
            self.kernel_counts = plus_kernel_counts(self.kernel_counts, stats.kernel_counts);
        }
    }
}

/// The sum of what is known; unknown only when both are.
fn plus(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (one, other) => one.or(other),
    }
}

fn plus_fs(a: Option<FsUsage>, b: Option<FsUsage>) -> Option<FsUsage> {
    let (Some(x), Some(y)) = (a, b) else { return a.or(b) };
    Some(FsUsage {
        used_bytes: plus(x.used_bytes, y.used_bytes),
        inodes_used: plus(x.inodes_used, y.inodes_used),
    })
}

fn plus_memory(a: Option<MemoryUsage>, b: Option<MemoryUsage>) -> Option<MemoryUsage> {
    let (Some(a), Some(b)) = (a, b) else { return a.or(b) };
    Some(MemoryUsage {
        usage: plus(a.usage, b.usage),
        working_set: plus(a.working_set, b.working_set),
        anon: plus(a.anon, b.anon),
        file: plus(a.file, b.file),
        active_file: plus(a.active_file, b.active_file),
        inactive_file: plus(a.inactive_file, b.inactive_file),
        shmem: plus(a.shmem, b.shmem),
        kernel: plus(a.kernel, b.kernel),
        swap: plus(a.swap, b.swap),
        zswap: plus(a.zswap, b.zswap),
        low: plus(a.low, b.low),
        min: plus(a.min, b.min),
        refaults: plus(a.refaults, b.refaults),
        stall_us: plus(a.stall_us, b.stall_us),
    })
}

pub(super) fn plus_kernel_counts(
    a: Option<KernelCounts>,
    b: Option<KernelCounts>,
) -> Option<KernelCounts> {
    let (Some(a), Some(b)) = (a, b) else { return a.or(b) };
    Some(KernelCounts {
        at: a.at.max(b.at),
        stall_us: plus(a.stall_us, b.stall_us),
        direct_reclaims: plus(a.direct_reclaims, b.direct_reclaims),
        own_reclaims: plus(a.own_reclaims, b.own_reclaims),
    })
}

fn has_uid_of(spec: &Workload, pod: &PodSeen) -> bool {
    spec.key.uid.as_deref() == Some(&pod.sandbox.pod_uid)
}

/// Whether it calls itself the mirror of this pod, which has none: anybody who can make a pod can write that, and this one is run for the API server.
fn is_no_mirror(spec: &Workload, pod: &PodSeen) -> bool {
    spec.mirror && pod.is_of_api_server && has_uid_of(spec, pod)
}

#[cfg(test)]
mod tests;
