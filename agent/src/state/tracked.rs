//! One workload as the agent follows it: a cgroup held open, with what was last read of it.

use super::pods::Owner;
use super::rules::Rules;
use crate::clock::{Boot, Clock};
use crate::sense::Roots;
use crate::sense::cgroup::{Cgroup, Usage};
use crate::sense::process::{Guardian, Process, oom_score_adj};
use crate::sense::psi::Stall;
use crate::sense::tree::{Node, Tree};
use ebb_policy::snapshot::{
    CgroupId, Counted, LocalLimit, MemoryUsage, Preference, ProcessId, ProtectedReason, Stats,
    Workload, WorkloadKey, WorkloadKind,
};
use ebb_policy::{Quantity, Time};
use ebb_probes::Swept;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// Processes looked at to learn what part a cgroup plays: the first ones made the others.
const ASKED_AT_MOST: usize = 4;

/// Reclaim keeps usage a little below the limit itself: within one part in this many counts as being at it.
const NEAR_LIMIT: u64 = 32;

/// A cgroup that is a workload.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) cgroup: Cgroup,
    /// Absolute path, for opening it again by identity.
    pub(super) path: PathBuf,
    /// When it was first read, or was last known to belong to a pod.
    pub(super) since: Boot,
    pub(super) key: WorkloadKey,
    protected: Option<ProtectedReason>,
    preference: Preference,
    priority: Option<i32>,
    /// What was read last, and when.
    last: Option<(Boot, Usage)>,
    /// What programs in the kernel counted of it and of all below it.
    pub(super) counted: Option<Counted>,
    /// The pod that it belongs to, if it does.
    pub(super) owner: Option<Owner>,
    /// `max` of `memory.events` went up between the last two readings.
    ran_into_limit: bool,
}

impl Tracked {
    /// Takes hold of the cgroup `id`; `None` when it is gone already.
    pub(super) fn new(
        id: u64,
        node: &Node,
        tree: &Tree,
        rules: &Rules,
        roots: &Roots,
    ) -> Option<Self> {
        let path = tree.root().join(&node.path);
        let cgroup = Cgroup::open(&path, id).ok()?;
        let key = WorkloadKey {
            name: format!("/{}", node.path.display()),
            uid: node.pod_uid(),
            cgroup: Some(CgroupId(id)),
            process: None,
        };
        let protected = rules
            .protected(&node.path)
            .or_else(|| is_marked(&path, "user.oomd_omit").then_some(ProtectedReason::Configured))
            .or_else(|| part_played(&cgroup, roots));
        let preference = match rules.preference(&node.path) {
            Preference::Neutral if is_marked(&path, "user.oomd_avoid") => Preference::Avoid,
            told => told,
        };
        Some(Self {
            cgroup,
            key,
            protected,
            preference,
            priority: rules.priority(&node.path),
            path,
            since: Boot::now(),
            last: None,
            counted: None,
            owner: None,
            ran_into_limit: false,
        })
    }

    /// Whether the cgroup's own name still leads to it.
    pub(super) fn is_there(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|dir| dir.ino() == self.cgroup.id())
    }

    /// Usage in bytes as last read.
    pub(super) fn current(&self) -> Option<u64> {
        self.last.as_ref()?.1.current
    }

    /// Reads everything there is to know.
    pub(super) fn read(&mut self, buffer: &mut Vec<u8>) {
        let usage = self.cgroup.read_usage(buffer);
        let before = self.last.as_ref().and_then(|(_, u)| u.max_events);
        self.ran_into_limit = match (before, usage.max_events) {
            (Some(before), Some(now)) => now > before,
            _ => false,
        };
        self.last = Some((Boot::now(), usage));
    }

    /// Takes over what a sweep told of it, and reads what a ranking needs beside that; of its stall nothing is known then.
    pub(super) fn take(&mut self, swept: &Swept, buffer: &mut Vec<u8>) {
        let before = self.last.map(|(_, usage)| usage);
        let mut usage = before.unwrap_or_default();
        usage.take(swept);
        if swept.anon.is_none() {
            self.cgroup.read_stat(&mut usage, buffer);
        }
        usage.stall = Stall::default();
        let before = before.and_then(|usage| usage.max_events);
        self.ran_into_limit = before.zip(usage.max_events).is_some_and(|(a, b)| b > a);
        self.last = Some((Boot::now(), usage));
    }

    /// Reads what changes by the millisecond; the rest stays as it was read before.
    pub(super) fn read_memory(&mut self, buffer: &mut Vec<u8>) {
        let mut usage = self.last.map(|(_, usage)| usage).unwrap_or_default();
        self.cgroup.read_memory(&mut usage, buffer);
        self.last = Some((Boot::now(), usage));
    }

    /// Reads `memory.current` alone.
    pub(super) fn read_current(&mut self, buffer: &mut Vec<u8>) {
        let mut usage = self.last.map(|(_, usage)| usage).unwrap_or_default();
        usage.current = self.cgroup.read_current(buffer);
        self.last = Some((Boot::now(), usage));
    }

    /// The workload as policy sees it.
    pub(super) fn workload(&self, clock: &Clock) -> Workload {
        Workload {
            key: self.key.clone(),
            kind: WorkloadKind::Cgroup,
            priority: self.priority,
            protected: self.protected,
            preference: self.preference,
            stats: self.last.as_ref().and_then(|(at, usage)| {
                let stats = stats(usage, clock.time(*at))?;
                Some(Stats { counted: self.counted, ..stats })
            }),
            local_limit: self.last.as_ref().map(|(_, usage)| self.local_limit(usage)),
            can_reclaim: true,
            // Whether its tmpfs and shared memory outlive it cannot be told from its counters. To believe that they do
            // would end another workload beside it; should they, it is chosen once this one is gone.
            shared_memory: None,
            memory_request: self.last.as_ref().and_then(|(_, u)| protected_memory(u)),
            ..Workload::default()
        }
    }

    fn local_limit(&self, usage: &Usage) -> LocalLimit {
        let max = usage.max.flatten();
        let is_full = match (usage.current, max) {
            (Some(current), Some(max)) => current >= max - max / NEAR_LIMIT,
            _ => false,
        };
        LocalLimit { max, high: usage.high.flatten(), at_limit: self.ran_into_limit || is_full }
    }
}

/// What the cgroup protects for itself stands for a request: the larger of `memory.min` and `memory.low`.
fn protected_memory(usage: &Usage) -> Option<Quantity> {
    usage.min.max(usage.low).map(Quantity::bytes)
}

/// A workload of which not even `memory.current` could be read has no statistics.
fn stats(usage: &Usage, observed_at: Time) -> Option<Stats> {
    usage.current?;
    let memory = MemoryUsage {
        usage: usage.current,
        working_set: None,
        anon: usage.anon,
        file: usage.file,
        active_file: usage.active_file,
        inactive_file: usage.inactive_file,
        shmem: usage.shmem,
        kernel: usage.kernel,
        swap: usage.swap,
        low: usage.low,
        min: usage.min,
        refaults: usage.refaults,
        stall_us: usage.stall.some_us,
    };
    Some(Stats {
        observed_at: Some(observed_at),
        memory: Some(memory),
        process_count: usage.pids,
        ..Stats::default()
    })
}

/// Whether systemd has written down this wish of a unit (`ManagedOOMPreference=`) on its cgroup.
fn is_marked(path: &std::path::Path, attribute: &str) -> bool {
    xattr::get(path, attribute).is_ok_and(|value| value.as_deref() == Some(b"1"))
}

/// What the first processes of a cgroup say about ending it.
fn part_played(cgroup: &Cgroup, roots: &Roots) -> Option<ProtectedReason> {
    cgroup.processes(ASKED_AT_MOST).into_iter().find_map(|pid| {
        if u32::try_from(pid) == Ok(std::process::id()) {
            return Some(ProtectedReason::Agent);
        }
        let process = Process::read(&roots.proc, pid)?;
        process_protection(&process, roots)
    })
}

fn process_protection(process: &Process, roots: &Roots) -> Option<ProtectedReason> {
    if process.id.pid == 1 {
        return Some(ProtectedReason::Init);
    }
    if process.is_kernel_thread() {
        return Some(ProtectedReason::KernelThread);
    }
    if u32::try_from(process.id.pid) == Ok(std::process::id()) {
        return Some(ProtectedReason::Agent);
    }
    match Guardian::of(process, &roots.proc) {
        Some(Guardian::Runtime) => Some(ProtectedReason::Runtime),
        Some(Guardian::Kubelet) => Some(ProtectedReason::Kubelet),
        None => (oom_score_adj(&roots.proc, process.id.pid) == Some(-1000))
            .then_some(ProtectedReason::OomScoreAdj),
    }
}

/// A process as a workload, on hosts where cgroups cannot tell who uses memory.
pub(super) fn process_workload(
    process: &Process,
    rules: &Rules,
    roots: &Roots,
    observed_at: Time,
) -> Option<Workload> {
    let name = std::path::Path::new(&process.comm);
    let memory = MemoryUsage {
        usage: Some(process.rss),
        working_set: Some(process.rss),
        ..MemoryUsage::default()
    };
    Some(Workload {
        key: WorkloadKey {
            name: process.comm.clone(),
            process: Some(ProcessId {
                pid: u32::try_from(process.id.pid).ok()?,
                start_time: process.id.start,
            }),
            ..WorkloadKey::default()
        },
        kind: WorkloadKind::Process,
        priority: rules.priority(name),
        protected: rules.protected(name).or_else(|| process_protection(process, roots)),
        preference: rules.preference(name),
        stats: Some(Stats {
            observed_at: Some(observed_at),
            memory: Some(memory),
            process_count: Some(process.threads),
            ..Stats::default()
        }),
        ..Workload::default()
    })
}
