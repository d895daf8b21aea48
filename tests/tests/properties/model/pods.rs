//! What a pod asks for, uses and may be evicted for, as the kubelet's rules say it.
use ebb_policy::snapshot::{
    ContainerKind, FsLayout, FsUsage, Phase, ResourceList, State, VolumeType, Workload,
};
use ebb_policy::{Quantity, Signal, Time};
use std::cmp::Ordering;

pub(super) fn is_critical(is_static: bool, mirror: bool, priority: Option<i32>) -> bool {
    is_static || mirror || priority.is_some_and(|priority| priority >= 2_000_000_000)
}

pub(super) fn is_active(pod: &Workload) -> bool {
    match pod.state {
        State::Terminated { .. } => false,
        State::Terminating { .. } => true,
        State::Active => !matches!(pod.phase, Phase::Succeeded | Phase::Failed),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Cpu,
    Memory,
    Storage,
}

fn of(list: &ResourceList, what: Asked) -> Option<Quantity> {
    match what {
        Asked::Cpu => list.cpu,
        Asked::Memory => list.memory,
        Asked::Storage => list.ephemeral_storage,
    }
}

/// Billionths: Σ regular containers and sidecars, or an init container beside the sidecars before it, whichever is more.
fn of_containers(pod: &Workload, amount: impl Fn(usize) -> Option<Quantity>) -> Option<i128> {
    let mut running: Option<i128> = None;
    let mut sidecars = 0;
    let mut peak: Option<i128> = None;
    for (place, container) in pod.containers.iter().enumerate() {
        let mine = amount(place).map(Quantity::nanos);
        match container.kind {
            ContainerKind::Ephemeral => {}
            ContainerKind::Regular => {
                running = mine.map_or(running, |mine| Some(running.unwrap_or(0) + mine));
            }
            ContainerKind::Sidecar => {
                running = mine.map_or(running, |mine| Some(running.unwrap_or(0) + mine));
                sidecars += mine.unwrap_or(0);
            }
            ContainerKind::Init => {
                peak = mine.map_or(peak, |mine| peak.max(Some(mine + sidecars)));
            }
        }
    }
    running.max(peak)
}

/// What it asks for, in billionths.
pub(super) fn request(pod: &Workload, what: Asked) -> i128 {
    let whole = pod.pod_resources.as_ref().filter(|pod| {
        let lists = [&pod.requests, &pod.limits];
        lists.iter().any(|list| list.cpu.is_some() || list.memory.is_some())
    });
    let request = match whole {
        Some(_) if what == Asked::Storage => 0,
        Some(whole) => of(&whole.requests, what).map_or(0, Quantity::nanos),
        None => of_containers(pod, |n| of(&pod.containers[n].requests, what)).unwrap_or(0),
    };
    if request == 0 { 0 } else { request + overhead(pod, what) }
}

fn overhead(pod: &Workload, what: Asked) -> i128 {
    pod.overhead.as_ref().and_then(|list| of(list, what)).map_or(0, Quantity::nanos)
}

const ONE: i128 = 1_000_000_000;

/// What it uses of a signal's resource; nothing for a figure that is missing.
fn usage(pod: &Workload, signal: Signal, layout: FsLayout) -> Option<i128> {
    let stats = pod.stats.as_ref()?;
    let is_bytes = !matches!(
        signal,
        Signal::NodeFsInodesFree | Signal::ImageFsInodesFree | Signal::ContainerFsInodesFree
    );
    let amount = |usage: Option<FsUsage>| {
        let usage = usage.unwrap_or_default();
        i128::from(if is_bytes { usage.used_bytes } else { usage.inodes_used }.unwrap_or(0))
    };
    let rootfs: i128 = stats.containers.iter().map(|c| amount(c.rootfs)).sum();
    let logs: i128 = stats.containers.iter().map(|c| amount(c.logs)).sum();
    let is_local = |name: &str| {
        pod.volumes.iter().any(|volume| {
            volume.name == name
                && match volume.volume_type {
                    VolumeType::EmptyDir => volume.medium.is_none(),
                    VolumeType::HostPath | VolumeType::GitRepo | VolumeType::ConfigMap => true,
                    _ => false,
                }
        })
    };
    let volumes: i128 = stats
        .volumes
        .iter()
        .filter(|volume| is_local(&volume.name))
        .map(|v| amount(Some(FsUsage { used_bytes: v.used_bytes, inodes_used: v.inodes_used })))
        .sum();
    let everything = rootfs + logs + volumes;
    Some(match (signal, layout) {
        (Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable, _) => {
            i128::from(stats.memory.and_then(|memory| memory.working_set).unwrap_or(0))
        }
        (Signal::PidAvailable, _) => i128::from(stats.process_count.unwrap_or(0)),
        (_, FsLayout::Single) => everything,
        (Signal::NodeFsAvailable | Signal::NodeFsInodesFree, FsLayout::DedicatedImageFs) => {
            logs + volumes
        }
        (_, FsLayout::DedicatedImageFs) => rootfs,
        (Signal::ImageFsAvailable | Signal::ImageFsInodesFree, FsLayout::SplitImageFs) => 0,
        (_, FsLayout::SplitImageFs) => everything,
    })
}

/// Who of two goes first.
pub(super) fn first(a: &Workload, b: &Workload, signal: Signal, layout: FsLayout) -> Ordering {
    let priority = a.priority.unwrap_or(0).cmp(&b.priority.unwrap_or(0));
    let (x, y) = (usage(a, signal, layout), usage(b, signal, layout));
    let (exceeds, most) = match (x, y) {
        (Some(x), Some(y)) => {
            let (compared, subtracted) = match signal {
                Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable => {
                    (Some(Asked::Memory), Some(Asked::Memory))
                }
                Signal::PidAvailable => (None, None),
                Signal::NodeFsAvailable
                | Signal::ImageFsAvailable
                | Signal::ContainerFsAvailable => (Some(Asked::Storage), Some(Asked::Storage)),
                // The quirk: inodes less bytes.
                _ => (None, Some(Asked::Storage)),
            };
            let asked = |pod, what: Option<Asked>| what.map_or(0, |what| request(pod, what));
            let over = |used: i128, pod| used * ONE > asked(pod, compared);
            let above = |used: i128, pod| used * ONE - asked(pod, subtracted);
            (over(y, b).cmp(&over(x, a)), above(y, b).cmp(&above(x, a)))
        }
        (None, None) => (Ordering::Equal, Ordering::Equal),
        (None, Some(_)) => (Ordering::Less, Ordering::Less),
        (Some(_), None) => (Ordering::Greater, Ordering::Greater),
    };
    let keys = if signal == Signal::PidAvailable {
        priority.then(most)
    } else {
        exceeds.then(priority).then(most)
    };
    keys.then_with(|| a.key.name.cmp(&b.key.name))
}

/// Which of its own limits of local storage it exceeds first.
pub(super) fn over_its_limit(pod: &Workload, layout: FsLayout) -> Option<&'static str> {
    let stats = pod.stats.as_ref()?;
    for volume in pod.volumes.iter().filter(|v| v.volume_type == VolumeType::EmptyDir) {
        let used = stats.volumes.iter().find(|s| s.name == volume.name).and_then(|s| s.used_bytes);
        if let (Some(used), Some(limit)) = (used, volume.size_limit)
            && limit.nanos() > 0
            && i128::from(used) * ONE > limit.nanos()
        {
            return Some("emptyDir");
        }
    }
    if let Some(limit) = of_containers(pod, |n| pod.containers[n].limits.ephemeral_storage) {
        let limit = if limit == 0 { 0 } else { limit + overhead(pod, Asked::Storage) };
        if i128::from(stats.ephemeral_storage.unwrap_or(0)) * ONE > limit {
            return Some("pod");
        }
    }
    for container in pod.containers.iter().filter(|c| c.kind == ContainerKind::Regular) {
        let Some(limit) = container.limits.ephemeral_storage.filter(|l| l.nanos() != 0) else {
            continue;
        };
        let Some(stats) = stats.containers.iter().find(|s| s.name == container.name) else {
            continue;
        };
        let bytes = |usage: Option<FsUsage>| usage.and_then(|u| u.used_bytes).unwrap_or(0);
        let layer = if layout == FsLayout::Single { bytes(stats.rootfs) } else { 0 };
        if i128::from(bytes(stats.logs) + layer) * ONE > limit.nanos() {
            return Some("container");
        }
    }
    None
}

/// Seconds that it gets: at least one, and never more than a termination that is under way has.
pub(super) fn grace(pod: &Workload, asked: u64, now: Time) -> u64 {
    let ongoing = match pod.state {
        State::Terminating { since, deadline: Some(deadline) } => {
            deadline.since(since.unwrap_or(now)).0.div_ceil(1_000)
        }
        _ => u64::MAX,
    };
    asked.min(ongoing).max(1)
}
