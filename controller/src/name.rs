//! What people call an object.

use ebb_policy_cluster::{Kind, Resource};

/// A kind with its group, as in `ReplicaSet.apps`.
pub(crate) fn resource(of: &Resource) -> String {
    let Resource { group, kind } = of;
    if group.is_empty() { kind.clone() } else { format!("{kind}.{group}") }
}

/// Kind, namespace and name, as in `Pod shop/web-1`.
pub(crate) fn place(kind: &Kind, namespace: Option<&str>, name: &str) -> String {
    let namespace = namespace.map(|n| format!("{n}/")).unwrap_or_default();
    format!("{} {namespace}{name}", kind.kind)
}

/// Text of others on one line: what would move a terminal's cursor is a blank.
pub(crate) fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
