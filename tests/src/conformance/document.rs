//! `docs/conformance.md`: every rule with its scenarios, and where ebb differs on purpose. Generated from the scenarios.
use super::{Rule, RuleFile};
use std::fmt::Write as _;

const HEAD: &str = "\
# Conformance with the kubelet's node-pressure eviction

This file is generated from `tests/conformance` by `EBB_BLESS=1 cargo test -p ebb-tests --test generated`; the same test without that variable fails when it is out of date.
Each rule is what the kubelet (v1.36) does; each scenario is a document in the rule's file: a configuration, snapshots and what the plan must say.
`cargo test -p ebb-tests --test conformance three_keys` runs those with `three keys` in their name.
A difference is on purpose: an option that puts a surprise right, or a place where ebb is stricter or steadier.
";

/// The text of the document.
#[must_use]
pub fn render(rules: &[(RuleFile, Rule)]) -> String {
    let scenarios: usize = rules.iter().map(|(_, rule)| rule.scenarios.len()).sum();
    let mut text = format!("{HEAD}\n{} rules, {scenarios} scenarios.\n", rules.len());
    let mut last = "";
    for (RuleFile { section, name }, rule) in rules {
        if section != last {
            last = section;
            // Writing to a string cannot fail.
            let _ = write!(text, "\n## {}\n", title(section));
        }
        let _ = write!(text, "\n### {}\n\n{}\n", name.replace('-', " "), rule.text);
        if let Some(difference) = &rule.difference {
            let _ = write!(text, "\nDifference: {difference}\n");
        }
        let file = format!("{section}/{name}.yaml");
        let _ = write!(text, "\n[{file}](../tests/conformance/{file}):\n");
        for scenario in &rule.scenarios {
            let _ = writeln!(text, "- {}", scenario.name);
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
