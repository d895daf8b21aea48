//! From the pods of the book, what was measured of their cgroups and what they take up on disk, to workloads as policy sees them.

use super::pod_rest::PodRests;
use super::pod_usage::{Parts, Usage, plus_fs};
use super::storage::PodStorage;
use crate::clock::{Boot, Clock};
use crate::pods::{Owner, PodBook, PodEntry, Standing, Unowned};
use crate::sense::pod_dirs::Figure;
use ebb_policy::snapshot::{
    ContainerState, ContainerStats, FsUsage, ProtectedReason, Stats, VolumeStats, Workload,
};
use ebb_policy::{Snapshot, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// A cgroup that is followed as a workload.
#[derive(Debug)]
pub(super) struct Measured<'a> {
    /// The leading part of its path below the mount which the administrator named.
    pub(super) named: &'a Path,
    /// When it was first read, or was last known to belong to a pod.
    pub(super) since: Boot,
    /// The pod that it belongs to, where the runtime has told of one.
    pub(super) owner: Option<&'a Owner>,
    /// What was read of it.
    pub(super) workload: Workload,
    /// What becomes of it.
    pub(super) fate: Fate,
}

/// What becomes of a cgroup that is followed as a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nobody has ended it here.
    Runs,
    /// It is on its way out, or would be but for the dry run.
    Terminating,
    /// It was killed here, and nothing runs in it any more.
    Terminated,
}

/// Makes workloads of the pods and of the cgroups that belong to none; returns the UIDs of pods of which something runs that is not on its way out.
pub(super) fn add_workloads<'a>(
    book: &PodBook,
    storage: &PodStorage,
    snapshot: &mut Snapshot,
    cgroups: impl Iterator<Item = Measured<'a>>,
    rests: &PodRests,
    clock: &Clock,
) -> BTreeSet<Arc<str>> {
    let mut usage: BTreeMap<Arc<str>, Parts> = BTreeMap::new();
    for cgroup in cgroups {
        if let Some(Owner { uid, is_payload, .. }) = cgroup.owner {
            let parts = usage.entry(Arc::clone(uid)).or_default();
            match cgroup.fate {
                Fate::Runs => parts.running.add(&cgroup.workload, *is_payload),
                Fate::Terminating => parts.terminating.add(&cgroup.workload, *is_payload),
                Fate::Terminated => {}
            }
            continue;
        }
        let mut workload = cgroup.workload;
        let is_of_a_pod = workload.key.uid.is_some();
        let unowned = Unowned { named: cgroup.named, is_of_a_pod, since: cgroup.since };
        match book.standing(unowned) {
            Standing::Workload => {}
            Standing::Unlisted => {
                workload.protected = workload.protected.or(Some(ProtectedReason::Unlisted));
            }
            Standing::NoWorkload => continue,
        }
        snapshot.workloads.push(workload);
    }
    let running = usage.iter().filter(|(_, parts)| parts.running.has_payload);
    let running = running.map(|(uid, _)| Arc::clone(uid)).collect();
    let with_rest = |(uid, parts): (Arc<str>, Parts)| {
        let usage = parts.candidate().with(rests.of(&uid));
        (uid, usage)
    };
    let usage: BTreeMap<Arc<str>, Usage> = usage.into_iter().map(with_rest).collect();
    for entry in book.pods() {
        let mut workload = entry.workload.clone();
        let of = workload.key.uid.as_deref().and_then(|uid| usage.get(uid));
        workload.stats = stats(book, storage, entry, of, snapshot.taken_at, clock);
        storage.add_volumes(&mut workload);
        let runs = of.filter(|usage| usage.has_payload);
        let is_unknown = book.awaits_descriptions() && !entry.is_described;
        let own = workload.protected;
        let own = own.or(is_unknown.then_some(ProtectedReason::Undescribed));
        workload.protected = match runs {
            Some(usage) => usage.protected.filter(|_| !usage.has_candidate).or(own),
            None => Some(ProtectedReason::NothingRuns),
        };
        workload.local_limit = of.and_then(|usage| usage.local_limit);
        snapshot.workloads.push(workload);
    }
    running
}

/// Says of pods of which something lives that the operator's own list of workloads leaves them out, rather than that nothing of them runs. `lives` tells it of a cgroup by its path below the mount.
pub(super) fn tell_unchosen(
    book: &PodBook,
    snapshot: &mut Snapshot,
    lives: impl Fn(&Path) -> bool,
) {
    let spared = snapshot.workloads.iter_mut();
    for pod in spared.filter(|w| w.protected == Some(ProtectedReason::NothingRuns)) {
        let Some(uid) = pod.key.uid.as_deref() else { continue };
        let mut cgroups = book.containers(uid).filter_map(|seen| seen.cgroup.as_deref());
        if cgroups.any(&lives) {
            pod.protected = Some(ProtectedReason::Configured);
        }
    }
}

fn stats(
    book: &PodBook,
    storage: &PodStorage,
    entry: &PodEntry,
    cgroups: Option<&Usage>,
    now: Time,
    clock: &Clock,
) -> Option<Stats> {
    let disk = storage.usage();
    let own = disk.and_then(|disk| disk.pods.get(entry.workload.key.uid.as_deref()?));
    let mut each: Vec<ContainerStats> = Vec::new();
    let mut oldest: Option<Boot> = None;
    let mut take = |figure: Option<&Figure>| {
        let figure = figure?;
        // Of what is not known as a whole the last measure lies before any crossing.
        let at = if figure.is_whole { figure.at } else { Boot(0) };
        oldest = Some(oldest.map_or(at, |oldest| oldest.min(at)));
        Some(figure.usage)
    };
    for seen in book.containers_of(entry) {
        let layer = take(disk.and_then(|disk| disk.layers.get(&seen.container.id)));
        // The runtime measures what runs: of a name of which nothing runs there is nothing to wait for.
        if layer.is_none() && seen.container.state == ContainerState::Exited {
            continue;
        }
        let stats = match each.iter_mut().find(|stats| stats.name == seen.container.name) {
            Some(stats) => stats,
            None => {
                let name = seen.container.name.clone();
                let logs = take(own.and_then(|own| own.logs.get(&name)));
                each.push(ContainerStats { name, logs, ..ContainerStats::default() });
                each.last_mut()?
            }
        };
        stats.rootfs = plus_fs(stats.rootfs, layer);
    }
    let disk_known = own.is_some() || each.iter().any(|c| c.rootfs.is_some());
    if cgroups.is_none() && !disk_known {
        return None;
    }
    let volumes = own.iter().flat_map(|own| &own.volumes);
    let volumes: Vec<VolumeStats> = volumes
        .filter_map(|(name, figure)| {
            let FsUsage { used_bytes, inodes_used } = take(Some(figure))?;
            Some(VolumeStats { name: name.clone(), used_bytes, inodes_used })
        })
        .collect();
    let parts = each.iter().flat_map(|c| [c.rootfs, c.logs]).flatten();
    let bytes = parts.filter_map(|fs| fs.used_bytes);
    let bytes = bytes.chain(volumes.iter().filter_map(|volume| volume.used_bytes));
    Some(Stats {
        observed_at: cgroups.and_then(|usage| usage.observed_at).or(Some(now)),
        memory: cgroups.and_then(|usage| usage.memory),
        kernel_counts: cgroups.and_then(|usage| usage.kernel_counts),
        process_count: cgroups.and_then(|usage| usage.processes),
        ephemeral_storage: disk_known.then(|| bytes.fold(0, u64::saturating_add)),
        containers: each,
        volumes,
        disk_observed_at: oldest.map(|at| clock.time(at)),
        disk_growth: None,
    })
}

#[cfg(test)]
mod tests;
