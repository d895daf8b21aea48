//! Which pods there are: those of the manifests, and those that the container runtime has.
//!
//! ```text
//!  manifests ─► everything that a pod asks for ─┐
//!                                               ├─► pods, each once; a manifest says more, so it wins
//!  runtime ───► class, containers, their limits ┘
//! ```
//! The runtime adds the ids of containers to a manifest that does not have them, as that of a static pod.
//! Who is left over is only known while every source reports; and since a runtime does not tell of pods that have not begun, nothing is removed on its word alone.
//! An empty source is not an empty world: a manifest directory may be unmounted, a runtime's list may be its first. Where no source names a pod nothing is left over, and while one of them names none, what runs is skipped.

use crate::config::Beside;
use crate::sense::manifests::Manifests;
use crate::sense::runtime::{ContainerSeen, Inventory};
use ebb_model::pod::{Asked, Container, ContainerId, Pod, Source};
use ebb_policy::cgroups::PodTree;
use ebb_policy::cgroups::orphans::Known;
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
    let of = |runtime: &str| ContainerId::new(runtime, id).ok();
    match name.strip_suffix(id.as_str())? {
        "" | "cri-containerd-" => of("containerd"),
        "crio-" => of("cri-o"),
        _ => None,
    }
}

/// What has been reported.
#[derive(Debug, Default)]
pub struct Sources {
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

/// Where container runtimes usually listen.
const SOCKETS: [&str; 3] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
];

/// Whose pods may run although no runtime is asked: a runtime's sandboxes and containers go through the runtime, never behind it.
fn unasked(beside: Beside) -> Option<String> {
    if beside == Beside::Kubelet {
        let what = "no container runtime is asked whether it still has the pod; name it with --cri";
        return Some(what.to_owned());
    }
    let socket = SOCKETS.into_iter().find(|socket| Path::new(socket).exists())?;
    Some(format!("a container runtime listens at {socket} and is not asked; name it with --cri"))
}

impl Sources {
    /// What every source that is asked has told just now.
    pub fn now(manifests: Option<Manifests>, seen: Option<Vec<SeenPod>>) -> Sources {
        Sources { manifests, are_read: true, has_runtime: seen.is_some(), is_up: true, seen }
    }

    /// Every pod, each once.
    pub fn pods(&self, tree: &PodTree) -> Vec<Pod> {
        let mut pods: Vec<Pod> =
            self.manifests.iter().flat_map(|manifests| manifests.pods.iter().cloned()).collect();
        pods.extend(self.found_unnamed());
        let ended = self.manifests.as_ref().map(|manifests| &manifests.ended);
        for seen in self.seen.iter().flatten() {
            match pods.iter_mut().find(|pod| pod.uid == seen.uid) {
                Some(pod) => add_ids(pod, seen),
                None if ended.is_some_and(|ended| ended.contains_key(&seen.uid)) => {}
                None => pods.extend(of_runtime(seen, tree)),
            }
        }
        pods
    }

    /// Static pods whose manifests do not say their UID, with the UID that the runtime has them under.
    fn found_unnamed(&self) -> Vec<Pod> {
        let unnamed = self.manifests.iter().flat_map(|manifests| &manifests.unnamed);
        let found = unnamed.filter_map(|pod| {
            let name = pod.full_name();
            // The kubelet appends the node's name to that of a static pod.
            let is_it = |seen: &&SeenPod| {
                let rest = seen.name.strip_prefix(&name);
                seen.is_static && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            };
            let mut candidates = self.seen.iter().flatten().filter(is_it);
            match (candidates.next(), candidates.next()) {
                (Some(seen), None) => Some(Pod { uid: seen.uid.clone(), ..pod.clone() }),
                _ => None,
            }
        });
        found.collect()
    }

    /// All pods, and how far that can be relied on; an error says why nothing counts as left over.
    ///
    /// # Errors
    /// A source that has not reported, or that no source names a pod.
    pub fn known(&self, beside: Beside) -> Result<Known, String> {
        if self.manifests.is_some() && !self.are_read {
            return Err("the pod manifests cannot be read".to_owned());
        }
        let seen = self.seen.as_ref().filter(|_| self.is_up);
        if self.has_runtime && seen.is_none() {
            return Err("waiting for the runtime's pod list".to_owned());
        }
        let manifests = self.manifests.as_ref();
        if let (Some(pod), None) = (manifests.and_then(|manifests| manifests.unnamed.first()), seen)
        {
            let name = pod.full_name();
            return Err(format!(
                "the UID of pod {name} is not known, so any cgroup may be its own"
            ));
        }
        let named = manifests.into_iter().flat_map(|m| m.pods.iter().map(|pod| &pod.uid));
        let running = seen.into_iter().flatten().map(|pod| &pod.uid);
        let uids: BTreeSet<String> = named.chain(running).cloned().collect();
        let doubt = match (manifests, seen) {
            (None, None) => return Err("there is no source of pods".to_owned()),
            _ if uids.is_empty() => {
                return Err("no source names a pod, and an empty source is not an empty node (is the manifest directory mounted?)".to_owned());
            }
            (Some(manifests), _) if manifests.is_empty() => {
                Some("the pod manifests name no pod".to_owned())
            }
            (_, Some(seen)) if seen.is_empty() => {
                Some("the container runtime lists no pod".to_owned())
            }
            (_, None) => unasked(beside),
            (_, Some(_)) => None,
        };
        Ok(Known { uids, doubt })
    }

    /// Whether anything at all is known of pods: without manifests nothing is before the runtime has told.
    pub(super) fn has_spoken(&self) -> bool {
        self.manifests.is_some() || self.seen.is_some()
    }

    /// Whether a pod that nobody knows is certain not to exist: only manifests tell of pods that have not begun.
    pub fn is_complete(&self) -> bool {
        self.manifests
            .as_ref()
            .is_some_and(|manifests| !manifests.is_empty() && manifests.unnamed.is_empty())
    }

    /// UIDs of pods that the kubelet is changing.
    pub fn resizing(&self) -> BTreeSet<String> {
        self.manifests.as_ref().map(|manifests| manifests.resizing.clone()).unwrap_or_default()
    }
}

/// UIDs of pods that only the runtime knows.
pub fn of_runtime_alone(pods: &[Pod]) -> BTreeSet<String> {
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
            pods: vec![PodSeen {
                sandbox,
                name: "web/a".into(),
                is_static: false,
                is_of_api_server: false,
                cgroup: None,
            }],
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

    const POD: &str =
        "kind: Pod\nmetadata: {name: a, uid: u1}\nspec: {containers: [{name: main}]}\n";

    fn manifests(text: &str) -> Option<Manifests> {
        let mut manifests = Manifests::default();
        manifests.add(text, None).unwrap();
        Some(manifests)
    }

    #[test]
    fn nobody_is_left_over_while_a_source_is_silent() {
        let mut sources = Sources { manifests: manifests(POD), ..Sources::default() };
        assert!(sources.known(Beside::Kubelet).is_err(), "the manifests could not be read");
        sources.are_read = true;
        let known = sources.known(Beside::Kubelet).unwrap();
        assert_eq!(known.uids, BTreeSet::from(["u1".to_owned()]));
        assert!(known.doubt.unwrap().contains("--cri"), "a runtime may have what is not in them");
        sources.has_runtime = true;
        assert!(sources.known(Beside::Kubelet).is_err(), "the runtime has not told");
        let place = "kubepods/burstable/podu1/abc";
        sources.seen = Some(seen(&inventory(place, ContainerState::Exited)));
        assert!(sources.known(Beside::Kubelet).is_err(), "it is away");
        sources.is_up = true;
        let known = sources.known(Beside::Kubelet).unwrap();
        assert_eq!((known.uids, known.doubt), (BTreeSet::from(["u1".to_owned()]), None));
        sources.manifests = None;
        assert!(sources.known(Beside::Kubelet).is_ok() && !sources.is_complete());
    }

    #[test]
    fn an_empty_source_is_not_an_empty_world() {
        let empty = Sources::now(Some(Manifests::default()), None);
        assert!(empty.known(Beside::Nobody).unwrap_err().contains("no source names a pod"));
        assert!(!empty.is_complete());
        let first_list = Sources::now(manifests(POD), Some(Vec::new()));
        let known = first_list.known(Beside::Kubelet).unwrap();
        assert_eq!(known.doubt.as_deref(), Some("the container runtime lists no pod"));
        let listed = seen(&inventory("kubepods/burstable/podu1/abc", ContainerState::Running));
        let unmounted = Sources::now(Some(Manifests::default()), Some(listed));
        let known = unmounted.known(Beside::Kubelet).unwrap();
        assert_eq!(known.doubt.as_deref(), Some("the pod manifests name no pod"));
        assert!(!unmounted.is_complete());
    }

    #[test]
    fn a_static_pod_without_a_uid_has_the_one_that_the_runtime_knows() {
        let text = POD.replace(", uid: u1", "");
        let mut inventory = inventory("kubepods/besteffort/podu1/abc", ContainerState::Running);
        let alone = Sources::now(manifests(&text), None);
        assert_eq!(alone.pods(&tree(Driver::Cgroupfs)), []);
        assert!(alone.known(Beside::Nobody).unwrap_err().contains("default/a"));
        for pod in &mut inventory.pods {
            pod.name = "default/a-node7".into();
            pod.is_static = true;
        }
        let both = Sources::now(manifests(&text), Some(seen(&inventory)));
        let pods = both.pods(&tree(Driver::Cgroupfs));
        assert_eq!((pods.len(), pods[0].uid.as_str()), (1, "u1"));
        assert_eq!(pods[0].source, Source::Manifest);
    }

    #[test]
    fn a_runtimes_id_that_is_no_plain_name_is_none() {
        let mut listed = inventory("kubepods/burstable/podu1/../../x", ContainerState::Running);
        for container in &mut listed.containers {
            container.container.id = "../../x".into();
            container.cgroup = Some("kubepods/burstable/podu1/cri-containerd-../../x".into());
        }
        assert_eq!(seen(&listed)[0].containers[0].id, None);
    }
}
