//! What the operator says about cgroups: the kubelet's fields as written, and checked.
//!
//! [`RawCgroups`] is the text; [`Options::new`] reports every mistake at once. What can only be judged against a node (a reservation above its capacity) is judged by the plan.
use super::cpu::Curve;
use super::names::{CgroupName, Driver};
use alloc::{collections::BTreeMap, string::String, vec::Vec};
use ebb_model::amounts::Amounts;

/// The kubelet's fields on cgroups, as written. An absent field has the kubelet's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawCgroups {
    /// Who makes cgroups: `cgroupfs` or `systemd`.
    pub cgroup_driver: Option<String>,
    /// The cgroup below which all pods are.
    pub cgroup_root: Option<String>,
    /// Whether classes and pods have cgroups of their own.
    pub cgroups_per_qos: Option<bool>,
    /// What is set aside for Kubernetes' own daemons, by resource.
    pub kube_reserved: Option<BTreeMap<String, String>>,
    /// What is set aside for the system's daemons, by resource.
    pub system_reserved: Option<BTreeMap<String, String>>,
    /// The cgroup of Kubernetes' own daemons.
    pub kube_reserved_cgroup: Option<String>,
    /// The cgroup of the system's daemons.
    pub system_reserved_cgroup: Option<String>,
    /// What is held to its limits: `pods`, `kube-reserved`, `system-reserved`, their `-compressible` forms, or `none`.
    pub enforce_node_allocatable: Option<Vec<String>>,
    /// Percentages of requests kept from lower classes, by resource.
    pub qos_reserved: Option<BTreeMap<String, String>>,
    /// Tasks in a pod at most.
    pub pod_pids_limit: Option<i64>,
    /// Whether CPU limits are enforced by quota.
    pub cpu_cfs_quota: Option<bool>,
    /// The period of the quota.
    pub cpu_cfs_quota_period: Option<String>,
    /// How much containers may swap: `NoSwap` or `LimitedSwap`.
    pub swap_behavior: Option<String>,
    /// Feature gates by name.
    pub feature_gates: BTreeMap<String, bool>,
    /// Where between request and limit a container is slowed down.
    pub memory_throttling_factor: Option<f64>,
    /// What requests protect: `None` or `TieredReservation`.
    pub memory_reservation_policy: Option<String>,
    /// Whether the OOM killer takes single processes of a container.
    pub single_process_oom_kill: Option<bool>,
    /// Who places CPUs: `none` or `static`.
    pub cpu_manager_policy: Option<String>,
    /// CPUs by number that are set aside; they replace the CPU of both reservations.
    pub reserved_system_cpus: Option<String>,
    /// The file may name feature gates that nothing here depends on, as a KubeletConfiguration may.
    pub other_gates: bool,
    /// The hard threshold on `memory.available`, which counts as reserved when capacity is checked.
    pub eviction_hard_memory: Option<String>,
    /// ebb's own: how the kubelet's levels and the runtime's are weighted, and whose defaults apply.
    pub own: OwnOptions,
}

/// What ebb adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnOptions {
    /// The kubelet whose defaults apply.
    pub kubelet: Kubelet,
    /// The curve at the levels that the kubelet writes.
    pub pod_curve: Curve,
    /// The curve of the container runtime.
    pub container_curve: Curve,
}

/// A kubelet of 1.36 beside a runtime of today.
impl Default for OwnOptions {
    fn default() -> OwnOptions {
        OwnOptions { kubelet: Kubelet::V1_36, pod_curve: Curve::Old, container_curve: Curve::New }
    }
}

/// A kubelet by the defaults that differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kubelet {
    /// 1.36: MemoryQoS is off, its throttling factor 0.9.
    #[default]
    V1_36,
    /// 1.37: MemoryQoS is on, without throttling.
    V1_37,
}

/// How far the cgroup of reserved daemons is held to what is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// In every resource.
    Full,
    /// Only its share of CPU.
    Compressible,
}

/// A cgroup for reserved daemons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Path below the cgroup mount.
    pub path: String,
    /// How much of the reservation holds there.
    pub extent: Extent,
}

/// How requests protect memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reservation {
    /// Not at all: what an earlier policy left is taken back.
    #[default]
    None,
    /// Guaranteed pods strictly, Burstable ones as long as there is enough.
    Tiered,
}

/// The feature MemoryQoS.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryQos {
    /// How requests protect.
    pub reservation: Reservation,
    /// Where between request and limit a container is slowed down; `None` means nowhere.
    pub throttling_factor: Option<f64>,
}

/// Checked options.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Who makes cgroups.
    pub driver: Driver,
    /// The cgroup below which all pods are.
    pub root: CgroupName,
    /// There are cgroups of all pods, of classes and of pods.
    pub per_qos: bool,
    /// Pods together are held to what the node has left for them.
    pub enforce_pods: bool,
    /// The cgroup of Kubernetes' own daemons, where it is held to anything.
    pub kube: Option<Reserved>,
    /// The cgroup of the system's daemons, where it is held to anything.
    pub system: Option<Reserved>,
    /// What is set aside for Kubernetes' own daemons.
    pub kube_reserved: Amounts,
    /// What is set aside for the system's daemons.
    pub system_reserved: Amounts,
    /// Percent of memory requests kept from lower classes.
    pub qos_reserved_memory: Option<u64>,
    /// Tasks in a pod at most.
    pub pod_pids_limit: Option<u64>,
    /// Whether CPU limits are enforced by quota.
    pub cfs_quota: bool,
    /// The period of the quota in microseconds.
    pub cfs_period_us: u64,
    /// Whether Burstable containers may swap in proportion to their requests.
    pub limited_swap: bool,
    /// The feature MemoryQoS, where it is on.
    pub memory_qos: Option<MemoryQos>,
    /// The feature PodLevelResources.
    pub pod_level_resources: bool,
    /// The OOM killer takes a container as a whole.
    pub oom_group: bool,
    /// The kubelet leaves CPUs to the kernel.
    pub all_cpus: bool,
    /// The feature DisableCPUQuotaWithExclusiveCPUs.
    pub no_quota_when_exclusive: bool,
    /// The hard threshold on `memory.available` as written.
    pub eviction_hard_memory: Option<String>,
    /// The curve at the levels that the kubelet writes.
    pub pod_curve: Curve,
    /// The curve of the container runtime.
    pub container_curve: Curve,
}
