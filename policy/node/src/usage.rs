//! What a workload uses of the resource behind a signal, summed the way the kubelet sums it.
use crate::{
    Signal,
    layout::{Counted, counted},
    signal::Resource,
    snapshot::{FsLayout, FsUsage, Stats, VolumeType, Workload},
    swap::Swapped,
};

/// Usage for a signal: bytes, inodes or processes; figures that are missing inside the statistics count as zero, as the kubelet has it.
///
/// `None` when the workload has no statistics at all, and for swap when nobody knows how much it has swapped out.
pub(crate) fn usage(workload: &Workload, signal: Signal, layout: FsLayout) -> Option<u64> {
    let stats = workload.stats.as_ref()?;
    Some(match signal.resource() {
        Resource::Memory => {
            let memory = stats.memory.unwrap_or_default();
            let swapped = match signal {
                Signal::MemoryWithSwapAvailable => memory.swap.unwrap_or_default(),
                _ => 0,
            };
            memory.working_set().unwrap_or_default().saturating_add(swapped)
        }
        // What is unknown of it is not little: nobody is evicted for that.
        Resource::Swap => stats.memory?.swap?,
        Resource::Pids => stats.process_count.unwrap_or_default(),
        Resource::EphemeralStorage => {
            disk(workload, stats, counted(signal, layout), |usage| usage.used_bytes)
        }
        Resource::Inodes => {
            disk(workload, stats, counted(signal, layout), |usage| usage.inodes_used)
        }
    })
}

/// What the end of a workload should give back for a signal; `None` when unknown. What is swapped out comes back as swap space, and as memory as far as zram holds it.
pub(crate) fn expected_free(
    workload: &Workload,
    signal: Signal,
    layout: FsLayout,
    swapped: Swapped,
) -> Option<u64> {
    let stats = workload.stats.as_ref()?;
    match signal.resource() {
        Resource::Memory => {
            let memory = stats.memory?;
            let own = memory.working_set()?;
            let own = own.saturating_sub(workload.shared_memory.unwrap_or_default());
            let back = match (signal, memory.swap) {
                (Signal::MemoryWithSwapAvailable, None) if swapped.any() => return None,
                (Signal::MemoryWithSwapAvailable, swap) => swap.unwrap_or_default(),
                (_, swap) => swapped.memory_of(swap.unwrap_or_default()),
            };
            Some(own.saturating_add(back))
        }
        Resource::Swap => {
            let swap = stats.memory?.swap?;
            Some(swap.saturating_sub(swapped.memory_of(swap)))
        }
        Resource::Pids => stats.process_count,
        Resource::EphemeralStorage | Resource::Inodes => usage(workload, signal, layout),
    }
}

/// What a pod has on disk for a signal, bytes or inodes; `None` unless every part of it that counts has been measured.
pub(crate) fn measured_on_disk(
    workload: &Workload,
    signal: Signal,
    layout: FsLayout,
) -> Option<u64> {
    let stats = workload.stats.as_ref()?;
    let inodes = signal.resource() == Resource::Inodes;
    let amount = |usage: FsUsage| if inodes { usage.inodes_used } else { usage.used_bytes };
    let counted = counted(signal, layout);
    let mut sum: u64 = 0;
    let mut parts = 0;
    let mut add = |usage: Option<FsUsage>| {
        sum = sum.saturating_add(amount(usage?)?);
        parts += 1;
        Some(())
    };
    for container in &stats.containers {
        if counted.rootfs {
            add(container.rootfs)?;
        }
        if counted.logs {
            add(container.logs)?;
        }
    }
    if counted.volumes {
        for volume in workload.volumes.iter().filter(|volume| volume.is_local()) {
            let found = stats.volumes.iter().find(|stats| stats.name == volume.name);
            let found = found.map(|found| FsUsage {
                used_bytes: found.used_bytes,
                inodes_used: found.inodes_used,
            });
            // What is not the pod's own stays when it goes: nobody has to have measured it.
            if found.is_some() || volume.volume_type == VolumeType::EmptyDir {
                add(found)?;
            }
        }
    }
    // A pod of which there is no figure at all was not measured, unless nothing counts.
    (parts > 0 || counted == Counted { rootfs: false, logs: false, volumes: false }).then_some(sum)
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
