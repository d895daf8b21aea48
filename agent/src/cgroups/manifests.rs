//! Pods from manifests: files or directories of Kubernetes Pods, as YAML or JSON, one or many in each.
//!
//! A file may hold one Pod, a List or PodList (as `kubectl get pods -o json` prints), a bare array, several YAML documents, or several JSON objects after one another.
//! Only what cgroups depend on is read. What the API server would have filled in is filled in.

mod fields;
mod resize;

pub use fields::BadField;
pub(super) use fields::amounts;

use crate::config::yaml_problem;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use ebb_policy::cgroups::pod::{Asked, Container, ContainerId, Pod, Source};
use ebb_policy::class_priority;
use ebb_policy::snapshot::{ContainerKind, Qos};
use fields::{bad, name, resources, unique_containers};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Set by the kubelet on the mirror of a static pod: the static pod's own UID.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Where a pod comes from: `api`, or a file or URL of a static pod.
const SOURCE: &str = "kubernetes.io/config.source";

/// Pods that were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Manifests {
    /// Pods that run or will run here.
    pub pods: Vec<Pod>,
    /// UIDs of those whose resources the kubelet is changing.
    pub resizing: BTreeSet<String>,
    /// UIDs of pods that are over but still there.
    pub ended: BTreeSet<String>,
    /// Static pods whose manifests do not say the UID under which the kubelet runs them, all else known.
    pub unnamed: Vec<Pod>,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

impl Manifests {
    /// Whether no pod at all is named: an unmounted directory looks the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.unnamed.is_empty() && self.ended.is_empty()
    }

    /// Reads a file, or every file of a directory that is not hidden; pods that are bound to another node than `node` are left out.
    ///
    /// # Errors
    /// What cannot be read, or a field that makes a pod impossible; the error names file, pod and field.
    pub fn read(path: &Path, node: Option<&str>) -> Result<Manifests> {
        let mut manifests = Manifests::default();
        for file in files(path)? {
            let text = fs::read_to_string(&file)
                .with_context(|| format!("{}: cannot be read", file.display()))?;
            manifests.add(&text, node).with_context(|| file.display().to_string())?;
        }
        Ok(manifests)
    }

    /// Adds the pods of one text.
    ///
    /// # Errors
    /// As [`Manifests::read`].
    pub fn add(&mut self, text: &str, node: Option<&str>) -> Result<()> {
        documents(text)?.iter().try_for_each(|document| self.add_document(document, node))
    }

    fn add_document(&mut self, document: &Value, node: Option<&str>) -> Result<()> {
        if let Value::Array(items) = document {
            return items.iter().try_for_each(|item| self.add_document(item, node));
        }
        match document.get("kind").and_then(Value::as_str) {
            _ if document.is_null() => Ok(()),
            Some("List" | "PodList") => match document.get("items") {
                None | Some(Value::Null) => Ok(()),
                Some(Value::Array(items)) => items.iter().enumerate().try_for_each(|(n, item)| {
                    // The items of a PodList say no kind of their own.
                    self.add_item(item, node).with_context(|| format!("items[{n}]"))
                }),
                Some(_) => bail!("items: a list belongs here"),
            },
            Some("Pod") => self.add_pod(document, node),
            Some(other) => {
                let name = text_at(document, &["metadata", "name"]).unwrap_or_default();
                self.notes.push(format!("{other} {name}: not a Pod, left out"));
                Ok(())
            }
            None => bail!("kind: it is not said what this is; write `kind: Pod`"),
        }
    }

    fn add_item(&mut self, item: &Value, node: Option<&str>) -> Result<()> {
        match item.get("kind") {
            None | Some(Value::Null) if item.get("spec").is_some() => self.add_pod(item, node),
            _ => self.add_document(item, node),
        }
    }

    fn add_pod(&mut self, document: &Value, node: Option<&str>) -> Result<()> {
        let pod = pod(document)?;
        let full = pod.full_name();
        let bound = text_at(document, &["spec", "nodeName"]).filter(|bound| !bound.is_empty());
        if let (Some(node), Some(bound)) = (node, bound)
            && node != bound
        {
            self.notes.push(format!("{full}: bound to node {bound}, left out"));
            return Ok(());
        }
        let phase = text_at(document, &["status", "phase"]).unwrap_or_default();
        if matches!(phase, "Succeeded" | "Failed") {
            self.notes.push(format!("{full}: it has ended ({phase}), left out"));
            self.ended.insert(pod.uid);
            return Ok(());
        }
        if pod.uid.is_empty() {
            self.notes.push(format!("{full}: metadata.uid: there is none, so the name of its cgroup is known only from the container runtime (--cri); without that the pod is left out. The kubelet computes a static pod's UID from its own form of the pod, which a manifest does not give"));
            self.unnamed.push(pod);
            return Ok(());
        }
        if resize::is_going_on(document) {
            self.resizing.insert(pod.uid.clone());
        }
        self.pods.push(pod);
        Ok(())
    }
}

/// The files to read, in order.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let meta = fs::metadata(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    if !meta.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries =
        fs::read_dir(path).with_context(|| format!("{}: cannot be listed", path.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("{}: cannot be listed", path.display()))?;
        // A mounted ConfigMap is made of links; what they lead to counts.
        let is_file = fs::metadata(entry.path()).is_ok_and(|meta| meta.is_file());
        if is_file && !entry.file_name().as_encoded_bytes().starts_with(b".") {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// Every document of a text.
pub(super) fn documents(text: &str) -> Result<Vec<Value>> {
    let json: Result<Vec<Value>, _> =
        serde_json::Deserializer::from_str(text).into_iter().collect();
    match json {
        Ok(documents) => Ok(documents),
        Err(not_json) => yaml(text).map_err(|not_yaml| {
            let is_json = text.trim_start().starts_with(['{', '[']);
            if is_json {
                anyhow!("not JSON that can be read: {not_json}")
            } else {
                anyhow!("not YAML that can be read: {}", yaml_problem(&not_yaml))
            }
        }),
    }
}

/// Every YAML document; a name such as `n` or `on` is a name, not a truth value.
fn yaml(text: &str) -> Result<Vec<Value>, serde_saphyr::Error> {
    serde_saphyr::from_multiple_with_options(text, serde_saphyr::options! { strict_booleans: true })
}

fn pod(document: &Value) -> Result<Pod> {
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
        priority: 0,
        priority_class: text_at(spec, &["priorityClassName"]).unwrap_or_default().to_owned(),
        is_static: annotation(MIRROR).is_some() || source.is_some(),
        resources: None,
        overhead: amounts(spec.get("overhead"), "spec.overhead")
            .with_context(|| format!("pod {full}"))?,
        containers: Vec::new(),
    };
    pod.priority = match spec.get("priority").filter(|priority| !priority.is_null()) {
        None => class_priority(&pod.priority_class).unwrap_or_default(),
        Some(given) => {
            let number = given.as_i64().and_then(|number| i32::try_from(number).ok());
            number.with_context(|| {
                format!(
                    "pod {full}: spec.priority = {given}: a whole number of 32 bits belongs here"
                )
            })?
        }
    };
    if let Some(whole) = spec.get("resources").filter(|whole| !whole.is_null()) {
        let whole = resources(Some(whole), "spec.resources");
        pod.resources = Some(whole.with_context(|| format!("pod {full}"))?);
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
    resize::follow_allocated(document, &mut pod).with_context(|| format!("pod {full}"))?;
    pod.apply_defaults();
    Ok(pod)
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
        resources: resources(item.get("resources"), &format!("{path}.resources"))?,
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

fn text_at<'v>(value: &'v Value, path: &[&str]) -> Option<&'v str> {
    path.iter().try_fold(value, |value, key| value.get(key))?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Manifests> {
        let mut manifests = Manifests::default();
        manifests.add(text, Some("here"))?;
        Ok(manifests)
    }

    const POD: &str = "kind: Pod\nmetadata: {name: a, uid: u1}\nspec: {containers: [{name: c, resources: {limits: {cpu: 1.5, memory: 1073741824}}}]}\n";

    #[test]
    fn several_documents_lists_and_json_are_all_read() {
        let two = format!("{POD}---\n{}", POD.replace("u1", "u2"));
        assert_eq!(read(&two).unwrap().pods.len(), 2);
        let list = r#"{"kind": "PodList", "items": [{"metadata": {"name": "b", "namespace": "n", "uid": "u3"}, "spec": {"containers": [{"name": "c"}]}}]}"#;
        assert_eq!(read(list).unwrap().pods[0].full_name(), "n/b");
        assert_eq!(read(&format!("[{list}]")).unwrap().pods.len(), 1);
        assert_eq!(read(&format!("{list}\n{list}")).unwrap().pods.len(), 2);
        let other = read("kind: Service\nmetadata: {name: s}\n").unwrap();
        assert_eq!((other.pods.len(), other.notes.len()), (0, 1));
    }

    #[test]
    fn a_limit_without_a_request_is_the_request_too() {
        let pod = &read(POD).unwrap().pods[0];
        let requests = &pod.containers[0].resources.requests;
        assert_eq!((requests.milli("cpu"), requests.value("memory")), (1500, 1 << 30));
        assert_eq!(pod.qos(), Qos::Guaranteed);
    }

    #[test]
    fn what_is_over_or_elsewhere_is_left_out() {
        for extra in ["status: {phase: Failed}\n", "status: {phase: Succeeded}\n"] {
            let read = read(&format!("{POD}{extra}")).unwrap();
            assert_eq!((read.pods.len(), read.ended.len()), (0, 1));
        }
        let elsewhere = POD.replace("spec: {", "spec: {nodeName: there, ");
        assert_eq!(read(&elsewhere).unwrap().pods, []);
    }

    #[test]
    fn a_mirror_pod_has_the_uid_of_its_static_pod() {
        let mirror =
            POD.replace("uid: u1", "uid: u1, annotations: {kubernetes.io/config.mirror: hash}");
        let pod = &read(&mirror).unwrap().pods[0];
        assert!(pod.is_static && pod.uid == "hash");
    }

    #[test]
    fn errors_name_pod_and_field() {
        for (text, says) in [
            (
                POD.replace("1.5", "1.5x"),
                "pod default/a: spec.containers[0].resources.limits[\"cpu\"]: \"1.5x\"",
            ),
            (POD.replace("1.5", "-1"), "below zero"),
            (POD.replace("name: c,", ""), "spec.containers[0].name"),
            (POD.replace("spec: {", "spec: {priority: high, "), "spec.priority = \"high\""),
            (format!("{POD}status: {{qosClass: Best}}"), "status.qosClass"),
            (
                format!(
                    "{POD}status: {{containerStatuses: [{{name: c, containerID: \"containerd://../x\"}}]}}"
                ),
                "containerID",
            ),
            (
                format!(
                    "{POD}status: {{containerStatuses: [{{name: c, containerID: \"../../../../outside://ab\"}}]}}"
                ),
                "pod default/a: status.containerStatuses[name=c].containerID = \"../../../../outside://ab\"",
            ),
            (POD.replace("u1", "../x"), "pod default/a: metadata.uid = \"../x\""),
            (POD.replace("name: a,", "name: \"a/../b\","), "metadata.name = \"a/../b\""),
            (POD.replace("name: a,", "name: a, namespace: \"..\","), "metadata.namespace = \"..\""),
            (POD.replace("name: c,", "name: \"c\\e\","), "spec.containers[0].name = \"c\\u{1b}\""),
            (
                POD.replace("uid: u1", "annotations: {kubernetes.io/config.mirror: a/b}"),
                "config.mirror\"] = \"a/b\"",
            ),
            (
                POD.replace("{limits: {cpu: 1.5, memory: 1073741824}}", "lots"),
                "pod default/a: spec.containers[0].resources = \"lots\"",
            ),
            (
                POD.replace("{limits:", "{requests: {cpu: 2}, limits:"),
                "pod default/a: spec.containers[0].resources.requests[\"cpu\"] = 2: more than the limit",
            ),
            (
                POD.replace(
                    "spec: {",
                    "spec: {resources: {requests: {cpu: 2}, limits: {cpu: 1}}, ",
                ),
                "pod default/a: spec.resources.requests[\"cpu\"] = 2: more than the limit",
            ),
            (
                POD.replace("spec: {", "spec: {initContainers: [{name: c}], "),
                "pod default/a: spec: name of a container = \"c\": another container",
            ),
            (POD.replace("cpu: 1.5", "hugepages-0: 1"), "limits[\"hugepages-0\"]"),
            (POD.replace("cpu: 1.5", "hugepages-3000: 3000"), "limits[\"hugepages-3000\"]"),
            ("metadata: {}".to_owned(), "kind"),
            ("{\"kind\": ".to_owned(), "not JSON"),
        ] {
            let said = format!("{:#}", read(&text).unwrap_err());
            assert!(said.contains(says), "{says} is not in {said}");
        }
    }

    #[test]
    fn a_static_pod_without_a_uid_costs_only_itself_and_is_said() {
        let two = format!("{}---\n{}", POD.replace(", uid: u1", ""), POD);
        let read = read(&two).unwrap();
        assert_eq!((read.pods.len(), read.unnamed.len()), (1, 1));
        assert!(read.notes[0].contains("default/a: metadata.uid"), "{:?}", read.notes);
    }

    #[test]
    fn only_a_running_container_has_an_id() {
        let status = |state: &str| {
            let text = format!(
                "{POD}status: {{containerStatuses: [{{name: c, containerID: \"containerd://ab\", state: {state}}}]}}"
            );
            read(&text).unwrap().pods[0].containers[0].id.clone()
        };
        assert_eq!(status("{running: {}}").unwrap().id, "ab");
        assert_eq!(status("{terminated: {exitCode: 0}}"), None);
    }
}
