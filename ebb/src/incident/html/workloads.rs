//! What was measured of each workload when ebb decided: memory, growth and stall, as bars with their figures.

use crate::incident::decision::{Figures, figures, per_second, stalled};
use crate::page::{left_out, name, said};
use ebb_journal::incident::Decision;
use ebb_journal::text::bytes;
use maud::{Markup, html};

pub(super) fn section(main: Option<(usize, &Decision)>, rows: usize) -> Markup {
    html! {
        section #workloads {
            h2 { "Workloads" }
            @match main {
                None => p.quiet { "unknown: the record has no decision" },
                Some((nth, decision)) => (table(nth, &figures(decision), rows)),
            }
        }
    }
}

fn table(nth: usize, all: &[Figures<'_>], rows: usize) -> Markup {
    let most = |of: fn(&Figures<'_>) -> Option<u64>| all.iter().filter_map(of).max();
    let memory = most(|of| of.memory);
    let growth = most(|of| of.growth.map(i64::unsigned_abs));
    let stall = most(|of| of.stall.map(i64::unsigned_abs));
    let unknown = || "unknown".to_owned();
    let scale = [
        memory.map_or_else(unknown, bytes),
        growth.map_or_else(unknown, |rate| format!("{}/s", bytes(rate))),
        stall.map_or_else(unknown, |us| stalled(i64::try_from(us).unwrap_or(i64::MAX))),
    ];
    html! {
        p.quiet {
            "As they were measured for decision " (nth + 1) ". A full bar is the most of any workload: "
            "memory (working set) " (scale[0]) ", growth " (scale[1]) ", waiting for memory, summed over tasks, " (scale[2]) ". "
            "What the record does not have is unknown."
        }
        div.scroll { table {
            caption { (all.len()) " workloads in the snapshot, victims first, then by memory" }
            thead { tr {
                th scope="col" { "Workload" }
                th scope="col" { "Memory" }
                th scope="col" { "Growth" }
                th scope="col" { "Waits for memory" }
                th.n scope="col" { "Processes" }
                th scope="col" { "Outcome" }
            } }
            tbody {
                @for of in all.iter().take(rows) {
                    tr.chosen[of.is_victim] {
                        th scope="row" { (name(&of.key.name)) }
                        td.figure { (bar(of.memory, memory, "value", of.memory.map(bytes)))
                            @if let Some(swap @ 1..) = of.swap { span.quiet { "and " (bytes(swap)) " swapped out" } } }
                        td.figure { (bar(of.growth.map(i64::unsigned_abs), growth, direction(of.growth), of.growth.map(per_second))) }
                        td.figure { (bar(of.stall.map(i64::unsigned_abs), stall, "value", of.stall.map(stalled))) }
                        td.n { @match of.processes { Some(n) => (n), None => span.quiet { "unknown" } } }
                        td { (outcome(of)) }
                    }
                }
            }
        } }
        (left_out(all.len(), rows, "workloads"))
    }
}

fn direction(rate: Option<i64>) -> &'static str {
    if rate.is_some_and(|rate| rate < 0) { "down" } else { "up" }
}

fn outcome(of: &Figures<'_>) -> Markup {
    html! {
        @if of.is_victim {
            strong.bad { "evicted" }
        } @else if let Some(why) = &of.skipped {
            span.quiet { (said(why)) }
        } @else {
            span.quiet { "not chosen" }
        }
    }
}

/// A figure with its bar; what is unknown has none.
fn bar(value: Option<u64>, most: Option<u64>, class: &str, words: Option<String>) -> Markup {
    let (Some(value), Some(words)) = (value, words) else {
        return html! { span.quiet { "unknown" } };
    };
    let most = most.unwrap_or(value).max(1);
    let part = 100.0 * value as f64 / most as f64;
    html! {
        (words)
        svg.bar role="img" viewBox="0 0 100 8" preserveAspectRatio="none" {
            title { (words) }
            rect class=(class) width=(format!("{part:.2}")) height="8" {}
        }
    }
}
