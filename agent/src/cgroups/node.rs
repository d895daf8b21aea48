//! Facts about the node that cgroups depend on: from a file, from a Kubernetes Node, or from this machine.

use crate::sense::Roots;
use crate::sense::file::read_once;
use crate::sense::host::{v1_controllers, v2_controllers};
use crate::sense::manifests::{amounts, documents, quantity};
use crate::sense::meminfo::MemInfo;
use anyhow::{Context as _, Result, bail, ensure};
use ebb_model::amounts::{CPU, MEMORY, PID};
use ebb_policy::Quantity;
use ebb_policy::cgroups::Node;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Reads a file: facts in the form of `docs/schema/cgroup-node.json`, or a Kubernetes Node; YAML or JSON.
///
/// # Errors
/// What cannot be read, naming file and field.
pub fn from_file(path: &Path) -> Result<Node> {
    let text =
        fs::read_to_string(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> Result<Node> {
    let mut documents = documents(text)?;
    documents.retain(|document| !document.is_null());
    ensure!(documents.len() == 1, "one node belongs here, {} are there", documents.len());
    let Some(Value::Object(mut facts)) = documents.pop() else {
        bail!("facts about a node belong here, such as `capacity: {{cpu: \"4\", memory: 8Gi}}`")
    };
    if facts.get("kind").and_then(Value::as_str) == Some("Node") {
        return of_kubernetes(&Value::Object(facts));
    }
    let capacity = amounts(facts.remove("capacity").as_ref(), "capacity")?;
    let swap = facts.remove("swap").filter(|swap| !swap.is_null());
    let swap = swap.as_ref().map(quantity).transpose().context("swap")?;
    let sizes = facts.remove("hugePageSizes").filter(|sizes| !sizes.is_null());
    let sizes = match &sizes {
        None => Vec::new(),
        Some(Value::Array(sizes)) => {
            sizes.iter().map(quantity).collect::<Result<_>>().context("hugePageSizes")?
        }
        Some(_) => bail!("hugePageSizes: a list belongs here, such as [\"2Mi\"]"),
    };
    let rest: Node = serde_json::from_value(Value::Object(facts))?;
    Ok(Node { capacity, swap, huge_page_sizes: sizes, ..rest })
}

/// Capacity of a Node object; what it does not say (task ids, CPUs by number) stays unknown.
fn of_kubernetes(node: &Value) -> Result<Node> {
    let status = node.get("status").context("status: there is none")?;
    let swap = status.pointer("/nodeInfo/swap/capacity").map(quantity).transpose();
    Ok(Node {
        name: node.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned),
        capacity: amounts(status.get("capacity"), "status.capacity")?,
        swap: swap.context("status.nodeInfo.swap.capacity")?,
        ..Node::default()
    })
}

/// This machine.
///
/// # Errors
/// When its CPUs or its memory cannot be told: no plan is possible then.
pub fn of_this_machine(roots: &Roots) -> Result<Node> {
    let mut node = Node::default();
    let meminfo = roots.proc.join("meminfo");
    let text = read_once(&meminfo).with_context(|| format!("{}", meminfo.display()))?;
    let memory = MemInfo::parse(&text).with_context(|| format!("{}", meminfo.display()))?;
    node.capacity.set(MEMORY, Quantity::bytes(memory.total));
    node.swap = memory.swap_total.map(Quantity::bytes);
    let cpus = read_once(&roots.cgroup.join("cpuset.cpus.effective"))
        .or_else(|_| read_once(Path::new("/sys/devices/system/cpu/online")))
        .context("/sys/devices/system/cpu/online")?;
    let cpus = cpus.trim().to_owned();
    let bits = ebb_policy::cgroups::systemd::cpu_bits(&cpus)
        .with_context(|| format!("online CPUs {cpus:?}: not a list"))?;
    let count: u32 = bits.iter().map(|byte| byte.count_ones()).sum();
    node.capacity.set(CPU, Quantity::count(count.into()));
    node.cpus = Some(cpus);
    let number = |path: &str| read_once(&roots.proc.join(path)).ok()?.trim().parse::<u64>().ok();
    node.pid_max = number("sys/kernel/pid_max");
    node.threads_max = number("sys/kernel/threads-max");
    if let Some(tasks) = node.full_capacity().get(PID) {
        node.capacity.set(PID, tasks);
    }
    node.page_size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .and_then(|size| u64::try_from(size).ok());
    // On a hybrid host a controller counts on the hierarchy that has it.
    let mut controllers = v2_controllers(&roots.cgroup).unwrap_or_default();
    let known = |name: &String| ebb_policy::cgroups::node::CONTROLLERS.contains(&name.as_str());
    controllers.extend(v1_controllers(&roots.proc).into_iter().filter(known));
    node.controllers = Some(controllers).filter(|controllers| !controllers.is_empty());
    add_huge_pages(&mut node, Path::new("/sys/kernel/mm/hugepages"));
    Ok(node)
}

/// Reads the sizes that the kernel offers, and how many pages of each there are.
fn add_huge_pages(node: &mut Node, at: &Path) {
    let Ok(entries) = fs::read_dir(at) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let kib = name.to_str().and_then(|n| n.strip_prefix("hugepages-")?.strip_suffix("kB"));
        let Some(size) =
            kib.and_then(|kib| kib.parse::<u64>().ok()).and_then(|k| k.checked_mul(1024))
        else {
            continue;
        };
        let count = read_once(&entry.path().join("nr_hugepages"));
        let count = count.ok().and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
        let name = format!("hugepages-{}", Quantity::bytes(size));
        node.huge_page_sizes.push(Quantity::bytes(size));
        node.capacity.set(&name, Quantity::bytes(size.saturating_mul(count)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_may_be_written_as_numbers_or_as_quantities() {
        let node = parse("capacity: {cpu: 3.5, memory: 8Gi, pid: 4096, hugepages-2Mi: 1Gi}\nswap: 1Gi\nhugePageSizes: [1Gi]\n").unwrap();
        assert_eq!(node.capacity.milli(CPU), 3500);
        assert_eq!(node.swap(), 1 << 30);
        assert_eq!(node.huge_page_sizes().into_iter().collect::<Vec<_>>(), [2 << 20, 1 << 30]);
    }

    #[test]
    fn a_kubernetes_node_is_read_too() {
        let node = parse(r#"{"kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}}"#).unwrap();
        assert_eq!((node.name.as_deref(), node.capacity.milli(CPU)), (Some("n"), 4000));
    }

    #[test]
    fn on_a_hybrid_host_controllers_of_both_hierarchies_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots { proc: dir.path().join("proc"), cgroup: dir.path().join("unified") };
        for at in [&roots.proc, &roots.cgroup] {
            fs::create_dir(at).unwrap();
        }
        fs::write(roots.proc.join("meminfo"), "MemTotal: 1024 kB\n").unwrap();
        fs::write(roots.cgroup.join("cgroup.controllers"), "hugetlb\n").unwrap();
        let mounts =
            "cgroup /c/memory cgroup rw,memory 0 0\ncgroup /c/cpu cgroup rw,cpu,cpuacct 0 0\n";
        fs::write(roots.proc.join("mounts"), mounts).unwrap();
        let node = of_this_machine(&roots).unwrap();
        let known = ["cpu", "hugetlb", "memory"].map(str::to_owned);
        assert_eq!(node.controllers, Some(known.into()));
    }

    #[test]
    fn errors_name_the_field() {
        for (text, says) in [
            ("capacity: {cpu: 4x}", "capacity[\"cpu\"]"),
            ("swap: much", "swap"),
            ("hugePageSizes: 2Mi", "hugePageSizes"),
            ("memory: 8Gi", "memory"),
            ("- a", "facts about a node"),
        ] {
            let said = format!("{:#}", parse(text).unwrap_err());
            assert!(said.contains(says), "{says} is not in {said}");
        }
    }
}
