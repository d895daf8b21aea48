//! Work besides eviction that a snapshot can ask for: collectors, admission, preemption, and reports of OOM kills.
use super::{CgroupId, Qos, ResourceList, WorkloadKey};
use crate::Time;
use alloc::string::String;

/// A loop of the kubelet that a pass can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum Task {
    /// Thresholds, node-level reclaim and eviction.
    Eviction,
    /// Dead containers, sandboxes and logs.
    ContainerGc,
    /// Unused images.
    ImageGc,
}

/// A pod that asks to be admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Admission {
    /// Who it is.
    pub key: WorkloadKey,
    /// Quality of service class.
    pub qos: Qos,
    /// Priority; absent counts as 0.
    #[cfg_attr(feature = "json", serde(default))]
    pub priority: Option<i32>,
    /// A static pod.
    #[cfg_attr(feature = "json", serde(default))]
    pub static_pod: bool,
    /// A mirror pod.
    #[cfg_attr(feature = "json", serde(default))]
    pub mirror: bool,
    /// Whether it tolerates the taint `node.kubernetes.io/memory-pressure:NoSchedule`.
    #[cfg_attr(feature = "json", serde(default))]
    pub tolerates_memory_pressure: bool,
}

/// A critical pod that did not fit for want of resources.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Preemption {
    /// The critical pod.
    pub key: WorkloadKey,
    /// Its priority; absent counts as 0.
    #[cfg_attr(feature = "json", serde(default))]
    pub priority: Option<i32>,
    /// A static pod.
    #[cfg_attr(feature = "json", serde(default))]
    pub static_pod: bool,
    /// A mirror pod.
    #[cfg_attr(feature = "json", serde(default))]
    pub mirror: bool,
    /// What is missing for it.
    pub missing: ResourceList,
    /// How many pods too many there would be.
    #[cfg_attr(feature = "json", serde(default))]
    pub missing_pods: u64,
}

/// A kill by the kernel's OOM killer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct OomKill {
    /// Command of the process that was killed.
    pub victim: String,
    /// Its process id.
    pub pid: u32,
    /// The cgroup whose limit was hit; `/` means that the node itself was out of memory. `None` when the kernel did not say.
    #[cfg_attr(feature = "json", serde(default))]
    pub constraint: Option<String>,
    /// When the kernel killed it.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub at: Option<Time>,
    /// When the process had started.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub started_at: Option<Time>,
    /// Its `oom_score_adj`, -1000 to 1000.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub oom_score_adj: Option<i32>,
    /// The cgroup that it was in.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub cgroup: Option<CgroupId>,
}
