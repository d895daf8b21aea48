//! The node at one moment, as values: everything that a decision may depend on.
//!
//! What is not known is absent (`None`), never zero; lists may come in any order.
//! [`node`] holds facts about the node as a whole, [`workload`] what can be ended, [`spec`] what a pod asked for,
//! [`usage`] what was measured, [`runtime`] what containers and images the runtime has, [`task`] work besides eviction.
use crate::{Signal, Time};
use alloc::{collections::BTreeMap, string::String, sync::Arc, vec::Vec};

mod memory_pressure;
pub mod node;
pub mod runtime;
pub mod spec;
#[cfg(feature = "json")]
mod state;
pub mod task;
pub mod usage;
pub mod workload;

pub use ebb_model::pod::{ContainerKind, OwnerRef, Qos};
pub use ebb_model::{CgroupId, ProcessId, VolumeSpec, VolumeType};
pub use memory_pressure::{CgroupPressure, PagesScanned};
pub use node::{
    FsFacts, FsFall, FsLayout, KubepodsMemory, LayoutFacts, NodeFacts, Observation,
    PressureEvidence, RootMemory, ZramFacts,
};
pub use runtime::{Container, ContainerState, Image, LogDir, LogLink, Sandbox};
pub use spec::{ContainerSpec, ResourceList, Resources};
pub use task::{Admission, OomKill, Preemption, Task};
pub use usage::{
    ContainerStats, DiskGrowth, FsGrowth, FsUsage, KernelCounts, MemoryUsage, Stats, VolumeStats,
};
pub use workload::{
    DisruptionBudget, LocalLimit, Phase, Preference, ProtectedReason, State, Termination, Workload,
    WorkloadKey, WorkloadKind,
};

/// The version of the snapshot's JSON form that this crate reads and writes.
pub const SCHEMA_VERSION: u32 = 1;

/// The node at one moment.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Snapshot {
    /// Version of this form; 1.
    pub schema_version: u32,
    /// When the snapshot was taken. It is the "now" of the decision.
    pub taken_at: Time,
    /// When the agent started; the maximum age of images only counts once the agent has been up for that long.
    #[cfg_attr(feature = "json", serde(default))]
    pub agent_started_at: Option<Time>,
    /// Whether every source of pods has reported at least once. Until then nothing is removed for belonging to an unknown pod.
    #[cfg_attr(feature = "json", serde(default))]
    pub sources_ready: bool,
    /// How the node's filesystems are laid out, when the agent knows it directly; otherwise it is derived from `layoutFacts`.
    #[cfg_attr(feature = "json", serde(default))]
    pub layout: Option<FsLayout>,
    /// The devices from which the layout follows.
    #[cfg_attr(feature = "json", serde(default))]
    pub layout_facts: Option<LayoutFacts>,
    /// Facts about the node as a whole; signals that `signals` does not give are derived from them.
    #[cfg_attr(feature = "json", serde(default))]
    pub node: NodeFacts,
    /// What was observed for each signal. A signal without an observation is never met.
    #[cfg_attr(feature = "json", serde(default))]
    pub signals: BTreeMap<Signal, Observation>,
    /// Everything that could be ended: pods, or cgroups and processes where there is no source of pods.
    #[cfg_attr(feature = "json", serde(default))]
    pub workloads: Vec<Workload>,
    /// Containers that the runtime lists, dead ones too.
    #[cfg_attr(feature = "json", serde(default))]
    pub containers: Vec<Container>,
    /// Ids of containers that have ended since the last snapshot: each leaves the newest dead ones of its name.
    #[cfg_attr(feature = "json", serde(default))]
    pub exited: Vec<String>,
    /// Pod sandboxes that the runtime lists.
    #[cfg_attr(feature = "json", serde(default))]
    pub sandboxes: Vec<Sandbox>,
    /// Images that the runtime lists.
    #[cfg_attr(feature = "json", serde(default))]
    pub images: Vec<Image>,
    /// Bytes that each layer of an image takes up, by id.
    #[cfg_attr(feature = "json", serde(default))]
    pub layers: BTreeMap<Arc<str>, u64>,
    /// Pod log directories.
    #[cfg_attr(feature = "json", serde(default))]
    pub log_dirs: Vec<LogDir>,
    /// Links to container logs.
    #[cfg_attr(feature = "json", serde(default))]
    pub log_links: Vec<LogLink>,
    /// Signs of pressure from the kernel. They explain a decision; alone they never cause one.
    #[cfg_attr(feature = "json", serde(default))]
    pub pressure: Option<PressureEvidence>,
    /// Memory pressure of the cgroups that are watched for it.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub memory_pressure: Vec<CgroupPressure>,
    /// Kernel OOM kills since the last snapshot.
    #[cfg_attr(feature = "json", serde(default))]
    pub oom_kills: Vec<OomKill>,
    /// Pods that ask to be admitted to the node.
    #[cfg_attr(feature = "json", serde(default))]
    pub admissions: Vec<Admission>,
    /// A critical pod that does not fit, and what it lacks.
    #[cfg_attr(feature = "json", serde(default))]
    pub preemption: Option<Preemption>,
    /// Which loops run in this pass; absent means eviction, and the two collectors when their periods have passed.
    #[cfg_attr(feature = "json", serde(default))]
    pub tasks: Option<Vec<Task>>,
}

impl Snapshot {
    /// A snapshot that says nothing but when it was taken.
    pub fn at(taken_at: Time) -> Snapshot {
        Snapshot {
            schema_version: SCHEMA_VERSION,
            taken_at,
            agent_started_at: None,
            sources_ready: false,
            layout: None,
            layout_facts: None,
            node: NodeFacts::default(),
            signals: BTreeMap::new(),
            workloads: Vec::new(),
            containers: Vec::new(),
            exited: Vec::new(),
            sandboxes: Vec::new(),
            images: Vec::new(),
            layers: BTreeMap::new(),
            log_dirs: Vec::new(),
            log_links: Vec::new(),
            pressure: None,
            memory_pressure: Vec::new(),
            oom_kills: Vec::new(),
            admissions: Vec::new(),
            preemption: None,
            tasks: None,
        }
    }
}
