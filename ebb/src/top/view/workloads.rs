//! The workloads: who would be evicted in which order, what each uses, and why it stands there.

use super::cells::{self, Cell, Fit, Look, plain_width, width};
use crate::runtime::ago;
use crate::top::model::{Model, Sort};
use crate::top::tree::{Memory, Row};
use crate::workloads::{Line, Standing};
use ebb_journal::text::bytes;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Rows above the list: what it is, and its columns.
pub(super) const HEAD: u16 = 2;

const MARK: u16 = 1;
const PLACE: u16 = 4;
/// Columns that a name and a reason are given at least.
const LEAST_NAME: u16 = 12;
const LEAST_WHY: u16 = 8;

pub(super) fn draw(model: &Model, area: Rect, buf: &mut Buffer, look: Look) {
    let rows = model.rows();
    let page = usize::from(area.height.saturating_sub(HEAD));
    cells::text(buf, area, 0, &title(model, rows.len(), page), look.title());
    if rows.is_empty() {
        cells::text(buf, area, 1, nothing(model), Style::new());
        return;
    }
    let columns = Columns::of(&rows, area.width);
    cells::row(buf, area, 1, &columns.head(model, look));
    for (y, (place, row)) in rows.iter().enumerate().skip(model.offset).take(page).enumerate() {
        let y = u16::try_from(y).unwrap_or(u16::MAX).saturating_add(HEAD);
        let is_selected = look.is_interactive && place == model.selected();
        cells::row(buf, area, y, &columns.row(row, is_selected, look));
        if is_selected {
            let line = Rect { y: area.y + y, height: 1, ..area };
            buf.set_style(line, look.bar());
        }
    }
}

/// What the list is.
fn title(model: &Model, count: usize, page: usize) -> String {
    let picture = model.picture();
    let what = if model.is_tree { "CGROUPS" } else { "WORKLOADS" };
    let last = (model.offset + page).min(count);
    let mut title = match count {
        0 => format!("{what} 0"),
        _ => format!("{what} {}-{last} of {count}", model.offset + 1),
    };
    title.push_str(&format!(", by {}", model.sort.name()));
    if !model.filter.is_empty() {
        title.push_str(&format!(", filter {}", model.filter));
    }
    if let Some((now, seen)) = picture.at.zip(picture.seen_at) {
        title.push_str(&format!(", read {} ago", ago(now.saturating_sub(seen))));
    }
    if picture.left_out > 0 {
        title.push_str(&format!(", {} left out", picture.left_out));
    }
    title
}

fn nothing(model: &Model) -> &'static str {
    let picture = model.picture();
    match picture.untold {
        Some(why) => why,
        None if !model.filter.is_empty() && !picture.workloads.is_empty() => {
            "no workload has that in its name"
        }
        None if picture.seen_at.is_none() => "nothing was decided yet",
        None => "there are no workloads",
    }
}

/// The widths of the columns.
struct Columns {
    name: u16,
    memory: u16,
    growth: u16,
    stall: u16,
    priority: u16,
    why: u16,
}

impl Columns {
    /// As wide as what is in them; names and reasons share the rest.
    fn of(rows: &[Row<'_>], all: u16) -> Self {
        let widest = |head: &str, cell: &dyn Fn(&Row<'_>) -> u16| {
            rows.iter().map(cell).max().unwrap_or(0).max(width(head) + 1)
        };
        let memory = widest("MEMORY", &|row| width(&memory(row.memory)));
        let growth = widest("GROWTH/s", &|row| width(&of(row, growth)));
        let stall = widest("STALL/s", &|row| width(&of(row, stall)));
        let priority = widest("PRIO", &|row| width(&of(row, priority)));
        let fixed = MARK + PLACE + memory + growth + stall + priority + 7;
        let rest = all.saturating_sub(fixed);
        let wanted = widest("WORKLOAD", &|row| indent(row).saturating_add(plain_width(&row.label)));
        let why = widest("WHY", &|row| row.line.map_or(0, |line| plain_width(&line.reason)));
        // A reason of which all can be read leaves the rest to names, and the other way round; else names have more of it, as they are nowhere else.
        let share = (rest / 5 * 3).max(LEAST_NAME);
        let name = wanted.min(share.max(rest.saturating_sub(why.max(LEAST_WHY))));
        let why = rest.saturating_sub(name);
        Self { name, memory, growth, stall, priority, why }
    }

    fn cells(&self, texts: [String; 8], style: Style) -> Vec<Cell> {
        let Self { name, memory, growth, stall, priority, why } = *self;
        let widths = [MARK, PLACE, name, memory, growth, stall, priority, why];
        let fits = [
            Fit::Left,
            Fit::Right,
            Fit::Name,
            Fit::Right,
            Fit::Right,
            Fit::Right,
            Fit::Right,
            Fit::Left,
        ];
        let cells = texts.into_iter().zip(widths).zip(fits);
        cells.map(|((text, width), fit)| Cell::new(text, width, fit).styled(style)).collect()
    }

    fn head(&self, model: &Model, look: Look) -> Vec<Cell> {
        // The column that it is sorted by has a mark.
        let head = |name: &str, sort| {
            if model.sort == sort { format!("{name}*") } else { name.to_owned() }
        };
        let texts = [
            String::new(),
            head("RANK", Sort::Rank).replace("RANK*", "RNK*"),
            head("WORKLOAD", Sort::Name),
            head("MEMORY", Sort::Memory),
            head("GROWTH/s", Sort::Growth),
            head("STALL/s", Sort::Stall),
            "PRIO".to_owned(),
            "WHY".to_owned(),
        ];
        self.cells(texts, look.title())
    }

    fn row(&self, row: &Row<'_>, is_selected: bool, look: Look) -> Vec<Cell> {
        let mark = if is_selected { ">" } else { "" };
        let label = format!("{}{}", " ".repeat(usize::from(indent(row))), row.label);
        let texts = [
            mark.to_owned(),
            row.line.map_or(String::new(), place),
            label,
            memory(row.memory),
            of(row, growth),
            of(row, stall),
            of(row, priority),
            row.line.map_or(String::new(), |line| line.reason.clone()),
        ];
        let style = match row.line.map(|line| (line.standing, line.place)) {
            Some((Standing::Victim | Standing::Terminating, _)) => look.bad(),
            Some((Standing::DryRunVictim, _) | (Standing::Candidate, Some(1))) => look.warning(),
            Some((Standing::Candidate, _)) => Style::new(),
            Some(_) | None => look.faint(),
        };
        self.cells(texts, style)
    }
}

/// Columns before a name in the tree; very deep ones are not moved further.
fn indent(row: &Row<'_>) -> u16 {
    u16::try_from(row.depth.min(8) * 2).unwrap_or(0)
}

fn place(line: &Line) -> String {
    let place = line.place.map(|place| place.to_string());
    match line.standing {
        Standing::Victim => format!("*{}", place.unwrap_or_default()),
        Standing::Candidate => place.unwrap_or_else(|| "-".to_owned()),
        Standing::Terminating => "x".to_owned(),
        Standing::DryRunVictim => "dry".to_owned(),
        Standing::Protected => "P".to_owned(),
        Standing::Spared | Standing::Finished => "-".to_owned(),
        Standing::Unknown => "?".to_owned(),
    }
}

/// A figure of a workload; a cgroup above others has none but its memory.
fn of(row: &Row<'_>, figure: fn(&Line) -> String) -> String {
    row.line.map_or(String::new(), figure)
}

fn memory(memory: Memory) -> String {
    match memory {
        Memory::Unknown => "-".to_owned(),
        Memory::Known(value) => bytes(value),
        Memory::AtLeast(value) => format!(">{}", bytes(value)),
    }
}

pub(super) fn growth(line: &Line) -> String {
    match line.growth {
        None => "-".to_owned(),
        Some(0) => "0 B".to_owned(),
        Some(rate) => {
            let sign = if rate < 0 { '-' } else { '+' };
            format!("{sign}{}", bytes(rate.unsigned_abs()))
        }
    }
}

pub(super) fn stall(line: &Line) -> String {
    match line.stall {
        None => "-".to_owned(),
        Some(us) => format!("{}.{} ms", us / 1000, us / 100 % 10),
    }
}

pub(super) fn priority(line: &Line) -> String {
    line.priority.map_or("-".to_owned(), |priority| priority.to_string())
}
