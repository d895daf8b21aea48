//! The level that the runtime writes, on the kubelet's behalf: containers.
use super::cpu::{quota, shares};
use super::levels::{EXCLUSIVE, Facts, pod_ref, protect};
use super::names::Driver;
use super::oom;
use super::options::MemoryQos;
use super::plan::{Cgroup, Level, OomScore};
use crate::snapshot::Qos;
use alloc::{format, string::String, vec::Vec};
use ebb_model::amounts::{Amounts, CPU, MEMORY, huge_page_size};
use ebb_model::pod::{Asked, Container, ContainerId, Pod, Source};

/// Why a value is left alone.
const NOT_TOLD: &str = "the runtime does not tell whether it was asked for one";

impl Facts<'_> {
    /// A container of the pod whose cgroup is at `pod_path`, if it has one.
    pub(super) fn container(
        &self,
        pod: &Pod,
        pod_path: Option<&str>,
        container: &Container,
    ) -> Cgroup {
        let requests = &container.resources.requests;
        let limits = self.limits(pod, container);
        let place = container.id.as_ref().zip(pod_path);
        let path = place.map(|(id, pod_path)| path(pod_path, id, self.options.driver));
        let mut cgroup = Cgroup::new(path, Level::Container);
        cgroup.qos = Some(pod.qos());
        cgroup.pod = Some(pod_ref(pod));
        cgroup.container = Some(container.name.clone());
        if pod.source == Source::Runtime {
            return self.as_asked(cgroup, &container.asked);
        }

        let (milli, base) = match requests.get(CPU) {
            Some(_) => (requests.milli(CPU), "the container's CPU request"),
            None => (limits.milli(CPU), "the CPU limit, for want of a request"),
        };
        let shares = shares(milli);
        let rule = format!("{base}: {milli}m is {shares} shares");
        cgroup.set("cpu.weight", self.options.container_curve.weight(shares), rule);
        if self.is_exclusive(pod, container) {
            cgroup.set("cpu.max", "max 100000", EXCLUSIVE);
        } else if self.options.cfs_quota {
            let rule = self.quota_rule("the CPU limit");
            cgroup.set("cpu.max", self.cpu_max(limits.milli(CPU)), rule);
            // Runtimes differ in what they do about systemd's whole percents.
            let period = self.options.cfs_period_us;
            match quota(limits.milli(CPU), period) {
                0 => {}
                exact => cgroup.or("cpu.max", format!("{exact} {period}")),
            }
        } else {
            cgroup.leave("cpu.max", "cpuCFSQuota is off");
        }
        if limits.has(MEMORY) {
            cgroup.set("memory.max", limits.value(MEMORY), "the memory limit");
        } else {
            cgroup.leave("memory.max", "there is no memory limit");
        }
        if self.options.oom_group {
            let rule =
                "the OOM killer takes the container as a whole (singleProcessOOMKill is off)";
            cgroup.set("memory.oom.group", 1, rule);
        } else {
            cgroup.leave("memory.oom.group", "singleProcessOOMKill is on");
        }
        self.huge_pages(&mut cgroup, &limits.huge_pages(), "the container's limits");
        // containerd passes them on only where its disable_hugetlb_controller is off; the pod's cgroup bounds them anyway.
        let files: Vec<String> =
            cgroup.values.keys().filter(|file| file.starts_with("hugetlb.")).cloned().collect();
        files.iter().for_each(|file| cgroup.or(file, "max"));
        self.swap(&mut cgroup, pod, container);
        if let Some(memory_qos) = self.options.memory_qos {
            self.memory_qos(
                &mut cgroup,
                pod.qos(),
                memory_qos,
                requests.value(MEMORY),
                // The pod's own limit does not count here.
                container.resources.limits.value(MEMORY),
            );
        }
        let (value, rule) = oom::score(pod, container, self.capacity.value(MEMORY));
        cgroup.oom_score_adj = Some(OomScore { value, rule });
        self.finish(cgroup)
    }

    /// A container that only the runtime knows: what it was asked to give, and nothing else.
    fn as_asked(&self, mut cgroup: Cgroup, asked: &Asked) -> Cgroup {
        let Asked { shares, quota, memory, oom_score_adj } = asked;
        match shares {
            Some(shares) => {
                let rule = format!("the runtime was asked for {shares} shares");
                cgroup.set("cpu.weight", self.options.container_curve.weight(*shares), rule);
            }
            None => cgroup.leave("cpu.weight", NOT_TOLD),
        }
        match quota {
            Some((quota, period)) => {
                cgroup.set("cpu.max", format!("{quota} {period}"), "the runtime was asked for it");
            }
            None => cgroup.leave("cpu.max", NOT_TOLD),
        }
        match memory {
            Some(bytes) => cgroup.set("memory.max", bytes, "the runtime was asked for it"),
            None => cgroup.leave("memory.max", NOT_TOLD),
        }
        cgroup.oom_score_adj = oom_score_adj
            .map(|value| OomScore { value, rule: String::from("the runtime was asked for it") });
        self.finish(cgroup)
    }

    /// A container's limits; where it has none of its own, the pod's hold.
    fn limits(&self, pod: &Pod, container: &Container) -> Amounts {
        let mut limits = container.resources.limits.clone();
        if let Some(whole) = &pod.resources {
            for (name, amount) in whole.limits.iter() {
                // Zero is no limit, but of huge pages it is one.
                let wants = match name {
                    CPU | MEMORY => !limits.has(name),
                    _ => huge_page_size(name).is_some() && limits.get(name).is_none(),
                };
                if wants {
                    limits.set(name, amount);
                }
            }
        }
        limits
    }

    fn swap(&self, cgroup: &mut Cgroup, pod: &Pod, container: &Container) {
        const FILE: &str = "memory.swap.max";
        let (bytes, rule) = self.swap_limit(pod, container);
        cgroup.set(FILE, bytes, rule);
        // A kernel without swap has no such file.
        if let Some(value) = cgroup.values.get_mut(FILE) {
            value.if_present = true;
        }
    }

    fn swap_limit(&self, pod: &Pod, container: &Container) -> (u64, String) {
        if !self.options.limited_swap {
            return (0, String::from("NoSwap"));
        }
        let request = container.resources.requests.value(MEMORY);
        let limit = container.resources.limits.value(MEMORY);
        let total = self.capacity.value(MEMORY);
        let why_not = if pod.is_critical() {
            "critical pods do not swap"
        } else if pod.qos() != Qos::Burstable {
            "only Burstable pods swap"
        } else if request == 0 {
            "the container has no memory request to measure its part by"
        } else if request == limit {
            "the container's memory request equals its limit"
        } else if request > total {
            "the container asks for more memory than the node has"
        } else {
            let swap = self.node.swap();
            let rule = format!("LimitedSwap: {request}/{total} of {swap} bytes");
            return (part(request, total, swap), rule);
        };
        (0, format!("LimitedSwap: {why_not}"))
    }

    fn memory_qos(
        &self,
        cgroup: &mut Cgroup,
        qos: Qos,
        memory_qos: MemoryQos,
        request: u64,
        limit: u64,
    ) {
        let MemoryQos { reservation, throttling_factor } = memory_qos;
        protect(cgroup, qos, reservation, request, "the container's memory request");
        let Some(factor) = throttling_factor else {
            cgroup.leave("memory.high", "there is no memoryThrottlingFactor");
            return;
        };
        let bound = if limit > 0 { limit } else { self.allocatable().value(MEMORY) };
        let high = throttle_at(request, bound, factor, self.node.page_size());
        if request == limit {
            cgroup.leave("memory.high", "the memory request equals the limit");
        } else if bound == 0 || high <= request {
            cgroup.leave("memory.high", "it would not be above the request");
        } else {
            let rule = format!("{request} + ({bound} - {request})·{factor}, in whole pages");
            cgroup.set("memory.high", high, rule);
        }
    }
}

/// `request/total · swap` in double precision, as the kubelet computes it.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the kubelet's own arithmetic, of which the value is to be the same to the last byte"
)]
fn part(request: u64, total: u64, swap: u64) -> u64 {
    (request as f64 / total as f64 * swap as f64) as u64
}

/// Where a container is slowed down, in whole pages; double precision, as the kubelet computes it.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the kubelet's own arithmetic, of which the value is to be the same to the last page"
)]
fn throttle_at(request: u64, bound: u64, factor: f64, page: u64) -> u64 {
    let bytes = request as f64 + (bound as f64 - request as f64) * factor;
    (bytes as u64) / page * page
}

/// Where the runtime puts a container of the pod at `pod_path`.
fn path(pod_path: &str, id: &ContainerId, driver: Driver) -> String {
    let ContainerId { runtime, id } = id;
    match (driver, runtime.as_str()) {
        (Driver::Cgroupfs, "cri-o") => format!("{pod_path}/crio-{id}"),
        (Driver::Cgroupfs, _) => format!("{pod_path}/{id}"),
        (Driver::Systemd, "cri-o") => format!("{pod_path}/crio-{id}.scope"),
        (Driver::Systemd, "containerd") => format!("{pod_path}/cri-containerd-{id}.scope"),
        (Driver::Systemd, other) => format!("{pod_path}/{other}-{id}.scope"),
    }
}
