//! `ebb.memoryPressure`: the cgroups whose memory pressure is watched, read and printed.
use super::{
    options,
    section::Section,
    tree::{Node, Placed},
};
use ebb_policy::limits::{MemoryPressure, RawMemoryPressure};

/// Reads the list as it is written; the policy crate checks it.
pub(super) fn read(section: &mut Section<'_>) -> Vec<RawMemoryPressure> {
    let rule = |mut section: Section<'_>| {
        let rule = RawMemoryPressure {
            cgroup: section.text("cgroup"),
            limit: section.text("limit"),
            duration: section.text("duration"),
        };
        section.finish();
        rule
    };
    section.sections("memoryPressure").into_iter().map(rule).collect()
}

/// A rule as it would be written with its defaults.
pub(super) fn written(rule: &MemoryPressure) -> RawMemoryPressure {
    let MemoryPressure { cgroup, limit, duration } = rule;
    let text = |node| if let Node::Text(text) = node { Some(text) } else { None };
    RawMemoryPressure {
        cgroup: Some(cgroup.clone()),
        limit: Some(limit.to_string()),
        duration: text(options::length(*duration)),
    }
}

/// Prints the list with its defaults, if it is not empty.
pub(super) fn print(rules: &[MemoryPressure]) -> Option<(String, Placed)> {
    let rule = |rule: &MemoryPressure| {
        let MemoryPressure { cgroup, limit, duration } = rule;
        Node::Map(options::entries([
            ("cgroup", Node::Text(cgroup.clone())),
            ("limit", Node::Text(limit.to_string())),
            ("duration", options::length(*duration)),
        ]))
        .into()
    };
    let list = Node::List(rules.iter().map(rule).collect());
    (!rules.is_empty()).then(|| ("memoryPressure".to_owned(), list.into()))
}
