//! What the cgroups of one pod use together.

use super::tracked::memory;
use crate::sense::cgroup;
use ebb_policy::Time;
use ebb_policy::snapshot::{
    FsUsage, KernelCounts, LocalLimit, MemoryUsage, ProtectedReason, Workload,
};

/// The cgroups of one pod: what runs (the sandbox with it), and what is on its way out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    pub(super) running: Usage,
    pub(super) terminating: Usage,
}

impl Parts {
    /// What is to be judged of the pod: what was started since something of it was killed, and all of it where nothing was.
    pub(super) fn candidate(self) -> Usage {
        if self.running.has_payload || !self.terminating.has_payload {
            return self.running;
        }
        let (a, b) = (self.terminating, self.running);
        Usage {
            observed_at: a.observed_at.max(b.observed_at),
            memory: plus_memory(a.memory, b.memory),
            processes: plus(a.processes, b.processes),
            kernel_counts: plus_kernel_counts(a.kernel_counts, b.kernel_counts),
            ..a
        }
    }
}

/// What the cgroups of one pod use together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) observed_at: Option<Time>,
    pub(super) memory: Option<MemoryUsage>,
    pub(super) processes: Option<u64>,
    pub(super) kernel_counts: Option<KernelCounts>,
    /// Something runs beside the sandbox.
    pub(super) has_payload: bool,
    /// Why one of its containers must not be killed, if so; the others may be.
    pub(super) protected: Option<ProtectedReason>,
    /// One of its containers may be killed.
    pub(super) has_candidate: bool,
    /// Of a container that is at its own limit.
    pub(super) local_limit: Option<LocalLimit>,
}

impl Usage {
    /// The same with memory that is the pod's and no container's.
    pub(super) fn with(self, rest: Option<&cgroup::Usage>) -> Self {
        let memory = plus_memory(self.memory, rest.map(memory));
        Self { memory, ..self }
    }

    pub(super) fn add(&mut self, workload: &Workload, is_payload: bool) {
        let is_empty = workload.protected == Some(ProtectedReason::NothingRuns);
        if is_payload && !is_empty {
            self.has_payload = true;
            self.protected = self.protected.or(workload.protected);
            self.has_candidate |= workload.protected.is_none();
            if workload.local_limit.is_some_and(|limit| limit.at_limit) {
                self.local_limit = workload.local_limit;
            }
        }
        if let Some(stats) = &workload.stats {
            self.observed_at = self.observed_at.max(stats.observed_at);
            self.processes = plus(self.processes, stats.process_count);
            self.memory = plus_memory(self.memory, stats.memory);
            self.kernel_counts = plus_kernel_counts(self.kernel_counts, stats.kernel_counts);
        }
    }
}

/// The sum of what is known; unknown only when both are.
pub(super) fn plus(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (one, other) => one.or(other),
    }
}

pub(super) fn plus_fs(a: Option<FsUsage>, b: Option<FsUsage>) -> Option<FsUsage> {
    let (Some(x), Some(y)) = (a, b) else { return a.or(b) };
    Some(FsUsage {
        used_bytes: plus(x.used_bytes, y.used_bytes),
        inodes_used: plus(x.inodes_used, y.inodes_used),
    })
}

fn plus_memory(a: Option<MemoryUsage>, b: Option<MemoryUsage>) -> Option<MemoryUsage> {
    let (Some(a), Some(b)) = (a, b) else { return a.or(b) };
    Some(MemoryUsage {
        usage: plus(a.usage, b.usage),
        working_set: plus(a.working_set, b.working_set),
        anon: plus(a.anon, b.anon),
        file: plus(a.file, b.file),
        active_file: plus(a.active_file, b.active_file),
        inactive_file: plus(a.inactive_file, b.inactive_file),
        shmem: plus(a.shmem, b.shmem),
        kernel: plus(a.kernel, b.kernel),
        swap: plus(a.swap, b.swap),
        zswap: plus(a.zswap, b.zswap),
        low: plus(a.low, b.low),
        min: plus(a.min, b.min),
        refaults: plus(a.refaults, b.refaults),
        stall_us: plus(a.stall_us, b.stall_us),
    })
}

pub(super) fn plus_kernel_counts(
    a: Option<KernelCounts>,
    b: Option<KernelCounts>,
) -> Option<KernelCounts> {
    let (Some(a), Some(b)) = (a, b) else { return a.or(b) };
    Some(KernelCounts {
        at: a.at.max(b.at),
        stall_us: plus(a.stall_us, b.stall_us),
        direct_reclaims: plus(a.direct_reclaims, b.direct_reclaims),
        own_reclaims: plus(a.own_reclaims, b.own_reclaims),
    })
}
