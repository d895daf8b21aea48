//! A plan as lines for people.

use ebb_agent::report;
use ebb_policy::Plan;
use ebb_policy::plan::{Action, Evict, ThresholdStatus};
use std::fmt::Write as _;

/// A plan for people.
pub(crate) fn describe(plan: &Plan) -> String {
    let mut lines = String::new();
    let mut say = |line: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{}", report::plain(&line));
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
        say(report::ranked(ranked));
    }
    for kept in &plan.skipped {
        say(report::skipped(kept));
    }
    for answer in &plan.admissions {
        let verdict = if answer.admit { "admitted" } else { "refused" };
        let why = answer.message.as_deref().map(|why| format!(": {}", why.trim_end()));
        say(format!("{verdict} {}{}", answer.workload.name, why.unwrap_or_default()));
    }
    for note in report::notes(plan) {
        say(format!("note: {note}"));
    }
    if let Some(wake) = plan.wake_in {
        say(format!("look again in {wake} at the latest"));
    }
    lines
}

fn threshold(status: &ThresholdStatus) -> String {
    let ThresholdStatus { signal, strength, state, threshold, available, grace_left, .. } = status;
    let mut line = format!("{signal} ({strength:?}): {state:?}");
    if let (Some(threshold), Some(available)) = (threshold, available) {
        let _ =
            write!(line, ", threshold {threshold}, {} left", report::amount(*signal, *available));
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
            format!("end {} within {} s: {}", workload.name, grace.0, message.trim_end())
        }
        Action::RemoveContainer(container) => {
            format!(
                "remove container {} ({}): {:?}",
                container.id, container.name, container.reason
            )
        }
        Action::RemoveSandbox(sandbox) => {
            format!("remove sandbox {}: {:?}", sandbox.id, sandbox.reason)
        }
        Action::RemoveLogDir(dir) => format!("remove logs {}: {:?}", dir.path, dir.reason),
        Action::RemoveLogLink(link) => format!("remove link {}: {:?}", link.path, link.reason),
        Action::RemoveImage(image) => format!("remove image {}: {:?}", image.id, image.reason),
        Action::Warn(warn) => format!("warn {}: {}", warn.workload.name, warn.message),
        Action::ReclaimMemory(reclaim) => {
            format!("reclaim {} bytes from {}", reclaim.bytes, reclaim.workload.name)
        }
        Action::Throttle(throttle) => {
            format!("slow {} down at {} bytes", throttle.workload.name, throttle.high)
        }
        Action::Freeze(freeze) => format!("freeze {}", freeze.workload.name),
        Action::Release(release) => format!("release {}", release.workload.name),
    }
}
