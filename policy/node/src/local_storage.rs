//! Limits of local storage: each pod answers for its own, whatever the node's state.
//!
//! Three checks in this order, the first hit decides: each `emptyDir`, the pod as a whole, each container.
use crate::{
    Quantity, Time,
    evict::{self, Grounds},
    limits::Options,
    plan::{Action, EvictionCause, Plan, SkipReason, Skipped, Subject},
    request::storage_limit,
    snapshot::{
        ContainerKind, ContainerSpec, FsLayout, Snapshot, Stats, Termination, VolumeSpec,
        VolumeType, Workload,
    },
    workload::counted_termination,
};
use alloc::{boxed::Box, collections::BTreeMap, format, string::String, vec::Vec};

/// A limit that is exceeded.
struct Excess {
    cause: EvictionCause,
    message: String,
    metric: &'static str,
}

/// Ends every pod that is over one of its limits. Returns whether there was one.
pub(crate) fn enforce(
    snapshot: &Snapshot,
    active: &[&Workload],
    layout: Option<FsLayout>,
    options: &Options,
    plan: &mut Plan,
) -> bool {
    let layer_counts = match layout {
        None => false,
        Some(layout) => {
            !(layout.has_image_fs() && options.quirks.writable_layer_unlimited_on_image_fs)
        }
    };
    let mut violators: Vec<(&Workload, Excess)> = active
        .iter()
        .filter_map(|workload| {
            Some((*workload, excess(workload, workload.stats.as_ref()?, layer_counts)?))
        })
        .collect();
    violators.sort_by(|a, b| a.0.key.cmp(&b.0.key));
    let mut ended = false;
    for (workload, excess) in violators {
        let terminating = || {
            let dying = counted_termination(workload, options).filter(Termination::is_whole);
            dying.map(|dying| SkipReason::Terminating { until: dying.deadline })
        };
        if let Some(reason) = workload.never_ended().or_else(terminating) {
            let subject = Subject::Workload { workload: workload.key.clone() };
            plan.skipped.push(Skipped { subject, reason });
            continue;
        }
        ended = true;
        plan.actions.push(Action::Evict(Box::new(end(workload, excess, snapshot.taken_at))));
    }
    ended
}

fn end(workload: &Workload, excess: Excess, now: Time) -> crate::plan::Evict {
    let grounds = Grounds {
        cause: excess.cause,
        grace: evict::IMMEDIATE,
        at_once: false,
        message: excess.message,
        annotations: BTreeMap::new(),
        metric: excess.metric.into(),
        threshold: None,
        memory_pressure: None,
        expected_free: None,
        why: Vec::new(),
    };
    evict::evict(workload, grounds, now)
}

fn excess(workload: &Workload, stats: &Stats, layer_counts: bool) -> Option<Excess> {
    let is_limited = |container: &ContainerSpec| container.limits.ephemeral_storage.is_some();
    empty_dir(workload, stats).or_else(|| {
        // Few pods have a limit.
        if !workload.containers.iter().any(is_limited) {
            return None;
        }
        whole_pod(workload, stats).or_else(|| container(workload, stats, layer_counts))
    })
}

fn empty_dir(workload: &Workload, stats: &Stats) -> Option<Excess> {
    let over = |volume: &&VolumeSpec| {
        let used = stats.volumes.iter().find(|stats| stats.name == volume.name)?.used_bytes?;
        let limit = volume.size_limit.filter(|limit| limit.is_positive())?;
        (Quantity::bytes(used) > limit).then_some(limit)
    };
    let volumes =
        workload.volumes.iter().filter(|volume| volume.volume_type == VolumeType::EmptyDir);
    let (volume, limit) = volumes
        .filter_map(|volume| Some((volume, over(&volume)?)))
        .min_by(|a, b| a.0.name.cmp(&b.0.name))?;
    Some(Excess {
        cause: EvictionCause::EmptyDirLimit,
        message: format!(
            "Usage of EmptyDir volume {:?} exceeds the limit \"{limit}\". ",
            volume.name
        ),
        metric: "emptydirfs.limit",
    })
}

fn whole_pod(workload: &Workload, stats: &Stats) -> Option<Excess> {
    let limit = storage_limit(workload)?;
    let used = Quantity::bytes(stats.ephemeral_storage.unwrap_or_default());
    (used > limit).then(|| Excess {
        cause: EvictionCause::PodStorageLimit,
        message: format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
        ),
        metric: "ephemeralpodfs.limit",
    })
}

fn container(workload: &Workload, stats: &Stats, layer_counts: bool) -> Option<Excess> {
    let over = |name: &str, used: u64| {
        let regular = |c: &&ContainerSpec| c.kind == ContainerKind::Regular && c.name == name;
        let limit = workload.containers.iter().find(regular)?.limits.ephemeral_storage?;
        (!limit.is_zero() && limit < Quantity::bytes(used)).then_some(limit)
    };
    let (name, limit) = stats
        .containers
        .iter()
        .filter_map(|container| {
            let logs = container.logs.and_then(|logs| logs.used_bytes).unwrap_or_default();
            let layer = container.rootfs.and_then(|rootfs| rootfs.used_bytes).unwrap_or_default();
            let used = if layer_counts { logs.saturating_add(layer) } else { logs };
            Some((container.name.as_str(), over(&container.name, used)?))
        })
        .min_by(|a, b| a.0.cmp(b.0))?;
    Some(Excess {
        cause: EvictionCause::ContainerStorageLimit,
        message: format!(
            "Container {name} exceeded its local ephemeral storage limit \"{limit}\". "
        ),
        metric: "ephemeralcontainerfs.limit",
    })
}
