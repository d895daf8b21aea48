//! What another configuration would have done, beside what was done.

use crate::incident::again::{Again, Other};
use crate::incident::decision::{ranking, short, threshold, whom};
use crate::incident::story::Story;
use crate::page::{left_out, name, said};
use ebb_policy::Plan;
use ebb_policy::plan::ThresholdState;
use maud::{Markup, html};

/// Candidates that are shown of each side.
const SHOWN: usize = 5;

pub(super) fn section(
    story: &Story<'_>,
    again: &Again,
    main: Option<usize>,
    rows: usize,
) -> Markup {
    html! {
        section #compared {
            h2 { "Another configuration" }
            @match &again.other {
                Some(other) => (both(story, other, main, rows)),
                None => {
                    p { "No other configuration was named. This page with both side by side:" }
                    pre { code { "ebb incident html " (story.id) " --config FILE" } }
                }
            }
        }
    }
}

fn both(story: &Story<'_>, other: &Other, main: Option<usize>, rows: usize) -> Markup {
    let decisions = story.incident.decisions.as_slice();
    let shown = rows.max(SHOWN);
    let sides = main.and_then(|nth| Some((nth, decisions.get(nth)?, other.decisions.get(nth)?)));
    html! {
        p { "Each decision once more by " (name(&other.name)) ", from what was known at that moment. What would have followed from another choice is unknown, and so is whether it would have decided before the first decision that was recorded. Priorities, preferences and protection of workloads are those of the record: patterns of another configuration do not change them here." }
        div.scroll { table {
            caption { "Whom each evicts" }
            thead { tr { th.n scope="col" { "Decision" } th scope="col" { "Recorded" } th scope="col" { "With " (name(&other.name)) } th scope="col" { "The plans" } } }
            tbody { @for (nth, (then, now)) in decisions.iter().zip(&other.decisions).take(shown).enumerate() { tr {
                th.n scope="row" { (nth + 1) }
                td { (name(&whom(&then.plan))) }
                td { (name(&whom(&now.plan))) }
                td { @if now.count == 0 { span.good { "the same" } } @else { span.bad { (now.count) " differences" } } }
            } } }
        } }
        (left_out(decisions.len(), shown, "decisions"))
        @if let Some((nth, then, now)) = sides {
            h3 { "Decision " (nth + 1) ", side by side" }
            div.sides {
                (side(&html! { "Recorded" }, &then.plan, rows))
                (side(&html! { "With " (name(&other.name)) }, &now.plan, rows))
            }
            @if !now.differences.is_empty() {
                h4 { "Where the plans differ" }
                ul.members { @for path in &now.differences { li { span.name { (said(path)) } } } }
                (left_out(now.count, now.differences.len(), "differences"))
            }
        }
    }
}

fn side(title: &Markup, plan: &Plan, rows: usize) -> Markup {
    let all = ranking(plan);
    let shown = SHOWN.min(rows);
    html! {
        div {
            h4 { (title) }
            p { (said(&short(plan))) "." }
            ul.members { @for [what, kind, value, left, state] in plan.thresholds.iter().filter(|of| is_near(of.state)).map(threshold) {
                li { (said(&format!("{what} {value} ({kind}): {left} left, {state}"))) }
            } }
            p { "Evicts " (name(&whom(plan))) "." }
            @if !all.is_empty() {
                ol.plain { @for place in all.iter().take(shown) { li {
                    (name(&place.ranked.workload.name)) @if place.is_victim { " " strong.bad { "evicted" } }
                    @if let Some(why) = &place.before_next { br; span.quiet { "before the next by: " (said(why)) } }
                } } }
                (left_out(all.len(), shown, "candidates"))
            }
        }
    }
}

/// Whether a threshold is met, or would be.
fn is_near(state: ThresholdState) -> bool {
    matches!(state, ThresholdState::Grace | ThresholdState::Stale | ThresholdState::Met)
}
