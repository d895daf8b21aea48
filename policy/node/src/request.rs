//! What a workload asked for, summed the way the kubelet sums it.
use crate::{
    Quantity,
    signal::Resource,
    snapshot::{ContainerKind, ContainerSpec, Qos, ResourceList, Resources, Workload},
};
use alloc::vec::Vec;
use ebb_model::quantity::Format;

/// Resources that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requestable {
    Cpu,
    Memory,
    EphemeralStorage,
}

impl Requestable {
    /// The one behind a node resource; swap, inodes and processes cannot be asked for.
    pub(crate) fn of(resource: Resource) -> Option<Requestable> {
        match resource {
            Resource::Memory => Some(Requestable::Memory),
            Resource::EphemeralStorage => Some(Requestable::EphemeralStorage),
            Resource::Swap | Resource::Inodes | Resource::Pids => None,
        }
    }
}

impl ResourceList {
    pub(crate) fn get(&self, resource: Requestable) -> Option<Quantity> {
        match resource {
            Requestable::Cpu => self.cpu,
            Requestable::Memory => self.memory,
            Requestable::EphemeralStorage => self.ephemeral_storage,
        }
    }
}

/// The request of a workload: that of the pod as a whole if it has one, else of its containers; overhead only on top of something.
pub(crate) fn request(workload: &Workload, resource: Requestable) -> Quantity {
    if resource == Requestable::Memory
        && let Some(request) = workload.memory_request
    {
        return request;
    }
    let request = match workload.pod_resources.as_deref().filter(|pod| has_pod_level(pod)) {
        // What containers ask for does not count then, and local storage cannot be asked for by the pod.
        Some(_) if resource == Requestable::EphemeralStorage => None,
        Some(pod) => pod.requests.get(resource),
        None => peak(&workload.containers, |container| container.requests.get(resource)),
    };
    let request = request.unwrap_or(Quantity::whole(0, Format::BinarySi));
    match workload.overhead.as_deref().and_then(|overhead| overhead.get(resource)) {
        Some(overhead) if !request.is_zero() => request.plus(overhead),
        _ => request,
    }
}

/// The limit of local storage of all containers together; `None` when no container has one. Overhead only on top of something: a limit of zero stays zero.
pub(crate) fn storage_limit(workload: &Workload) -> Option<Quantity> {
    let resource = Requestable::EphemeralStorage;
    let limit = peak(&workload.containers, |container| container.limits.get(resource))?;
    match workload.overhead.as_deref().and_then(|overhead| overhead.get(resource)) {
        Some(overhead) if !limit.is_zero() => Some(limit.plus(overhead)),
        _ => Some(limit),
    }
}

/// Whether resources are set for the pod as a whole; local storage set there counts for nothing.
fn has_pod_level(resources: &Resources) -> bool {
    [resources.requests, resources.limits]
        .iter()
        .any(|list| list.cpu.is_some() || list.memory.is_some())
}

/// The most that is needed at any time: regular containers with all sidecars, or an init container with the sidecars before it.
fn peak(
    containers: &[ContainerSpec],
    amount: impl Fn(&ContainerSpec) -> Option<Quantity>,
) -> Option<Quantity> {
    let add = |sum: Option<Quantity>, more: Option<Quantity>| match (sum, more) {
        (Some(sum), Some(more)) => Some(sum.plus(more)),
        (sum, more) => sum.or(more),
    };
    let mut running = None;
    for container in containers.iter().filter(|c| c.kind == ContainerKind::Regular) {
        running = add(running, amount(container));
    }
    if !containers.iter().any(|c| matches!(c.kind, ContainerKind::Init | ContainerKind::Sidecar)) {
        return running;
    }
    let mut sidecars = None;
    let mut starting: Option<Quantity> = None;
    for container in in_start_order(containers) {
        let mine = amount(container);
        if container.kind == ContainerKind::Sidecar {
            running = add(running, mine);
            sidecars = add(sidecars, mine);
            starting = starting.max(sidecars);
        } else {
            starting = starting.max(add(mine, sidecars));
        }
    }
    running.max(starting)
}

/// Init containers and sidecars as they start: by their stated position, those without one by their place in the list.
fn in_start_order(containers: &[ContainerSpec]) -> Vec<&ContainerSpec> {
    let mut starting: Vec<(u32, &ContainerSpec)> = containers
        .iter()
        .filter(|c| matches!(c.kind, ContainerKind::Init | ContainerKind::Sidecar))
        .zip(0..)
        .map(|(container, place)| (container.start_order.unwrap_or(place), container))
        .collect();
    starting.sort_by_key(|(place, _)| *place);
    starting.into_iter().map(|(_, container)| container).collect()
}

/// The quality of service class: that of the status, else what follows from requests and limits.
pub(crate) fn qos(workload: &Workload) -> Qos {
    if let Some(qos) = workload.qos {
        return qos;
    }
    let lists: Vec<(ResourceList, ResourceList)> =
        match workload.pod_resources.as_deref().filter(|pod| has_pod_level(pod)) {
            Some(pod) => alloc::vec![(pod.requests, pod.limits)],
            None => workload
                .containers
                .iter()
                .filter(|c| c.kind != ContainerKind::Ephemeral)
                .map(|c| (c.requests, c.limits))
                .collect(),
        };
    let set = |list: &ResourceList| {
        [list.cpu, list.memory].into_iter().flatten().any(|amount| amount.is_positive())
    };
    if !lists.iter().any(|(requests, limits)| set(requests) || set(limits)) {
        return Qos::BestEffort;
    }
    let equal = |request: Option<Quantity>, limit: Option<Quantity>| {
        limit.is_some_and(|limit| {
            limit.is_positive() && request.is_none_or(|request| request == limit)
        })
    };
    let guaranteed = lists.iter().all(|(requests, limits)| {
        equal(requests.cpu, limits.cpu) && equal(requests.memory, limits.memory)
    });
    if guaranteed { Qos::Guaranteed } else { Qos::Burstable }
}
