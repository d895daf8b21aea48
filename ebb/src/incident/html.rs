//! One incident as a page.

mod compared;
mod decided;
mod timeline;
mod workloads;

use super::again::Again;
use super::page_file::MARK;
use super::story::{Story, ms};
use crate::page::{self, Parts, left_out, said};
use ebb_journal::incident::Decision;
use maud::{Markup, html};

/// Its sections.
const SECTIONS: [(&str, &str); 5] = [
    ("timeline", "Timeline"),
    ("workloads", "Workloads"),
    ("decisions", "Decisions"),
    ("compared", "Another configuration"),
    ("configuration", "Configuration"),
];

/// The page.
pub(super) fn page(story: &Story<'_>, again: &Again) -> String {
    page::page(|rows| parts(story, again, rows))
}

/// The decision that is shown at full length: the first that evicts, else the first.
fn main_decision<'a>(story: &Story<'a>) -> Option<(usize, &'a Decision)> {
    let mut all = story.incident.decisions.iter().enumerate();
    let evicts = |(_, decision): &(usize, &Decision)| decision.plan.evictions().next().is_some();
    all.clone().find(evicts).or_else(|| all.next())
}

fn parts(story: &Story<'_>, again: &Again, rows: usize) -> Parts {
    let main = main_decision(story);
    let nth = main.map(|(nth, _)| nth);
    Parts {
        title: format!("{} short, {}", said(&story.short_of()), story.crossed_at()),
        mark: Some((MARK, story.id.clone())),
        head: head(story),
        contents: SECTIONS.to_vec(),
        sections: html! {
            (timeline::section(story, rows))
            (workloads::section(main, rows))
            (decided::section(story, nth, rows))
            (compared::section(story, again, nth, rows))
            (configuration(story, main.map(|(_, decision)| decision)))
        },
        foot: html! {
            "Recorded by ebb " (said(&story.incident.ebb_version)) "; page made by ebb " (env!("CARGO_PKG_VERSION")) ". " (said(&again.verdict())) "."
        },
    }
}

fn head(story: &Story<'_>) -> Markup {
    let known = |value: Option<f64>| value.map_or("unknown".to_owned(), ms);
    let relieved = match story.outcome {
        super::story::Outcome::Relieved { after_ms } => ms(after_ms),
        other => other.words(),
    };
    let ask = story.ask.map(|act| {
        (if act.is_dry_run() { "Dry run after" } else { "SIGTERM after" }, ms(act.after_ms))
    });
    // Where it wraps: between the day and the time.
    let crossed = story.crossed_at().replacen('T', " ", 1);
    html! {
        p.quiet { "ebb incident " code { (story.id) } }
        h1 { span.name { (said(&story.short_of())) } @if story.incident.signal.is_some() { " was short" } }
        p.verdict { (said(&story.verdict())) "." }
        @if story.oom_kills > 0 {
            p.bad { "The kernel's OOM killer came in " (story.oom_kills) " times meanwhile." }
        }
        dl.tiles {
            div { dt { "Crossed" } dd { (crossed) } }
            div { dt { "Seen after" } dd { (known(story.seen)) } }
            div { dt { "Decided after" } dd { (known(story.decided)) } }
            @if let Some((what, after)) = &ask { div { dt { (what) } dd { (after) } } }
            @if ask.is_none() || story.kill.is_some() {
                div { dt { "Killed after" } dd { (known(story.kill.map(|act| act.after_ms))) } }
            }
            div { dt { "Relieved after" } dd { (relieved) } }
        }
    }
}

fn configuration(story: &Story<'_>, main: Option<&Decision>) -> Markup {
    const LINES: usize = 120;
    let text = main.and_then(|decision| decision.config.as_ref()).unwrap_or(&story.incident.config);
    let all = text.lines().count();
    html! {
        section #configuration {
            h2 { "Configuration that decided" }
            @if all == 0 {
                p.quiet { "unknown" }
            } @else {
                pre { code { @for line in text.lines().take(LINES) { (said(line)) "\n" } } }
                (left_out(all, LINES, "lines"))
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
