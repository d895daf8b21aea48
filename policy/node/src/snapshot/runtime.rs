//! What the container runtime has: containers, sandboxes, images and the logs beside them.
use crate::Time;
use alloc::{string::String, sync::Arc, vec::Vec};

/// State of a container in the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum ContainerState {
    /// Made, never started.
    Created,
    /// Running.
    Running,
    /// Ended.
    Exited,
    /// Lost track of; killed before it is removed.
    Unknown,
}

/// A container in the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Container {
    /// Id.
    pub id: String,
    /// UID of its pod.
    pub pod_uid: String,
    /// Name, as in the pod's specification.
    pub name: String,
    /// State.
    pub state: ContainerState,
    /// When it was made (not when it ended).
    pub created_at: Time,
    /// Sandbox to which it belongs.
    #[cfg_attr(feature = "json", serde(default))]
    pub sandbox_id: Option<String>,
    /// Id of its image.
    #[cfg_attr(feature = "json", serde(default))]
    pub image: Option<String>,
}

/// A pod sandbox in the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Sandbox {
    /// Id.
    pub id: String,
    /// UID of its pod.
    pub pod_uid: String,
    /// Whether it is ready, and so in use.
    pub ready: bool,
    /// When it was made.
    pub created_at: Time,
}

/// An image in the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Image {
    /// Id.
    pub id: String,
    /// Runtime handler, where images are kept per handler.
    #[cfg_attr(feature = "json", serde(default))]
    pub runtime_handler: Option<String>,
    /// Names, for people.
    #[cfg_attr(feature = "json", serde(default))]
    pub tags: Vec<String>,
    /// Size as the runtime reports it, bytes; layers shared with other images are counted in each.
    pub size: u64,
    /// Ids of its layers, whose sizes are in the snapshot's `layers`; absent where the runtime does not tell.
    #[cfg_attr(feature = "json", serde(default))]
    pub layers: Option<Vec<Arc<str>>>,
    /// Pinned by the runtime: never removed.
    #[cfg_attr(feature = "json", serde(default))]
    pub pinned: bool,
    /// When it was last in use, where the agent knows; otherwise the history does.
    #[cfg_attr(feature = "json", serde(default))]
    pub last_used: Option<Time>,
    /// When it was first seen, where the agent knows; otherwise the history does.
    #[cfg_attr(feature = "json", serde(default))]
    pub first_detected: Option<Time>,
}

/// A pod's log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct LogDir {
    /// Path.
    pub path: String,
    /// UID of the pod, from the directory's name.
    pub pod_uid: String,
}

/// A link to a container's log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct LogLink {
    /// Path.
    pub path: String,
    /// Whether what it points to exists.
    pub target_exists: bool,
    /// State of its container; absent means that the runtime has no status for it.
    #[cfg_attr(feature = "json", serde(default))]
    pub container_state: Option<ContainerState>,
    /// Whether asking the runtime for its container failed.
    #[cfg_attr(feature = "json", serde(default))]
    pub status_failed: bool,
}
