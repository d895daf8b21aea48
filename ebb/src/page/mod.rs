//! Pages of HTML: one file each, which opens offline, runs no script and refers to nothing outside.
//!
//! Markup is made by a library that escapes all text; names have passed [`said`] before, and the finished page is looked through once more for characters that speak to a terminal or turn the direction of writing.
//! Rows are capped so that a page stays below [`LARGEST`]; what is left out is counted.

mod style;
#[cfg(test)]
pub(crate) mod tests;

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

/// What a page is made of.
pub(crate) struct Parts {
    /// In the window's title.
    pub(crate) title: String,
    /// An element among the first ones that says whose page it is: its name, and the value.
    pub(crate) mark: Option<(&'static str, String)>,
    /// What comes before everything else, with the page's one heading.
    pub(crate) head: Markup,
    /// The sections to go to: their ids, and what they are called.
    pub(crate) contents: Vec<(&'static str, &'static str)>,
    /// The sections.
    pub(crate) sections: Markup,
    /// What made it of what.
    pub(crate) foot: Markup,
}

/// A page with as many rows in its tables as it can bear.
pub(crate) fn page(parts: impl Fn(usize) -> Parts) -> String {
    let mut last = String::new();
    for rows in ROWS {
        last = plain_lines(&whole(&parts(rows)).into_string());
        if last.len() <= LARGEST {
            break;
        }
    }
    last
}

fn whole(parts: &Parts) -> Markup {
    let Parts { title, mark, head, contents, sections, foot } = parts;
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                @if let Some((name, value)) = mark { meta name=(name) content=(value); }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(style::sheet())) }
            }
            body {
                header { (head) }
                nav aria-label="Contents" {
                    @for (id, called) in contents { a href=(format!("#{id}")) { (called) } }
                }
                main { (sections) }
                footer { p { (foot) } }
            }
        }
    }
}

/// A name or a text as a page shows it: control characters written out, and no longer than a page can bear.
pub(crate) fn said(text: &str) -> String {
    clipped(text, TEXT)
}

/// A name, so that it cannot be taken for what stands around it.
pub(crate) fn name(text: &str) -> Markup {
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
pub(crate) fn left_out(all: usize, shown: usize, what: &str) -> Markup {
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
