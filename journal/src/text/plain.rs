//! The one way by which names reach people: what a workload or a manifest calls itself must not speak to the terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A line for people in which nothing speaks to the terminal: control characters (C0, DEL, C1), marks that turn the
/// direction of writing, and separators of lines are written out, as in `\u{1b}`.
///
/// A line is escaped whole, before colours are put around it, so that no name can be forgotten; a name with a line break in it stays on its line.
#[must_use]
pub fn plain(line: &str) -> Cow<'_, str> {
    if !line.chars().any(speaks) {
        return Cow::Borrowed(line);
    }
    let mut escaped = String::with_capacity(line.len() + 16);
    for c in line.chars() {
        if speaks(c) {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "{}", c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

fn speaks(c: char) -> bool {
    // Unicode's category Cc is C0, DEL and C1.
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_speaks_to_the_terminal_is_written_out() {
        for (raw, shown) in [
            ("a\x1b[31mb", "a\\u{1b}[31mb"),
            ("a\r\nb\tc", "a\\r\\nb\\tc"),
            ("\x7f\u{9b}2J", "\\u{7f}\\u{9b}2J"),
            ("exe\u{202e}txt.\u{2066}", "exe\\u{202e}txt.\\u{2066}"),
            ("\u{2028}\u{200f}", "\\u{2028}\\u{200f}"),
        ] {
            assert_eq!(plain(raw), shown);
        }
    }

    #[test]
    fn what_does_not_stays_as_it_is() {
        let text = "/system.slice/größe-日本.service 1.5 µs – 5 %";
        assert!(matches!(plain(text), Cow::Borrowed(same) if same == text));
    }
}
