//! Which pods there are: those of the manifests, and those that the container runtime has.
//!
//! ```text
//!  manifests ─► everything that a pod asks for ─┐
//!                                               ├─► pods, each once; a manifest says more, so it wins
//!  runtime ───► class, containers, their limits ┘
//! ```
//! The runtime adds the ids of containers to a manifest that does not have them, as that of a static pod.
//! Who is left over is only known while every source reports; and since a runtime does not tell of pods that have not begun, nothing is removed on its word alone.

use super::manifests::Manifests;
use crate::sense::runtime::{ContainerSeen, Inventory};
use ebb_policy::cgroups::PodTree;
use ebb_policy::cgroups::pod::{Asked, Container, ContainerId, Pod, Source};
use ebb_policy::snapshot::ContainerState;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A pod as the runtime has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenPod {
    /// UID.
    pub uid: String,
    /// `namespace/name`.
    pub name: String,
    /// It comes from a file of the node.
    pub is_static: bool,
    /// Path below the mount of the cgroup of its sandbox or of one of its containers, where the runtime tells.
    pub inside: Option<String>,
    /// Containers that have not ended.
    pub containers: Vec<SeenContainer>,
}

/// A container as the runtime has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenContainer {
    /// Name in its pod.
    pub name: String,
    /// Who it is, where its cgroup's name tells which runtime made it.
    pub id: Option<ContainerId>,
    /// What the runtime was asked to give it.
    pub asked: Asked,
}

/// The pods of an inventory, by UID.
#[must_use]
pub fn seen(inventory: &Inventory) -> Vec<SeenPod> {
    let mut pods: BTreeMap<&str, SeenPod> = BTreeMap::new();
    for pod in &inventory.pods {
        let seen = pods.entry(&pod.sandbox.pod_uid).or_insert_with(|| SeenPod {
            uid: pod.sandbox.pod_uid.clone(),
            name: pod.name.clone(),
            is_static: pod.is_static,
            inside: None,
            containers: Vec::new(),
        });
        seen.inside = seen.inside.take().or_else(|| pod.cgroup.as_deref().map(shown));
    }
    for container in &inventory.containers {
        let Some(pod) = pods.get_mut(container.container.pod_uid.as_str()) else { continue };
        if container.container.state == ContainerState::Exited {
            continue;
        }
        pod.inside = pod.inside.take().or_else(|| container.cgroup.as_deref().map(shown));
        pod.containers.push(SeenContainer {
            name: container.container.name.clone(),
            id: id(container),
            asked: container.asked,
        });
    }
    pods.into_values().collect()
}

fn shown(cgroup: &Path) -> String {
    format!("/{}", cgroup.display())
}

/// Who a container is, by the name that its runtime gave its cgroup.
fn id(container: &ContainerSeen) -> Option<ContainerId> {
    let id = &container.container.id;
    let name = container.cgroup.as_ref()?.file_name()?.to_str()?;
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let of = |runtime: &str| Some(ContainerId { runtime: runtime.to_owned(), id: id.clone() });
    match name.strip_suffix(id.as_str())? {
        "" | "cri-containerd-" => of("containerd"),
        "crio-" => of("cri-o"),
        _ => None,
    }
}

/// What has been reported.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// What the manifests say; none where there are none to read.
    pub(super) manifests: Option<Manifests>,
    /// The last manifests could be read.
    pub(super) are_read: bool,
    /// What the runtime has; none before it told.
    pub(super) seen: Option<Vec<SeenPod>>,
    /// There is a runtime that is to be heard.
    pub(super) has_runtime: bool,
    /// It is there now.
    pub(super) is_up: bool,
}

impl Sources {
    /// What every source that is asked has told just now.
    pub(crate) fn now(manifests: Option<Manifests>, seen: Option<Vec<SeenPod>>) -> Sources {
        Sources { manifests, are_read: true, has_runtime: seen.is_some(), is_up: true, seen }
    }

    /// Every pod, each once.
    pub(crate) fn pods(&self, tree: &PodTree) -> Vec<Pod> {
        let mut pods: Vec<Pod> =
            self.manifests.iter().flat_map(|manifests| manifests.pods.iter().cloned()).collect();
        let ended = self.manifests.as_ref().map(|manifests| &manifests.ended);
        for seen in self.seen.iter().flatten() {
            match pods.iter_mut().find(|pod| pod.uid == seen.uid) {
                Some(pod) => add_ids(pod, seen),
                None if ended.is_some_and(|ended| ended.contains(&seen.uid)) => {}
                None => pods.extend(of_runtime(seen, tree)),
            }
        }
        pods
    }

    /// UIDs of all pods; `None` while some source has not reported.
    pub(crate) fn known(&self) -> Option<BTreeSet<String>> {
        let manifests = match &self.manifests {
            Some(manifests) if self.are_read => Some(manifests),
            Some(_) => return None,
            None => None,
        };
        let seen = self.seen.as_ref().filter(|_| self.is_up);
        if self.has_runtime && seen.is_none() || manifests.is_none() && seen.is_none() {
            return None;
        }
        let named = manifests.into_iter().flat_map(|m| m.pods.iter().map(|pod| &pod.uid));
        let running = seen.into_iter().flatten().map(|pod| &pod.uid);
        Some(named.chain(running).cloned().collect())
    }

    /// Whether anything at all is known of pods: without manifests nothing is before the runtime has told.
    pub(super) fn has_spoken(&self) -> bool {
        self.manifests.is_some() || self.seen.is_some()
    }

    /// Whether a pod that nobody knows is certain not to exist: only manifests tell of pods that have not begun.
    pub(super) fn is_complete(&self) -> bool {
        self.manifests.is_some()
    }

    /// UIDs of pods that the kubelet is changing.
    pub(crate) fn resizing(&self) -> BTreeSet<String> {
        self.manifests.as_ref().map(|manifests| manifests.resizing.clone()).unwrap_or_default()
    }
}

/// UIDs of pods that only the runtime knows.
pub(crate) fn of_runtime_alone(pods: &[Pod]) -> BTreeSet<String> {
    let of_runtime = pods.iter().filter(|pod| pod.source == Source::Runtime);
    of_runtime.map(|pod| pod.uid.clone()).collect()
}

fn add_ids(pod: &mut Pod, seen: &SeenPod) {
    for container in pod.containers.iter_mut().filter(|container| container.id.is_none()) {
        let same = seen.containers.iter().find(|seen| seen.name == container.name);
        container.id = same.and_then(|seen| seen.id.clone());
    }
}

/// A pod that only the runtime knows; none where the place of its cgroup does not say whose it is.
fn of_runtime(seen: &SeenPod, tree: &PodTree) -> Option<Pod> {
    let (parent, _) = seen.inside.as_deref()?.rsplit_once('/')?;
    let (uid, qos) = tree.parse_pod(parent)?;
    if uid != seen.uid {
        return None;
    }
    let (namespace, name) = seen.name.split_once('/').unwrap_or(("", &seen.name));
    let container = |seen: &SeenContainer| Container {
        name: seen.name.clone(),
        id: seen.id.clone(),
        asked: seen.asked,
        ..Container::default()
    };
    Some(Pod {
        source: Source::Runtime,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid,
        qos: Some(qos),
        is_static: seen.is_static,
        containers: seen.containers.iter().map(container).collect(),
        ..Pod::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::runtime::PodSeen;
    use ebb_policy::Time;
    use ebb_policy::cgroups::{CgroupName, Driver};
    use ebb_policy::snapshot::{Container as Listed, Qos, Sandbox};

    fn inventory(place: &str, state: ContainerState) -> Inventory {
        let sandbox =
            Sandbox { id: "s".into(), pod_uid: "u1".into(), ready: true, created_at: Time(0) };
        let container = Listed {
            id: "abc".into(),
            name: "main".into(),
            pod_uid: "u1".into(),
            sandbox_id: Some("s".into()),
            state,
            created_at: Time(0),
            image: None,
        };
        let asked = Asked { shares: Some(102), memory: Some(1 << 20), ..Asked::default() };
        Inventory {
            at: crate::clock::Boot(0),
            pods: vec![PodSeen { sandbox, name: "web/a".into(), is_static: false, cgroup: None }],
            containers: vec![ContainerSeen {
                container,
                cgroup: Some(place.into()),
                mounted_images: Vec::new(),
                asked,
            }],
            exited: Vec::new(),
            images: None,
        }
    }

    fn tree(driver: Driver) -> PodTree {
        PodTree::below(&CgroupName::root(), driver).unwrap()
    }

    #[test]
    fn class_and_runtime_follow_from_the_place_of_a_container() {
        for (driver, place, runtime) in [
            (Driver::Cgroupfs, "kubepods/burstable/podu1/abc", Some("containerd")),
            (Driver::Cgroupfs, "kubepods/burstable/podu1/crio-abc", Some("cri-o")),
            (Driver::Cgroupfs, "kubepods/burstable/podu1/other", None),
            (
                Driver::Systemd,
                "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu1.slice/cri-containerd-abc.scope",
                Some("containerd"),
            ),
        ] {
            let sources = Sources {
                seen: Some(seen(&inventory(place, ContainerState::Running))),
                ..Sources::default()
            };
            let pods = sources.pods(&tree(driver));
            assert_eq!(pods.len(), 1, "{place}");
            assert_eq!((pods[0].qos, pods[0].is_known()), (Some(Qos::Burstable), false));
            let id = pods[0].containers[0].id.as_ref().map(|id| id.runtime.as_str());
            assert_eq!(id, runtime, "{place}");
        }
        let elsewhere = seen(&inventory("machine.slice/abc", ContainerState::Running));
        let sources = Sources { seen: Some(elsewhere), ..Sources::default() };
        assert_eq!(sources.pods(&tree(Driver::Cgroupfs)), []);
    }

    #[test]
    fn a_manifest_wins_and_gets_the_ids_of_its_containers() {
        let mut manifests = Manifests::default();
        let text = "kind: Pod\nmetadata: {name: a, uid: u1}\nspec: {containers: [{name: main}]}\n";
        manifests.add(text, None).unwrap();
        let seen = seen(&inventory("kubepods/besteffort/podu1/abc", ContainerState::Running));
        let sources =
            Sources { manifests: Some(manifests), seen: Some(seen), ..Sources::default() };
        let pods = sources.pods(&tree(Driver::Cgroupfs));
        assert_eq!((pods.len(), pods[0].source), (1, Source::Manifest));
        assert_eq!(pods[0].containers[0].id.as_ref().unwrap().id, "abc");
    }

    #[test]
    fn nobody_is_left_over_while_a_source_is_silent() {
        let of_manifests = || Some(Manifests::default());
        let mut sources = Sources { manifests: of_manifests(), ..Sources::default() };
        assert_eq!(sources.known(), None, "the manifests could not be read");
        sources.are_read = true;
        assert_eq!(sources.known(), Some(BTreeSet::new()));
        sources.has_runtime = true;
        assert_eq!(sources.known(), None, "the runtime has not told");
        let place = "kubepods/burstable/podu1/abc";
        sources.seen = Some(seen(&inventory(place, ContainerState::Exited)));
        assert_eq!(sources.known(), None, "it is away");
        sources.is_up = true;
        assert_eq!(sources.known(), Some(BTreeSet::from(["u1".to_owned()])));
        sources.manifests = None;
        assert!(sources.known().is_some() && !sources.is_complete());
    }
}
