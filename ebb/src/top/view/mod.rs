//! The screen: from the model to cells, the same for the same model. 80×24 is enough, and nothing is said by colour alone.
//!
//! ```text
//!  header      version, mode, time; incidents; who would be evicted first
//!  thresholds  limit, what is left, headroom, state, forecast
//!  workloads   the list, or the tree of cgroups; help and details are laid over it
//!  records     the last ones
//!  footer      keys, or the filter that is typed
//! ```

mod cells;
mod overlay;
mod thresholds;
mod workloads;

use super::model::{Focus, Link, Model, Origin};
use crate::runtime::ago;
pub(super) use cells::Look;
use cells::{Cell, Fit, width};
use ebb_journal::text::time_of_day;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// The smallest screen that says something.
const LEAST: (u16, u16) = (40, 12);

const HEADER: u16 = 3;
const FOOTER: u16 = 1;

/// Where things are on a screen.
struct Areas {
    header: Rect,
    thresholds: Rect,
    workloads: Rect,
    records: Rect,
    footer: Rect,
}

impl Areas {
    fn of(model: &Model, screen: Rect) -> Self {
        let least = 1 + match screen.height {
            0..18 => 1,
            18..32 => 3,
            _ => 5,
        };
        let rest = screen.height.saturating_sub(HEADER + FOOTER + least);
        // The list has half of what is left at least.
        let thresholds = thresholds::wanted(model.picture()).min(rest / 2);
        // Room that the list does not need goes to records.
        let count = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
        let list = count(model.rows().len().max(1)).saturating_add(workloads::HEAD);
        let unused = (rest - thresholds).saturating_sub(list);
        let more = count(model.records().len()).saturating_add(1).saturating_sub(least);
        let more = more.min(unused);
        let (rest, records) = (rest - more, least + more);
        let mut y = screen.y;
        let mut next = |height: u16| {
            let area = Rect { y, height, ..screen };
            y += height;
            area
        };
        Self {
            header: next(HEADER),
            thresholds: next(thresholds),
            workloads: next(rest - thresholds),
            records: next(records),
            footer: next(FOOTER),
        }
    }
}

/// Rows of the list that fit on a screen.
pub(super) fn page(model: &Model, screen: Rect) -> usize {
    let list = Areas::of(model, screen).workloads.height;
    usize::from(list.saturating_sub(workloads::HEAD))
}

/// Rows that everything takes up, for a screen that need not end.
pub(super) fn whole(model: &Model) -> u16 {
    let list = u16::try_from(model.rows().len().max(1)).unwrap_or(u16::MAX);
    let list = list.saturating_add(workloads::HEAD);
    let rest = list.max(thresholds::wanted(model.picture())).saturating_mul(2);
    rest.saturating_add(HEADER + FOOTER + 6).max(32)
}

/// Draws all of it.
pub(super) fn draw(model: &Model, screen: Rect, buf: &mut Buffer, look: Look) {
    if screen.width < LEAST.0 || screen.height < LEAST.1 {
        cells::text(buf, screen, 0, "too small: 80x24 is wanted", Style::new());
        return;
    }
    let areas = Areas::of(model, screen);
    header(model, areas.header, buf, look);
    thresholds::draw(model.picture(), areas.thresholds, buf, look);
    workloads::draw(model, areas.workloads, buf, look);
    records(model, areas.records, buf, look);
    footer(model, areas.footer, buf, look);
    let over = areas.thresholds.union(areas.records);
    match &model.focus {
        Focus::List | Focus::Filter => {}
        Focus::Help => overlay::help(over, buf, look),
        Focus::Details(key) => overlay::details(model, key, over, buf, look),
    }
}

/// The same as lines of text, without blank ends; nobody selects anything there.
pub(super) fn lines(model: &Model, width: u16) -> Vec<String> {
    let screen = Rect::new(0, 0, width, whole(model));
    let mut buf = Buffer::empty(screen);
    draw(model, screen, &mut buf, Look { has_colour: false, is_interactive: false });
    let mut lines = text_of(&buf);
    // There are no keys to be pressed, and what has room to spare leaves none.
    lines.pop();
    lines.retain(|line| !line.is_empty());
    lines
}

/// What stands in a buffer.
pub(super) fn text_of(buf: &Buffer) -> Vec<String> {
    let row = |y| {
        let mut line = String::new();
        let mut x = buf.area.left();
        while let Some(cell) = buf.cell((x, y)).filter(|_| x < buf.area.right()) {
            line.push_str(cell.symbol());
            // What takes up two columns has the next cell too.
            x = x.saturating_add(width(cell.symbol()).max(1));
        }
        line.trim_end().to_owned()
    };
    (buf.area.top()..buf.area.bottom()).map(row).collect()
}

fn header(model: &Model, area: Rect, buf: &mut Buffer, look: Look) {
    let picture = model.picture();
    let mut parts = vec![format!("ebb {}", picture.version)];
    if !picture.mode.is_empty() {
        parts.push(picture.mode.to_owned());
    }
    parts.extend(picture.at.map(to_the_second));
    if let Some((now, looked)) = picture.at.zip(picture.looked_at) {
        parts.push(format!("node read {} ago", ago(now.saturating_sub(looked))));
    }
    parts.extend(picture.workload_count.map(|count| format!("{count} workloads")));
    let (state, style) = match &model.origin {
        _ if model.is_frozen() => ("FROZEN".to_owned(), look.warning()),
        Origin::Agent(Link::Up) => ("live".to_owned(), look.good()),
        Origin::Agent(Link::Lost { .. }) => ("NO ANSWER".to_owned(), look.bad()),
        Origin::Recorded { steps, at } => {
            (format!("decision {} of {}", at + 1, steps.len()), look.title())
        }
    };
    let right = width(&state);
    let left = area.width.saturating_sub(right + 1);
    let cells = [
        Cell::new(parts.join(", "), left, Fit::Left).styled(look.title()),
        Cell::new(state, right, Fit::Right).styled(style),
    ];
    cells::row(buf, area, 0, &cells);
    let (news, style) = news(model, look);
    cells::text(buf, area, 1, &news, style);
    let (evicted, style) = evicted(model, look);
    cells::text(buf, area, 2, &evicted, style);
}

/// A time of day.
fn to_the_second(at: u64) -> String {
    let time = time_of_day(at);
    format!("{} UTC", time.split('.').next().unwrap_or(&time))
}

/// What matters most: that the agent does not answer, or which incidents go on.
fn news(model: &Model, look: Look) -> (String, Style) {
    if let Origin::Agent(Link::Lost { since, why }) = &model.origin {
        let since = to_the_second(*since);
        return (
            format!("no answer from the agent since {since}, asking again: {why}"),
            look.bad(),
        );
    }
    match model.picture().incidents.as_slice() {
        [] => ("no incident going on".to_owned(), Style::new()),
        [one] if matches!(model.origin, Origin::Recorded { .. }) => {
            (format!("recorded incident {one}"), Style::new())
        }
        [one] => (format!("incident going on: {one}"), look.bad()),
        all => (format!("{} incidents going on: {}", all.len(), all.join(", ")), look.bad()),
    }
}

/// Who is evicted, or would be first.
fn evicted(model: &Model, look: Look) -> (String, Style) {
    let picture = model.picture();
    if let Some(decision) = &picture.decision {
        return (decision.clone(), look.title());
    }
    match picture.first() {
        Some(first) => {
            let (name, why) = (&first.key.name, &first.reason);
            (format!("evicted first below {}: {name}: {why}", picture.ranked_for), Style::new())
        }
        None if picture.untold.is_some() || picture.seen_at.is_none() => {
            ("evicted first: unknown".to_owned(), Style::new())
        }
        None => (format!("no eviction candidates for {}", picture.ranked_for), Style::new()),
    }
}

fn records(model: &Model, area: Rect, buf: &mut Buffer, look: Look) {
    cells::text(buf, area, 0, "LAST RECORDS", look.title());
    let records = model.records();
    if records.is_empty() {
        cells::text(buf, area, 1, "none yet", Style::new());
        return;
    }
    let room = usize::from(area.height.saturating_sub(1));
    let last = records.iter().skip(records.len().saturating_sub(room));
    for (y, record) in last.enumerate() {
        let y = u16::try_from(y).unwrap_or(u16::MAX).saturating_add(1);
        cells::text(buf, area, y, record, Style::new());
    }
}

fn footer(model: &Model, area: Rect, buf: &mut Buffer, look: Look) {
    let keys = match (&model.focus, &model.origin) {
        (Focus::Filter, _) => format!("filter: {}_  (Enter keeps it, Esc drops it)", model.filter),
        (Focus::Help | Focus::Details(_), _) => "Esc back  q quit".to_owned(),
        (Focus::List, Origin::Recorded { .. }) => {
            "q quit  ? help  Left/Right decision  s sort  / filter  t tree  Enter details"
                .to_owned()
        }
        (Focus::List, Origin::Agent(_)) => {
            "q quit  ? help  s sort  / filter  t tree  f freeze  Enter details".to_owned()
        }
    };
    cells::text(buf, area, 0, &keys, look.bar());
}

#[cfg(test)]
mod tests;
