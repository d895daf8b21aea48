//! Text into cells of a screen: exact columns, whatever is in them. Every text passes [`plain`] here, so that no name speaks to the terminal.

use ebb_journal::text::plain;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

/// Stands where something was cut off.
const CUT: char = '~';

/// How things look. Colour and weight only repeat what words and marks say.
#[derive(Clone, Copy, Debug)]
pub(in crate::top) struct Look {
    pub(in crate::top) has_colour: bool,
    /// What is selected is marked: somebody can select.
    pub(in crate::top) is_interactive: bool,
}

impl Look {
    pub(super) fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn bad(self) -> Style {
        self.coloured(Color::Red)
    }

    pub(super) fn warning(self) -> Style {
        self.coloured(Color::Yellow)
    }

    pub(super) fn good(self) -> Style {
        if self.has_colour { Style::new().fg(Color::Green) } else { Style::new() }
    }

    pub(super) fn faint(self) -> Style {
        if self.has_colour { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }

    pub(super) fn bar(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn coloured(self, colour: Color) -> Style {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        if self.has_colour { bold.fg(colour) } else { bold }
    }
}

/// A cell of a row.
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) width: u16,
    pub(super) fit: Fit,
    pub(super) style: Style,
}

/// How a text is put in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// On the left; its end is cut off.
    Left,
    /// On the right; a figure of which digits were cut off would be another, and is left out.
    Right,
    /// On the left; what is in its middle is cut out, since names differ at their ends.
    Name,
}

impl Cell {
    pub(super) fn new(text: impl Into<String>, width: u16, fit: Fit) -> Self {
        Self { text: text.into(), width, fit, style: Style::new() }
    }

    pub(super) fn styled(self, style: Style) -> Self {
        Self { style, ..self }
    }
}

/// Columns that a text takes up.
pub(super) fn width(text: &str) -> u16 {
    u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
}

/// Columns that a text takes up once it is made plain.
pub(super) fn plain_width(text: &str) -> u16 {
    width(&plain(text))
}

/// Writes a line of text on row `y` of `area`, cut off at its end.
pub(super) fn text(buf: &mut Buffer, area: Rect, y: u16, text: &str, style: Style) {
    row(buf, area, y, &[Cell::new(text, area.width, Fit::Left).styled(style)]);
}

/// Writes cells beside each other on row `y` of `area`, with a column between two.
pub(super) fn row(buf: &mut Buffer, area: Rect, y: u16, cells: &[Cell]) {
    if y >= area.height {
        return;
    }
    let mut x = area.x;
    for cell in cells {
        let left = area.right().saturating_sub(x);
        let room = cell.width.min(left);
        if room == 0 {
            continue;
        }
        let shown = fitted(&cell.text, room, cell.fit);
        let indent = match cell.fit {
            Fit::Right => room.saturating_sub(width(&shown)),
            Fit::Left | Fit::Name => 0,
        };
        buf.set_stringn(x + indent, area.y + y, &shown, usize::from(room - indent), cell.style);
        x = x.saturating_add(cell.width).saturating_add(1);
    }
}

/// A text made plain, and cut to so many columns.
pub(super) fn fitted(text: &str, room: u16, fit: Fit) -> String {
    let text = plain(text);
    if width(&text) <= room {
        return text.into_owned();
    }
    let room = usize::from(room);
    match fit {
        Fit::Right => CUT.to_string(),
        Fit::Left => {
            let mut cut = taken(text.chars(), room.saturating_sub(1));
            cut.push(CUT);
            cut
        }
        Fit::Name => {
            let rest = room.saturating_sub(1);
            let mut cut = taken(text.chars(), rest / 3);
            let tail = taken(text.chars().rev(), rest - usize::from(width(&cut)));
            cut.push(CUT);
            cut.extend(tail.chars().rev());
            cut
        }
    }
}

/// As many of `chars` as take up at most `room` columns.
fn taken(chars: impl Iterator<Item = char>, room: usize) -> String {
    let mut taken = String::new();
    let mut used = 0;
    for c in chars {
        used += usize::from(width(c.encode_utf8(&mut [0; 4])));
        if used > room {
            break;
        }
        taken.push(c);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_and_says_so_whatever_it_is_made_of() {
        assert_eq!(fitted("priority 0", 10, Fit::Left), "priority 0");
        assert_eq!(fitted("priority 10", 10, Fit::Left), "priority ~");
        assert_eq!(fitted("12345678901", 10, Fit::Right), "~");
        assert_eq!(fitted("/system.slice/report.service", 14, Fit::Name), "/sys~t.service");
        // Each of these takes up two columns.
        assert_eq!(fitted("日本語日本語", 7, Fit::Name), "日~本語");
        assert_eq!(fitted("a\x1b[2Jb", 20, Fit::Left), "a\\u{1b}[2Jb");
        assert_eq!(fitted("long", 0, Fit::Name), "~");
    }
}
