//! Why something was skipped, in words.

use ebb_policy::plan::{SkipReason, Skipped, Subject};
use ebb_policy::snapshot::ProtectedReason;
use serde::Serialize;

/// What was skipped, and why, as one line.
#[must_use]
pub fn skipped(kept: &Skipped) -> String {
    let subject = match &kept.subject {
        Subject::Workload { workload } => workload.name.clone(),
        Subject::Container { id } => format!("container {id}"),
        Subject::Sandbox { id } => format!("sandbox {id}"),
        Subject::Image { id } => format!("image {id}"),
        Subject::LogDir { path } | Subject::LogLink { path } => path.clone(),
    };
    format!("skipped {subject}: {}", reason(&kept.reason))
}

/// Why something was skipped.
#[must_use]
pub fn reason(reason: &SkipReason) -> String {
    match reason {
        SkipReason::Critical => {
            "critical: a static or mirror pod, or one of a system priority".into()
        }
        SkipReason::Protected { reason } => format!("protected: {}", protection(*reason)),
        SkipReason::NothingToGain => "uses nothing of what is short".into(),
        SkipReason::NotGrowing => "does not grow, and the threshold is not met yet".into(),
        SkipReason::ReclaimsTooLittle => {
            "so little memory is reclaimed from it that it does not cause the pressure".into()
        }
        SkipReason::HoldsTooLittle => {
            "it holds so little of the cgroup's memory that its eviction would not relieve the pressure"
                .into()
        }
        SkipReason::NotNeeded => "not needed: those before it free enough".into(),
        SkipReason::DisruptionBudget { budget } => {
            format!("its disruption budget {budget} allows no disruption")
        }
        SkipReason::OtherReplicaEvicted { owner } => {
            format!("another replica of {owner} is evicted in this pass")
        }
        SkipReason::Terminating { .. } => "terminating: what it frees is counted".into(),
        SkipReason::Running => "it runs".into(),
        SkipReason::TooYoung { wait } => format!("too young for {} s", wait.0),
        SkipReason::Newest => "among the newest of its kind".into(),
        SkipReason::PodActive => "its pod still needs it".into(),
        SkipReason::InUse => "in use".into(),
        SkipReason::Pinned => "pinned by the runtime".into(),
        SkipReason::EnoughFreed => "enough is freed without it".into(),
        SkipReason::SourcesNotReady => "not every source of pods has reported yet".into(),
        SkipReason::MayBeRotating => "what it points to exists, or may be about to".into(),
        SkipReason::FreesTooLittle { .. } => {
            "would free so little that the node would be short all the same".into()
        }
        SkipReason::EvictionRate => {
            "as many as maxEvictionsPerMinute allows were evicted within a minute".into()
        }
        // A reason that has no sentence here is said by its name.
        other => named(other),
    }
}

/// Why a workload is protected.
#[must_use]
pub fn protection(reason: ProtectedReason) -> String {
    match reason {
        ProtectedReason::Agent => "ebb itself".into(),
        ProtectedReason::Init => "process 1 is in it".into(),
        ProtectedReason::Kubelet => "the kubelet".into(),
        ProtectedReason::Runtime => "the container runtime, or a sandbox".into(),
        ProtectedReason::Configured => "the configuration, or its unit, says so".into(),
        ProtectedReason::Annotated => {
            "its annotation ebb.dev/evict: never, which the configuration honours in its namespace"
                .into()
        }
        ProtectedReason::OomScoreAdj => "oom_score_adj is -1000".into(),
        ProtectedReason::KernelThread => "a kernel thread".into(),
        ProtectedReason::Unlisted => "waiting for the runtime's pod list".into(),
        ProtectedReason::Undescribed => "waiting for the API server's pod list".into(),
        // As above.
        other => named(&other),
    }
}

/// The name of a value as the words that it is made of: `usedSince` is "used since".
fn named(value: &impl Serialize) -> String {
    let json = serde_json::to_value(value).unwrap_or_default();
    let name = json.as_str().or_else(|| json.get("why")?.as_str()).unwrap_or_default();
    let mut words = String::new();
    for c in name.chars() {
        if c.is_uppercase() {
            words.push(' ');
        }
        words.extend(c.to_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_without_a_sentence_is_said_in_the_words_of_its_name() {
        assert_eq!(named(&SkipReason::UsedSince), "used since");
        assert_eq!(named(&ProtectedReason::NothingRuns), "nothing runs");
        assert_eq!(reason(&SkipReason::UsedSince), "used since");
    }
}
