//! What one screen is drawn from: how the node stands and which workloads there are, at one moment, wherever that comes from.
//!
//! An agent's answers become one here; a recorded decision becomes one in [`super::replay`]. What nobody told is `None`.

use crate::status::mode;
use crate::workloads::{Line, Standing};
use ebb_api::wire::{
    self, GetNodeResponse, ListWorkloadsResponse, MemoryPressure, Threshold, ThresholdState,
};
use ebb_policy::snapshot::{CgroupId, ProcessId, WorkloadKey, WorkloadKind};

/// The node at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Picture {
    pub(super) version: String,
    /// Whether ebb acts, in words.
    pub(super) mode: &'static str,
    /// The moment: milliseconds since the Unix epoch.
    pub(super) at: Option<u64>,
    /// When the node was last looked at.
    pub(super) looked_at: Option<u64>,
    /// Workloads that there are, told of or not.
    pub(super) workload_count: Option<u32>,
    pub(super) incidents: Vec<String>,
    pub(super) thresholds: Vec<Threshold>,
    pub(super) pressures: Vec<MemoryPressure>,
    pub(super) workloads: Vec<Line>,
    /// When the workloads were read.
    pub(super) seen_at: Option<u64>,
    /// Workloads that are not among `workloads`.
    pub(super) left_out: u32,
    /// The signal that they are ranked for.
    pub(super) ranked_for: String,
    /// Why there are no workloads, if nobody told of them.
    pub(super) untold: Option<&'static str>,
    /// Whom this decision evicts, where it is one.
    pub(super) decision: Option<String>,
}

impl Picture {
    /// What an agent answered; without workloads where it is older than the call for them.
    pub(super) fn of(node: GetNodeResponse, workloads: Option<ListWorkloadsResponse>) -> Self {
        let mode = mode(node.mode());
        let untold = match &workloads {
            Some(_) => None,
            None => Some("this agent is older than `ebb top` and does not list its workloads"),
        };
        let workloads = workloads.unwrap_or_default();
        Self {
            version: node.version,
            mode,
            at: Some(node.answered_at_ms),
            looked_at: Some(node.looked_at_ms),
            workload_count: Some(node.workloads),
            incidents: node.incidents,
            thresholds: node.thresholds,
            pressures: node.memory_pressure,
            workloads: workloads.workloads.into_iter().map(line).collect(),
            seen_at: workloads.seen_at_ms,
            left_out: workloads.left_out,
            ranked_for: workloads.signal,
            untold,
            decision: None,
        }
    }

    /// The thresholds that can ever be met.
    pub(super) fn thresholds(&self) -> impl Iterator<Item = &Threshold> {
        self.thresholds.iter().filter(|threshold| threshold.state() != ThresholdState::Inert)
    }

    /// Who would be evicted first, and why.
    pub(super) fn first(&self) -> Option<&Line> {
        self.workloads.iter().find(|line| line.place == Some(1))
    }
}

/// A workload as the protocol has it.
fn line(told: wire::Workload) -> Line {
    let standing = match told.standing() {
        wire::Standing::Candidate => Standing::Candidate,
        wire::Standing::Protected => Standing::Protected,
        wire::Standing::Spared => Standing::Spared,
        wire::Standing::Terminating => Standing::Terminating,
        wire::Standing::DryRunVictim => Standing::DryRunVictim,
        wire::Standing::Finished => Standing::Finished,
        wire::Standing::Unspecified => Standing::Unknown,
    };
    let kind = match told.kind() {
        wire::WorkloadKind::Cgroup | wire::WorkloadKind::Unspecified => WorkloadKind::Cgroup,
        wire::WorkloadKind::Pod => WorkloadKind::Pod,
        wire::WorkloadKind::Process => WorkloadKind::Process,
    };
    // When a process was started is not told: the pid is all there is of it.
    let process = told.pid.map(|pid| ProcessId { pid, start_time: 0 });
    Line {
        key: WorkloadKey {
            name: told.name,
            uid: told.pod_uid,
            cgroup: told.cgroup_id.map(CgroupId),
            process,
        },
        kind,
        cgroup: told.cgroup,
        memory: told.memory,
        growth: told.growth,
        stall: told.stall,
        priority: told.priority,
        standing,
        place: told.place,
        reason: told.reason,
        keys: told.keys,
    }
}
