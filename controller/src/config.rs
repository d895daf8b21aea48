//! What the controller is told at its start; checked by whoever reads it.

use ebb_policy_cluster::{Exclusions, pods::Limits};
use std::net::SocketAddr;

/// Whether anything is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is written: what would be done is said.
    Observe,
    /// What is to be done is done.
    Enforce,
}

/// Which collectors run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collectors {
    /// Objects whose owners are gone.
    pub owner_references: bool,
    /// Pods that nobody else takes away.
    pub pods: bool,
}

/// The controller's settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// Whether anything is changed.
    pub mode: Mode,
    /// Which collectors run.
    pub collectors: Collectors,
    /// What is left as it is.
    pub exclusions: Exclusions,
    /// Limits on pods; its namespaces are those of `exclusions`.
    pub pods: Limits,
    /// A ceiling on requests about objects, in requests a second; positive.
    pub max_qps: Option<f64>,
    /// The namespace of the Lease; `None`: this is the only controller.
    pub lease_namespace: Option<String>,
    /// Where `/livez`, `/readyz` and `/metrics` are served.
    pub listen: Option<SocketAddr>,
}

/// The kinds that these words name, as in `configmaps` or `Deployment.apps`.
///
/// # Errors
/// What is served cannot be found out, or a word names nothing of it: a typing error must not leave undone what it asks for.
pub fn resources_named(
    found: &ebb_kube::Discovered,
    words: &[String],
) -> Result<std::collections::BTreeSet<ebb_policy_cluster::Resource>, String> {
    let mut named = std::collections::BTreeSet::new();
    for word in words {
        let lower = word.to_lowercase();
        let (name, group) = lower.split_once('.').map_or((&*lower, ""), |(n, g)| (n, g));
        let is_named = |of: &ebb_kube::ApiResource| {
            of.kind.group == group && (of.plural == name || of.kind.kind.to_lowercase() == name)
        };
        let Some(of) = found.resources.values().find(|of| is_named(of)) else {
            return Err(word.clone());
        };
        named.insert(of.resource());
    }
    Ok(named)
}
