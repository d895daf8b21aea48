//! What each key asks for.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Sort,
    Filter,
    Tree,
    Freeze,
    Help,
    /// Opens what is selected, or ends what is typed.
    Accept,
    Cancel,
    /// The decision before, of a recorded incident.
    Earlier,
    /// The next one.
    Later,
    /// A letter of the filter.
    Char(char),
    /// Takes the last letter of the filter back.
    Erase,
}

/// The keys, for people: what they are and what they do.
pub(super) const HELP: [(&str, &str); 12] = [
    ("Up, Down, PgUp, PgDn", "move in the list of workloads; Home and End"),
    ("s", "sort by rank, memory, growth, stall, name"),
    ("/", "filter by name; Enter keeps it, Esc drops it"),
    ("t", "the tree of cgroups, or the plain list"),
    ("Enter", "everything that is known of the selected workload"),
    ("f, Space", "freeze the screen, or go on"),
    ("Left, Right", "the decision before or after (--replay)"),
    ("?", "this help"),
    ("q, Ctrl-C", "quit"),
    ("", ""),
    ("RANK", "1 is evicted first, * is evicted by this decision,"),
    ("", "x is terminating, P is never evicted, - is no candidate now"),
];

/// What `key` asks for; `is_typing` says that letters are those of the filter.
pub(super) fn action(key: KeyEvent, is_typing: bool) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c' | 'd') => Some(Action::Quit),
            // What some terminals send for the key that takes a letter back.
            KeyCode::Char('h') if is_typing => Some(Action::Erase),
            _ => None,
        };
    }
    Some(match key.code {
        KeyCode::Up => Action::Up,
        KeyCode::Down => Action::Down,
        KeyCode::PageUp => Action::PageUp,
        KeyCode::PageDown => Action::PageDown,
        KeyCode::Home => Action::First,
        KeyCode::End => Action::Last,
        KeyCode::Enter => Action::Accept,
        KeyCode::Esc => Action::Cancel,
        KeyCode::Backspace if is_typing => Action::Erase,
        KeyCode::Char(c) if is_typing => Action::Char(c),
        KeyCode::Left => Action::Earlier,
        KeyCode::Right => Action::Later,
        KeyCode::Char('q') => Action::Quit,
        KeyCode::Char('k') => Action::Up,
        KeyCode::Char('j') => Action::Down,
        KeyCode::Char('g') => Action::First,
        KeyCode::Char('G') => Action::Last,
        KeyCode::Char('s') => Action::Sort,
        KeyCode::Char('/') => Action::Filter,
        KeyCode::Char('t') => Action::Tree,
        KeyCode::Char('f' | ' ') => Action::Freeze,
        KeyCode::Char('?' | 'h') => Action::Help,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode, modifiers: KeyModifiers) -> KeyEvent {
        KeyEvent::new(code, modifiers)
    }

    #[test]
    fn letters_are_commands_unless_a_filter_is_typed() {
        let q = key(KeyCode::Char('q'), KeyModifiers::NONE);
        assert_eq!(action(q, false), Some(Action::Quit));
        assert_eq!(action(q, true), Some(Action::Char('q')));
        let interrupt = key(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(interrupt, true), Some(Action::Quit), "there is always a way out");
        assert_eq!(action(key(KeyCode::F(5), KeyModifiers::NONE), false), None);
    }
}
