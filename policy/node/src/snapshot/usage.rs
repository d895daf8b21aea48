//! What was measured: memory, processes and disk of a workload, its containers and its volumes.
use crate::{Millis, Time};
use alloc::{string::String, vec::Vec};

/// What was measured of one workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct Stats {
    /// When it was measured.
    pub observed_at: Option<Time>,
    /// Memory of the workload's cgroup.
    pub memory: Option<MemoryUsage>,
    /// What programs in the kernel counted of it; absent where none do.
    pub kernel_counts: Option<KernelCounts>,
    /// Processes in the workload.
    pub process_count: Option<u64>,
    /// Local disk of the whole pod: writable layers, logs, local ephemeral volumes, pod logs and hosts file, bytes.
    pub ephemeral_storage: Option<u64>,
    /// Each container.
    pub containers: Vec<ContainerStats>,
    /// Each volume.
    pub volumes: Vec<VolumeStats>,
    /// When the oldest of its figures on disk was measured; absent means at `observedAt`.
    #[cfg_attr(feature = "json", serde(skip_serializing_if = "Option::is_none"))]
    pub disk_observed_at: Option<Time>,
    /// What it added to the node's filesystems of late; absent where nobody has looked twice.
    #[cfg_attr(feature = "json", serde(skip_serializing_if = "Option::is_none"))]
    pub disk_growth: Option<DiskGrowth>,
}

/// What a workload added to each of the node's filesystems in the time up to the snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct DiskGrowth {
    /// How much time that is, milliseconds.
    pub over: Millis,
    /// The filesystem of the kubelet's root directory.
    pub node_fs: Option<FsGrowth>,
    /// The filesystem of the image store.
    pub image_fs: Option<FsGrowth>,
    /// The filesystem of the writable layers.
    pub container_fs: Option<FsGrowth>,
}

/// What a workload added to one filesystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct FsGrowth {
    /// Bytes by which its directories there (logs, volumes) have grown.
    pub grown: Option<u64>,
    /// Inodes by which they have grown.
    pub inodes_grown: Option<u64>,
    /// Bytes that its cgroups have written to it, by `io.stat` of its device and by the growth of their dirty page cache. What was written over counts too, so it may be more than what was added.
    pub written: Option<u64>,
}

/// Memory of one cgroup, bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct MemoryUsage {
    /// Everything charged to it (`memory.current`).
    pub usage: Option<u64>,
    /// Usage without the page cache that was not used twice of late; absent means `usage` less `inactiveFile`.
    pub working_set: Option<u64>,
    /// Anonymous memory.
    pub anon: Option<u64>,
    /// Page cache, tmpfs and shared memory included.
    pub file: Option<u64>,
    /// Page cache that was used again.
    pub active_file: Option<u64>,
    /// Page cache that was not used twice of late.
    pub inactive_file: Option<u64>,
    /// tmpfs and shared memory, which belongs to no process.
    pub shmem: Option<u64>,
    /// Kernel memory.
    pub kernel: Option<u64>,
    /// Swapped out (`memory.swap.current`), on whatever device.
    pub swap: Option<u64>,
    /// Memory that zswap takes for its swapped pages (`memory.zswap.current`), part of `usage`.
    #[cfg_attr(feature = "json", serde(skip_serializing_if = "Option::is_none"))]
    pub zswap: Option<u64>,
    /// `memory.low`: protected as long as others can be reclaimed from.
    pub low: Option<u64>,
    /// `memory.min`: protected always.
    pub min: Option<u64>,
    /// Pages that came back soon after they were reclaimed, a running total.
    pub refaults: Option<u64>,
    /// Microseconds in which at least one of its tasks waited for memory, a running total.
    pub stall_us: Option<u64>,
}

impl MemoryUsage {
    /// The working set: as measured, else usage less inactive page cache.
    pub fn working_set(&self) -> Option<u64> {
        self.working_set
            .or_else(|| Some(self.usage?.saturating_sub(self.inactive_file.unwrap_or_default())))
    }
}

/// Who waits for memory and who reclaims it: running totals of one workload. One that is smaller than before has begun again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct KernelCounts {
    /// When they were read.
    pub at: Option<Time>,
    /// Microseconds that its tasks waited for memory, summed over tasks.
    pub stall_us: Option<u64>,
    /// How often its tasks had to reclaim memory themselves because the node was short.
    pub direct_reclaims: Option<u64>,
    /// How often memory was reclaimed from it because of a limit of its own: what it waits for then is its own doing.
    pub own_reclaims: Option<u64>,
}

/// Disk that something takes up on its filesystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct FsUsage {
    /// Bytes.
    pub used_bytes: Option<u64>,
    /// Inodes.
    pub inodes_used: Option<u64>,
}

/// What was measured of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct ContainerStats {
    /// Name, as in the specification.
    pub name: String,
    /// Memory.
    #[cfg_attr(feature = "json", serde(default))]
    pub memory: Option<MemoryUsage>,
    /// Writable layer.
    #[cfg_attr(feature = "json", serde(default))]
    pub rootfs: Option<FsUsage>,
    /// Logs.
    #[cfg_attr(feature = "json", serde(default))]
    pub logs: Option<FsUsage>,
}

/// What was measured of one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct VolumeStats {
    /// Name, as in the specification.
    pub name: String,
    /// Bytes.
    #[cfg_attr(feature = "json", serde(default))]
    pub used_bytes: Option<u64>,
    /// Inodes.
    #[cfg_attr(feature = "json", serde(default))]
    pub inodes_used: Option<u64>,
}
