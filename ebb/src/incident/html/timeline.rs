//! The timeline: a picture to scale, a closer one of the part in which ebb acted where that is short, and the same as a table.

use crate::incident::story::{Short, Story, is_oom_kill, ms};
use crate::page::{left_out, said};
use ebb_journal::Moment;
use maud::{Markup, html};

/// Moments that a picture labels, and that the table lists at most.
const LABELLED: usize = 16;
const LISTED: usize = 256;
/// The picture's measures.
const WIDTH: f64 = 1000.0;
const SIDE: f64 = 8.0;
const AXIS: f64 = 30.0;
const BAND: f64 = 14.0;
const ROW: f64 = 23.0;
/// Characters of a label.
const LABEL: usize = 62;
/// How wide a character of a label is at most, for the room that labels take.
const CHARACTER: f64 = 7.6;
/// Marks on the scale at most.
const MARKS: f64 = 8.0;
/// A part of the whole that is shorter than this is drawn once more, by itself.
const CLOSER: f64 = 0.25;

/// A stretch of time that a picture shows, milliseconds since the crossing.
#[derive(Debug, Clone, Copy)]
struct Window {
    from: f64,
    to: f64,
}

pub(super) fn section(story: &Story<'_>, rows: usize) -> Markup {
    let all = story.incident.timeline.as_slice();
    let listed = LISTED.min(rows.saturating_mul(4));
    html! {
        section #timeline {
            h2 { "From crossing to relief" }
            @if let Some(whole) = Window::whole(all) {
                (figure(story, whole, "whole", "The whole incident, to scale."))
                @if let Some(closer) = closer(story, whole) {
                    (figure(story, closer, "closer", "The part in which ebb acted, to scale."))
                }
                p.quiet.legend {
                    span { svg viewBox="0 0 8 8" aria-hidden="true" { rect.short width="8" height="8" {} } "short" }
                    span { svg viewBox="0 0 8 8" aria-hidden="true" { rect.calm width="8" height="8" {} } "no longer short" }
                }
            } @else {
                p.quiet { "When what happened is unknown: the record has no timeline that can be drawn." }
            }
            @if !all.is_empty() {
                div.scroll { table {
                    caption { "Every moment of the record, in milliseconds since the crossing" }
                    thead { tr { th.n scope="col" { "After" } th scope="col" { "What" } th scope="col" { "Whom, and how" } } }
                    tbody {
                        @for moment in all.iter().take(listed) {
                            tr.chosen[is_act(moment)] {
                                td.n { (ms(moment.after_ms)) }
                                td { (said(&moment.what)) }
                                td { @if let Some(detail) = &moment.detail { bdi.name { (said(detail)) } } }
                            }
                        }
                    }
                } }
                (left_out(all.len(), listed, "moments"))
            }
        }
    }
}

impl Window {
    /// All moments; `None` where there are none, or none that can be drawn.
    fn whole(all: &[Moment]) -> Option<Self> {
        let ends = all.iter().map(|moment| moment.after_ms).filter(|at| at.is_finite());
        let (from, to) = ends.fold((0.0_f64, 0.0_f64), |(from, to), at| (from.min(at), to.max(at)));
        let span = to - from;
        let room = if span > 0.0 { span * 0.02 } else { 1.0 };
        let window = Self { from, to: to + room };
        (!all.is_empty() && window.span().is_finite()).then_some(window)
    }

    fn span(self) -> f64 {
        self.to - self.from
    }

    fn has(self, at: f64) -> bool {
        at >= self.from && at <= self.to
    }

    /// Where a moment stands in the picture.
    fn x(self, at: f64) -> f64 {
        let part = ((at - self.from) / self.span()).clamp(0.0, 1.0);
        SIDE + part * (WIDTH - 2.0 * SIDE)
    }

    /// Marks at round numbers.
    fn marks(self) -> Vec<f64> {
        let raw = self.span() / MARKS;
        let power = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|s| *s >= raw);
        let step = step.unwrap_or(raw);
        let first = (self.from / step).ceil();
        let marks = (0..=u8::MAX).map(|n| (first + f64::from(n)) * step);
        marks.take_while(|at| *at <= self.to).collect()
    }
}

/// The part from the decision to the end of what it did, where it is a small part of the whole.
fn closer(story: &Story<'_>, whole: Window) -> Option<Window> {
    let acts = story.incident.timeline.iter().filter(|m| is_act(m)).map(|m| m.after_ms);
    let to = acts.fold(None, |last: Option<f64>, at| Some(last.map_or(at, |last| last.max(at))))?;
    let from = story.decided.or(story.kill.map(|act| act.after_ms))?.min(to);
    let from = match story.seen {
        Some(seen) if seen <= from && to - seen < CLOSER * whole.span() => seen,
        _ => from,
    };
    let room = ((to - from) * 0.06).max(whole.span() * 1e-6).max(0.01);
    let window = Window { from: from - room, to: to + room };
    (window.span().is_finite() && window.span() < CLOSER * whole.span()).then_some(window)
}

/// What was decided, done to a victim, or came of it.
fn is_act(moment: &Moment) -> bool {
    let acts = ["decided", "killed", "terminat", "would be evicted"];
    !is_oom_kill(moment) && acts.iter().any(|word| moment.what.starts_with(word))
}

/// A moment in its place.
struct Flag<'a> {
    moment: &'a Moment,
    x: f64,
    row: usize,
    /// Its text is to the right of its line, else to the left.
    right: bool,
}

fn flags(all: &[Moment], window: Window) -> Vec<Flag<'_>> {
    let inside = || all.iter().filter(|m| m.after_ms.is_finite() && window.has(m.after_ms));
    let mut labelled: Vec<&Moment> = inside().filter(|m| is_act(m)).take(LABELLED).collect();
    let rest = inside().filter(|m| !is_act(m));
    let room = LABELLED - labelled.len();
    labelled.extend(rest.take(room));
    labelled.sort_by(|a, b| a.after_ms.total_cmp(&b.after_ms));
    let middle = WIDTH * 0.55;
    let (left, right): (Vec<_>, Vec<_>) =
        labelled.into_iter().map(|m| (m, window.x(m.after_ms))).partition(|(_, x)| *x <= middle);
    // No line crosses a text: to the right the later ones hang deeper, to the left the earlier ones, below those where there is no room beside them.
    let room = |(moment, x): &(&Moment, f64)| {
        let characters = u16::try_from(label(moment).chars().count()).unwrap_or(u16::MAX);
        (*x, CHARACTER * f64::from(characters) + 20.0)
    };
    let ends = left.iter().map(room).map(|(x, wide)| x + wide).fold(0.0, f64::max);
    let begins = right.iter().map(room).map(|(x, wide)| x - wide).fold(WIDTH, f64::min);
    let (above, below) = (if ends < begins { 0 } else { right.len() }, left.len());
    let hang = |(nth, (moment, x)): (usize, _)| Flag { moment, x, row: nth, right: false };
    let mut flags: Vec<Flag<'_>> = right.into_iter().enumerate().map(hang).collect();
    flags.extend(left.into_iter().enumerate().map(|(nth, (moment, x))| Flag {
        moment,
        x,
        row: above + below - 1 - nth,
        right: true,
    }));
    flags
}

fn figure(story: &Story<'_>, window: Window, id: &str, caption: &str) -> Markup {
    let all = story.incident.timeline.as_slice();
    let flags = flags(all, window);
    let bottom = AXIS + BAND;
    let deepest = flags.iter().map(|flag| flag.row + 1).max().unwrap_or(0);
    let rows = u16::try_from(deepest).unwrap_or(u16::MAX);
    let height = bottom + 14.0 + f64::from(rows) * ROW;
    let number = |value: f64| format!("{value:.2}");
    let (title, desc) = (format!("{id}-title"), format!("{id}-desc"));
    html! {
        figure {
            div.scroll {
                svg.chart role="img" viewBox=(format!("0 0 {WIDTH} {height:.0}")) aria-labelledby=(format!("{title} {desc}")) {
                    title id=(title) { (caption) }
                    desc id=(desc) { (said(&story.verdict())) ". The table below has every moment." }
                    (scale(window))
                    rect.calm x=(number(SIDE)) y=(AXIS) width=(number(WIDTH - 2.0 * SIDE)) height=(BAND) rx="2" {}
                    @for short in story.shortages() { (stretch(short, window)) }
                    @for moment in all.iter().filter(|m| window.has(m.after_ms)).take(LISTED) {
                        rect.mark x=(number(window.x(moment.after_ms) - 0.75)) y=(AXIS - 3.0) width="1.5" height=(BAND + 6.0) {}
                    }
                    @for flag in &flags { (draw(flag, bottom)) }
                }
            }
            figcaption { (caption) }
        }
    }
}

fn scale(window: Window) -> Markup {
    html! {
        g.scale {
            @for at in window.marks() {
                @let x = window.x(at);
                @let anchor = if x < 30.0 { "start" } else if x > WIDTH - 40.0 { "end" } else { "middle" };
                line x1=(format!("{x:.2}")) x2=(format!("{x:.2}")) y1=(AXIS - 8.0) y2=(AXIS) {}
                text x=(format!("{x:.2}")) y=(AXIS - 13.0) text-anchor=(anchor) { (length(at, window)) }
            }
        }
    }
}

/// A time on the scale, in a unit that fits.
fn length(at: f64, window: Window) -> String {
    if at == 0.0 {
        "0".to_owned()
    } else if window.span() >= 10_000.0 {
        format!("{:.0} s", at / 1000.0)
    } else if window.span() >= 8.0 {
        format!("{at:.0} ms")
    } else {
        format!("{at:.2} ms")
    }
}

fn stretch(short: Short, window: Window) -> Markup {
    let (from, to) = (window.x(short.from), window.x(short.to.unwrap_or(window.to)));
    html! {
        @if to > from {
            rect.short x=(format!("{from:.2}")) y=(AXIS) width=(format!("{:.2}", to - from)) height=(BAND) {}
        }
    }
}

fn draw(flag: &Flag<'_>, top: f64) -> Markup {
    let Flag { moment, x, row, right } = flag;
    let y = top + 10.0 + f64::from(u16::try_from(*row).unwrap_or(u16::MAX)) * ROW + ROW / 2.0;
    let (end, text, anchor) =
        if *right { (x + 9.0, x + 13.0, "start") } else { (x - 9.0, x - 13.0, "end") };
    let what = if is_act(moment) { "act" } else { "seen" };
    html! {
        g class=(what) {
            path.stem d=(format!("M{x:.2} {top:.2}V{y:.2}H{end:.2}")) {}
            circle.mark cx=(format!("{end:.2}")) cy=(format!("{y:.2}")) r="2.5" {}
            text x=(format!("{text:.2}")) y=(format!("{:.2}", y + 4.5)) text-anchor=(anchor) { (label(moment)) }
        }
    }
}

fn label(moment: &Moment) -> String {
    let detail = moment.detail.as_deref().map(|detail| format!("  {detail}")).unwrap_or_default();
    let text = said(&format!("{}  {}{detail}", ms(moment.after_ms), moment.what));
    if text.chars().count() <= LABEL {
        return text;
    }
    let short: String = text.chars().take(LABEL - 1).collect();
    format!("{short}…")
}
