//! What an eviction says: status message and event annotations, word for word as the kubelet writes them.
use crate::{
    Quantity,
    request::Requestable,
    signal::Resource,
    snapshot::{ContainerKind, ContainerStats, Workload},
};
use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};
use ebb_model::quantity::Format;

/// Reason of an evicted pod's status, and of the event about it.
pub(crate) const EVICTED: &str = "Evicted";

/// Message and annotations of an eviction for the node's sake.
///
/// Containers are listed by name: the kubelet takes them as the runtime happens to list them.
pub(crate) fn node_pressure(
    workload: &Workload,
    resource: Resource,
    threshold: Option<(Quantity, u64)>,
) -> (String, BTreeMap<String, String>) {
    let mut message = format!("The node was low on resource: {resource}. ");
    if let Some((quantity, available)) = threshold {
        let available = amount(resource, available);
        message += &format!("Threshold quantity: {quantity}, available: {available}. ");
    }
    let mut annotations = BTreeMap::new();
    let Some(stats) = &workload.stats else { return (message, annotations) };

    if resource == Resource::Memory
        && let Some(pod) = &workload.pod_resources
        && let Some(request) = pod.requests.memory
        && let Some(memory) = stats.memory
    {
        let usage = Quantity::bytes(memory.working_set().unwrap_or_default());
        let name = workload.short_name();
        message += &format!(
            "Pod {name} was using {usage}, request is {request}, has larger consumption of {resource}. "
        );
        annotations.insert("offending_pod".to_string(), name.to_string());
        annotations.insert("offending_pod_usage".to_string(), usage.to_string());
    }

    let (mut names, mut usages) = (Vec::new(), Vec::new());
    let mut containers: Vec<&ContainerStats> = stats.containers.iter().collect();
    containers.sort_by(|a, b| a.name.cmp(&b.name));
    for container in containers {
        let spec = workload
            .containers
            .iter()
            .find(|spec| spec.name == container.name && spec.kind != ContainerKind::Ephemeral);
        let (Some(spec), Some(usage)) = (spec, container_usage(container, resource)) else {
            continue;
        };
        let request = Requestable::of(resource).and_then(|kind| spec.requests.get(kind));
        let request = request.unwrap_or(Quantity::whole(0, Format::BinarySi));
        if usage > request {
            let name = &container.name;
            message += &format!(
                "Container {name} was using {usage}, request is {request}, has larger consumption of {resource}. "
            );
            names.push(name.as_str());
            usages.push(usage.to_string());
        }
    }
    annotations.insert("offending_containers".to_string(), names.join(","));
    annotations.insert("offending_containers_usage".to_string(), usages.join(","));
    annotations.insert("starved_resource".to_string(), resource.to_string());
    (message, annotations)
}

/// An amount of a resource, with the suffixes that its kind prints with.
pub(crate) fn amount(resource: Resource, value: u64) -> Quantity {
    match resource {
        Resource::Memory | Resource::Swap | Resource::EphemeralStorage => Quantity::bytes(value),
        Resource::Inodes | Resource::Pids => Quantity::count(value),
    }
}

/// What one container uses; local storage only when both its layer and its logs are known.
fn container_usage(stats: &ContainerStats, resource: Resource) -> Option<Quantity> {
    match resource {
        Resource::Memory => Some(Quantity::bytes(stats.memory?.working_set()?)),
        Resource::EphemeralStorage => {
            let (rootfs, logs) = (stats.rootfs?.used_bytes?, stats.logs?.used_bytes?);
            Some(Quantity::bytes(rootfs.saturating_add(logs)))
        }
        Resource::Swap | Resource::Inodes | Resource::Pids => None,
    }
}
