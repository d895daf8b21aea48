//! Facts about the node as a whole: memory, task ids, filesystems and signs of pressure.
use crate::{Millis, Time};
use alloc::string::String;

/// How the filesystems of the kubelet, the images and the writable layers relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum FsLayout {
    /// One filesystem for all three.
    Single,
    /// Images and writable layers together on a filesystem of their own.
    DedicatedImageFs,
    /// Images on a filesystem of their own, writable layers with the kubelet.
    SplitImageFs,
}

/// The devices from which the layout follows, by any name that is the same for the same device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct LayoutFacts {
    /// Device of the kubelet's root directory.
    pub root_device: Option<String>,
    /// Device of the image store.
    pub image_device: Option<String>,
    /// Device of the writable layers, where the runtime tells it apart (CRI-O); absent means not told, hence not split.
    pub container_device: Option<String>,
    /// Whether the runtime's figures for images and for writable layers differ although the device is the same.
    pub image_stats_differ: bool,
    /// What went wrong when the devices were looked up. The pass is then given up and tried again, as the kubelet does.
    pub error: Option<String>,
}

/// What was observed for one signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Observation {
    /// What is left: bytes, inodes or tasks.
    pub available: u64,
    /// The whole of it; percentages are taken of this. A percentage of an unknown capacity is zero.
    #[cfg_attr(feature = "json", serde(default))]
    pub capacity: Option<u64>,
    /// When it was observed. An observation not newer than the previous one starts no eviction; absent counts as new.
    #[cfg_attr(feature = "json", serde(default))]
    pub observed_at: Option<Time>,
}

/// Facts about the node as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct NodeFacts {
    /// Name of the node, for events.
    pub name: Option<String>,
    /// Physical memory, bytes (`MemTotal`).
    pub memory_total: Option<u64>,
    /// The kernel's own estimate of what can be allocated without swapping, bytes (`MemAvailable`).
    pub memory_kernel_available: Option<u64>,
    /// Usage of the root cgroup.
    pub memory_root: Option<RootMemory>,
    /// The cgroup that holds all pods.
    pub memory_kubepods: Option<KubepodsMemory>,
    /// When the memory figures were read.
    pub memory_observed_at: Option<Time>,
    /// Swap space, bytes.
    pub swap_total: Option<u64>,
    /// Swap space not in use, bytes.
    pub swap_free: Option<u64>,
    /// Bytes of zswap and zram pools, which are memory although they hold swapped pages.
    pub swap_in_memory: Option<u64>,
    /// Swap space on compressed memory, part of `swapTotal`; absent where there is none.
    #[cfg_attr(feature = "json", serde(skip_serializing_if = "Option::is_none"))]
    pub zram: Option<ZramFacts>,
    /// `kernel.pid_max`.
    pub pid_max: Option<u64>,
    /// `kernel.threads-max`.
    pub threads_max: Option<u64>,
    /// Tasks (threads) that exist: the fourth field of `/proc/loadavg`.
    pub tasks: Option<u64>,
    /// Fallback for `tasks`: `sysinfo.procs`.
    pub processes: Option<u64>,
    /// When the task figures were read.
    pub pids_observed_at: Option<Time>,
    /// The filesystem of the kubelet's root directory.
    pub node_fs: Option<FsFacts>,
    /// The filesystem of the image store.
    pub image_fs: Option<FsFacts>,
    /// The filesystem of the writable layers.
    pub container_fs: Option<FsFacts>,
}

/// Swap space on zram, bytes, of all its devices together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct ZramFacts {
    /// Swap space on it.
    pub total: u64,
    /// Swap space in use on it.
    pub used: u64,
    /// What it holds, uncompressed (`orig_data_size`).
    pub stored: Option<u64>,
    /// Memory that it takes for that (`mem_used_total`).
    pub memory: Option<u64>,
}

/// Memory of the root cgroup, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct RootMemory {
    /// Usage where the root has such a figure (cgroup v1); absent on cgroup v2, where `anon` + `file` stand for it.
    pub usage: Option<u64>,
    /// Anonymous memory.
    pub anon: Option<u64>,
    /// Page cache.
    pub file: Option<u64>,
    /// Page cache that has not been used twice of late; not counted as used.
    pub inactive_file: Option<u64>,
    /// Page cache that has been used again.
    pub active_file: Option<u64>,
    /// Pages that came back to the page cache or from swap soon after they were reclaimed, a running total.
    pub refaults: Option<u64>,
}

/// Memory of the cgroup that holds all pods, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct KubepodsMemory {
    /// Its limit; absent means unlimited, which gives no observation.
    pub limit: Option<u64>,
    /// Its working set; absent means `usage` less `inactiveFile`.
    pub working_set: Option<u64>,
    /// Its usage.
    pub usage: Option<u64>,
    /// Its page cache that has not been used twice of late.
    pub inactive_file: Option<u64>,
}

/// A filesystem, in bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct FsFacts {
    /// Bytes free to unprivileged users.
    pub available: Option<u64>,
    /// Bytes in total.
    pub capacity: Option<u64>,
    /// Inodes free.
    pub inodes_free: Option<u64>,
    /// Inodes in total.
    pub inodes: Option<u64>,
    /// When it was read.
    pub observed_at: Option<Time>,
    /// By how much less is available than a moment before; absent where nobody has looked twice.
    #[cfg_attr(feature = "json", serde(skip_serializing_if = "Option::is_none"))]
    pub fall: Option<FsFall>,
}

/// By how much less of a filesystem is available than before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct FsFall {
    /// The time in which it fell, milliseconds: that of the workloads' growth.
    pub over: Millis,
    /// Bytes; zero when it rose.
    pub bytes: Option<u64>,
    /// Inodes; zero when they rose.
    pub inodes: Option<u64>,
    /// Bytes a second of late, within the last half second.
    pub bytes_per_second: Option<u64>,
    /// Inodes a second of late, within the last half second.
    pub inodes_per_second: Option<u64>,
}

/// Signs of pressure from the kernel: running totals, so that two snapshots can be subtracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct PressureEvidence {
    /// Microseconds in which at least one task waited for memory.
    pub memory_some_us: Option<u64>,
    /// Microseconds in which all tasks waited for memory.
    pub memory_full_us: Option<u64>,
    /// Microseconds in which at least one task waited for IO.
    pub io_some_us: Option<u64>,
    /// Microseconds in which all tasks waited for IO.
    pub io_full_us: Option<u64>,
    /// Times that a task had to reclaim memory itself.
    pub direct_reclaims: Option<u64>,
    /// Times that the kernel's background reclaim woke.
    pub kswapd_wakes: Option<u64>,
}
