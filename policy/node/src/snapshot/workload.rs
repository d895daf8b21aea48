//! What can be ended: a pod, a cgroup or a process, with who it is and in which state.
use super::{ContainerSpec, ResourceList, Resources, Stats};
use crate::{Quantity, Secs, Time};
use alloc::{boxed::Box, string::String, vec::Vec};
use ebb_model::pod::{OwnerRef, Qos};
use ebb_model::{CgroupId, ProcessId, VolumeSpec};

/// Who a workload is. Ordered, so that ties always fall the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct WorkloadKey {
    /// A pod as `namespace/name`, a cgroup as its path, a process as its command: for people, never for identity alone.
    pub name: String,
    /// Pod UID.
    #[cfg_attr(feature = "json", serde(default))]
    pub uid: Option<String>,
    /// Cgroup id (kernfs inode).
    #[cfg_attr(feature = "json", serde(default))]
    pub cgroup: Option<CgroupId>,
    /// Process.
    #[cfg_attr(feature = "json", serde(default))]
    pub process: Option<ProcessId>,
}

/// What kind of thing a workload is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum WorkloadKind {
    /// A Kubernetes pod.
    #[default]
    Pod,
    /// A cgroup: a systemd service, a container, a slice.
    Cgroup,
    /// A single process.
    Process,
}

/// Why the agent says that a workload must never be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum ProtectedReason {
    /// It is ebb itself.
    Agent,
    /// It holds process 1.
    Init,
    /// It is the kubelet.
    Kubelet,
    /// It is the container runtime.
    Runtime,
    /// The configuration protects its name.
    Configured,
    /// Its annotation says that it is never to be evicted, and the configuration honours that in its namespace.
    Annotated,
    /// Its `oom_score_adj` is -1000.
    OomScoreAdj,
    /// It is a kernel thread.
    KernelThread,
    /// It is a pod of which nothing runs but perhaps its sandbox: its eviction would free nothing, and keep others from being evicted.
    NothingRuns,
    /// It may be a container of a pod, or a sandbox: the container runtime's pod list has not come yet.
    Unlisted,
    /// It is a pod that the API server has yet to describe, after a start: it may be critical.
    Undescribed,
    /// Its processes cannot all be read, so nobody can tell whether one of them is protected.
    Unreadable,
}

/// What its owner or the configuration says about evicting it among its equals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum Preference {
    /// First among equals.
    Prefer,
    /// No preference.
    #[default]
    Neutral,
    /// Last of its class.
    Avoid,
}

/// The phase in a pod's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "json", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
pub enum Phase {
    /// Accepted, not all containers started.
    Pending,
    /// At least one container runs.
    #[default]
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, one of them badly.
    Failed,
    /// Not known to the control plane.
    Unknown,
}

/// Where a workload is in its life, as seen on the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", tag = "type", deny_unknown_fields)
)]
pub enum State {
    /// It runs or is about to.
    #[default]
    Active,
    /// It is terminating, whoever asked for it.
    #[cfg_attr(feature = "json", serde(rename_all = "camelCase"))]
    Terminating {
        /// Since when.
        since: Option<Time>,
        /// When its grace ends.
        deadline: Option<Time>,
    },
    /// Nothing of it runs any more.
    #[cfg_attr(feature = "json", serde(rename_all = "camelCase"))]
    Terminated {
        /// Since when.
        at: Option<Time>,
    },
}

/// A workload that ebb has evicted and that is still terminating: what it will free counts before another victim is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Termination {
    /// Since when.
    pub since: Time,
    /// Until when what it will free is counted; past it another workload is chosen.
    pub deadline: Time,
    /// Bytes of memory that its termination should free, whatever it was chosen for; of other resources it is what the workload has. `None` when unknown.
    pub expected_free: Option<u64>,
    /// When it is killed unless it has ended by itself; `None` once it has been. A hard threshold of memory or task ids does not wait for that.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub kill_at: Option<Time>,
    /// Only a part of it is on its way out: the rest was started since, and is a candidate as any other. What was measured of the workload is that rest.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "core::ops::Not::not"))]
    pub restarted: bool,
    /// Nothing was done, because of a dry run: it runs on, and what it holds counts as freed.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "core::ops::Not::not"))]
    pub dry_run: bool,
}

impl Termination {
    /// Whether all of the workload is on its way out, so that it is no candidate.
    pub(crate) fn is_whole(&self) -> bool {
        !self.restarted
    }

    /// Whether what it will free still counts.
    pub(crate) fn counts_at(&self, now: Time) -> bool {
        now < self.deadline
    }
}

/// A workload's own limit: pressure that it causes to itself concerns nobody else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct LocalLimit {
    /// `memory.max`, bytes; absent means none.
    pub max: Option<u64>,
    /// `memory.high`, bytes; absent means none.
    pub high: Option<u64>,
    /// Whether it is at that limit now.
    pub at_limit: bool,
}

/// A disruption budget that covers a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct DisruptionBudget {
    /// `namespace/name`.
    pub name: String,
    /// How many of its pods may be disrupted now.
    pub disruptions_allowed: u32,
}

/// Something that can be ended.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Workload {
    /// Who it is.
    pub key: WorkloadKey,
    /// What kind of thing it is.
    #[cfg_attr(feature = "json", serde(default))]
    pub kind: WorkloadKind,
    /// Quality of service class, when the status says it; otherwise it follows from requests and limits.
    #[cfg_attr(feature = "json", serde(default))]
    pub qos: Option<Qos>,
    /// Priority; absent counts as 0.
    #[cfg_attr(feature = "json", serde(default))]
    pub priority: Option<i32>,
    /// Priority class, which tells node-critical pods.
    #[cfg_attr(feature = "json", serde(default))]
    pub priority_class: Option<String>,
    /// A static pod: never evicted.
    #[cfg_attr(feature = "json", serde(default))]
    pub static_pod: bool,
    /// A mirror pod: never evicted.
    #[cfg_attr(feature = "json", serde(default))]
    pub mirror: bool,
    /// Why it must never be ended, if so.
    #[cfg_attr(feature = "json", serde(default))]
    pub protected: Option<ProtectedReason>,
    /// What its owner or the configuration says about evicting it.
    #[cfg_attr(feature = "json", serde(default))]
    pub preference: Preference,
    /// Phase in the pod's status.
    #[cfg_attr(feature = "json", serde(default))]
    pub phase: Phase,
    /// Where it is in its life on this node.
    #[cfg_attr(feature = "json", serde(default))]
    pub state: State,
    /// The pod's object has a deletion time.
    #[cfg_attr(feature = "json", serde(default))]
    pub deleted: bool,
    /// The pod's status says that it was evicted.
    #[cfg_attr(feature = "json", serde(default))]
    pub evicted: bool,
    /// It was evicted by somebody else than who manages it: a kubelet may still read how its containers ended, so what is left of it stays until nothing of it runs.
    #[cfg_attr(feature = "json", serde(default))]
    pub evicted_from_outside: bool,
    /// ebb has evicted it, and it is still terminating.
    #[cfg_attr(feature = "json", serde(default))]
    pub termination: Option<Termination>,
    /// ebb has evicted what ran in its place before, which terminated then: what runs now was started since.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub restarted: Option<Time>,
    /// What was measured; absent means that no statistics were found for it.
    #[cfg_attr(feature = "json", serde(default))]
    pub stats: Option<Stats>,
    /// Its own memory limit.
    #[cfg_attr(feature = "json", serde(default))]
    pub local_limit: Option<LocalLimit>,
    /// Containers in the pod's specification.
    #[cfg_attr(feature = "json", serde(default))]
    pub containers: Vec<ContainerSpec>,
    /// Resources of the pod as a whole.
    #[cfg_attr(feature = "json", serde(default))]
    pub pod_resources: Option<Box<Resources>>,
    /// What running the pod costs besides its containers.
    #[cfg_attr(feature = "json", serde(default))]
    pub overhead: Option<Box<ResourceList>>,
    /// Volumes in the pod's specification.
    #[cfg_attr(feature = "json", serde(default))]
    pub volumes: Vec<VolumeSpec>,
    /// Ids of images that are mounted as volumes.
    #[cfg_attr(feature = "json", serde(default))]
    pub mounted_images: Vec<String>,
    /// Seconds that it asked for to end by itself.
    #[cfg_attr(feature = "json", serde(default))]
    pub termination_grace: Option<Secs>,
    /// The controller that owns it.
    #[cfg_attr(feature = "json", serde(default))]
    pub owner: Option<OwnerRef>,
    /// The disruption budget that covers it.
    #[cfg_attr(feature = "json", serde(default))]
    pub disruption_budget: Option<DisruptionBudget>,
    /// Whether the memory of its cgroup can be reclaimed by writing to `memory.reclaim`.
    #[cfg_attr(feature = "json", serde(default))]
    pub can_reclaim: bool,
    /// Memory that other workloads share and that stays when this one ends, bytes.
    #[cfg_attr(feature = "json", serde(default))]
    pub shared_memory: Option<u64>,
    /// A request for memory that replaces what the specification says (standalone: memory that its cgroup protects).
    #[cfg_attr(feature = "json", serde(default))]
    pub memory_request: Option<Quantity>,
}
