//! What a manifest's fields may say: names that become parts of paths, and amounts that the API server would take.

use anyhow::{Context as _, Result, bail, ensure};
use ebb_model::amounts::{huge_page_size, is_huge_page};
use ebb_model::pod::{ContainerKind, Pod, Resources};
use ebb_model::{Amounts, Quantity, Secs, VolumeSpec, VolumeType};
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

/// The fields of a ResourceRequirements.
const RESOURCES: [&str; 3] = ["claims", "limits", "requests"];

/// Requests and limits of a container or of a pod as a whole. Of an object that an API server serves (`is_served`) a field that is not known here is newer than ebb; in a file it is a mistake.
///
/// # Errors
/// The field that is no map of quantities, or is one that the API server refuses.
pub(super) fn resources(value: Option<&Value>, path: &str, is_served: bool) -> Result<Resources> {
    match value {
        None | Some(Value::Null | Value::Object(_)) => {}
        Some(other) => {
            bail!(
                "{path} = {other}: requests and limits belong here, such as {{limits: {{memory: 64Mi}}}}"
            )
        }
    }
    for key in value.and_then(Value::as_object).into_iter().flat_map(|map| map.keys()) {
        ensure!(
            is_served || RESOURCES.contains(&key.as_str()),
            "{path}.{key}: there is no such field; write one of {}",
            RESOURCES.join(", ")
        );
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

/// No container may use more than the pod as a whole: the API server refuses that.
///
/// # Errors
/// The container and its limit.
pub(super) fn within_the_pod(pod: &Pod) -> Result<()> {
    let Some(whole) = &pod.resources else { return Ok(()) };
    let regular = pod.containers.iter().filter(|c| c.kind == ContainerKind::Regular);
    for (n, container) in regular.enumerate() {
        for (name, limit) in container.resources.limits.iter() {
            let Some(most) = whole.limits.get(name) else { continue };
            ensure!(
                limit <= most,
                "spec.containers[{n}].resources.limits[{name:?}] = {limit}: container {} may use more than the whole pod, whose limit spec.resources.limits[{name:?}] is {most}; write at most that",
                container.name
            );
        }
    }
    Ok(())
}

/// A map of quantities; a number stands for itself.
///
/// # Errors
/// The field that is no quantity, is below zero, or names huge pages of a size that no kernel has.
pub(crate) fn amounts(value: Option<&Value>, path: &str) -> Result<Amounts> {
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

/// The quantity that a manifest gives as text, or as a number that stands for itself.
///
/// # Errors
/// When it is neither, or no quantity, saying what would be one.
pub(crate) fn quantity(value: &Value) -> Result<Quantity> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => bail!("{other}: a quantity belongs here, such as \"100Mi\""),
    };
    text.parse().map_err(|error| anyhow::anyhow!("{text:?}: {error}"))
}

/// The grace that a pod asks for, in seconds. One below 0 counts as 1, as in the API server (`CheckGracefulDelete` in `pkg/registry/core/pod`).
///
/// # Errors
/// When it is no whole number of seconds.
pub(super) fn grace(value: Option<&Value>) -> Result<Option<Secs>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(given) => {
            let negative = given.as_i64().is_some_and(|seconds| seconds < 0);
            let seconds = if negative { Some(1) } else { given.as_u64() };
            let seconds = seconds.with_context(|| {
                format!(
                    "spec.terminationGracePeriodSeconds = {given}: a whole number of seconds belongs here, such as 30"
                )
            })?;
            Ok(Some(Secs(seconds)))
        }
    }
}

/// Keys of a volume that name where its contents come from, as far as they are told apart.
const VOLUME_SOURCES: [(&str, VolumeType); 10] = [
    ("emptyDir", VolumeType::EmptyDir),
    ("hostPath", VolumeType::HostPath),
    ("gitRepo", VolumeType::GitRepo),
    ("configMap", VolumeType::ConfigMap),
    ("secret", VolumeType::Secret),
    ("projected", VolumeType::Projected),
    ("downwardAPI", VolumeType::DownwardApi),
    ("ephemeral", VolumeType::Ephemeral),
    ("persistentVolumeClaim", VolumeType::PersistentVolumeClaim),
    ("image", VolumeType::Image),
];

/// A volume of the pod; one that names no source is an empty directory, as the API server makes it.
///
/// # Errors
/// A name that could lead out of the pod's directory, or a limit that is no quantity.
pub(super) fn volume(pod: &str, item: &Value, path: &str) -> Result<VolumeSpec> {
    let own = item.get("name").and_then(Value::as_str).unwrap_or_default();
    name(pod, &format!("{path}.name"), own)?;
    let named = VOLUME_SOURCES.iter().find(|(key, _)| item.get(key).is_some_and(|v| !v.is_null()));
    let has_other = item.as_object().is_some_and(|keys| {
        keys.iter().any(|(key, value)| {
            key != "name"
                && !value.is_null()
                && !VOLUME_SOURCES.iter().any(|(known, _)| known == key)
        })
    });
    let volume_type = match named {
        Some((_, volume_type)) => *volume_type,
        None if has_other => VolumeType::Other,
        None => VolumeType::EmptyDir,
    };
    let empty_dir = item.get("emptyDir");
    let limit = empty_dir.and_then(|dir| dir.get("sizeLimit")).filter(|limit| !limit.is_null());
    let size_limit = limit
        .map(|limit| quantity(limit).with_context(|| format!("{path}.emptyDir.sizeLimit")))
        .transpose()?;
    let medium = empty_dir.and_then(|dir| dir.get("medium")).and_then(Value::as_str);
    Ok(VolumeSpec {
        name: own.to_owned(),
        volume_type,
        medium: medium.map(str::to_owned),
        size_limit,
    })
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
