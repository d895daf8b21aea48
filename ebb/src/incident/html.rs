//! One incident as a page: a single file that opens offline, without a script and without a reference to anything outside.
//!
//! Markup is made by a library that escapes all text; names have passed [`said`] before, and the finished page is looked through once more for characters that speak to a terminal or turn the direction of writing.
//! Rows are capped so that the page stays below [`LARGEST`]; what is left out is counted.

mod compared;
mod decided;
mod style;
mod timeline;
mod workloads;

use super::again::Again;
use super::page_file::MARK;
use super::story::{Story, ms};
use ebb_journal::incident::Decision;
use ebb_journal::text::plain;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::fmt::Write as _;

/// The largest page, bytes.
const LARGEST: usize = 500 * 1024;

/// Rows of a table, the most first: fewer where the page would be too large.
const ROWS: [usize; 7] = [60, 30, 15, 8, 4, 2, 1];

/// Characters of a name that are shown, and of a longer text.
const NAME: usize = 200;
const TEXT: usize = 700;

/// Nothing may be loaded or run: what a page is made of is in it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The page.
pub(super) fn page(story: &Story<'_>, again: &Again) -> String {
    let mut last = String::new();
    for rows in ROWS {
        last = plain_lines(&draw(story, again, rows).into_string());
        if last.len() <= LARGEST {
            break;
        }
    }
    last
}

/// The decision that is shown at full length: the first that evicts, else the first.
fn main_decision<'a>(story: &Story<'a>) -> Option<(usize, &'a Decision)> {
    let mut all = story.incident.decisions.iter().enumerate();
    let evicts = |(_, decision): &(usize, &Decision)| decision.plan.evictions().next().is_some();
    all.clone().find(evicts).or_else(|| all.next())
}

fn draw(story: &Story<'_>, again: &Again, rows: usize) -> Markup {
    let main = main_decision(story);
    let title = format!("{} short, {}", said(&story.short_of()), story.crossed_at());
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name=(MARK) content=(story.id);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(style::sheet())) }
            }
            body {
                header { (head(story)) }
                nav aria-label="Contents" {
                    a href="#timeline" { "Timeline" }
                    a href="#workloads" { "Workloads" }
                    a href="#decisions" { "Decisions" }
                    a href="#compared" { "Another configuration" }
                    a href="#configuration" { "Configuration" }
                }
                main {
                    (timeline::section(story, rows))
                    (workloads::section(main, rows))
                    (decided::section(story, main.map(|(nth, _)| nth), rows))
                    (compared::section(story, again, main.map(|(nth, _)| nth), rows))
                    (configuration(story, main.map(|(_, decision)| decision)))
                }
                footer {
                    p { "Recorded by ebb " (said(&story.incident.ebb_version)) "; page made by ebb " (env!("CARGO_PKG_VERSION")) ". " (said(&again.verdict())) "." }
                }
            }
        }
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

/// A name or a text of the record as a page shows it: control characters written out, and no longer than a page can bear.
fn said(text: &str) -> String {
    clipped(text, TEXT)
}

/// A name, so that it cannot be taken for what stands around it.
fn name(text: &str) -> Markup {
    html! { bdi.name { (clipped(text, NAME)) } }
}

fn clipped(text: &str, most: usize) -> String {
    let shown = plain(text);
    let count = shown.chars().count();
    if count <= most {
        return shown.into_owned();
    }
    let half = most / 2;
    let first: String = shown.chars().take(half).collect();
    let last: String = shown.chars().skip(count - half).collect();
    format!("{first}… ({} characters left out) …{last}", count - 2 * half)
}

/// That there is more than is shown; nothing where there is not.
fn left_out(all: usize, shown: usize, what: &str) -> Markup {
    let left = all.saturating_sub(shown);
    html! { @if left > 0 { p.quiet { "and " (left) " more " (what) ", which are left out here" } } }
}

/// Every line of a page once more through the one way by which names reach people.
fn plain_lines(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    for line in page.lines() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", plain(line));
    }
    text
}

#[cfg(test)]
pub(super) mod tests;
