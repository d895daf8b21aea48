//! What a pod asked for: containers with requests and limits, and volumes.
use crate::Quantity;
use alloc::string::String;

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

/// The part that a container plays in its pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum ContainerKind {
    /// Runs for as long as the pod does.
    #[default]
    Regular,
    /// Runs to its end before the regular ones start.
    Init,
    /// An init container that keeps running (restart policy `Always`).
    Sidecar,
    /// Added to a running pod; it cannot ask for resources.
    Ephemeral,
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

/// Where a volume's contents come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum VolumeType {
    /// Scratch space of the pod.
    EmptyDir,
    /// A path of the host.
    HostPath,
    /// A git repository.
    GitRepo,
    /// Configuration.
    ConfigMap,
    /// Secrets.
    Secret,
    /// Several sources in one.
    Projected,
    /// The pod's own fields.
    DownwardApi,
    /// A generic ephemeral volume.
    Ephemeral,
    /// A persistent volume claim.
    PersistentVolumeClaim,
    /// An image.
    Image,
    /// Anything else.
    Other,
}

/// A volume in a pod's specification.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct VolumeSpec {
    /// Name, unique in the pod.
    pub name: String,
    /// Where its contents come from.
    #[cfg_attr(feature = "json", serde(rename = "type"))]
    pub volume_type: VolumeType,
    /// Medium of an `emptyDir`: absent or empty is the node's disk, `Memory` is tmpfs.
    #[cfg_attr(feature = "json", serde(default))]
    pub medium: Option<String>,
    /// Limit of an `emptyDir`.
    #[cfg_attr(feature = "json", serde(default))]
    pub size_limit: Option<Quantity>,
}

impl VolumeSpec {
    /// Whether it takes up local disk that counts against its pod.
    pub fn is_local(&self) -> bool {
        match self.volume_type {
            VolumeType::HostPath | VolumeType::GitRepo | VolumeType::ConfigMap => true,
            VolumeType::EmptyDir => self.medium.as_deref().unwrap_or_default().is_empty(),
            VolumeType::Secret
            | VolumeType::Projected
            | VolumeType::DownwardApi
            | VolumeType::Ephemeral
            | VolumeType::PersistentVolumeClaim
            | VolumeType::Image
            | VolumeType::Other => false,
        }
    }
}
