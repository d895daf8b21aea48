//! `ebb.hooks`: who is asked before ebb acts, read, checked and printed.
use super::{
    options,
    section::Section,
    tree::{Node, Placed},
};
use ebb_policy::Millis;
use std::path::PathBuf;
use std::time::Duration;

/// How long the hook has when the configuration does not say.
const DEADLINE: Millis = Millis(2_000);

/// An eviction is put off for no longer, whatever the configuration says.
const LONGEST_DEADLINE: Millis = Millis(10_000);

/// The longest path that the address of a Unix socket has room for.
const LONGEST_PATH: usize = 107;

/// Who is asked before a workload is evicted for a soft threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeforeEviction {
    /// The Unix stream socket on which it listens.
    pub socket: PathBuf,
    /// How long the eviction waits for it.
    pub deadline: Duration,
}

/// Reads the section.
pub(super) fn read(mut section: Section<'_>) -> Option<BeforeEviction> {
    let before = section.section("beforeEviction").and_then(before_eviction);
    section.finish();
    before
}

fn before_eviction(mut section: Section<'_>) -> Option<BeforeEviction> {
    let socket = socket(&mut section);
    let deadline = match section.duration("deadline") {
        Some(deadline) if deadline == Millis(0) || deadline > LONGEST_DEADLINE => {
            if let Some(place) = section.value("deadline") {
                let fix = "write a duration above 0 and up to 10s, such as \"2s\"";
                section.refuse("deadline", place, "out of range", fix);
            }
            None
        }
        deadline => Some(deadline.unwrap_or(DEADLINE)),
    };
    section.finish();
    Some(BeforeEviction { socket: socket?, deadline: Duration::from_millis(deadline?.0) })
}

fn socket(section: &mut Section<'_>) -> Option<PathBuf> {
    let fix = "write the absolute path of a Unix stream socket, such as /run/app/ebb-hook.sock";
    let Some(place) = section.value("socket") else {
        section.missing("socket", fix);
        return None;
    };
    let text = section.text("socket")?;
    let problem = if !text.starts_with('/') || text.ends_with('/') {
        "not the absolute path of a socket"
    } else if text.len() > LONGEST_PATH {
        "longer than the 107 bytes that the address of a socket has room for"
    } else if text.contains('\0') {
        "no path contains a zero byte"
    } else {
        return Some(text.into());
    };
    section.refuse("socket", place, problem, fix);
    None
}

/// Prints the section, if it says anything.
pub(super) fn print(before: Option<&BeforeEviction>) -> Option<(String, Placed)> {
    let BeforeEviction { socket, deadline } = before?;
    let deadline = Millis(u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX));
    let before = Node::Map(options::entries([
        ("socket", Node::Text(socket.display().to_string())),
        ("deadline", options::length(deadline)),
    ]));
    let hooks = Node::Map(options::entries([("beforeEviction", before)]));
    Some(("hooks".to_owned(), hooks.into()))
}
