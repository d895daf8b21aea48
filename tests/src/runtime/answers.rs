//! The world's sandboxes and containers in CRI's words.

use super::world::{FakeContainer, FakeSandbox, World, now};
use ebb_cri::wire::runtime as v1;
use std::collections::BTreeMap;

pub(crate) fn sandbox_metadata(sandbox: &FakeSandbox) -> v1::PodSandboxMetadata {
    v1::PodSandboxMetadata {
        name: sandbox.name.clone(),
        uid: sandbox.uid.clone(),
        namespace: sandbox.namespace.clone(),
        attempt: sandbox.attempt,
    }
}

fn sandbox_state(sandbox: &FakeSandbox) -> i32 {
    let state = if sandbox.ready {
        v1::PodSandboxState::SandboxReady
    } else {
        v1::PodSandboxState::SandboxNotready
    };
    state.into()
}

pub(crate) fn sandbox_status(sandbox: &FakeSandbox) -> v1::PodSandboxStatus {
    v1::PodSandboxStatus {
        id: sandbox.id.clone(),
        metadata: Some(sandbox_metadata(sandbox)),
        state: sandbox_state(sandbox),
        created_at: sandbox.created,
        ..Default::default()
    }
}

pub(crate) fn sandbox_item(sandbox: &FakeSandbox) -> v1::PodSandbox {
    // By a kubelet, which gives the runtime the annotations of the pod.
    let source = sandbox.is_static.then_some(("kubernetes.io/config.source", "file"));
    let annotations = source.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    v1::PodSandbox {
        annotations: annotations.collect(),
        id: sandbox.id.clone(),
        metadata: Some(sandbox_metadata(sandbox)),
        state: sandbox_state(sandbox),
        created_at: sandbox.created,
        ..Default::default()
    }
}

fn labels(world: &World, container: &FakeContainer) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    if !container.labelled {
        return labels;
    }
    let label = |key: &str, value: &str| (format!("io.kubernetes.{key}"), value.to_owned());
    labels.extend([label("container.name", &container.name)]);
    if let Some(sandbox) = world.sandboxes.get(&container.sandbox) {
        labels.extend([
            label("pod.uid", &sandbox.uid),
            label("pod.name", &sandbox.name),
            label("pod.namespace", &sandbox.namespace),
        ]);
    }
    labels
}

/// An id from containerd, a name with digest from CRI-O.
fn image_reference(world: &World, container: &FakeContainer) -> String {
    let image = world.images.get(&container.image).filter(|_| world.flavour.is_crio());
    let named = image.and_then(|image| image.digests.first().cloned());
    named.unwrap_or_else(|| container.image.clone())
}

fn image_spec(world: &World, container: &FakeContainer) -> v1::ImageSpec {
    let image = world.images.get(&container.image);
    let image = image.and_then(|image| image.tags.first()).unwrap_or(&container.image).clone();
    v1::ImageSpec { image, ..Default::default() }
}

fn metadata(container: &FakeContainer) -> v1::ContainerMetadata {
    v1::ContainerMetadata { name: container.name.clone(), attempt: container.attempt }
}

pub(crate) fn container_item(world: &World, container: &FakeContainer) -> v1::Container {
    v1::Container {
        id: container.id.clone(),
        pod_sandbox_id: container.sandbox.clone(),
        metadata: Some(metadata(container)),
        image: Some(image_spec(world, container)),
        image_ref: image_reference(world, container),
        state: container.state.into(),
        created_at: container.created,
        labels: labels(world, container),
        ..Default::default()
    }
}

pub(crate) fn container_status(world: &World, container: &FakeContainer) -> v1::ContainerStatus {
    v1::ContainerStatus {
        id: container.id.clone(),
        metadata: Some(metadata(container)),
        state: container.state.into(),
        created_at: container.created,
        started_at: container.created,
        finished_at: container.finished,
        exit_code: container.exit_code,
        reason: container.reason.clone(),
        image: Some(image_spec(world, container)),
        image_ref: image_reference(world, container),
        labels: labels(world, container),
        log_path: container.log_path.clone(),
        ..Default::default()
    }
}

pub(crate) fn container_stats(container: &FakeContainer, mountpoint: &str) -> v1::ContainerStats {
    let value = |value| Some(v1::UInt64Value { value });
    v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes {
            id: container.id.clone(),
            metadata: Some(metadata(container)),
            ..Default::default()
        }),
        writable_layer: Some(v1::FilesystemUsage {
            timestamp: now(),
            fs_id: Some(v1::FilesystemIdentifier { mountpoint: mountpoint.to_owned() }),
            used_bytes: value(container.written.0),
            inodes_used: value(container.written.1),
        }),
        ..Default::default()
    }
}

pub(crate) fn verbose(pid: u32, cgroup: &str) -> BTreeMap<String, String> {
    let cgroups = serde_json::json!({ "linux": { "cgroupsPath": cgroup } });
    let info = serde_json::json!({ "pid": pid, "runtimeSpec": cgroups });
    BTreeMap::from([("info".to_owned(), info.to_string())])
}
