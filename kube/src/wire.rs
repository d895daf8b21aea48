//! Objects as they come over the wire, reduced to what the collectors need.

use crate::time;
use ebb_policy_cluster::{Kind, Object, OwnerReference, Uid, pods};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The label by which the collector leaves an object as it is.
const HOLD: &str = "ebb.dev/hold";
/// The taint of a node whose pods are to be given up.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// How much of each object is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Its metadata.
    Metadata,
    /// All of it, for pods and nodes.
    Whole,
}

/// An object as a list or watch shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Its metadata.
    pub object: Object,
    /// What the pod collector needs of a pod, where it was asked for.
    pub pod: Option<Box<pods::Pod>>,
    /// What the pod collector needs of a node, where it was asked for.
    pub node: Option<pods::Node>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct List {
    pub(crate) metadata: ListMetadata,
    /// Some servers write `null` for none.
    pub(crate) items: Option<Vec<Item>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListMetadata {
    pub(crate) resource_version: String,
    #[serde(rename = "continue")]
    pub(crate) next: String,
}

#[derive(Deserialize)]
pub(crate) struct Item {
    pub(crate) metadata: Metadata,
    // Of most kinds nobody reads them, and they may have any form.
    #[serde(default)]
    spec: Option<Box<RawValue>>,
    #[serde(default)]
    status: Option<Box<RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    name: String,
    namespace: Option<String>,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<u64>,
    finalizers: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<Reference>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: Option<String>,
    taints: Option<Vec<Taint>>,
}

#[derive(Deserialize)]
struct Taint {
    key: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<String>,
    reason: Option<String>,
    conditions: Option<Vec<Condition>>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    of: String,
    status: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ContainerStatus {
    state: ContainerState,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ContainerState {
    terminated: Option<Terminated>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    finished_at: Option<String>,
}

/// Metadata alone, as a look-up of an owner reads it.
#[derive(Deserialize)]
pub(crate) struct Found {
    metadata: Metadata,
}

impl Found {
    /// The uid, and whether a foreground deletion is under way.
    pub(crate) fn owner(self) -> (Uid, bool) {
        let Metadata { uid, deletion_timestamp, finalizers, .. } = self.metadata;
        let waits = finalizers
            .is_some_and(|all| all.iter().any(|f| f == ebb_policy_cluster::FOREGROUND_FINALIZER));
        (Uid::new(&uid), deletion_timestamp.is_some() && waits)
    }
}

/// An item of a list or an event of a watch of `kind`, with status where `is_whole`.
pub(crate) fn seen(item: Item, kind: &Kind, is_whole: bool) -> Seen {
    let Item { metadata, spec, status } = item;
    let (spec, status) = if is_whole {
        (part::<Spec>(spec.as_deref()), part::<Status>(status.as_deref()))
    } else {
        (Spec::default(), Status::default())
    };
    let pod = (is_whole && kind.kind == "Pod").then(|| Box::new(pod(&metadata, &spec, &status)));
    let node = (is_whole && kind.kind == "Node").then(|| node(&spec, &status));
    Seen { object: object(metadata, kind), pod, node }
}

/// A part of a pod or node, empty where it does not have its form.
fn part<T: Default + for<'a> Deserialize<'a>>(text: Option<&RawValue>) -> T {
    text.and_then(|text| serde_json::from_str(text.get()).ok()).unwrap_or_default()
}

fn object(metadata: Metadata, kind: &Kind) -> Object {
    let owners = metadata.owner_references.unwrap_or_default().into_iter();
    let owners = owners.map(|reference| OwnerReference {
        kind: Kind::new(&reference.api_version, &reference.kind),
        name: reference.name,
        uid: Uid::new(&reference.uid),
        controller: reference.controller.unwrap_or_default(),
        block_owner_deletion: reference.block_owner_deletion.unwrap_or_default(),
    });
    Object {
        uid: Uid::new(&metadata.uid),
        kind: kind.clone(),
        namespace: metadata.namespace.filter(|namespace| !namespace.is_empty()),
        name: metadata.name,
        resource_version: metadata.resource_version,
        owners: owners.collect(),
        finalizers: metadata.finalizers.unwrap_or_default(),
        // A time that cannot be read is still one: the object is being deleted.
        deleting_since: metadata.deletion_timestamp.map(|t| time::read(&t).unwrap_or_default()),
        held: is_held(metadata.labels.as_ref()),
    }
}

fn is_held(labels: Option<&BTreeMap<String, String>>) -> bool {
    labels.and_then(|labels| labels.get(HOLD)).is_some_and(|value| value == "true")
}

fn pod(metadata: &Metadata, spec: &Spec, status: &Status) -> pods::Pod {
    let ended = status.container_statuses.iter().flatten().filter_map(|container| {
        time::read(container.state.terminated.as_ref()?.finished_at.as_ref()?)
    });
    let mut owners = metadata.owner_references.iter().flatten();
    let controller = owners.find(|r| r.controller == Some(true));
    pods::Pod {
        uid: Uid::new(&metadata.uid),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone(),
        resource_version: metadata.resource_version.clone(),
        created: metadata.creation_timestamp.as_deref().and_then(time::read).unwrap_or_default(),
        ended: ended.max(),
        deleting_since: metadata
            .deletion_timestamp
            .as_deref()
            .map(|t| time::read(t).unwrap_or_default()),
        grace_seconds: metadata.deletion_grace_period_seconds,
        controller: controller.map(|r| (Kind::new(&r.api_version, &r.kind), Uid::new(&r.uid))),
        node: spec.node_name.clone().filter(|name| !name.is_empty()),
        phase: match status.phase.as_deref() {
            Some("Running") => pods::Phase::Running,
            Some("Succeeded") => pods::Phase::Succeeded,
            Some("Failed") => pods::Phase::Failed,
            Some("Unknown") => pods::Phase::Unknown,
            _ => pods::Phase::Pending,
        },
        reason: status.reason.clone().unwrap_or_default(),
        held: is_held(metadata.labels.as_ref()),
    }
}

fn node(spec: &Spec, status: &Status) -> pods::Node {
    pods::Node {
        ready: status.conditions.iter().flatten().any(|c| c.of == "Ready" && c.status == "True"),
        out_of_service: spec.taints.iter().flatten().any(|taint| taint.key == OUT_OF_SERVICE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_nothing_may_be_null() {
        let list: List =
            serde_json::from_str(r#"{"metadata":{"resourceVersion":"7"},"items":null}"#).unwrap();
        assert!(list.items.is_none());
        assert_eq!((&*list.metadata.resource_version, &*list.metadata.next), ("7", ""));
    }

    #[test]
    fn a_pod_is_read_with_what_its_collector_needs() {
        let text = r#"{"metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"3","deletionTimestamp":"2026-01-01T00:00:00Z",
            "deletionGracePeriodSeconds":0,"labels":{"ebb.dev/hold":"true"},
            "ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"j","uid":"o","controller":true}]},
            "spec":{"nodeName":"x"},"status":{"phase":"Failed","reason":"Evicted"}}"#;
        let item: Item = serde_json::from_str(text).unwrap();
        let seen = seen(item, &Kind::new("v1", "Pod"), true);
        let pod = seen.pod.unwrap();
        assert_eq!(
            (pod.node.as_deref(), pod.phase, &*pod.reason),
            (Some("x"), pods::Phase::Failed, "Evicted")
        );
        assert_eq!((pod.grace_seconds, pod.held, seen.object.held), (Some(0), true, true));
        assert!(pod.controller.is_some_and(|(kind, _)| kind.kind == "Job"));
        assert!(
            seen.object.deleting_since.is_some() && !seen.object.owners[0].block_owner_deletion
        );
    }

    #[test]
    fn content_of_another_form_than_a_pods_is_no_error() {
        let text = r#"{"metadata":{"name":"p","uid":"u"},"spec":{"taints":3},"status":7}"#;
        let item: Item = serde_json::from_str(text).unwrap();
        assert_eq!(seen(item, &Kind::new("x/v1", "Gadget"), false).pod, None);
    }
}
