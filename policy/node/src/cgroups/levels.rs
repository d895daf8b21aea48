//! The levels that the kubelet writes: all pods, reserved daemons, classes and pods.
use super::cpu::{quota, shares};
use super::names::PodTree;
use super::node::Node;
use super::options::{Extent, MemoryQos, Options, Reservation, Reserved};
use super::plan::{Cgroup, Level, PodRef};
use crate::Quantity;
use crate::snapshot::{ContainerKind, Qos};
use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use ebb_model::amounts::{Amounts, CPU, MEMORY, PID, huge_page_name};
use ebb_model::pod::Pod;
use ebb_model::pod::{Container, Source};

/// No limit on huge pages, as the kubelet writes it.
const UNBOUNDED: u64 = 1 << 62;

/// Why there is no quota.
pub(super) const EXCLUSIVE: &str =
    "no quota where the CPU manager gives whole CPUs (DisableCPUQuotaWithExclusiveCPUs)";

/// Everything that the levels are worked out from.
pub(super) struct Facts<'a> {
    pub(super) options: &'a Options,
    pub(super) node: &'a Node,
    pub(super) tree: &'a PodTree,
    pub(super) capacity: Amounts,
    pub(super) pods: Vec<&'a Pod>,
}

/// Why a limit of nothing is left alone.
const ZERO: &str = "a memory limit of 0 is not written";
/// Why a pod's values are left alone.
const UNKNOWN: &str = "only the runtime knows this pod, and it does not tell what the pod asks for";
/// Why sums over pods are left alone.
const SOME_UNKNOWN: &str =
    "of some pods only the runtime knows, and it does not tell what they ask for";

impl Facts<'_> {
    /// Whether what all pods of these classes ask for is known.
    fn all_known(&self, classes: &[Qos]) -> bool {
        self.pods.iter().all(|pod| pod.is_known() || !classes.contains(&pod.qos()))
    }

    /// Capacity less what is reserved, never below zero; eviction thresholds do not count.
    pub(super) fn allocatable(&self) -> Amounts {
        let Options { kube_reserved, system_reserved, .. } = self.options;
        let mut allocatable = Amounts::none();
        for (name, amount) in self.capacity.iter() {
            let mut rest = amount;
            for reserved in [system_reserved, kube_reserved] {
                rest = reserved.get(name).map_or(rest, |reserved| rest.minus(reserved));
            }
            allocatable.set(name, if rest.is_negative() { Quantity::ZERO } else { rest });
        }
        allocatable
    }

    /// Memory requests of the active pods of a class, in bytes.
    pub(super) fn memory_requests(&self, qos: Qos) -> u64 {
        let of_class = self.pods.iter().filter(|pod| pod.qos() == qos);
        of_class.fold(0, |sum, pod| sum.saturating_add(pod.requests().value(MEMORY)))
    }

    /// All pods together.
    pub(super) fn kubepods(&self) -> Cgroup {
        let name = self.tree.kubepods();
        let mut cgroup = self.level(name.path(self.options.driver), Level::Kubepods);
        cgroup.unit = self.unit(name.unit());
        let (amounts, base) = if self.options.enforce_pods {
            (self.allocatable(), "allocatable (capacity less kubeReserved and systemReserved)")
        } else {
            (self.capacity.clone(), "capacity, since enforceNodeAllocatable does not name pods")
        };
        self.limit(&mut cgroup, &amounts, base);
        // Written as allocatable when the kubelet starts, but every minute and at each new pod as for any class.
        self.unbounded_huge_pages(&mut cgroup);
        self.cpuset(&mut cgroup);
        if let Some(MemoryQos { reservation, .. }) = self.options.memory_qos {
            let burstable = self.memory_requests(Qos::Burstable);
            let min = self.memory_requests(Qos::Guaranteed).saturating_add(burstable);
            let (min, rule) =
                tiered(reservation, min, "memory requests of Guaranteed and Burstable pods");
            if self.all_known(&[Qos::Guaranteed, Qos::Burstable]) {
                cgroup.set("memory.min", min, rule);
            } else {
                cgroup.leave("memory.min", SOME_UNKNOWN);
            }
        }
        self.finish(cgroup)
    }

    /// The cgroup of reserved daemons.
    pub(super) fn reserved(&self, reserved: &Reserved, amounts: &Amounts, level: Level) -> Cgroup {
        let Reserved { path, extent } = reserved;
        let mut cgroup = self.level(path.clone(), level);
        let key = if level == Level::KubeReserved { "kubeReserved" } else { "systemReserved" };
        cgroup.unit = self.unit(path.rsplit('/').next().map(Into::into));
        match extent {
            Extent::Full => {
                self.limit(&mut cgroup, amounts, key);
                self.cpuset(&mut cgroup);
                if self.options.memory_qos.is_some() && amounts.get(MEMORY).is_some() {
                    let rule = format!("{key}[\"memory\"], protected by MemoryQoS");
                    cgroup.set("memory.min", amounts.value(MEMORY), rule);
                }
            }
            Extent::Compressible => {
                if amounts.get(CPU).is_some() {
                    self.weigh(&mut cgroup, amounts.milli(CPU), key);
                }
                self.cpuset(&mut cgroup);
            }
        }
        // Huge pages cannot be reserved, and what is not asked for is not allowed.
        self.huge_pages(&mut cgroup, &BTreeMap::new(), key);
        self.finish(cgroup)
    }

    /// The cgroup of a class: Burstable or BestEffort.
    pub(super) fn class(&self, qos: Qos) -> Cgroup {
        let name = self.tree.class(qos);
        let mut cgroup = self.level(name.path(self.options.driver), Level::Class);
        cgroup.unit = self.unit(name.unit());
        cgroup.qos = Some(qos);
        let milli = match qos {
            Qos::Burstable => {
                let of_class = self.pods.iter().filter(|pod| pod.qos() == qos);
                of_class.fold(0_u64, |sum, pod| sum.saturating_add(pod.requests().milli(CPU)))
            }
            Qos::BestEffort | Qos::Guaranteed => 0,
        };
        let is_known = self.all_known(&[qos]);
        if is_known {
            self.weigh(&mut cgroup, milli, "CPU requests of the class's active pods");
        } else {
            cgroup.leave("cpu.weight", SOME_UNKNOWN);
        }
        self.unbounded_huge_pages(&mut cgroup);
        match self.class_limit(qos) {
            Some(_) if !self.all_known(&[Qos::Guaranteed, Qos::Burstable]) => {
                cgroup.leave("memory.max", SOME_UNKNOWN);
            }
            Some((0, _)) => cgroup.leave("memory.max", ZERO),
            Some((limit, rule)) => cgroup.set("memory.max", limit, rule),
            None => cgroup.leave("memory.max", "qosReserved keeps no memory from this class"),
        }
        if let (Some(memory_qos), Qos::Burstable) = (self.options.memory_qos, qos) {
            let (low, rule) = tiered(
                memory_qos.reservation,
                self.memory_requests(qos),
                "memory requests of Burstable pods",
            );
            if is_known {
                cgroup.set("memory.low", low, rule);
            } else {
                cgroup.leave("memory.low", SOME_UNKNOWN);
            }
        }
        self.finish(cgroup)
    }

    /// What `qosReserved` leaves to a class.
    fn class_limit(&self, qos: Qos) -> Option<(u64, String)> {
        let percent = self.options.qos_reserved_memory?;
        let allocatable = self.allocatable().value(MEMORY);
        if allocatable == 0 {
            return None;
        }
        let kept = |qos| {
            let requests = u128::from(self.memory_requests(qos));
            u64::try_from(requests * u128::from(percent) / 100).unwrap_or(u64::MAX)
        };
        let burstable = allocatable.saturating_sub(kept(Qos::Guaranteed));
        let rule = format!("qosReserved {percent} %: allocatable less that part of Guaranteed");
        match qos {
            Qos::Burstable => Some((burstable, format!("{rule} requests"))),
            Qos::BestEffort => {
                let limit = burstable.saturating_sub(kept(Qos::Burstable));
                Some((limit, format!("{rule} and Burstable requests")))
            }
            Qos::Guaranteed => None,
        }
    }

    /// A pod's own cgroup.
    pub(super) fn pod(&self, pod: &Pod, path: String, unit: Option<String>) -> Cgroup {
        let qos = pod.qos();
        let (requests, limits) = (pod.requests(), pod.limits());
        let mut cgroup = self.level(path, Level::Pod);
        cgroup.unit = self.unit(unit);
        cgroup.qos = Some(qos);
        cgroup.pod = Some(pod_ref(pod));
        match self.options.pod_pids_limit {
            Some(limit) => cgroup.set("pids.max", limit, "podPidsLimit"),
            None => cgroup.leave("pids.max", "podPidsLimit is not set"),
        }
        if !pod.is_known() {
            for file in ["cpu.weight", "cpu.max", "memory.max"] {
                cgroup.leave(file, UNKNOWN);
            }
            return self.finish(cgroup);
        }
        let milli = if qos == Qos::BestEffort { 0 } else { requests.milli(CPU) };
        self.weigh(&mut cgroup, milli, "the pod's CPU requests");
        let (has_quota, has_max) = match qos {
            Qos::Guaranteed => (true, true),
            Qos::Burstable => (limits.all_cpu, limits.all_memory),
            Qos::BestEffort => (false, false),
        };
        if self.has_exclusive_cpus(pod) {
            let max = format!("max {}", self.options.cfs_period_us);
            cgroup.set("cpu.max", max, EXCLUSIVE);
        } else if has_quota {
            let max = self.cpu_max(limits.amounts.milli(CPU));
            cgroup.set("cpu.max", max, self.quota_rule("the pod's CPU limits"));
        } else {
            cgroup.leave("cpu.max", "not every container of the pod has a CPU limit");
        }
        if has_max && limits.amounts.value(MEMORY) == 0 {
            cgroup.leave("memory.max", ZERO);
        } else if has_max {
            cgroup.set("memory.max", limits.amounts.value(MEMORY), "the pod's memory limits");
        } else {
            cgroup.leave("memory.max", "not every container of the pod has a memory limit");
        }
        self.huge_pages(&mut cgroup, &requests.huge_pages(), "the pod's requests");
        let tiered = |qos: MemoryQos| qos.reservation == Reservation::Tiered;
        let request = requests.value(MEMORY);
        if self.options.memory_qos.is_some_and(tiered) && request > 0 {
            let rule = "the pod's memory requests, under TieredReservation";
            match qos {
                Qos::Guaranteed => cgroup.set("memory.min", request, rule),
                Qos::Burstable => cgroup.set("memory.low", request, rule),
                Qos::BestEffort => {}
            }
        }
        self.finish(cgroup)
    }

    /// Whether the CPU manager gives a container whole CPUs for itself.
    pub(super) fn is_exclusive(&self, pod: &Pod, container: &Container) -> bool {
        let milli = container.resources.requests.milli(CPU);
        self.options.no_quota_when_exclusive
            && !self.options.all_cpus
            && pod.source == Source::Manifest
            && pod.qos() == Qos::Guaranteed
            // The CPU manager does not look into pods that ask as a whole.
            && pod.resources.is_none()
            && matches!(container.kind, ContainerKind::Regular | ContainerKind::Sidecar)
            && milli > 0
            && milli.is_multiple_of(1000)
    }

    fn has_exclusive_cpus(&self, pod: &Pod) -> bool {
        pod.containers.iter().any(|container| self.is_exclusive(pod, container))
    }

    /// All CPUs where the kubelet leaves them to the kernel.
    fn cpuset(&self, cgroup: &mut Cgroup) {
        if !self.options.all_cpus {
            cgroup.leave("cpuset.cpus", "the CPU manager's policy static places CPUs");
        } else if let Some(cpus) = self.node.cpus() {
            cgroup.set("cpuset.cpus", cpus, "all CPUs under the CPU manager's policy none");
        }
    }

    fn unbounded_huge_pages(&self, cgroup: &mut Cgroup) {
        if self.node.has_controller("hugetlb") {
            for size in self.node.huge_page_sizes() {
                self.huge(cgroup, size, UNBOUNDED, "classes are unbounded in huge pages");
            }
        }
    }

    /// Limits in every resource that is listed.
    fn limit(&self, cgroup: &mut Cgroup, amounts: &Amounts, base: &str) {
        if amounts.get(CPU).is_some() {
            self.weigh(cgroup, amounts.milli(CPU), base);
        }
        if amounts.get(MEMORY).is_some() && amounts.value(MEMORY) == 0 {
            cgroup.leave("memory.max", ZERO);
        } else if amounts.get(MEMORY).is_some() {
            cgroup.set("memory.max", amounts.value(MEMORY), format!("memory of {base}"));
        }
        if amounts.get(PID).is_some() {
            // No task id at all would be no limit.
            cgroup.set("pids.max", amounts.value(PID).max(1), format!("task ids of {base}"));
        }
    }

    fn weigh(&self, cgroup: &mut Cgroup, milli: u64, base: &str) {
        let shares = shares(milli);
        let rule = format!("{base}: {milli}m is {shares} shares");
        cgroup.set("cpu.weight", self.options.pod_curve.weight(shares), rule);
    }

    /// Every size has a limit: what is not asked for is zero.
    pub(super) fn huge_pages(&self, cgroup: &mut Cgroup, asked: &BTreeMap<u64, u64>, base: &str) {
        if !self.node.has_controller("hugetlb") {
            return;
        }
        let mut sizes = self.node.huge_page_sizes();
        sizes.extend(asked.keys());
        for size in sizes {
            match asked.get(&size) {
                Some(bytes) => self.huge(cgroup, size, *bytes, &format!("huge pages of {base}")),
                None => self.huge(cgroup, size, 0, "sizes that are not asked for are not allowed"),
            }
        }
    }

    fn huge(&self, cgroup: &mut Cgroup, size: u64, bytes: u64, rule: &str) {
        let name = huge_page_name(size);
        cgroup.set(&format!("hugetlb.{name}.max"), bytes, rule);
        let rsvd = format!("hugetlb.{name}.rsvd.max");
        cgroup.set(&rsvd, bytes, rule);
        if let Some(value) = cgroup.values.get_mut(&rsvd) {
            value.if_present = true;
        }
    }

    /// The content of `cpu.max` for a limit; 0 is no limit.
    pub(super) fn cpu_max(&self, limit_milli: u64) -> String {
        let period = self.options.cfs_period_us;
        match quota(limit_milli, period) {
            0 => format!("max {period}"),
            _ if !self.options.cfs_quota => format!("max {period}"),
            quota => format!("{} {period}", self.whole_percents(quota, period)),
        }
    }

    /// systemd holds whole percents of a CPU, and the file says what systemd holds; cgroupfs takes the quota as it is.
    fn whole_percents(&self, quota: u64, period: u64) -> u64 {
        match self.options.driver {
            super::Driver::Cgroupfs => quota,
            super::Driver::Systemd => super::systemd::whole_percents(quota, period),
        }
    }

    pub(super) fn quota_rule(&self, base: &str) -> String {
        if self.options.cfs_quota {
            format!("{base} within cpuCFSQuotaPeriod")
        } else {
            String::from("cpuCFSQuota is off")
        }
    }

    pub(super) fn level(&self, path: String, level: Level) -> Cgroup {
        Cgroup::new(Some(path), level)
    }

    fn unit(&self, unit: Option<String>) -> Option<String> {
        unit.filter(|_| self.options.driver == super::Driver::Systemd)
    }

    /// Leaves out what the hierarchy has no controller for, and adds what follows from the values.
    pub(super) fn finish(&self, mut cgroup: Cgroup) -> Cgroup {
        cgroup.values.retain(|file, _| match file.split('.').next() {
            Some("hugetlb" | "cgroup") | None => true,
            Some(controller) => self.node.has_controller(controller),
        });
        let usage = cgroup.path.as_ref().and_then(|path| self.node.memory_usage.get(path)).copied();
        if let (Some(usage), Some(max)) = (usage, cgroup.values.get_mut("memory.max"))
            && max.value.parse::<u64>().is_ok_and(|limit| limit < usage)
        {
            max.at_once = Some(format!("{usage}"));
        }
        if cgroup.unit.is_some() {
            cgroup.properties = super::systemd::properties(&cgroup.values);
        }
        cgroup
    }
}

/// Who a pod is.
pub(super) fn pod_ref(pod: &Pod) -> PodRef {
    PodRef { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
}

/// What requests protect in a container: strictly for Guaranteed pods, as long as there is enough for Burstable ones.
pub(super) fn protect(
    cgroup: &mut Cgroup,
    qos: Qos,
    reservation: Reservation,
    request: u64,
    base: &str,
) {
    let (min, low) = match qos {
        Qos::Guaranteed => (request, 0),
        Qos::Burstable => (0, request),
        Qos::BestEffort => (0, 0),
    };
    for (file, bytes) in [("memory.min", min), ("memory.low", low)] {
        let (bytes, rule) = tiered(reservation, bytes, base);
        cgroup.set(file, bytes, rule);
    }
}

fn tiered(reservation: Reservation, bytes: u64, base: &str) -> (u64, String) {
    match reservation {
        Reservation::Tiered => (bytes, format!("{base}, under TieredReservation")),
        Reservation::None => (0, String::from("memoryReservationPolicy None protects nothing")),
    }
}
