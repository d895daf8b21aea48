//! Why a target is not touched.

use ebb_policy::snapshot::ProtectedReason;
use std::io;

/// Why a target is not touched.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase", tag = "why")]
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
        #[serde(skip_serializing_if = "Option::is_none")]
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
    pub(super) fn unreadable(error: &io::Error) -> Self {
        Self::Unreadable { error: error.to_string() }
    }

    /// The same, found in the cgroup `id`.
    pub(super) fn in_cgroup(self, id: u64) -> Self {
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
        ProtectedReason::Unreadable => "its processes cannot be read",
    }
}
