//! One pod as a manifest describes it: from the document to the model's values.

use super::fields::{
    BadField, amounts, bad, grace, name, resources, unique_containers, volume, within_the_pod,
};
use super::{resize, text_at};
use anyhow::{Context as _, Result, bail, ensure};
use ebb_model::class_priority;
use ebb_model::pod::{Asked, Container, ContainerId, ContainerKind, Pod, Qos, Source};
use serde_json::Value;

/// Set by the kubelet on the mirror of a static pod: the static pod's own UID.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Where a pod comes from: `api`, or a file or URL of a static pod.
const SOURCE: &str = "kubernetes.io/config.source";

/// The pod that a document describes, with what the API server's defaults fill in.
///
/// # Errors
/// The field that makes the pod impossible.
pub(crate) fn pod(document: &Value) -> Result<Pod> {
    let pod_name = text_at(document, &["metadata", "name"]).unwrap_or_default();
    let namespace = text_at(document, &["metadata", "namespace"])
        .filter(|n| !n.is_empty())
        .unwrap_or("default");
    let full = format!("{namespace}/{pod_name}");
    name(&full, "metadata.name", pod_name)?;
    name(&full, "metadata.namespace", namespace)?;
    let spec = document.get("spec").filter(|spec| spec.is_object());
    let spec = spec.with_context(|| format!("pod {full}: spec: there is none"))?;
    let annotation = |key| text_at(document, &["metadata", "annotations", key]);
    let source = annotation(SOURCE).filter(|source| *source != "api");
    let uid_key = match annotation(MIRROR) {
        Some(_) => "metadata.annotations[\"kubernetes.io/config.mirror\"]",
        None => "metadata.uid",
    };
    let uid = annotation(MIRROR).or_else(|| text_at(document, &["metadata", "uid"]));
    let uid = uid.unwrap_or_default().to_owned();
    if !uid.is_empty() {
        name(&full, uid_key, &uid)?;
    }
    let mut pod = Pod {
        source: Source::Manifest,
        namespace: namespace.to_owned(),
        name: pod_name.to_owned(),
        uid,
        qos: qos(document).with_context(|| format!("pod {full}"))?,
        priority: None,
        priority_class: priority_class(spec),
        is_static: annotation(MIRROR).is_some() || source.is_some(),
        resources: None,
        overhead: amounts(spec.get("overhead"), "spec.overhead")
            .with_context(|| format!("pod {full}"))?,
        containers: Vec::new(),
        volumes: Vec::new(),
        termination_grace: grace(spec.get("terminationGracePeriodSeconds"))
            .with_context(|| format!("pod {full}"))?,
    };
    pod.priority = priority(spec).with_context(|| format!("pod {full}"))?;
    if let Some(whole) = spec.get("resources").filter(|whole| !whole.is_null()) {
        let whole = resources(Some(whole), "spec.resources", is_served(document));
        pod.resources = Some(whole.with_context(|| format!("pod {full}"))?);
    }
    let volumes = spec.get("volumes").and_then(Value::as_array).into_iter().flatten();
    for (n, item) in volumes.enumerate() {
        let volume = volume(&full, item, &format!("spec.volumes[{n}]"));
        pod.volumes.push(volume.map_err(|error| about(&full, error))?);
    }
    for (list, kind) in [
        ("initContainers", ContainerKind::Init),
        ("containers", ContainerKind::Regular),
        ("ephemeralContainers", ContainerKind::Ephemeral),
    ] {
        let items = spec.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (n, item) in items.iter().enumerate() {
            let path = format!("spec.{list}[{n}]");
            let container = container(document, &full, item, kind, &path);
            pod.containers.push(container.map_err(|error| about(&full, error))?);
        }
    }
    ensure!(
        pod.containers.iter().any(|c| c.kind == ContainerKind::Regular),
        "pod {full}: spec.containers: there is none"
    );
    unique_containers(&pod)?;
    within_the_pod(&pod).with_context(|| format!("pod {full}"))?;
    resize::follow_allocated(document, &mut pod).with_context(|| format!("pod {full}"))?;
    pod.apply_defaults();
    Ok(pod)
}

/// The class that a specification names.
pub(crate) fn priority_class(spec: &Value) -> Option<String> {
    let class = text_at(spec, &["priorityClassName"]).filter(|class| !class.is_empty());
    class.map(str::to_owned)
}

/// The priority that a specification gives, itself or by its class.
///
/// # Errors
/// When it is no whole number of 32 bits.
pub(crate) fn priority(spec: &Value) -> Result<Option<i32>> {
    let Some(given) = spec.get("priority").filter(|priority| !priority.is_null()) else {
        return Ok(priority_class(spec).as_deref().and_then(class_priority));
    };
    let number = given.as_i64().and_then(|number| i32::try_from(number).ok());
    let number = number.with_context(|| {
        format!("spec.priority = {given}: a whole number of 32 bits belongs here")
    })?;
    Ok(Some(number))
}

/// Whether an API server has served this, and so accepted every field; a file that was made of such an object has the mark too.
fn is_served(document: &Value) -> bool {
    text_at(document, &["metadata", "resourceVersion"]).is_some()
}

/// Names the pod, unless the error does already.
fn about(full: &str, error: anyhow::Error) -> anyhow::Error {
    if error.is::<BadField>() { error } else { error.context(format!("pod {full}")) }
}

fn container(
    pod: &Value,
    full: &str,
    item: &Value,
    kind: ContainerKind,
    path: &str,
) -> Result<Container> {
    let own = text_at(item, &["name"]).unwrap_or_default();
    ensure!(!own.is_empty(), "{path}.name: there is none");
    name(full, &format!("{path}.name"), own)?;
    let is_sidecar =
        kind == ContainerKind::Init && text_at(item, &["restartPolicy"]) == Some("Always");
    Ok(Container {
        name: own.to_owned(),
        kind: if is_sidecar { ContainerKind::Sidecar } else { kind },
        resources: resources(item.get("resources"), &format!("{path}.resources"), is_served(pod))?,
        id: container_id(pod, full, own)?,
        asked: Asked::default(),
    })
}

/// Who a container is at the runtime, as long as it has not ended.
fn container_id(pod: &Value, full: &str, name: &str) -> Result<Option<ContainerId>, BadField> {
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    for list in lists {
        let statuses = pod.get("status").and_then(|s| s.get(list)).and_then(Value::as_array);
        let status = statuses.into_iter().flatten().find(|s| text_at(s, &["name"]) == Some(name));
        let Some(status) = status else { continue };
        let state = status.get("state");
        let has_ended = state.is_some_and(|s| s.get("terminated").is_some_and(|t| !t.is_null()));
        let id = text_at(status, &["containerID"]).filter(|id| !id.is_empty() && !has_ended);
        return match id.map(str::parse) {
            None => Ok(None),
            Some(Ok(id)) => Ok(Some(id)),
            Some(Err(problem)) => {
                let key = format!("status.{list}[name={name}].containerID");
                Err(bad(full, &key, id.unwrap_or_default(), problem))
            }
        };
    }
    Ok(None)
}

fn qos(document: &Value) -> Result<Option<Qos>> {
    Ok(match text_at(document, &["status", "qosClass"]) {
        None | Some("") => None,
        Some("Guaranteed") => Some(Qos::Guaranteed),
        Some("Burstable") => Some(Qos::Burstable),
        Some("BestEffort") => Some(Qos::BestEffort),
        Some(other) => {
            bail!("status.qosClass = {other:?}: write Guaranteed, Burstable or BestEffort")
        }
    })
}
