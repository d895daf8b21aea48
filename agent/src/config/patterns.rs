//! Which workloads the operator sets apart, as written: protected ones, preferred victims, priorities.
use super::section::Section;
use globset::Glob;

/// A list of patterns as the operator wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    /// Cgroups that are workloads; empty for the rules of [`crate::sense::tree::Tree::workloads`].
    pub workloads: Vec<String>,
    /// Never ended.
    pub protected: Vec<String>,
    /// Ended first among equals.
    pub prefer: Vec<String>,
    /// Ended last among equals.
    pub avoid: Vec<String>,
    /// Priority by pattern; the first that matches counts.
    pub priorities: Vec<(String, i32)>,
}

/// Reads them from ebb's own section.
pub(super) fn read(section: &mut Section<'_>) -> Patterns {
    let mut globs = |key| {
        let globs = section.texts(key).unwrap_or_default();
        for glob in &globs {
            check_glob(section, key, glob);
        }
        globs
    };
    let (workloads, protected) = (globs("workloads"), globs("protected"));
    let (prefer, avoid) = (globs("prefer"), globs("avoid"));
    let mut priorities = Vec::new();
    for mut rule in section.sections("priorities") {
        let glob = rule.text("match");
        let priority = rule.number("priority", "between -2147483648 and 2147483647");
        if let Some(glob) = &glob {
            check_glob(&mut rule, "match", glob);
        }
        if let (Some(glob), Some(priority)) = (glob, priority) {
            priorities.push((glob, priority));
        }
        rule.finish();
    }
    Patterns { workloads, protected, prefer, avoid, priorities }
}

fn check_glob(section: &mut Section<'_>, key: &'static str, glob: &str) {
    if let Err(error) = Glob::new(glob)
        && let Some(place) = section.value(key)
    {
        let problem = format!("{glob:?} is not a glob: {}", error.kind());
        section.refuse(key, place, &problem, "write a path such as \"system.slice/*.service\"");
    }
}
