//! What a manifest's fields may say: names that become parts of paths, and amounts that the API server would take.

use crate::sense::manifests::quantity;
use anyhow::{Context as _, Result, bail, ensure};
use ebb_policy::cgroups::Amounts;
use ebb_policy::cgroups::amounts::{huge_page_size, is_huge_page};
use ebb_policy::cgroups::pod::{Pod, Resources};
use serde_json::Value;
use std::collections::BTreeSet;
use thiserror::Error;

/// A name longer than this is none to Kubernetes.
const LONGEST: usize = 253;

/// A field of a pod that cannot be as it is. The file stands before it, as the error's context.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("pod {pod}: {key} = {value:?}: {problem}")]
pub struct BadField {
    /// `namespace/name`.
    pub pod: String,
    /// Path of the field in the manifest.
    pub key: String,
    /// What it says.
    pub value: String,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

/// A name that becomes part of a path, of a unit's name or of a line for people.
///
/// # Errors
/// The field, when it is more than one plain name.
pub(super) fn name(pod: &str, key: &str, value: &str) -> Result<(), BadField> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if value.is_empty()
        || value.len() > LONGEST
        || value.starts_with('.')
        || !value.bytes().all(is_plain)
    {
        let what = "only letters, digits, `-`, `_` and `.` may be in it, at most 253 and no `.` first: it becomes part of a path";
        return Err(bad(pod, key, value, what));
    }
    Ok(())
}

pub(super) fn bad(pod: &str, key: &str, value: &str, problem: impl Into<String>) -> BadField {
    let (pod, key, value) = (pod.to_owned(), key.to_owned(), value.to_owned());
    BadField { pod, key, value, problem: problem.into() }
}

/// Requests and limits of a container or of a pod as a whole.
///
/// # Errors
/// The field that is no map of quantities, or is one that the API server refuses.
pub(super) fn resources(value: Option<&Value>, path: &str) -> Result<Resources> {
    match value {
        None | Some(Value::Null | Value::Object(_)) => {}
        Some(other) => {
            bail!(
                "{path} = {other}: requests and limits belong here, such as {{limits: {{memory: 64Mi}}}}"
            )
        }
    }
    let part = |name: &str| amounts(value.and_then(|v| v.get(name)), &format!("{path}.{name}"));
    let resources = Resources { requests: part("requests")?, limits: part("limits")? };
    for (name, request) in resources.requests.iter() {
        let Some(limit) = resources.limits.get(name) else { continue };
        ensure!(
            request <= limit,
            "{path}.requests[{name:?}] = {request}: more than the limit of {limit}; write at most that"
        );
        ensure!(
            request == limit || !is_huge_page(name),
            "{path}.requests[{name:?}] = {request}: another amount than the limit of {limit}; of huge pages both must be the same"
        );
    }
    Ok(resources)
}

/// A map of quantities; a number stands for itself.
///
/// # Errors
/// The field that is no quantity, is below zero, or names huge pages of a size that no kernel has.
pub(in crate::cgroups) fn amounts(value: Option<&Value>, path: &str) -> Result<Amounts> {
    let mut amounts = Amounts::none();
    let entries = match value {
        None | Some(Value::Null) => return Ok(amounts),
        Some(Value::Object(entries)) => entries,
        Some(other) => {
            bail!("{path} = {other}: amounts by resource belong here, such as {{cpu: \"1\"}}")
        }
    };
    for (name, amount) in entries {
        let amount = quantity(amount).with_context(|| format!("{path}[{name:?}]"))?;
        ensure!(!amount.is_negative(), "{path}[{name:?}] = {amount}: below zero");
        ensure!(
            !is_huge_page(name) || huge_page_size(name).is_some(),
            "{path}[{name:?}] = {amount}: no kernel has pages of this size; write a power of two from 4Ki on, such as hugepages-2Mi"
        );
        amounts.set(name, amount);
    }
    Ok(amounts)
}

/// Names of containers are unique in a pod, whatever part they play.
///
/// # Errors
/// The name that is there twice.
pub(super) fn unique_containers(pod: &Pod) -> Result<(), BadField> {
    let mut names = BTreeSet::new();
    for container in &pod.containers {
        if !names.insert(&container.name) {
            let (full, name) = (pod.full_name(), &container.name);
            let what = "another container of the pod has this name; write another";
            return Err(bad(&full, "spec: name of a container", name, what));
        }
    }
    Ok(())
}
