//! In-place resizes: while one goes on the kubelet writes; one that it defers or refuses leaves the pod with what was allocated before, whatever the spec says by now.

use super::fields::resources;
use super::text_at;
use anyhow::Result;
use ebb_model::pod::{Pod, Resources};
use serde_json::Value;

/// Whether the kubelet is changing the pod.
pub(super) fn is_going_on(document: &Value) -> bool {
    conditions(document, "PodResizeInProgress").next().is_some()
        || conditions(document, "PodResizePending").any(|condition| !is_put_off(condition))
}

/// Lets what was allocated stand for what the spec asks for, where a resize is deferred or cannot be done.
///
/// # Errors
/// The field of the status that cannot be read.
pub(super) fn follow_allocated(document: &Value, pod: &mut Pod) -> Result<()> {
    if !conditions(document, "PodResizePending").any(is_put_off) {
        return Ok(());
    }
    let Some(status) = document.get("status") else { return Ok(()) };
    if let Some(whole) = &mut pod.resources {
        *whole = allocated(status, "status", whole)?;
    }
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    for list in lists {
        let statuses = status.get(list).and_then(Value::as_array).into_iter().flatten();
        for (n, status) in statuses.enumerate() {
            let name = text_at(status, &["name"]);
            let same = |c: &&mut ebb_model::pod::Container| Some(c.name.as_str()) == name;
            if let Some(container) = pod.containers.iter_mut().find(same) {
                let path = format!("status.{list}[{n}]");
                container.resources = allocated(status, &path, &container.resources)?;
            }
        }
    }
    Ok(())
}

/// Requests as allocated, limits as they are in force; what the status does not tell stays as the spec has it.
fn allocated(status: &Value, path: &str, spec: &Resources) -> Result<Resources> {
    let present = |key: &str| status.get(key).filter(|value| !value.is_null());
    let mut now = spec.clone();
    if let Some(actual) = present("resources") {
        now = resources(Some(actual), &format!("{path}.resources"), true)?;
    }
    if let Some(allocated) = present("allocatedResources") {
        now.requests =
            super::fields::amounts(Some(allocated), &format!("{path}.allocatedResources"))?;
    }
    Ok(now)
}

fn is_put_off(condition: &Value) -> bool {
    matches!(text_at(condition, &["reason"]), Some("Deferred" | "Infeasible"))
}

/// Conditions of this type that hold.
fn conditions<'v>(document: &'v Value, kind: &'v str) -> impl Iterator<Item = &'v Value> {
    let all = document.get("status").and_then(|status| status.get("conditions"));
    all.and_then(Value::as_array).into_iter().flatten().filter(move |condition| {
        text_at(condition, &["type"]) == Some(kind)
            && text_at(condition, &["status"]) == Some("True")
    })
}
