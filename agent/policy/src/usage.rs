//! What a workload uses of the resource behind a signal, summed the way the kubelet sums it.
use crate::{
    Signal,
    layout::{Counted, counted},
    signal::Resource,
    snapshot::{FsLayout, FsUsage, Stats, Workload},
};

/// Usage for a signal: bytes, inodes or processes; figures that are missing inside the statistics count as zero, as the kubelet has it.
///
/// `None` when the workload has no statistics at all.
pub(crate) fn usage(workload: &Workload, signal: Signal, layout: FsLayout) -> Option<u64> {
    let stats = workload.stats.as_ref()?;
    Some(match signal.resource() {
        Resource::Memory => {
            stats.memory.and_then(|memory| memory.working_set()).unwrap_or_default()
        }
        Resource::Pids => stats.process_count.unwrap_or_default(),
        Resource::EphemeralStorage => {
            disk(workload, stats, counted(signal, layout), |usage| usage.used_bytes)
        }
        Resource::Inodes => {
            disk(workload, stats, counted(signal, layout), |usage| usage.inodes_used)
        }
    })
}

/// What the end of a workload should give back for a signal; `None` when unknown.
pub(crate) fn expected_free(workload: &Workload, signal: Signal, layout: FsLayout) -> Option<u64> {
    let stats = workload.stats.as_ref()?;
    match signal.resource() {
        Resource::Memory => {
            let working_set = stats.memory?.working_set()?;
            Some(working_set.saturating_sub(workload.shared_memory.unwrap_or_default()))
        }
        Resource::Pids => stats.process_count,
        Resource::EphemeralStorage | Resource::Inodes => usage(workload, signal, layout),
    }
}

fn disk(
    workload: &Workload,
    stats: &Stats,
    counted: Counted,
    amount: impl Fn(FsUsage) -> Option<u64>,
) -> u64 {
    let of = |usage: Option<FsUsage>| usage.and_then(&amount).unwrap_or_default();
    let mut sum: u64 = 0;
    for container in &stats.containers {
        if counted.rootfs {
            sum = sum.saturating_add(of(container.rootfs));
        }
        if counted.logs {
            sum = sum.saturating_add(of(container.logs));
        }
    }
    if counted.volumes {
        for volume in workload.volumes.iter().filter(|volume| volume.is_local()) {
            let found = stats.volumes.iter().find(|stats| stats.name == volume.name);
            sum = sum.saturating_add(of(found.map(|stats| FsUsage {
                used_bytes: stats.used_bytes,
                inodes_used: stats.inodes_used,
            })));
        }
    }
    sum
}
