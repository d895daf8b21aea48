//! Cgroups as Kubernetes' rules demand them: the kubelet's tree of names and values, as a pure function.
//!
//! ```text
//!  Options ─┐
//!  Node ────┼─► plan ─► Plan { cgroups: path, values with their rules, systemd properties, oom_score_adj }
//!  Pods ────┘
//! ```
//! A [`Pod`] and its [`Amounts`] say what is asked for, [`cpu`] turns it into shares, quota and weight, [`names`] into paths;
//! [`levels`](self) and containers put values and names together. Comparing a live tree with the plan is [`compare`], the order of writes [`order`].
//! Reading and writing a tree is the agent's.

mod check;
pub mod compare;
mod containers;
pub mod cpu;
mod gates;
mod levels;
pub mod names;
pub mod node;
mod oom;
pub mod options;
pub mod order;
pub mod orphans;
pub mod plan;
pub mod systemd;

pub use gates::GATES;
pub use names::{CgroupName, Driver, PodTree};
pub use node::Node;
pub use options::{Options, RawCgroups};
pub use plan::{Cgroup, Level, Plan};

use crate::Quantity;
use crate::limits::ConfigError;
use crate::snapshot::Qos;
use alloc::{
    collections::BTreeSet,
    format,
    string::{String, ToString},
    vec::Vec,
};
use ebb_model::amounts::{self, CPU, MEMORY, PID};
use ebb_model::{Amounts, Pod};
use levels::Facts;

/// The tree that the rules demand. The order of `pods` does not matter.
///
/// # Errors
/// Every fact that the rules cannot hold for, naming the field: a reservation above the node's capacity, a pod whose UID cannot be part of a path, an unknown controller.
pub fn plan(options: &Options, node: &Node, pods: &[Pod]) -> Result<Plan, Vec<ConfigError>> {
    let mut errors = Vec::new();
    let tree = PodTree::below(&options.root, options.driver)
        .map_err(|problem| Vec::from([error("cgroupRoot", None, problem, "write another root")]))?;
    let capacity = node.full_capacity();
    check_node(options, node, &capacity, &mut errors);
    check_pods(&tree, pods, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut pods: Vec<Pod> = pods.to_vec();
    pods.sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
    for pod in &mut pods {
        if !options.pod_level_resources {
            pod.resources = None;
        }
    }
    let facts = Facts { options, node, tree: &tree, capacity, pods: pods.iter().collect() };
    let mut cgroups = Vec::new();
    if options.per_qos {
        cgroups.push(facts.kubepods());
    }
    let reserved = [
        (&options.kube, &options.kube_reserved, Level::KubeReserved),
        (&options.system, &options.system_reserved, Level::SystemReserved),
    ];
    for (at, amounts, level) in reserved {
        cgroups.extend(at.as_ref().map(|at| facts.reserved(at, amounts, level)));
    }
    if options.per_qos {
        cgroups.extend([Qos::Burstable, Qos::BestEffort].map(|qos| facts.class(qos)));
    }
    for pod in &pods {
        let Ok(name) = tree.pod(&pod.uid, pod.qos()) else { continue };
        // Without cgroups of pods a container is wherever the runtime puts it.
        let path = options.per_qos.then(|| name.path(options.driver));
        if let Some(path) = &path {
            cgroups.push(facts.pod(pod, path.clone(), name.unit()));
        }
        let path = path.as_deref();
        let containers = pod.containers.iter();
        cgroups.extend(containers.map(|container| facts.container(pod, path, container)));
    }
    Ok(Plan {
        schema_version: plan::SCHEMA_VERSION,
        driver: options.driver,
        cgroups,
        notes: Vec::new(),
    })
}

fn check_node(options: &Options, node: &Node, capacity: &Amounts, errors: &mut Vec<ConfigError>) {
    for (name, fix) in [(CPU, "\"4\""), (MEMORY, "\"8Gi\"")] {
        if !capacity.has(name) {
            errors.push(error(
                &format!("node.capacity[{name:?}]"),
                capacity.get(name).map(|amount| amount.to_string()),
                "it is not known how much the node has",
                &format!("say how much, such as {fix}"),
            ));
        }
    }
    for size in &node.huge_page_sizes {
        let bytes = u64::try_from(size.ceil()).unwrap_or(0);
        if !amounts::is_page_size(bytes) {
            let fix = "write a power of two from 4Ki on, such as \"2Mi\"";
            let value = Some(size.to_string());
            errors.push(error(
                "node.hugePageSizes",
                value,
                "no kernel has pages of this size",
                fix,
            ));
        }
    }
    for (name, amount) in node.capacity.iter() {
        if amounts::is_huge_page(name) && amounts::huge_page_size(name).is_none() {
            errors.push(error(
                &format!("node.capacity[{name:?}]"),
                Some(amount.to_string()),
                "no kernel has pages of this size",
                "write a power of two from 4Ki on, such as hugepages-2Mi",
            ));
        }
    }
    if let Some(size) = node.page_size.filter(|size| !amounts::is_page_size(*size)) {
        errors.push(error(
            "node.pageSize",
            Some(size.to_string()),
            "no kernel has pages of this size",
            "write a power of two from 4096 on",
        ));
    }
    for controller in node.controllers.iter().flatten() {
        if !node::CONTROLLERS.contains(&controller.as_str()) {
            errors.push(error(
                "node.controllers",
                Some(controller.clone()),
                "unknown controller",
                &format!("write some of {}", node::CONTROLLERS.join(", ")),
            ));
        }
    }
    if let Some(cpus) = &node.cpus
        && systemd::cpu_bits(cpus).is_none_or(|bits| bits.is_empty())
    {
        errors.push(error(
            "node.cpus",
            Some(cpus.clone()),
            "not a list of CPUs",
            "write one such as \"0-3\"",
        ));
    }
    let Options { kube_reserved, system_reserved, .. } = options;
    for (name, has) in capacity.iter() {
        let part = |amounts: &Amounts| amounts.get(name).unwrap_or(Quantity::ZERO);
        let (kube, system) = (part(kube_reserved), part(system_reserved));
        let evicted = if name == MEMORY { eviction_reserve(options, has) } else { Quantity::ZERO };
        let reserved = kube.plus(system).plus(evicted);
        // Task ids are no part of what the kubelet checks: none are left then.
        if reserved <= has || name == PID {
            continue;
        }
        let key = if kube >= system { "kubeReserved" } else { "systemReserved" };
        let beside = if evicted.is_positive() {
            format!(" and evictionHard[\"memory.available\"] {evicted}")
        } else {
            String::new()
        };
        errors.push(error(
            &format!("{key}[{name:?}]"),
            Some(kube.max(system).to_string()),
            &format!("kubeReserved {kube}, systemReserved {system}{beside} are more than the node's capacity of {has}"),
            "reserve less",
        ));
    }
}

/// What the hard threshold on available memory keeps from pods.
fn eviction_reserve(options: &Options, memory: Quantity) -> Quantity {
    let Some(text) = &options.eviction_hard_memory else { return Quantity::ZERO };
    match text.strip_suffix('%') {
        None => text.parse().unwrap_or(Quantity::ZERO),
        Some(percent) => {
            let hundredths = percent.parse::<Quantity>().map_or(0, Quantity::nanos);
            let bytes = memory.ceil().saturating_mul(hundredths) / 100_000_000_000;
            Quantity::bytes(u64::try_from(bytes).unwrap_or(0))
        }
    }
}

fn check_pods(tree: &PodTree, pods: &[Pod], errors: &mut Vec<ConfigError>) {
    let mut uids = BTreeSet::new();
    for pod in pods {
        let key = format!("pods[{:?}].metadata.uid", pod.full_name());
        let uid = Some(pod.uid.clone());
        if let Err(problem) = tree.pod(&pod.uid, pod.qos()) {
            errors.push(error(
                &key,
                uid,
                problem,
                "write the UID under which the kubelet runs the pod",
            ));
        } else if !uids.insert(&pod.uid) {
            errors.push(error(&key, uid, "another pod has it too", "keep one of them"));
        }
    }
    // Two limits for one cgroup would be written in turn for ever.
    let mut ids = BTreeSet::new();
    for (pod, container) in pods.iter().flat_map(|pod| pod.containers.iter().map(move |c| (pod, c)))
    {
        let Some(id) = &container.id else { continue };
        if !ids.insert((&id.runtime, &id.id)) {
            errors.push(error(
                &format!(
                    "pods[{:?}].containers[{:?}].containerID",
                    pod.full_name(),
                    container.name
                ),
                Some(format!("{}://{}", id.runtime, id.id)),
                "another container has it too",
                "keep it where it belongs",
            ));
        }
    }
}

fn error(key: &str, value: Option<String>, problem: &str, fix: &str) -> ConfigError {
    ConfigError { key: key.into(), value, problem: problem.into(), fix: fix.into() }
}
