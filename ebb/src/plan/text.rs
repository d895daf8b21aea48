//! A plan as lines for people.

use ebb_journal::text;
use ebb_policy::Plan;
use ebb_policy::plan::{Action, Evict, RemoveReason, Strength, ThresholdState, ThresholdStatus};
use std::fmt::Write as _;

/// A plan for people.
pub(crate) fn describe(plan: &Plan) -> String {
    let mut lines = String::new();
    let mut say = |line: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{}", text::plain(&line));
    };
    for status in &plan.thresholds {
        say(threshold(status));
    }
    for condition in plan.conditions.iter().filter(|condition| condition.status) {
        say(format!("condition {}: {}", condition.condition_type, condition.message));
    }
    for event in &plan.events {
        say(format!("event {}: {}", event.reason, event.message));
    }
    if plan.actions.is_empty() {
        say("nothing to do".to_owned());
    }
    for action in &plan.actions {
        say(describe_action(action));
    }
    if !plan.ranking.is_empty() {
        say("ranking, the first victim first:".to_owned());
    }
    for ranked in &plan.ranking {
        say(text::ranked(ranked));
    }
    for kept in &plan.skipped {
        say(text::skipped(kept));
    }
    for answer in &plan.admissions {
        let verdict = if answer.admit { "admitted" } else { "refused" };
        let why = answer.message.as_deref().map(|why| format!(": {}", why.trim_end()));
        say(format!("{verdict} {}{}", answer.workload.name, why.unwrap_or_default()));
    }
    for note in ebb_journal::notes(plan) {
        say(format!("note: {note}"));
    }
    if let Some(wake) = plan.wake_in {
        say(format!("look again in {wake} at the latest"));
    }
    lines
}

/// A threshold and where it stands.
pub(crate) fn threshold(status: &ThresholdStatus) -> String {
    let ThresholdStatus { signal, strength, state, threshold, available, grace_left, .. } = status;
    let mut line = format!("{signal} ({}): {}", list(*strength), standing(*state));
    if let (Some(threshold), Some(available)) = (threshold, available) {
        let _ = write!(line, ", threshold {threshold}, {} left", text::amount(*signal, *available));
    }
    if let Some(left) = grace_left {
        let _ = write!(line, ", acts in {left}");
    }
    line
}

fn describe_action(action: &Action) -> String {
    match action {
        Action::Evict(evict) => {
            let Evict { workload, grace, message, .. } = &**evict;
            format!("evict {} within {} s: {}", workload.name, grace.0, message.trim_end())
        }
        Action::RemoveContainer(container) => {
            format!(
                "remove container {} ({}): {}",
                container.id,
                container.name,
                removed(container.reason)
            )
        }
        Action::RemoveSandbox(sandbox) => {
            format!("remove sandbox {}: {}", sandbox.id, removed(sandbox.reason))
        }
        Action::RemoveLogDir(dir) => format!("remove logs {}: {}", dir.path, removed(dir.reason)),
        Action::RemoveLogLink(link) => {
            format!("remove link {}: {}", link.path, removed(link.reason))
        }
        Action::RemoveImage(image) => {
            format!("remove image {}: {}", image.id, removed(image.reason))
        }
        Action::Warn(warn) => format!("warn {}: {}", warn.workload.name, warn.message),
        Action::ReclaimMemory(reclaim) => {
            format!("reclaim {} bytes from {}", reclaim.bytes, reclaim.workload.name)
        }
        Action::Throttle(throttle) => {
            format!("throttle {} at {} bytes", throttle.workload.name, throttle.high)
        }
        Action::Freeze(freeze) => format!("freeze {}", freeze.workload.name),
        Action::Release(release) => format!("release {}", release.workload.name),
    }
}

/// In which of the kubelet's lists a threshold is.
pub(crate) fn list(strength: Strength) -> &'static str {
    match strength {
        Strength::Hard => "hard",
        Strength::Soft => "soft",
    }
}

/// Where a threshold stands.
pub(crate) fn standing(state: ThresholdState) -> &'static str {
    match state {
        ThresholdState::Unobserved => "not observed",
        ThresholdState::Clear => "not met",
        ThresholdState::Grace => "met, within its grace period",
        ThresholdState::Stale => "met, but nothing newer was observed",
        ThresholdState::Met => "met",
        ThresholdState::Inert => "never met: it follows from a threshold that does not exist",
    }
}

fn removed(reason: RemoveReason) -> &'static str {
    match reason {
        RemoveReason::PodEvicted => "its pod was evicted",
        RemoveReason::PodDeleted => "its pod is deleted",
        RemoveReason::PodUnknown => "no pod has its UID",
        RemoveReason::PodTerminated => "its pod is terminated, and the node needs the room",
        RemoveReason::PerContainerLimit => "more dead containers of this name than are kept",
        RemoveReason::NodeLimit => "more dead containers than are kept on the node",
        RemoveReason::Superseded => "its pod has a newer sandbox",
        RemoveReason::Dangling => "its target is gone",
        RemoveReason::Age => "unused for longer than imageMaximumGCAge",
        RemoveReason::Space => "the image filesystem is above imageGCHighThresholdPercent",
        RemoveReason::NodePressure => "the node is short of disk",
    }
}
