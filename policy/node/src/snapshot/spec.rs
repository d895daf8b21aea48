//! What a pod asked for, in the form of a snapshot: of each container's requests and limits only what eviction looks at.
use super::{Workload, WorkloadKey};
use crate::Quantity;
use alloc::boxed::Box;
use alloc::string::String;
use ebb_model::amounts::{CPU, EPHEMERAL_STORAGE, MEMORY};
use ebb_model::{Amounts, ContainerKind, Pod, pod};

/// Amounts by resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct ResourceList {
    /// CPUs.
    pub cpu: Option<Quantity>,
    /// Bytes of memory.
    pub memory: Option<Quantity>,
    /// Bytes of local disk.
    #[cfg_attr(feature = "json", serde(rename = "ephemeral-storage"))]
    pub ephemeral_storage: Option<Quantity>,
}

/// Requests and limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct Resources {
    /// What is set aside for it.
    pub requests: ResourceList,
    /// What it may not exceed.
    pub limits: ResourceList,
}

/// A container in a pod's specification. Init containers and sidecars are listed in the order in which they start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct ContainerSpec {
    /// Name, unique in the pod.
    pub name: String,
    /// The part that it plays.
    #[cfg_attr(feature = "json", serde(default))]
    pub kind: ContainerKind,
    /// Position among the pod's init containers and sidecars, from 0; absent means by its place in the list.
    #[cfg_attr(feature = "json", serde(default))]
    pub start_order: Option<u32>,
    /// What is set aside for it.
    #[cfg_attr(feature = "json", serde(default))]
    pub requests: ResourceList,
    /// What it may not exceed.
    #[cfg_attr(feature = "json", serde(default))]
    pub limits: ResourceList,
}

impl From<&Amounts> for ResourceList {
    /// Of all resources the three that eviction looks at.
    fn from(amounts: &Amounts) -> Self {
        Self {
            cpu: amounts.get(CPU),
            memory: amounts.get(MEMORY),
            ephemeral_storage: amounts.get(EPHEMERAL_STORAGE),
        }
    }
}

impl From<&pod::Resources> for Resources {
    fn from(resources: &pod::Resources) -> Self {
        Self { requests: (&resources.requests).into(), limits: (&resources.limits).into() }
    }
}

impl From<&Pod> for Workload {
    /// What a pod's specification says; nothing of it is measured.
    fn from(pod: &Pod) -> Self {
        let mut started = 0..;
        let containers = pod.containers.iter().filter(|c| c.kind != ContainerKind::Ephemeral);
        Self {
            key: WorkloadKey {
                name: pod.full_name(),
                uid: Some(pod.uid.clone()).filter(|uid| !uid.is_empty()),
                ..WorkloadKey::default()
            },
            qos: pod.qos,
            priority: pod.priority,
            priority_class: pod.priority_class.clone(),
            static_pod: pod.is_static,
            containers: containers
                .map(|container| ContainerSpec {
                    name: container.name.clone(),
                    kind: container.kind,
                    start_order: match container.kind {
                        ContainerKind::Init | ContainerKind::Sidecar => started.next(),
                        ContainerKind::Regular | ContainerKind::Ephemeral => None,
                    },
                    requests: (&container.resources.requests).into(),
                    limits: (&container.resources.limits).into(),
                })
                .collect(),
            volumes: pod.volumes.clone(),
            pod_resources: pod.resources.as_ref().map(|whole| Box::new(whole.into())),
            overhead: (!pod.overhead.is_empty()).then(|| Box::new((&pod.overhead).into())),
            termination_grace: pod.termination_grace,
            ..Workload::default()
        }
    }
}
