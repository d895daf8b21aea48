//! Pods: their names, and the sandboxes that hold them.

use crate::time::moment;
use crate::verbose::Verbose;
use crate::wire::runtime as v1;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// What a pod is called. Empty strings are what the runtime did not know.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodName {
    /// UID: the API server's, or the hash of a static pod's manifest.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl PodName {
    /// From the labels that the kubelet puts on everything; `None` when they name no UID.
    pub(crate) fn from_labels(labels: &BTreeMap<String, String>) -> Option<Self> {
        let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
        let uid = label("io.kubernetes.pod.uid");
        (!uid.is_empty()).then(|| Self {
            uid,
            namespace: label("io.kubernetes.pod.namespace"),
            name: label("io.kubernetes.pod.name"),
        })
    }

    pub(crate) fn from_metadata(metadata: v1::PodSandboxMetadata) -> Self {
        Self { uid: metadata.uid, namespace: metadata.namespace, name: metadata.name }
    }
}

/// A pod sandbox in the runtime's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Id.
    pub id: String,
    /// The pod.
    pub pod: PodName,
    /// How many sandboxes of this pod came before it.
    pub attempt: u32,
    /// Whether it is ready, and so holds a running pod.
    pub ready: bool,
    /// When it was made.
    pub created: Option<SystemTime>,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// All annotations.
    pub annotations: BTreeMap<String, String>,
    /// Runtime handler; empty for the default one.
    pub runtime_handler: String,
}

impl Sandbox {
    pub(crate) fn new(from: v1::PodSandbox) -> Self {
        let metadata = from.metadata.unwrap_or_default();
        Self {
            id: from.id,
            attempt: metadata.attempt,
            pod: PodName::from_metadata(metadata),
            ready: from.state == i32::from(v1::PodSandboxState::SandboxReady),
            created: moment(from.created_at),
            labels: from.labels,
            annotations: from.annotations,
            runtime_handler: from.runtime_handler,
        }
    }
}

/// What a runtime knows about one sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxStatus {
    /// What the list says too.
    pub sandbox: Sandbox,
    /// Process id of its pause process, where the runtime tells; `None` when it has none.
    pub pid: Option<u32>,
    /// Its own cgroup below the cgroup root, where the runtime tells.
    pub cgroup: Option<String>,
}

impl SandboxStatus {
    /// `None` when the answer has no status.
    pub(crate) fn new(from: v1::PodSandboxStatusResponse) -> Option<Self> {
        let status = from.status?;
        let verbose = Verbose::read(&from.info);
        let sandbox = Sandbox::new(v1::PodSandbox {
            id: status.id,
            metadata: status.metadata,
            state: status.state,
            created_at: status.created_at,
            labels: status.labels,
            annotations: status.annotations,
            runtime_handler: status.runtime_handler,
        });
        Some(Self { sandbox, pid: verbose.pid, cgroup: verbose.cgroup() })
    }
}
