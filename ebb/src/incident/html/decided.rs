//! The decisions: what was short, who was ranked where and by which key, who was skipped and why, and every threshold.

use crate::incident::decision::{
    Group, Place, after, grounds, node, pressure, ranking, remarks, short, skips, subject,
    threshold,
};
use crate::incident::story::Story;
use crate::page::{left_out, name, said};
use ebb_journal::incident::Decision;
use maud::{Markup, html};

/// Rows of tables of decisions that are not shown at full length, and names of one group.
const OTHERS: usize = 5;
const MEMBERS: usize = 12;
/// Thresholds and remarks that are shown.
const THRESHOLDS: usize = 40;

pub(super) fn section(story: &Story<'_>, main: Option<usize>, rows: usize) -> Markup {
    let all = story.incident.decisions.as_slice();
    html! {
        section #decisions {
            h2 { "Decisions" }
            @if all.is_empty() { p.quiet { "unknown: the record has no decision" } }
            @for (nth, decision) in all.iter().enumerate().take(rows.max(OTHERS)) {
                @let rows = if Some(nth) == main { rows } else { rows.min(OTHERS) };
                (one(story, nth, decision, Some(nth) == main, rows))
            }
            (left_out(all.len(), rows.max(OTHERS), "decisions"))
        }
    }
}

fn one(story: &Story<'_>, nth: usize, decision: &Decision, is_main: bool, rows: usize) -> Markup {
    let plan = &decision.plan;
    let remarks = remarks(plan);
    html! {
        article {
            h3 { "Decision " (nth + 1) " of " (story.incident.decisions.len()) ", " (after(story.incident.crossed_at, plan)) }
            p { (said(&short(plan))) "." }
            @if plan.evictions().next().is_none() { p { "Evicts nobody." } }
            @for evict in plan.evictions().take(rows) {
                p { strong.bad { "Evicts " } (name(&evict.workload.name)) ": " (said(&grounds(evict))) }
            }
            (left_out(plan.evictions().count(), rows, "evictions"))
            (ranked(&ranking(plan), rows))
            (skipped(&skips(plan), rows))
            @if is_main { (figures(decision)) }
            @if !remarks.is_empty() {
                h4 { "Remarks" }
                ul.members { @for note in remarks.iter().take(THRESHOLDS) { li { (said(note)) } } }
                (left_out(remarks.len(), THRESHOLDS, "remarks"))
            }
        }
    }
}

/// The ranking; the key that decided is underlined and said once more beside it.
pub(super) fn ranked(all: &[Place<'_>], rows: usize) -> Markup {
    html! {
        h4 { "Ranking" }
        @if all.is_empty() {
            p.quiet { "No candidate was ranked." }
        } @else {
            div.scroll { table {
                caption { (all.len()) " candidates, the first victim first; the key that placed each before the next is underlined" }
                thead { tr {
                    th.n scope="col" { "Place" }
                    th scope="col" { "Workload" }
                    th scope="col" { "Keys, in the order in which they are compared" }
                    th scope="col" { "Before the next by" }
                } }
                tbody {
                    @for place in all.iter().take(rows) {
                        tr.chosen[place.is_victim] {
                            td.n { (place.ranked.place) }
                            th scope="row" { (name(&place.ranked.workload.name)) @if place.is_victim { " " strong.bad { "evicted" } } }
                            td { ul.keys { @for key in &place.keys {
                                li { @if key.decided { strong { (said(&key.words)) } } @else { (said(&key.words)) } }
                            } } }
                            td { @match &place.before_next { Some(why) => (said(why)), None => span.quiet { "the last one" } } }
                        }
                    }
                }
            } }
            (left_out(all.len(), rows, "candidates"))
        }
    }
}

fn skipped(groups: &[Group<'_>], rows: usize) -> Markup {
    let members = MEMBERS.min(rows);
    html! {
        h4 { "Skipped, and why" }
        @if groups.is_empty() {
            p.quiet { "Nobody was skipped." }
        } @else {
            div.scroll { table {
                thead { tr { th scope="col" { "Why" } th.n scope="col" { "How many" } th scope="col" { "Whom" } } }
                tbody { @for group in groups.iter().take(rows) { tr {
                    th scope="row" { (said(&group.reason)) }
                    td.n { (group.members.len()) }
                    td {
                        @for (nth, kept) in group.members.iter().take(members).enumerate() {
                            @if nth > 0 { ", " }
                            (name(&subject(kept)))
                        }
                        (left_out(group.members.len(), members, "of them"))
                    }
                } } }
            } }
            (left_out(groups.len(), rows, "reasons"))
        }
    }
}

fn figures(decision: &Decision) -> Markup {
    let plan = &decision.plan;
    let watched = plan.memory_pressure.iter().map(pressure);
    let all: Vec<[String; 5]> = plan.thresholds.iter().map(threshold).chain(watched).collect();
    html! {
        h4 { "Thresholds and figures" }
        @if all.is_empty() { p.quiet { "unknown: the plan has no thresholds" } } @else {
            div.scroll { table {
                thead { tr {
                    th scope="col" { "What" } th scope="col" { "Kind" } th scope="col" { "Threshold" }
                    th scope="col" { "Left" } th scope="col" { "Where it stands" }
                } }
                tbody { @for [what, kind, value, left, state] in all.iter().take(THRESHOLDS) {
                    tr { th scope="row" { (said(what)) } td { (said(kind)) } td { (said(value)) } td { (said(left)) } td { (said(state)) } }
                } }
            } }
            (left_out(all.len(), THRESHOLDS, "thresholds"))
        }
        dl.tiles { @for (what, value) in node(&decision.snapshot) { div { dt { (what) } dd { (said(&value)) } } } }
    }
}
