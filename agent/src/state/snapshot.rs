//! From what is known to values: the node as policy sees it.

use super::targets::EMPTY_FOR;
use super::workloads::{Fate, Measured, add_workloads, tell_unchosen};
use super::{NodeState, tracked};
use crate::clock::Boot;
use crate::sense::node::NodeReading;
use ebb_policy::snapshot::{NodeFacts, Observation, PressureEvidence, ProtectedReason, RootMemory};
use ebb_policy::{Signal, Snapshot};
use std::collections::BTreeMap;
use std::path::Path;

/// How much of what is known a snapshot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Memory, task ids and workloads: what is decided on by the millisecond.
    Quick,
    /// Disk, containers, images and logs too.
    Everything,
}

impl NodeState {
    /// The node as policy sees it.
    #[must_use]
    pub fn snapshot(&self, now: Boot) -> Snapshot {
        self.snapshot_of(now, Extent::Everything)
    }

    /// The node as policy sees it, or a part of it.
    #[must_use]
    pub fn snapshot_of(&self, now: Boot, extent: Extent) -> Snapshot {
        let taken_at = self.clock.time(now);
        let mut snapshot = Snapshot::at(taken_at);
        snapshot.agent_started_at = Some(self.started_at);
        snapshot.oom_kills.clone_from(&self.oom_kills);
        if let Some(reading) = &self.reading {
            self.fill_node(&mut snapshot, reading);
        }
        let observed_at = self.sampled.map_or(taken_at, |at| self.clock.time(at));
        let cgroups = self.cgroups.values().map(|tracked| Measured {
            named: &tracked.named,
            since: tracked.since,
            owner: tracked.owner.as_ref().filter(|owner| self.still_owns(owner)),
            workload: tracked.workload(&self.clock, self.moved.of(tracked.cgroup.id())),
            fate: self.fate(tracked.cgroup.id()),
        });
        if !self.pods.pods_only() {
            let processes = self.processes.iter().filter_map(|process| {
                tracked::process_workload(process, &self.rules, &self.roots, observed_at)
            });
            snapshot.workloads.extend(processes);
        }
        let (storage, rests) = (&self.storage, &self.pod_rests);
        let running =
            add_workloads(&self.pods, storage, &mut snapshot, cgroups, rests, &self.clock);
        if self.rules.chosen().is_some() {
            tell_unchosen(&self.pods, &mut snapshot, |path| self.lives(path));
        }
        if extent == Extent::Everything {
            if self.pods.fill(&mut snapshot) {
                self.storage.fill(&mut snapshot);
            }
            self.disk.fill(&mut snapshot, &self.clock);
            self.filling.fill(&mut snapshot, &self.clock);
        }
        for workload in &mut snapshot.workloads {
            let uid = workload.key.uid.as_deref().filter(|_| workload.key.cgroup.is_none());
            let runs = uid.is_some_and(|uid| running.contains(uid));
            workload.termination = self.terminations.of(workload, runs, &self.clock, now);
            if runs || uid.is_none() {
                let evicted = self.terminations.evicted(&workload.key);
                workload.restarted = evicted.map(|at| self.clock.time(at));
            }
            if self.found_empty.get(&workload.key).is_some_and(|at| now.since(*at) < EMPTY_FOR) {
                workload.protected = workload.protected.or(Some(ProtectedReason::NothingRuns));
            }
            workload.protected =
                workload.protected.or_else(|| self.found_protected(&workload.key, now));
        }
        snapshot
    }

    /// The cgroup above the containers of each pod, by its UID: a path below the mount with a slash before it.
    #[must_use]
    pub fn pod_cgroups(&self) -> BTreeMap<String, String> {
        let mut cgroups = BTreeMap::new();
        for tracked in self.cgroups.values() {
            let Some(owner) = tracked.owner.as_ref().filter(|owner| self.still_owns(owner)) else {
                continue;
            };
            if cgroups.contains_key(&*owner.uid) {
                continue;
            }
            let path = tracked.path.strip_prefix(&self.roots.cgroup).ok();
            if let Some(pod) = path.and_then(Path::parent) {
                cgroups.insert(owner.uid.to_string(), format!("/{}", pod.display()));
            }
        }
        cgroups
    }

    /// What becomes of the cgroup `id`.
    fn fate(&self, id: u64) -> Fate {
        if self.terminations.has(id) {
            Fate::Terminating
        } else if self.terminations.had(id) {
            Fate::Terminated
        } else {
            Fate::Runs
        }
    }

    fn fill_node(&self, snapshot: &mut Snapshot, reading: &NodeReading) {
        let observed_at = Some(self.clock.time(reading.at));
        let memory = &reading.memory;
        snapshot.node = NodeFacts {
            memory_total: Some(memory.total),
            memory_kernel_available: memory.available,
            memory_root: Some(RootMemory {
                anon: memory.anon,
                file: memory.file,
                inactive_file: memory.inactive_file,
                active_file: memory.active_file,
                ..RootMemory::default()
            }),
            memory_observed_at: observed_at,
            swap_total: memory.swap_total,
            swap_free: memory.swap_free,
            swap_in_memory: memory.swap_in_memory(),
            zram: memory.zram,
            ..NodeFacts::default()
        };
        let mut observe = |signal, available: Option<u64>, capacity| {
            if let Some(available) = available {
                snapshot.signals.insert(signal, Observation { available, capacity, observed_at });
            }
        };
        observe(Signal::MemoryAvailable, memory.available_by(self.measure), Some(memory.total));
        observe(Signal::PidAvailable, reading.pids_available(), reading.task_limit);
        snapshot.pressure = Some(PressureEvidence {
            memory_some_us: reading.memory_stall.some_us,
            memory_full_us: reading.memory_stall.full_us,
            io_some_us: reading.io_stall.some_us,
            io_full_us: reading.io_stall.full_us,
            direct_reclaims: self.direct_reclaims,
            kswapd_wakes: self.kswapd_wakes,
        });
    }
}
