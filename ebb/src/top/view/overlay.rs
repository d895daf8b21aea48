//! What is laid over the list for a while: the keys, or everything about one workload.

use super::cells::{self, Cell, Fit, Look, fitted};
use super::workloads::{growth, priority, stall};
use crate::top::keys::HELP;
use crate::top::model::Model;
use crate::workloads::{Line, Standing};
use ebb_journal::text::{bytes, plain};
use ebb_policy::snapshot::{WorkloadKey, WorkloadKind};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Clear, Widget as _};

pub(super) fn help(area: Rect, buf: &mut Buffer, look: Look) {
    Clear.render(area, buf);
    cells::text(buf, area, 0, "KEYS (Esc goes back)", look.title());
    for (y, (keys, what)) in HELP.iter().enumerate() {
        let y = u16::try_from(y).unwrap_or(u16::MAX).saturating_add(1);
        let cells = [
            Cell::new("", 1, Fit::Left),
            Cell::new(*keys, 21, Fit::Left),
            Cell::new(*what, area.width, Fit::Left),
        ];
        cells::row(buf, area, y, &cells);
    }
}

pub(super) fn details(model: &Model, key: &WorkloadKey, area: Rect, buf: &mut Buffer, look: Look) {
    Clear.render(area, buf);
    cells::text(buf, area, 0, "WORKLOAD (Esc goes back)", look.title());
    let line = model.picture().workloads.iter().find(|line| line.key == *key);
    let facts = match line {
        Some(line) => facts(line),
        None => vec![("name", key.name.clone()), ("state", "it is gone".to_owned())],
    };
    let mut y = 1;
    for (what, value) in facts {
        for (n, part) in wrapped(&value, area.width.saturating_sub(12)).into_iter().enumerate() {
            let what = if n == 0 { what } else { "" };
            let cells = [
                Cell::new("", 1, Fit::Left),
                Cell::new(what, 9, Fit::Left),
                Cell::new(part, area.width, Fit::Left),
            ];
            cells::row(buf, area, y, &cells);
            y += 1;
        }
    }
}

fn facts(line: &Line) -> Vec<(&'static str, String)> {
    let unknown = || "unknown".to_owned();
    let kind = match line.kind {
        WorkloadKind::Pod => "pod",
        WorkloadKind::Cgroup => "cgroup",
        WorkloadKind::Process => "process",
    };
    let standing = match line.standing {
        Standing::Victim => "evicted by this decision",
        Standing::Candidate => "may be evicted",
        Standing::Terminating => "terminating",
        Standing::DryRunVictim => "runs on, and counts as freed",
        Standing::Spared => "not evicted now",
        Standing::Protected => "never evicted",
        Standing::Finished => "nothing of it runs",
        Standing::Unknown => "unknown",
    };
    let standing = match line.place {
        Some(place) => format!("{standing}; place {place} in the ranking"),
        None => standing.to_owned(),
    };
    let mut facts = vec![
        ("name", line.key.name.clone()),
        ("kind", kind.to_owned()),
        ("cgroup", line.cgroup.clone().unwrap_or_else(unknown)),
        ("memory", line.memory.map_or_else(unknown, bytes)),
        ("growth", line.growth.map_or_else(unknown, |_| format!("{} a second", growth(line)))),
        ("stall", line.stall.map_or_else(unknown, |_| format!("{} a second", stall(line)))),
        (
            "priority",
            line.priority.map_or_else(|| "none, ranks as 0".to_owned(), |_| priority(line)),
        ),
        ("standing", standing),
        ("why", line.reason.clone()),
    ];
    if !line.keys.is_empty() {
        facts.push(("keys", line.keys.clone()));
    }
    facts.extend(line.key.uid.clone().map(|uid| ("pod uid", uid)));
    facts.extend(line.key.process.map(|process| ("pid", process.pid.to_string())));
    facts
}

/// A text as lines of at most so many columns.
fn wrapped(text: &str, room: u16) -> Vec<String> {
    let text = plain(text);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        let joined = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        if cells::width(&joined) <= room || line.is_empty() {
            *line = joined;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.into_iter().map(|line| fitted(&line, room, Fit::Name)).collect()
}
