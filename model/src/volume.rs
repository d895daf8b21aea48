//! A volume of a pod, and whether it takes up the node's own disk.
use crate::Quantity;
use alloc::string::String;

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
