//! The thresholds: what is left of each signal, where its limit is, and when it is met.

use super::cells::{self, Cell, Fit, Look};
use crate::status::{amount, percent, seconds, strength, word};
use crate::top::picture::Picture;
use ebb_api::wire::{AlsoBelow, MemoryPressure, Strength, Threshold, ThresholdState};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

const HEAD: [&str; 7] = ["SIGNAL", "KIND", "LIMIT", "AVAILABLE", "HEADROOM", "STATE", "FORECAST"];

/// Columns of everything but the signal, the bar and the state.
const FIXED: u16 = 4 + 10 + 10 + 8 + 6;
/// Columns of the longest name of a signal.
const SIGNAL: u16 = 28;
const BAR: u16 = 34;
/// Columns that a state is given at least.
const STATE: u16 = 10;

/// Rows that they would take up, with their head.
pub(super) fn wanted(picture: &Picture) -> u16 {
    let lines = picture.thresholds().map(|of| 1 + usize::from(of.also_below.is_some()));
    let count = lines.sum::<usize>().max(1) + picture.pressures.len() + 1;
    u16::try_from(count).unwrap_or(u16::MAX)
}

pub(super) fn draw(picture: &Picture, area: Rect, buf: &mut Buffer, look: Look) {
    // As wide as what is in it: a time that is cut off reads as another.
    let states = picture.thresholds().map(|threshold| cells::width(&state(threshold)));
    let state = states.max().unwrap_or(0).max(STATE);
    let rest = area.width.saturating_sub(FIXED + state);
    let signal = rest.saturating_sub(10).min(SIGNAL);
    let bar = rest.saturating_sub(signal).min(BAR);
    let widths = [signal, 4, 10, 10, bar, state, 8];
    let fits = [Fit::Name, Fit::Left, Fit::Right, Fit::Right, Fit::Left, Fit::Left, Fit::Right];
    let mut y = 0;
    let mut put = |texts: [String; 7], style: Style| {
        let cells = texts.into_iter().zip(widths).zip(fits);
        let cells: Vec<Cell> =
            cells.map(|((text, width), fit)| Cell::new(text, width, fit).styled(style)).collect();
        cells::row(buf, area, y, &cells);
        y += 1;
    };
    put(HEAD.map(str::to_owned), look.title());
    let mut rows: Vec<(Urgency, [String; 7], Style)> = Vec::new();
    for threshold in picture.thresholds() {
        let urgency = urgency(threshold);
        rows.push((urgency, row(threshold, bar), style(threshold, look)));
        if let Some(also) = &threshold.also_below {
            rows.push((urgency, and(also), Style::new()));
        }
    }
    for pressure in &picture.pressures {
        let (urgency, style) = match pressure.full_avg10 {
            Some(now) if now > pressure.limit => (Urgency::Met, look.bad()),
            Some(_) => (Urgency::Clear(u64::MAX), Style::new()),
            None => (Urgency::Unknown, look.faint()),
        };
        rows.push((urgency, of_pressure(pressure), style));
    }
    if rows.is_empty() {
        cells::text(buf, area, 1, "no threshold is known", Style::new());
        return;
    }
    let room = usize::from(area.height.saturating_sub(1));
    if rows.len() <= room {
        rows.into_iter().for_each(|(_, row, style)| put(row, style));
        return;
    }
    // Those that are nearest, in the order in which they are told.
    let mut nearest: Vec<(Urgency, usize)> =
        rows.iter().enumerate().map(|(place, (urgency, ..))| (*urgency, place)).collect();
    nearest.sort();
    let left_out = rows.len() - room.saturating_sub(1);
    let mut shown: Vec<usize> =
        nearest.into_iter().map(|(_, place)| place).take(room.saturating_sub(1)).collect();
    shown.sort_unstable();
    for (place, (_, row, style)) in rows.into_iter().enumerate() {
        if shown.contains(&place) {
            put(row, style);
        }
    }
    let more = format!("{left_out} more, none of them nearer");
    cells::text(buf, area, area.height.saturating_sub(1), &more, look.faint());
}

/// How much a threshold matters now; the most pressing first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    Met,
    Grace,
    /// Met in so many milliseconds.
    Foreseen(u64),
    /// What is left, in percent of the limit.
    Clear(u64),
    Unknown,
}

fn urgency(threshold: &Threshold) -> Urgency {
    match threshold.state() {
        ThresholdState::Met | ThresholdState::Stale => Urgency::Met,
        ThresholdState::Grace => Urgency::Grace,
        ThresholdState::Clear => match threshold.time_left_ms {
            Some(left) => Urgency::Foreseen(left),
            None => {
                let both = threshold.available.zip(threshold.limit);
                let of_limit = both.map(|(left, limit)| left.saturating_mul(100) / limit.max(1));
                Urgency::Clear(of_limit.unwrap_or(u64::MAX))
            }
        },
        _ => Urgency::Unknown,
    }
}

fn style(threshold: &Threshold, look: Look) -> Style {
    match threshold.state() {
        ThresholdState::Met | ThresholdState::Stale => look.bad(),
        ThresholdState::Grace => look.warning(),
        ThresholdState::Clear if threshold.time_left_ms.is_some() => look.warning(),
        ThresholdState::Clear => look.good(),
        _ => look.faint(),
    }
}

fn row(threshold: &Threshold, bar: u16) -> [String; 7] {
    let unit = threshold.unit();
    [
        threshold.signal.clone(),
        match threshold.strength() {
            Strength::Unspecified => "-".to_owned(),
            known => strength(known).to_owned(),
        },
        amount(threshold.limit, unit),
        amount(threshold.available, unit),
        headroom(threshold, bar),
        state(threshold),
        // Of one that is reached nothing is left to be foretold.
        match threshold.state() {
            ThresholdState::Clear => threshold.time_left_ms.map_or("-".to_owned(), soon),
            _ => "-".to_owned(),
        },
    ]
}

/// How a threshold stands, and what is left of its grace period.
fn state(threshold: &Threshold) -> String {
    match (threshold.state(), threshold.grace_left_ms) {
        (ThresholdState::Grace, Some(left @ 0..100_000)) => format!("grace {} s", left / 1000),
        (ThresholdState::Grace, Some(left)) => format!("grace {}", soon(left)),
        (state, _) => word(state).to_owned(),
    }
}

/// The second signal of a threshold on two.
fn and(also: &AlsoBelow) -> [String; 7] {
    let [limit, left] = [also.limit, also.available].map(|of| amount(of, also.unit()));
    let none = String::new;
    [format!("and {}", also.signal), none(), limit, left, none(), none(), none()]
}

fn of_pressure(pressure: &MemoryPressure) -> [String; 7] {
    let none = String::new;
    let state = match pressure.full_avg10 {
        Some(now) if now > pressure.limit => "above it",
        Some(_) => "clear",
        None => "unknown",
    };
    [
        format!("pressure {}", pressure.cgroup),
        none(),
        percent(pressure.limit),
        pressure.full_avg10.map_or("-".to_owned(), percent),
        none(),
        state.to_owned(),
        "-".to_owned(),
    ]
}

/// How soon, in eight columns.
fn soon(milliseconds: u64) -> String {
    match milliseconds {
        0..100_000 => seconds(milliseconds),
        100_000..6_000_000 => format!("{} min", milliseconds / 60_000),
        6_000_000..359_996_400_000 => format!("{} h", milliseconds / 3_600_000),
        _ => "far off".to_owned(),
    }
}

/// What is left of all there is, with the limit in it; `-` where the one or the other is unknown.
fn headroom(threshold: &Threshold, width: u16) -> String {
    let (Some(left), Some(all)) = (threshold.available, threshold.capacity) else {
        return "-".to_owned();
    };
    let cells = u64::from(width.saturating_sub(2));
    let place = |value: u64| {
        let scaled = u128::from(value.min(all)) * u128::from(cells);
        u64::try_from(scaled.div_ceil(u128::from(all.max(1)))).unwrap_or(cells)
    };
    let (filled, limit) = (place(left), threshold.limit.map(place));
    let cell = |n: u64| match limit {
        Some(limit) if n + 1 == limit.max(1) => '|',
        _ if n < filled => '#',
        _ => '.',
    };
    format!("[{}]", (0..cells).map(cell).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_what_is_left_and_the_limit_and_no_bar_is_made_up() {
        let bar = |available, capacity, limit| {
            let of = Threshold { available, capacity, limit, ..Threshold::default() };
            headroom(&of, 12)
        };
        assert_eq!(bar(Some(50), Some(100), Some(20)), "[#|###.....]");
        assert_eq!(bar(Some(5), Some(100), Some(20)), "[#|........]");
        assert_eq!(bar(Some(0), Some(100), Some(0)), "[|.........]");
        assert_eq!(bar(Some(100), Some(100), None), "[##########]");
        assert_eq!(bar(Some(u64::MAX), Some(u64::MAX), Some(u64::MAX)), "[#########|]");
        assert_eq!(bar(None, Some(100), Some(20)), "-");
        assert_eq!(bar(Some(1), None, Some(20)), "-");
    }

    #[test]
    fn a_grace_period_is_told_whole_however_long_it_is() {
        let told = |left| {
            let state = ThresholdState::Grace.into();
            let grace_left_ms = Some(left);
            let threshold = Threshold { state, grace_left_ms, ..Threshold::default() };
            let picture = Picture { thresholds: vec![threshold], ..Picture::default() };
            let mut buf = Buffer::empty(Rect::new(0, 0, 80, 2));
            let look = Look { has_colour: false, is_interactive: false };
            draw(&picture, buf.area, &mut buf, look);
            super::super::text_of(&buf).concat()
        };
        for (left, grace) in [
            (27_900, " grace 27 s "),
            (120_000, " grace 2 min "),
            (1_200_000, " grace 20 min "),
            (86_400_000, " grace 24 h "),
            (359_996_399_999, " grace 99998 h "),
        ] {
            assert!(told(left).contains(grace), "{left}: {}", told(left));
        }
    }

    #[test]
    fn a_forecast_fits_its_column() {
        for ms in [0, 99_999, 5_999_999, 359_996_399_999, u64::MAX] {
            assert!(soon(ms).len() <= 8, "{}", soon(ms));
        }
    }
}
