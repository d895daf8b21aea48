//! Plans, audits and trees of cgroups, for people.

use crate::cgroups::leftovers::Dying;
use crate::cgroups::write::Written;
use ebb_policy::cgroups::compare::{Difference, Kind, Live};
use ebb_policy::cgroups::orphans::Orphan;
use ebb_policy::cgroups::{Cgroup, Level, Plan};
use std::fmt::Write as _;

/// Items of a record that are shown as lines.
const LEFT_SHOWN: usize = 10;

/// A plan: each cgroup with its values and the rules behind them.
#[must_use]
pub fn plan(plan: &Plan) -> String {
    let mut text = String::new();
    for cgroup in &plan.cgroups {
        line(&mut text, 0, &title(cgroup));
        for (file, value) in &cgroup.values {
            line(&mut text, 1, &format!("{file} = {}  # {}", value.value, value.rule));
            if let Some(at_once) = &value.at_once {
                line(&mut text, 2, &format!("at once only {at_once}: more is in use"));
            }
        }
        for (file, why) in &cgroup.unset {
            line(&mut text, 1, &format!("{file} stays as it is  # {why}"));
        }
        if let Some(score) = &cgroup.oom_score_adj {
            line(&mut text, 1, &format!("oom_score_adj = {}  # {}", score.value, score.rule));
        }
    }
    notes(&mut text, plan);
    text
}

/// An audit: each difference, and how many there are.
#[must_use]
pub fn audit(
    plan: &Plan,
    differences: &[Difference],
    leftovers: &[Orphan],
    dying: &[Dying],
) -> String {
    let mut text = String::new();
    for difference in differences {
        line(&mut text, 0, &difference.to_string());
    }
    for orphan in leftovers {
        let runs = if orphan.populated { ", something runs in it" } else { "" };
        line(&mut text, 0, &format!("{}: belongs to no pod{runs}", orphan.path));
    }
    dying.iter().for_each(|dying| line(&mut text, 0, &still_held(dying)));
    notes(&mut text, plan);
    let cgroups = plan.cgroups.iter().filter(|cgroup| cgroup.path.is_some()).count();
    let summary = match differences.len() {
        0 => format!("{cgroups} cgroups are as the rules demand"),
        1 => format!("1 difference in {cgroups} cgroups"),
        n => format!("{n} differences in {cgroups} cgroups"),
    };
    line(&mut text, 0, &summary);
    text
}

/// The tree, indented by depth; differences stand behind what they concern.
#[must_use]
pub fn tree(plan: &Plan, live: Option<&Live>, differences: &[Difference]) -> String {
    let mut text = String::new();
    let mut cgroups: Vec<&Cgroup> = plan.cgroups.iter().collect();
    // Where a container's id is not known it stands below its pod all the same.
    cgroups.sort_by_key(|cgroup| sort_key(plan, cgroup));
    for cgroup in cgroups {
        let Some(path) = &cgroup.path else {
            line(&mut text, 3, &format!("{} (not there yet)", title(cgroup)));
            continue;
        };
        let depth = path.matches('/').count().saturating_sub(1);
        let mine = || differences.iter().filter(|difference| &difference.path == path);
        if mine().any(|difference| difference.kind == Kind::NoCgroup) {
            line(&mut text, depth, &format!("{} ! not there", title(cgroup)));
            continue;
        }
        line(&mut text, depth, &title(cgroup));
        for (file, value) in &cgroup.values {
            let found = live.and_then(|live| live.get(path)).and_then(|f| f.files.get(file));
            let shown = found.unwrap_or(&value.value);
            let differs = mine().any(|difference| difference.file.as_ref() == Some(file));
            let mark = match (differs, found) {
                (false, _) => String::new(),
                (true, None) => format!(" ! not there, expected {}", value.value),
                (true, Some(_)) => format!(" ! expected {}", value.value),
            };
            if live.is_none() || found.is_some() || differs {
                line(&mut text, depth + 1, &format!("{file} {shown}{mark}"));
            }
        }
        for score in mine().filter(|difference| difference.kind == Kind::Score) {
            let (found, expected) = (score.found.as_deref(), score.expected.as_deref());
            let (found, expected) = (found.unwrap_or_default(), expected.unwrap_or_default());
            line(&mut text, depth + 1, &format!("oom_score_adj {found} ! expected {expected}"));
        }
    }
    text
}

/// What became of a round of enforcement.
#[must_use]
pub fn round(
    written: &[Written],
    created: &[String],
    left: &[Difference],
    trouble: &[String],
    after_ms: Option<f64>,
) -> Vec<String> {
    let after = after_ms.map(|ms| format!(" within {ms:.1} ms of being noticed"));
    let mut lines = vec![format!(
        "cgroups: {} values written{}, {} differences left",
        written.len(),
        after.unwrap_or_default(),
        left.len()
    )];
    lines.extend(created.iter().map(|path| format!("{path} made")));
    lines.extend(written.iter().map(|written| {
        let Written { path, file, before, now, wanted } = written;
        let wanted =
            wanted.as_ref().map(|wanted| format!(" (on the way to {wanted}: more is in use)"));
        format!("{path}: {file} {before} -> {now}{}", wanted.unwrap_or_default())
    }));
    lines.extend(trouble.iter().map(|trouble| format!("not done: {trouble}")));
    lines.extend(left.iter().take(LEFT_SHOWN).map(|difference| format!("left: {difference}")));
    lines
}

/// What was found of cgroups that no pod belongs to.
#[must_use]
pub fn leftovers(
    found: &[Orphan],
    ended: &[String],
    dying: &[Dying],
    trouble: &[String],
) -> Vec<String> {
    let mut lines = vec![format!(
        "cgroups: {} belong to no pod, {} of them dealt with",
        found.len(),
        ended.len()
    )];
    lines.extend(found.iter().take(LEFT_SHOWN).map(|orphan| {
        let runs = if orphan.populated { ", something runs in it" } else { "" };
        format!("{}: {:?}{runs}", orphan.path, orphan.fate)
    }));
    lines.extend(dying.iter().map(still_held));
    lines.extend(trouble.iter().map(|trouble| format!("not done: {trouble}")));
    lines
}

fn still_held(dying: &Dying) -> String {
    let bytes = dying.bytes.map(|bytes| format!(", up to {bytes} bytes")).unwrap_or_default();
    format!("{}: {} removed cgroups still hold memory{bytes}", dying.path, dying.count)
}

fn sort_key(plan: &Plan, cgroup: &Cgroup) -> String {
    if let Some(path) = &cgroup.path {
        return path.clone();
    }
    let is_pod = |other: &&Cgroup| other.level == Level::Pod && other.pod == cgroup.pod;
    let pod = plan.cgroups.iter().find(is_pod).and_then(|pod| pod.path.clone());
    let name = cgroup.container.as_deref().unwrap_or_default();
    format!("{}/{name}", pod.unwrap_or_default())
}

fn title(cgroup: &Cgroup) -> String {
    let place = cgroup.path.as_deref().unwrap_or("container");
    let mut text = place.to_owned();
    // Writing to a string cannot fail.
    let _ = match (&cgroup.pod, &cgroup.container) {
        (Some(pod), Some(container)) => {
            write!(text, "  {}/{} {container}", pod.namespace, pod.name)
        }
        (Some(pod), None) => write!(text, "  {}/{}", pod.namespace, pod.name),
        (None, _) => Ok(()),
    };
    if let (Some(qos), Level::Pod) = (cgroup.qos, cgroup.level) {
        let _ = write!(text, " ({qos:?})");
    }
    text
}

fn notes(text: &mut String, plan: &Plan) {
    for note in &plan.notes {
        line(text, 0, &format!("note: {note}"));
    }
}

fn line(text: &mut String, depth: usize, content: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}{content}", "  ".repeat(depth));
}
