//! Which workloads the operator sets apart, as written: protected ones, preferred victims, priorities.

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
