//! The node as far as its cgroups depend on it: capacity, huge page sizes, CPUs, controllers.
use crate::Quantity;
use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
    vec::Vec,
};
use ebb_model::amounts::{Amounts, CPU, MEMORY, PID, huge_page_size};

/// Controllers of cgroup v2.
pub const CONTROLLERS: [&str; 10] =
    ["cpu", "cpuset", "dmem", "hugetlb", "io", "memory", "misc", "perf_event", "pids", "rdma"];

/// Facts about a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct Node {
    /// The node's name; pods that are bound to another node are left out.
    pub name: Option<String>,
    /// What the node has: `cpu`, `memory` and, where known, `pid` and `hugepages-<size>`. Other resources are ignored.
    pub capacity: Amounts,
    /// Bytes of swap; absent means none.
    pub swap: Option<Quantity>,
    /// `kernel.pid_max`; with `threadsMax` it stands for `capacity.pid`.
    pub pid_max: Option<u64>,
    /// `kernel.threads-max`.
    pub threads_max: Option<u64>,
    /// Online CPUs as a list, such as `0-3,6`; absent means the first `capacity.cpu`.
    pub cpus: Option<String>,
    /// Bytes of a page; absent means 4096.
    pub page_size: Option<u64>,
    /// Huge page sizes that the kernel offers, such as `2Mi`, beside those in `capacity`.
    pub huge_page_sizes: Vec<Quantity>,
    /// Controllers of the hierarchy; absent means that all are there.
    pub controllers: Option<BTreeSet<String>>,
    /// Bytes in use (`memory.current`) by path of the cgroup, for limits that cannot be set at once.
    pub memory_usage: BTreeMap<String, u64>,
}

impl Node {
    /// Capacity with what follows from other facts.
    #[must_use]
    pub fn full_capacity(&self) -> Amounts {
        let mut capacity = self.capacity.clone();
        let tasks = match (self.pid_max, self.threads_max) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if let (None, Some(tasks)) = (capacity.get(PID), tasks) {
            capacity.set(PID, Quantity::count(tasks));
        }
        let kept = capacity.iter().filter(|(name, _)| {
            matches!(*name, CPU | MEMORY | PID) || huge_page_size(name).is_some()
        });
        kept.collect()
    }

    /// Huge page sizes in bytes.
    #[must_use]
    pub fn huge_page_sizes(&self) -> BTreeSet<u64> {
        let listed = self.huge_page_sizes.iter().filter_map(|size| u64::try_from(size.ceil()).ok());
        let mut sizes: BTreeSet<u64> = listed.filter(|size| *size > 0).collect();
        sizes.extend(self.capacity.huge_pages().into_keys());
        sizes
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_size(&self) -> u64 {
        self.page_size.filter(|size| size.is_power_of_two()).unwrap_or(4096)
    }

    /// Bytes of swap.
    #[must_use]
    pub fn swap(&self) -> u64 {
        self.swap.map_or(0, |swap| u64::try_from(swap.ceil().max(0)).unwrap_or(u64::MAX))
    }

    /// Online CPUs as a list.
    #[must_use]
    pub fn cpus(&self) -> Option<String> {
        let count = || self.capacity.milli(CPU) / 1000;
        match (&self.cpus, count()) {
            (Some(cpus), _) => Some(cpus.clone()),
            (None, 0) => None,
            (None, 1) => Some(String::from("0")),
            (None, count) => Some(alloc::format!("0-{}", count - 1)),
        }
    }

    /// Whether the hierarchy has a controller.
    #[must_use]
    pub fn has_controller(&self, name: &str) -> bool {
        self.controllers.as_ref().is_none_or(|all| all.contains(name))
    }
}
