//! Why a job was not done, and above all why a target is not touched.

use ebb_policy::StallShare;
use ebb_policy::snapshot::ProtectedReason;
use std::io;

/// Why a job was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDone {
    /// The target is not to be touched.
    #[error("not touched: {0}")]
    Refused(#[from] Refusal),
    /// The pressure had gone.
    #[error("not needed any more: {available} available, threshold {threshold}")]
    NotNeeded {
        /// What was available, in the need's unit.
        available: u64,
        /// What the need asked for.
        threshold: u64,
    },
    /// The memory pressure of the cgroup had gone.
    #[error("not needed any more: memory pressure of {cgroup} is {full_avg10}, its limit {limit}")]
    PressureGone {
        /// The cgroup.
        cgroup: String,
        /// Its `full avg10`.
        full_avg10: StallShare,
        /// The limit of it.
        limit: StallShare,
    },
    /// Whether the need exists could not be told, and unknown is no reason to kill.
    #[error("cannot tell whether it is still needed: {why}")]
    UnknownNeed {
        /// What the kernel said, or what it did not.
        why: String,
    },
    /// The thread that was to do it hangs. What comes after it is done by another.
    #[error("the thread that was to do it hangs")]
    Hung,
    /// The kernel refused.
    #[error("the kernel refused: {why}")]
    Failed {
        /// What it said.
        why: String,
    },
    /// As many jobs as may wait for the thread that does them were waiting already.
    #[error("the worker has not kept up")]
    Behind,
}

impl NotDone {
    /// Whether it is still needed cannot be told, because of `error`.
    #[must_use]
    pub fn unknown_need(error: &io::Error) -> Self {
        Self::UnknownNeed { why: error.to_string() }
    }

    /// The kernel refused with `error`.
    #[must_use]
    pub fn failed(error: &io::Error) -> Self {
        Self::Failed { why: error.to_string() }
    }
}

/// Why a target is not touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It has ended, or its name belongs to another cgroup or process by now.
    #[error("it is gone")]
    Gone,
    /// Whatever is left in it is exiting: its memory is being freed.
    #[error("all of it is exiting")]
    Exiting,
    /// It holds a process that must not die.
    #[error("it holds process {pid}, which is protected: {}", protection(*because))]
    Protected {
        /// The process.
        pid: i32,
        /// What protects it.
        because: ProtectedReason,
        /// The cgroup, among those of the target, that it was found in; `None` for a target that is a process.
        cgroup: Option<u64>,
    },
    /// Something lives in it, and not everybody who does can be asked whether it is protected.
    #[error("its processes cannot be read: {error}")]
    Unreadable {
        /// What went wrong.
        error: String,
    },
}

impl Refusal {
    /// Its processes cannot be read, because of `error`.
    #[must_use]
    pub fn unreadable(error: &io::Error) -> Self {
        Self::Unreadable { error: error.to_string() }
    }

    /// The same, found in the cgroup `id`.
    #[must_use]
    pub fn in_cgroup(self, id: u64) -> Self {
        match self {
            Self::Protected { pid, because, cgroup: _ } => {
                Self::Protected { pid, because, cgroup: Some(id) }
            }
            other => other,
        }
    }
}

fn protection(reason: ProtectedReason) -> &'static str {
    match reason {
        ProtectedReason::Agent => "it is ebb itself",
        ProtectedReason::Init => "it is init",
        ProtectedReason::Kubelet => "it is the kubelet",
        ProtectedReason::Runtime => "it is part of the container runtime",
        ProtectedReason::Configured => "the configuration protects it",
        ProtectedReason::Annotated => "its annotation protects it",
        ProtectedReason::OomScoreAdj => "its oom_score_adj is -1000",
        ProtectedReason::KernelThread => "it is a kernel thread",
        ProtectedReason::NothingRuns => "nothing of it runs",
        ProtectedReason::Unlisted => "waiting for the runtime's pod list",
        ProtectedReason::Undescribed => "waiting for the API server's pod list",
        ProtectedReason::Unreadable => "its processes cannot be read",
    }
}
