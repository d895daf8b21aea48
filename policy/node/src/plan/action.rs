//! The actions: each names exactly what it is about and carries everything that is shown to people.
use super::{PressureGrounds, RankKey, Strength};
use crate::{
    Millis, Quantity, Secs, Signal, Time,
    snapshot::{ContainerState, WorkloadKey},
};
use alloc::{boxed::Box, collections::BTreeMap, string::String, vec::Vec};

/// Reason of the event about a pod whose termination is overdue.
pub const OVERDUE_REASON: &str = "ExceededGracePeriod";

/// Message of the event about a pod whose termination is overdue.
pub const OVERDUE_MESSAGE: &str =
    "Container runtime did not kill the pod within specified grace period.";

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")
)]
pub enum Action {
    /// Evict a workload.
    Evict(Box<Evict>),
    /// Remove a dead container.
    RemoveContainer(RemoveContainer),
    /// Stop and remove a sandbox.
    RemoveSandbox(RemoveSandbox),
    /// Remove a pod's log directory.
    RemoveLogDir(RemoveLogDir),
    /// Remove a dangling link to a log.
    RemoveLogLink(RemoveLogLink),
    /// Remove an image.
    RemoveImage(RemoveImage),
    /// Warn a workload that it will be evicted.
    Warn(Warn),
    /// Ask the kernel to reclaim from a workload.
    ReclaimMemory(ReclaimMemory),
    /// Slow a workload down at a memory mark.
    Throttle(Throttle),
    /// Stop a workload from running.
    Freeze(Freeze),
    /// Undo a throttle or a freeze.
    Release(Release),
}

/// Why a workload is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum EvictionCause {
    /// The node is short of a resource.
    NodePressure,
    /// An `emptyDir` is over its size limit.
    EmptyDirLimit,
    /// The pod is over the sum of its containers' limits of local storage.
    PodStorageLimit,
    /// A container is over its limit of local storage.
    ContainerStorageLimit,
    /// A critical pod needs the room.
    Preemption,
    /// A cgroup above it stalls for memory.
    MemoryPressure,
}

/// Evict a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Evict {
    /// Who.
    pub workload: WorkloadKey,
    /// Why.
    pub cause: EvictionCause,
    /// Signal of the threshold that is handled; absent when the node is not what is short.
    pub signal: Option<Signal>,
    /// Hard or soft.
    pub strength: Option<Strength>,
    /// The threshold, percentages resolved, as messages show it.
    pub threshold: Option<Quantity>,
    /// The same in bytes, inodes or tasks.
    pub threshold_value: Option<u64>,
    /// What was left.
    pub available: Option<u64>,
    /// The memory pressure that it is evicted for, where that is the cause.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub memory_pressure: Option<PressureGrounds>,
    /// Grace period in seconds; at least 1.
    pub grace: Secs,
    /// After how long its termination counts as overdue.
    pub overdue_after: Secs,
    /// What its eviction should free: bytes, inodes or tasks; absent when unknown.
    pub expected_free: Option<u64>,
    /// Phase of the pod's status afterwards.
    pub phase: String,
    /// Reason of the pod's status.
    pub reason: String,
    /// Message of the pod's status.
    pub message: String,
    /// Condition added to the pod's status.
    pub condition: Option<PodCondition>,
    /// Event about the pod.
    pub event: PodEvent,
    /// Value of the label `eviction_signal` under which the eviction is counted.
    pub metric: String,
    /// The keys that placed it first.
    pub why: Vec<RankKey>,
}

/// A condition in a pod's status.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct PodCondition {
    /// Type.
    #[cfg_attr(feature = "json", serde(rename = "type"))]
    pub condition_type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
}

/// An event about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct PodEvent {
    /// `Normal` or `Warning`.
    #[cfg_attr(feature = "json", serde(rename = "type"))]
    pub event_type: EventType,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

/// How grave an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub enum EventType {
    /// Business as usual.
    Normal,
    /// Somebody should look.
    Warning,
}

/// Why something dead is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum RemoveReason {
    /// Its pod is evicted and finished.
    PodEvicted,
    /// Its pod is deleted and terminated.
    PodDeleted,
    /// No pod of that UID is known.
    PodUnknown,
    /// Its pod is terminated, and the node needs the room.
    PodTerminated,
    /// More dead containers of its name than are kept per container.
    PerContainerLimit,
    /// More dead containers than are kept on the node.
    NodeLimit,
    /// A newer sandbox of its pod exists.
    Superseded,
    /// What it points to is gone.
    Dangling,
    /// Unused for longer than the maximum age.
    Age,
    /// The image filesystem is over its high threshold.
    Space,
    /// The node is short of disk.
    NodePressure,
}

/// Remove a dead container.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct RemoveContainer {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// UID of its pod.
    pub pod_uid: String,
    /// Its state; one in an unknown state is killed first, and kept if that fails.
    pub state: ContainerState,
    /// Kill it first.
    pub kill_first: bool,
    /// Why.
    pub reason: RemoveReason,
}

/// Stop and remove a sandbox. One that cannot be stopped is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct RemoveSandbox {
    /// Its id.
    pub id: String,
    /// UID of its pod.
    pub pod_uid: String,
    /// Why.
    pub reason: RemoveReason,
}

/// Remove a pod's log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct RemoveLogDir {
    /// Its path.
    pub path: String,
    /// UID of its pod.
    pub pod_uid: String,
    /// Why.
    pub reason: RemoveReason,
}

/// Remove a dangling link to a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct RemoveLogLink {
    /// Its path.
    pub path: String,
    /// Why.
    pub reason: RemoveReason,
}

/// Remove an image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct RemoveImage {
    /// Its id.
    pub id: String,
    /// Runtime handler, where images are kept per handler.
    pub runtime_handler: Option<String>,
    /// Its size as the runtime reports it, bytes.
    pub size: u64,
    /// Bytes that go with it once the images before it in the plan are gone: its layers that no other image has. Absent where layers are not known.
    #[cfg_attr(feature = "json", serde(default))]
    pub frees: Option<u64>,
    /// When it was last in use; absent when never, as far as is known.
    pub last_used: Option<Time>,
    /// Why.
    pub reason: RemoveReason,
    /// Value of the label `reason` under which the removal is counted.
    pub metric: String,
}

/// Warn a workload that it will be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Warn {
    /// Who.
    pub workload: WorkloadKey,
    /// Signal that is about to be met.
    pub signal: Signal,
    /// Time until the threshold is reached.
    pub time_left: Millis,
    /// For people.
    pub message: String,
}

/// Ask the kernel to reclaim from a workload (`memory.reclaim`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct ReclaimMemory {
    /// Who.
    pub workload: WorkloadKey,
    /// Bytes.
    pub bytes: u64,
    /// How long the kernel may take.
    pub deadline: Millis,
}

/// Slow a workload down at a memory mark (`memory.high`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Throttle {
    /// Who.
    pub workload: WorkloadKey,
    /// The mark, bytes.
    pub high: u64,
}

/// Stop a workload from running (`cgroup.freeze`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Freeze {
    /// Who.
    pub workload: WorkloadKey,
    /// Thaw it then, whatever happens.
    pub until: Time,
}

/// Undo a throttle and a freeze.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Release {
    /// Who.
    pub workload: WorkloadKey,
    /// The mark to put back; absent means none.
    pub high: Option<u64>,
}
