//! One incident as lines for a terminal, from the crossing to the relief.

use super::again::{Again, Other};
use super::decision;
use super::story::{Story, ms};
use ebb_journal::incident::Decision;
use ebb_journal::text::plain;

/// Candidates of a ranking that are shown, and members of a group that was skipped.
const CANDIDATES: usize = 10;
const MEMBERS: usize = 3;

/// The incident for people; no name in it speaks to the terminal.
pub(super) fn describe(story: &Story<'_>, again: &Again) -> String {
    let incident = story.incident;
    let mut lines = vec![
        format!("incident {}", story.id),
        format!("  {}  {}", story.crossed_at(), story.short_of()),
        format!("  {}", story.verdict()),
        format!("  recorded by ebb {}", incident.ebb_version),
        String::new(),
        "timeline".to_owned(),
    ];
    for moment in &incident.timeline {
        let detail = moment.detail.as_deref().map(|d| format!("  {d}")).unwrap_or_default();
        lines.push(format!("  {:>13}  {}{detail}", ms(moment.after_ms), moment.what));
    }
    if incident.timeline.is_empty() {
        lines.push("  unknown".to_owned());
    }
    for (nth, decision) in incident.decisions.iter().enumerate() {
        lines.push(String::new());
        of_decision(story, nth, decision, &mut lines);
    }
    lines.push(String::new());
    lines.push(again.verdict());
    if let Some(other) = &again.other {
        lines.push(String::new());
        compared(story, other, &mut lines);
    }
    lines.iter().map(|line| plain(line).trim_end().to_owned() + "\n").collect()
}

fn of_decision(story: &Story<'_>, nth: usize, decision: &Decision, lines: &mut Vec<String>) {
    let plan = &decision.plan;
    let (all, after) =
        (story.incident.decisions.len(), decision::after(story.incident.crossed_at, plan));
    lines.push(format!("decision {} of {all}, {after}", nth + 1));
    lines.push(format!("  {}", decision::short(plan)));
    if plan.evictions().next().is_none() {
        lines.push("  evicts nobody".to_owned());
    }
    for evict in plan.evictions() {
        lines.push(format!("  evicts {}", evict.workload.name));
        lines.push(format!("    {}", decision::grounds(evict)));
    }
    let ranking = decision::ranking(plan);
    if !ranking.is_empty() {
        lines.push(format!("  ranking of {}, the first victim first", ranking.len()));
    }
    for place in ranking.iter().take(CANDIDATES) {
        let mark = if place.is_victim { "  (evicted)" } else { "" };
        lines.push(format!("  {:>3}. {}{mark}", place.ranked.place, place.ranked.workload.name));
        let keys: Vec<&str> = place.keys.iter().map(|key| key.words.as_str()).collect();
        lines.push(format!("       {}", keys.join(", ")));
        if let Some(why) = &place.before_next {
            lines.push(format!("       before the next by: {why}"));
        }
    }
    more(ranking.len(), CANDIDATES, "candidates", lines);
    let groups = decision::skips(plan);
    if !groups.is_empty() {
        lines.push("  skipped".to_owned());
    }
    for group in groups {
        lines.push(format!("    {}: {}", group.members.len(), group.reason));
        let names = group.members.iter().take(MEMBERS);
        lines.extend(names.map(|kept| format!("      {}", decision::subject(kept))));
        more(group.members.len(), MEMBERS, "such", lines);
    }
    lines.push("  thresholds".to_owned());
    let thresholds = plan.thresholds.iter().map(decision::threshold);
    for [what, kind, threshold, left, state] in
        thresholds.chain(plan.memory_pressure.iter().map(decision::pressure))
    {
        lines.push(format!("    {what} {threshold} ({kind}): {left}, {state}"));
    }
    lines.extend(decision::remarks(plan).iter().map(|note| format!("  note: {note}")));
}

fn compared(story: &Story<'_>, other: &Other, lines: &mut Vec<String>) {
    lines.push(format!("with {}, from what was known at each decision", other.name));
    lines.push("  (priorities, preferences and protection are those of the record)".to_owned());
    let both = story.incident.decisions.iter().zip(&other.decisions);
    for (nth, (then, now)) in both.enumerate() {
        let same = if now.count == 0 { "the same plan" } else { "another plan" };
        lines.push(format!("  decision {}: {same}", nth + 1));
        lines.push(format!("    recorded: evicts {}", decision::whom(&then.plan)));
        lines.push(format!("    with it:  evicts {}", decision::whom(&now.plan)));
        lines.extend(now.differences.iter().map(|path| format!("    differs at {path}")));
        more(now.count, now.differences.len(), "differences", lines);
    }
}

fn more(all: usize, shown: usize, what: &str, lines: &mut Vec<String>) {
    if let Some(left @ 1..) = all.checked_sub(shown) {
        lines.push(format!("       and {left} more {what}"));
    }
}
