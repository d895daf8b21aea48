//! Plans, audits and trees of cgroups, for people.

use crate::cgroups::{Dying, Written};
use ebb_policy::cgroups::compare::{Difference, Kind, Live};
use ebb_policy::cgroups::orphans::{Action, Orphan};
use ebb_policy::cgroups::plan::Value;
use ebb_policy::cgroups::{Cgroup, Level, Plan};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Items of a record that are shown as lines.
const LEFT_SHOWN: usize = 10;

/// A plan: each cgroup with its values and the rules behind them.
#[must_use]
pub fn plan(plan: &Plan) -> String {
    let mut text = String::new();
    for cgroup in &plan.cgroups {
        line(&mut text, 0, &title(cgroup));
        for (file, value) in folded(&cgroup.values, |_, value| (&value.value, &value.rule)) {
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
    orphaned: &[Orphan],
    dying: &[Dying],
) -> String {
    let mut text = String::new();
    for difference in folded_differences(differences) {
        line(&mut text, 0, &difference.to_string());
    }
    orphaned.iter().for_each(|orphan| line(&mut text, 0, &belongs_to_nobody(orphan)));
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

/// A pod cgroup that belongs to no pod.
#[must_use]
pub fn belongs_to_nobody(orphan: &Orphan) -> String {
    let runs = if orphan.populated { ", processes run in it" } else { "" };
    format!("{}: orphaned: belongs to no pod{runs}", orphan.path)
}

/// The tree, indented by depth; differences stand behind what they concern, and below it what has no place in it.
#[must_use]
pub fn tree(
    plan: &Plan,
    live: Option<&Live>,
    differences: &[Difference],
    orphaned: &[Orphan],
) -> String {
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
        let found_in = |file: &String| {
            live.and_then(|live| live.get(path)).and_then(|found| found.files.get(file))
        };
        let has_other =
            |file: &String| mine().any(|difference| difference.file.as_ref() == Some(file));
        let same = |file: &String, value: &Value| {
            (value.value.clone(), found_in(file).cloned(), has_other(file))
        };
        for (file, value) in folded(&cgroup.values, same) {
            let first = first_of(&cgroup.values, &file);
            let (found, differs) = (found_in(&first), has_other(&first));
            let shown = found.unwrap_or(&value.value);
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
    orphaned
        .iter()
        .for_each(|orphan| line(&mut text, 0, &format!("! {}", belongs_to_nobody(orphan))));
    notes(&mut text, plan);
    text
}

/// What became of a round of enforcement.
#[must_use]
pub fn round(
    written: &[Written],
    created: &[String],
    left: &[Difference],
    errors: &[String],
    after_ms: Option<f64>,
) -> Vec<String> {
    let after = after_ms.map(|ms| format!(" within {ms:.1} ms of being noticed"));
    let mut lines = vec![format!(
        "cgroups: {} values written{}, {} differences left",
        written.len(),
        after.unwrap_or_default(),
        left.len()
    )];
    lines.extend(created.iter().map(|path| format!("{path} created")));
    lines.extend(written.iter().map(|written| {
        let Written { path, file, before, now, wanted } = written;
        let wanted =
            wanted.as_ref().map(|wanted| format!(" (on the way to {wanted}: more is in use)"));
        format!("{path}: {file} {before} -> {now}{}", wanted.unwrap_or_default())
    }));
    lines.extend(errors.iter().map(|error| format!("not done: {error}")));
    lines.extend(left.iter().take(LEFT_SHOWN).map(|difference| format!("left: {difference}")));
    lines
}

/// What a dry run would have made and written.
#[must_use]
pub fn rehearsed(would_write: &[Difference], would_create: &[String]) -> Vec<String> {
    let made = would_create.iter().map(|path| format!("dry run: would create {path}"));
    let written = would_write.iter().map(|difference| {
        let Difference { path, file, found, expected, .. } = difference;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let (file, found, expected) = (text(file), text(found), text(expected));
        format!("dry run: would write {path}: {file} {found} -> {expected}")
    });
    made.chain(written).collect()
}

/// What was found of cgroups that no pod belongs to.
#[must_use]
pub fn orphaned(
    found: &[Orphan],
    cleaned_up: &[String],
    dying: &[Dying],
    errors: &[String],
) -> Vec<String> {
    let mut lines = vec![format!(
        "orphaned pod cgroups: {} found, {} removed or without CPU",
        found.len(),
        cleaned_up.len()
    )];
    lines.extend(found.iter().take(LEFT_SHOWN).map(|orphan| {
        let runs = if orphan.populated { ", processes run in it" } else { "" };
        let action = match orphan.action {
            Action::Remove => "to be removed".to_owned(),
            Action::ReduceCpu => {
                "loses its CPU: its volumes are mounted, or that is not known".to_owned()
            }
            Action::Skip => format!("skipped: {}", orphan.skipped.as_deref().unwrap_or_default()),
        };
        format!("{}: {action}{runs}", orphan.path)
    }));
    lines.extend(dying.iter().map(still_held));
    lines.extend(errors.iter().map(|error| format!("not done: {error}")));
    lines
}

/// The files of a cgroup, those of huge pages together where `same` says the same of them: `hugetlb.{2MB,1GB}.max`.
fn folded<'v, K: PartialEq>(
    values: &'v BTreeMap<String, Value>,
    same: impl Fn(&'v String, &'v Value) -> K,
) -> Vec<(String, &'v Value)> {
    let mut lines: Vec<(Vec<&str>, K, &Value)> = Vec::new();
    for (file, value) in values {
        let key = same(file, value);
        let is_huge = file.starts_with(HUGE);
        let alike = lines.iter_mut().find(|(files, other, _)| {
            is_huge && files.iter().all(|file| file.starts_with(HUGE)) && *other == key
        });
        match alike {
            Some((files, _, _)) => files.push(file),
            None => lines.push((vec![file], key, value)),
        }
    }
    lines.into_iter().map(|(files, _, value)| (together(&files), value)).collect()
}

const HUGE: &str = "hugetlb.";

/// One name for several files of huge pages.
fn together(files: &[&str]) -> String {
    match files {
        [one] => (*one).to_owned(),
        several => {
            let ends: Vec<&str> =
                several.iter().map(|file| file.strip_prefix(HUGE).unwrap_or(file)).collect();
            format!("{HUGE}{{{}}}", ends.join(","))
        }
    }
}

/// The first of the files that stand together.
fn first_of(values: &BTreeMap<String, Value>, line: &str) -> String {
    let first = line.strip_prefix("hugetlb.{").and_then(|rest| rest.split([',', '}']).next());
    let first = first.map_or_else(|| line.to_owned(), |first| format!("{HUGE}{first}"));
    values.get_key_value(&first).map_or(first.clone(), |(file, _)| file.clone())
}

/// The same for differences: those of one cgroup's huge pages that say the same are one line.
fn folded_differences(differences: &[Difference]) -> Vec<Difference> {
    let mut lines: Vec<(Difference, Vec<&str>)> = Vec::new();
    for difference in differences {
        let file = difference.file.as_deref().unwrap_or_default();
        let alike = lines.iter_mut().find(|(other, files)| {
            let other = Difference { file: difference.file.clone(), ..other.clone() };
            let all_huge = files.iter().chain([&file]).all(|file| file.starts_with(HUGE));
            all_huge && other == *difference
        });
        match alike {
            Some((_, files)) => files.push(file),
            None => lines.push((difference.clone(), vec![file])),
        }
    }
    let line = |(difference, files): (Difference, Vec<&str>)| match difference.file {
        Some(_) => Difference { file: Some(together(&files)), ..difference },
        None => difference,
    };
    lines.into_iter().map(line).collect()
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
        let _ = write!(text, " ({qos})");
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
    let _ = writeln!(text, "{}{}", "  ".repeat(depth), super::plain::plain(content));
}
