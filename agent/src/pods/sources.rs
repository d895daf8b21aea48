//! The pods by which cgroups are made right: those of the manifests, and those that the container runtime lists.
//!
//! ```text
//!  manifests ─► everything that a pod asks for ─┐
//!                                               ├─► pods, each once; a manifest says more, so it wins
//!  runtime ───► class, containers, their limits ┘
//! ```
//! The runtime adds the ids of containers to a manifest that does not have them, as that of a static pod.
//! Which pod cgroups are orphaned is only known while every source reports; and since a runtime does not tell of pods that have not begun, nothing is removed on its word alone.
//! An empty source is not an empty world: a manifest directory may be unmounted, a runtime's list may be its first. Where no source names a pod nothing is orphaned, and while one of them names none, what runs is skipped.

use super::described::is_named;
use super::listed::{self, Listed};
use crate::config::Beside;
use crate::sense::manifests::Manifests;
use crate::sense::runtime::{ContainerSeen, Inventory, usual_socket};
use ebb_model::pod::{Container, ContainerId, Pod, Source};
use ebb_policy::cgroups::PodTree;
use ebb_policy::cgroups::orphans::Known;
use std::collections::BTreeSet;
use std::sync::Arc;

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
    pub(crate) manifests: Option<Manifests>,
    /// The last manifests could be read.
    pub(crate) are_read: bool,
    /// What the runtime listed last; `None` before it has.
    listed: Option<Arc<Inventory>>,
    /// There is a runtime that is to be heard.
    pub(crate) has_runtime: bool,
    /// It is there now.
    pub(crate) is_up: bool,
}

/// Whose pods may run although no runtime is asked: a runtime's sandboxes and containers go through the runtime, never behind it.
fn unasked(beside: Beside) -> Option<String> {
    if beside == Beside::Kubelet {
        let what = "no container runtime is asked whether it still has the pod; name it with --cri";
        return Some(what.to_owned());
    }
    let socket = usual_socket()?;
    Some(format!("a container runtime listens at {socket} and is not asked; name it with --cri"))
}

impl Sources {
    /// Nothing yet, and whether a runtime is to be heard.
    pub(crate) fn new(has_runtime: bool) -> Sources {
        Sources { has_runtime, ..Sources::default() }
    }

    /// What every source that is asked has told just now.
    pub fn now(manifests: Option<Manifests>, listed: Option<Arc<Inventory>>) -> Sources {
        Sources { manifests, are_read: true, has_runtime: listed.is_some(), is_up: true, listed }
    }

    /// Takes in what the runtime lists; returns whether it is another pod than before, or another container that has not ended.
    pub(crate) fn observe(&mut self, inventory: Arc<Inventory>) -> bool {
        let last = self.listed.as_ref();
        let is_new = last.is_none_or(|last| !listed::is_same(last, &inventory));
        self.listed = Some(inventory);
        is_new
    }

    /// The pods that the runtime lists, by UID.
    fn of_runtime(&self) -> impl Iterator<Item = (&str, Listed<'_>)> {
        self.listed.iter().flat_map(|inventory| Listed::all(inventory))
    }

    /// Every pod, each once.
    pub fn pods(&self, tree: &PodTree) -> Vec<Pod> {
        let mut pods: Vec<Pod> =
            self.manifests.iter().flat_map(|manifests| manifests.pods.iter().cloned()).collect();
        pods.extend(self.found_unnamed());
        let ended = self.manifests.as_ref().map(|manifests| &manifests.ended);
        for (uid, listed) in self.of_runtime() {
            match pods.iter_mut().find(|pod| pod.uid == uid) {
                Some(pod) => add_ids(pod, &listed),
                None if ended.is_some_and(|ended| ended.contains_key(uid)) => {}
                None => pods.extend(of_runtime(uid, &listed, tree)),
            }
        }
        pods
    }

    /// Static pods whose manifests do not say their UID, with the UID that the runtime has them under.
    fn found_unnamed(&self) -> Vec<Pod> {
        let unnamed = self.manifests.iter().flat_map(|manifests| &manifests.unnamed);
        let found = unnamed.filter_map(|pod| {
            let name = pod.full_name();
            let is_it = |(_, listed): &(&str, Listed<'_>)| {
                listed.newest.is_static && is_named(listed.newest, &name)
            };
            let mut candidates = self.of_runtime().filter(is_it);
            match (candidates.next(), candidates.next()) {
                (Some((uid, _)), None) => Some(Pod { uid: uid.to_owned(), ..pod.clone() }),
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
        let listed = self.listed.as_ref().filter(|_| self.is_up);
        if self.has_runtime && listed.is_none() {
            return Err("waiting for the runtime's pod list".to_owned());
        }
        let manifests = self.manifests.as_ref();
        if let (Some(pod), None) =
            (manifests.and_then(|manifests| manifests.unnamed.first()), listed)
        {
            let name = pod.full_name();
            return Err(format!(
                "the UID of pod {name} is not known, so any cgroup may be its own"
            ));
        }
        let named = manifests.into_iter().flat_map(|m| m.pods.iter().map(|pod| &pod.uid));
        let running = listed.into_iter().flat_map(|inventory| &inventory.pods);
        let running = running.map(|pod| &pod.sandbox.pod_uid);
        let uids: BTreeSet<String> = named.chain(running).cloned().collect();
        let doubt = match (manifests, listed) {
            (None, None) => return Err("there is no source of pods".to_owned()),
            _ if uids.is_empty() => {
                return Err("no source names a pod, and an empty source is not an empty node (is the manifest directory mounted?)".to_owned());
            }
            (Some(manifests), _) if manifests.is_empty() => {
                Some("the pod manifests name no pod".to_owned())
            }
            (_, Some(listed)) if listed.pods.is_empty() => {
                Some("the container runtime lists no pod".to_owned())
            }
            (_, None) => unasked(beside),
            (_, Some(_)) => None,
        };
        Ok(Known { uids, doubt })
    }

    /// Whether anything at all is known of pods: without manifests nothing is before the runtime has told.
    pub(crate) fn has_spoken(&self) -> bool {
        self.manifests.is_some() || self.listed.is_some()
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

fn add_ids(pod: &mut Pod, listed: &Listed<'_>) {
    for container in pod.containers.iter_mut().filter(|container| container.id.is_none()) {
        let mut alive = listed.alive();
        container.id = alive.find(|seen| seen.container.name == container.name).and_then(id);
    }
}

/// A pod that only the runtime knows; none where the place of its cgroup does not say whose it is.
fn of_runtime(uid: &str, listed: &Listed<'_>, tree: &PodTree) -> Option<Pod> {
    let above = listed.inside()?.parent()?;
    let (of_cgroup, qos) = tree.parse_pod(&format!("/{}", above.display()))?;
    if of_cgroup != uid {
        return None;
    }
    let name = &listed.newest.name;
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    let container = |seen: &ContainerSeen| Container {
        name: seen.container.name.clone(),
        id: id(seen),
        asked: seen.asked,
        ..Container::default()
    };
    Some(Pod {
        source: Source::Runtime,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        qos: Some(qos),
        is_static: listed.newest.is_static,
        containers: listed.alive().map(container).collect(),
        ..Pod::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::runtime::PodSeen;
    use ebb_model::pod::Asked;
    use ebb_policy::Time;
    use ebb_policy::cgroups::{CgroupName, Driver};
    use ebb_policy::snapshot::{Container as Seen, ContainerState, Qos, Sandbox};

    fn inventory(place: &str, state: ContainerState) -> Inventory {
        let sandbox =
            Sandbox { id: "s".into(), pod_uid: "u1".into(), ready: true, created_at: Time(0) };
        let container = Seen {
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
            let inventory = inventory(place, ContainerState::Running);
            let sources = Sources::now(None, Some(inventory.into()));
            let pods = sources.pods(&tree(driver));
            assert_eq!(pods.len(), 1, "{place}");
            assert_eq!((pods[0].qos, pods[0].is_known()), (Some(Qos::Burstable), false));
            let id = pods[0].containers[0].id.as_ref().map(|id| id.runtime.as_str());
            assert_eq!(id, runtime, "{place}");
        }
        let elsewhere = inventory("machine.slice/abc", ContainerState::Running);
        let sources = Sources::now(None, Some(elsewhere.into()));
        assert_eq!(sources.pods(&tree(Driver::Cgroupfs)), []);
    }

    #[test]
    fn a_manifest_wins_and_gets_the_ids_of_its_containers() {
        let mut manifests = Manifests::default();
        let text = "kind: Pod\nmetadata: {name: a, uid: u1}\nspec: {containers: [{name: main}]}\n";
        manifests.add(text, None).unwrap();
        let inventory = inventory("kubepods/besteffort/podu1/abc", ContainerState::Running);
        let sources = Sources::now(Some(manifests), Some(inventory.into()));
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
        assert!(sources.observe(inventory(place, ContainerState::Exited).into()));
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
        let place = "kubepods/burstable/podu1/abc";
        let listed = inventory(place, ContainerState::Running);
        let empty = Inventory { pods: Vec::new(), containers: Vec::new(), ..listed.clone() };
        let first_list = Sources::now(manifests(POD), Some(empty.into()));
        let known = first_list.known(Beside::Kubelet).unwrap();
        assert_eq!(known.doubt.as_deref(), Some("the container runtime lists no pod"));
        let unmounted = Sources::now(Some(Manifests::default()), Some(listed.into()));
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
        let both = Sources::now(manifests(&text), Some(inventory.into()));
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
        assert_eq!(id(&listed.containers[0]), None);
    }

    #[test]
    fn a_list_is_another_for_what_runs_and_not_for_what_has_ended() {
        let place = "kubepods/burstable/podu1/abc";
        let first = inventory(place, ContainerState::Running);
        let mut sources = Sources::now(None, None);
        assert!(sources.observe(first.clone().into()));
        let mut later = first.clone();
        later.at = crate::clock::Boot(1);
        let mut dead = later.containers.clone();
        for seen in &mut dead {
            seen.container.id = "dead".into();
            seen.container.state = ContainerState::Exited;
        }
        later.containers.extend(dead);
        assert!(!sources.observe(later.clone().into()));
        for seen in &mut later.containers {
            seen.container.state = ContainerState::Exited;
        }
        assert!(sources.observe(later.into()), "it has ended");
        let mut asked = first.clone();
        asked.containers.iter_mut().for_each(|seen| seen.asked.memory = Some(2 << 20));
        assert!(sources.observe(first.into()) && sources.observe(asked.clone().into()));
        assert!(!sources.observe(asked.clone().into()));
        asked.pods.clear();
        assert!(sources.observe(asked.into()));
    }
}
