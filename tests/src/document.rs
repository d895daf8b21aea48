//! `docs/conformance.md`: every rule with its scenarios, and where ebb differs on purpose. Generated from the scenario folders.
use crate::conformance::{Rule, name};
use std::fmt::Write as _;

const HEAD: &str = "\
# Conformance with the kubelet's node-pressure eviction

This file is generated from `tests/conformance` by `EBB_BLESS=1 cargo test -p ebb-tests --test generated`; the same test without that variable fails when it is out of date.
Each rule is what the kubelet (v1.36) does; each scenario is a folder with a configuration, snapshots and what the plan must say.
A difference is on purpose: an option that puts a surprise right, or a place where ebb is stricter or steadier.
";

/// The text of the document.
#[must_use]
pub fn render(rules: &[Rule]) -> String {
    let scenarios: usize = rules.iter().map(|rule| rule.scenarios.len()).sum();
    let mut text = format!("{HEAD}\n{} rules, {scenarios} scenarios.\n", rules.len());
    let mut section = "";
    for rule in rules {
        if rule.section != section {
            section = &rule.section;
            // Writing to a string cannot fail.
            let _ = write!(text, "\n## {}\n", title(section));
        }
        let _ = write!(text, "\n### {}\n\n{}\n", rule.name.replace('-', " "), rule.text);
        if let Some(difference) = &rule.difference {
            let _ = write!(text, "\nDifference: {difference}\n");
        }
        text.push('\n');
        for scenario in &rule.scenarios {
            let path = format!("{}/{}/{}", rule.section, rule.name, name(scenario));
            let _ = writeln!(
                text,
                "- [{}](../tests/conformance/{path})",
                name(scenario).replace('-', " ")
            );
        }
    }
    text
}

/// The title of a section, from its folder: `a4-ranking` is about ranking.
fn title(section: &str) -> String {
    let words = section.split_once('-').map_or(section, |(_, words)| words).replace('-', " ");
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
