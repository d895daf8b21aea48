//! Whom and what a record concerns.

use crate::job::Need;
use crate::record::{Done, Record};
use crate::target::Target;
use ebb_policy::snapshot::WorkloadKey;
use ebb_policy::{Signal, Time};
use std::path::Path;

impl Record {
    /// The signal that it is about, where it is about one.
    #[must_use]
    pub fn signal(&self) -> Option<Signal> {
        match self {
            Record::ThresholdCrossed { signal, .. }
            | Record::PressureRelieved { signal, .. }
            | Record::HookCalled { signal, .. }
            | Record::HookEnded { signal, .. } => Some(*signal),
            Record::EvictionDeferred { signal, .. } => *signal,
            Record::Decided { evict, .. } => evict.iter().find_map(|evict| evict.signal),
            Record::Evicted(Done { job, .. })
            | Record::StepTaken(Done { job, .. })
            | Record::NotDone { job, .. } => job.need.as_ref().and_then(|need| match need {
                Need::MemoryBelow { .. } | Need::MemoryAndSwapBelow { .. } => {
                    Some(Signal::MemoryAvailable)
                }
                Need::SwapBelow { .. } => Some(Signal::SwapAvailable),
                Need::MemoryWithSwapBelow { .. } => Some(Signal::MemoryWithSwapAvailable),
                Need::PidsBelow { .. } => Some(Signal::PidAvailable),
                Need::MemoryPressureAbove { .. } => None,
            }),
            Record::ReflexFired { .. } => Some(Signal::MemoryAvailable),
            _ => None,
        }
    }

    /// The decision that it is, or is a consequence of: when that was made, as `decidedAt` of its plan in the incident record says.
    #[must_use]
    pub fn decision(&self) -> Option<Time> {
        match self {
            Record::Evicted(Done { job, .. })
            | Record::StepTaken(Done { job, .. })
            | Record::NotDone { job, .. } => job.decision,
            Record::Decided { decision, .. }
            | Record::ReflexFired { decision, .. }
            | Record::EvictionTold { decision, .. }
            | Record::Terminated { decision, .. } => *decision,
            _ => None,
        }
    }

    /// The workloads that it concerns.
    #[must_use]
    pub fn workloads(&self) -> Vec<&WorkloadKey> {
        match self {
            Record::Decided { evict, .. } => evict.iter().map(|evict| &evict.workload).collect(),
            Record::Evicted(Done { workload, .. })
            | Record::StepTaken(Done { workload, .. })
            | Record::NotDone { workload, .. } => workload.iter().collect(),
            Record::HookCalled { workload, .. }
            | Record::HookEnded { workload, .. }
            | Record::Warned { workload, .. }
            | Record::ReflexArmed { workload }
            | Record::ReflexFired { workload, .. }
            | Record::Terminated { workload, .. } => vec![workload],
            Record::LocalPressure { workloads, .. } => workloads.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Absolute paths of the cgroups that were acted on, or are under memory pressure.
    #[must_use]
    pub fn cgroups(&self) -> Vec<&Path> {
        match self {
            Record::Evicted(Done { job, .. })
            | Record::StepTaken(Done { job, .. })
            | Record::NotDone { job, .. } => match &job.target {
                Target::Cgroup { path, .. } => vec![path],
                Target::Pod { payloads, .. } => payloads.iter().map(|one| &*one.path).collect(),
                Target::Process { .. } => Vec::new(),
            },
            Record::OomKill { path: Some(path), .. } => vec![Path::new(path)],
            Record::MemoryPressureAboveLimit { cgroup, .. }
            | Record::MemoryPressureRelieved { cgroup, .. } => {
                vec![Path::new(cgroup)]
            }
            _ => Vec::new(),
        }
    }
}
