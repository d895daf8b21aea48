//! What was skipped: a refusal is a value, so that "why not this one?" is answered from the plan.
use super::Action;
use crate::{
    Secs, Time,
    snapshot::{ProtectedReason, WorkloadKey},
};
use alloc::string::String;

/// Something that was looked at and skipped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Skipped {
    /// What.
    pub subject: Subject,
    /// Why.
    pub reason: SkipReason,
}

/// What was skipped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")
)]
pub enum Subject {
    /// A workload.
    Workload {
        /// Who it is.
        workload: WorkloadKey,
    },
    /// A container.
    Container {
        /// Its id.
        id: String,
    },
    /// A sandbox.
    Sandbox {
        /// Its id.
        id: String,
    },
    /// An image.
    Image {
        /// Its id.
        id: String,
    },
    /// A log directory.
    LogDir {
        /// Its path.
        path: String,
    },
    /// A link to a log.
    LogLink {
        /// Its path.
        path: String,
    },
}

impl Subject {
    /// What an action is about.
    pub fn of(action: &Action) -> Subject {
        let workload = |workload: &WorkloadKey| Subject::Workload { workload: workload.clone() };
        match action {
            Action::Evict(evict) => workload(&evict.workload),
            Action::Warn(warn) => workload(&warn.workload),
            Action::ReclaimMemory(reclaim) => workload(&reclaim.workload),
            Action::Throttle(throttle) => workload(&throttle.workload),
            Action::Freeze(freeze) => workload(&freeze.workload),
            Action::Release(release) => workload(&release.workload),
            Action::RemoveContainer(container) => Subject::Container { id: container.id.clone() },
            Action::RemoveSandbox(sandbox) => Subject::Sandbox { id: sandbox.id.clone() },
            Action::RemoveImage(image) => Subject::Image { id: image.id.clone() },
            Action::RemoveLogDir(dir) => Subject::LogDir { path: dir.path.clone() },
            Action::RemoveLogLink(link) => Subject::LogLink { path: link.path.clone() },
        }
    }
}

/// A [`Subject`] by reference, in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SubjectRef<'a> {
    Workload(&'a WorkloadKey),
    Container(&'a str),
    Sandbox(&'a str),
    Image(&'a str),
    LogDir(&'a str),
    LogLink(&'a str),
}

impl<'a> SubjectRef<'a> {
    /// What an action evicts or removes.
    pub(crate) fn taken(action: &'a Action) -> Option<SubjectRef<'a>> {
        match action {
            Action::Evict(evict) => Some(Self::Workload(&evict.workload)),
            Action::RemoveContainer(container) => Some(Self::Container(&container.id)),
            Action::RemoveSandbox(sandbox) => Some(Self::Sandbox(&sandbox.id)),
            Action::RemoveImage(image) => Some(Self::Image(&image.id)),
            Action::RemoveLogDir(dir) => Some(Self::LogDir(&dir.path)),
            Action::RemoveLogLink(link) => Some(Self::LogLink(&link.path)),
            Action::Warn(_)
            | Action::ReclaimMemory(_)
            | Action::Throttle(_)
            | Action::Freeze(_)
            | Action::Release(_) => None,
        }
    }

    pub(crate) fn of(subject: &'a Subject) -> SubjectRef<'a> {
        match subject {
            Subject::Workload { workload } => Self::Workload(workload),
            Subject::Container { id } => Self::Container(id),
            Subject::Sandbox { id } => Self::Sandbox(id),
            Subject::Image { id } => Self::Image(id),
            Subject::LogDir { path } => Self::LogDir(path),
            Subject::LogLink { path } => Self::LogLink(path),
        }
    }
}

/// Why it was skipped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "why")
)]
pub enum SkipReason {
    /// It is critical: static, mirror or of a system priority.
    Critical,
    /// The agent says that it must never be evicted.
    Protected {
        /// Why.
        reason: ProtectedReason,
    },
    /// It uses nothing of what is short, or too little to matter.
    NothingToGain,
    /// It does not grow, and the threshold is not met yet: on a forecast only who grows is evicted.
    NotGrowing,
    /// It would free so little that the node would be short all the same.
    FreesTooLittle {
        /// Units that it would free.
        frees: u64,
        /// Units that it would have to free.
        least: u64,
    },
    /// The threshold is above all that there is: whoever goes, it stays met.
    ThresholdOutOfReach,
    /// As many as may be were evicted within a minute.
    EvictionRate,
    /// Its usage of the filesystem has not been measured since the threshold was crossed.
    UsageUnknown,
    /// Others fill the filesystem.
    NotFilling,
    /// So little memory is reclaimed from it that it does not cause the pressure of the cgroup above it.
    ReclaimsTooLittle,
    /// It holds so little of the memory of the cgroup above it that its eviction would not relieve that.
    HoldsTooLittle,
    /// How much memory is reclaimed from it or from the cgroup above it, or how much it holds, is not known.
    ReclaimUnknown,
    /// Enough others come before it.
    NotNeeded,
    /// Its disruption budget allows no disruption.
    DisruptionBudget {
        /// The budget.
        budget: String,
    },
    /// Another replica of its owner is chosen in this pass.
    OtherReplicaEvicted {
        /// The owner.
        owner: String,
    },
    /// It is terminating; what it frees is counted until then.
    Terminating {
        /// Until when it is counted.
        until: Time,
    },
    /// It runs.
    Running,
    /// It is newer than the minimum age.
    TooYoung {
        /// Seconds until it is old enough.
        wait: Secs,
    },
    /// It is among the newest of its kind, which are kept.
    Newest,
    /// Its pod still needs it.
    PodActive,
    /// A container uses it.
    InUse,
    /// The runtime pins it.
    Pinned,
    /// Enough is freed without it.
    EnoughFreed,
    /// Not every source of pods has reported yet.
    SourcesNotReady,
    /// What it points to exists, or may be about to.
    MayBeRotating,
    /// It was used since this pass began.
    UsedSince,
}
