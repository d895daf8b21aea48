//! What the operator says about cgroups: the kubelet's fields as written, and checked.
//!
//! [`RawCgroups`] is the text; [`Options::new`] reports every mistake at once. What can only be judged against a node (a reservation above its capacity) is judged by the plan.
use super::amounts::{Amounts, huge_page_size};
use super::cpu::Curve;
use super::names::{CgroupName, Driver, slice_path};
use crate::Quantity;
use crate::limits::{ConfigError, duration};
use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};

/// The kubelet's fields on cgroups, as written. An absent field has the kubelet's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawCgroups {
    /// Who makes cgroups: `cgroupfs` or `systemd`.
    pub cgroup_driver: Option<String>,
    /// The cgroup below which all pods are.
    pub cgroup_root: Option<String>,
    /// Whether classes and pods have cgroups of their own.
    pub cgroups_per_qos: Option<bool>,
    /// What is set aside for Kubernetes' own daemons, by resource.
    pub kube_reserved: Option<BTreeMap<String, String>>,
    /// What is set aside for the system's daemons, by resource.
    pub system_reserved: Option<BTreeMap<String, String>>,
    /// The cgroup of Kubernetes' own daemons.
    pub kube_reserved_cgroup: Option<String>,
    /// The cgroup of the system's daemons.
    pub system_reserved_cgroup: Option<String>,
    /// What is held to its limits: `pods`, `kube-reserved`, `system-reserved`, their `-compressible` forms, or `none`.
    pub enforce_node_allocatable: Option<Vec<String>>,
    /// Percentages of requests kept from lower classes, by resource.
    pub qos_reserved: Option<BTreeMap<String, String>>,
    /// Tasks in a pod at most.
    pub pod_pids_limit: Option<i64>,
    /// Whether CPU limits are enforced by quota.
    pub cpu_cfs_quota: Option<bool>,
    /// The period of the quota.
    pub cpu_cfs_quota_period: Option<String>,
    /// How much containers may swap: `NoSwap` or `LimitedSwap`.
    pub swap_behavior: Option<String>,
    /// Feature gates by name.
    pub feature_gates: BTreeMap<String, bool>,
    /// Where between request and limit a container is slowed down.
    pub memory_throttling_factor: Option<f64>,
    /// What requests protect: `None` or `TieredReservation`.
    pub memory_reservation_policy: Option<String>,
    /// Whether the OOM killer takes single processes of a container.
    pub single_process_oom_kill: Option<bool>,
    /// Who places CPUs: `none` or `static`.
    pub cpu_manager_policy: Option<String>,
    /// The hard threshold on `memory.available`, which counts as reserved when capacity is checked.
    pub eviction_hard_memory: Option<String>,
    /// ebb's own: how the kubelet's levels and the runtime's are weighted, and whose defaults apply.
    pub own: OwnOptions,
}

/// What ebb adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnOptions {
    /// The kubelet whose defaults apply.
    pub kubelet: Kubelet,
    /// The curve at the levels that the kubelet writes.
    pub pod_curve: Curve,
    /// The curve of the container runtime.
    pub container_curve: Curve,
}

/// A kubelet of 1.36 beside a runtime of today.
impl Default for OwnOptions {
    fn default() -> OwnOptions {
        OwnOptions { kubelet: Kubelet::V1_36, pod_curve: Curve::Old, container_curve: Curve::New }
    }
}

/// A kubelet by the defaults that differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kubelet {
    /// 1.36: MemoryQoS is off, its throttling factor 0.9.
    #[default]
    V1_36,
    /// 1.37: MemoryQoS is on, without throttling.
    V1_37,
}

/// How far the cgroup of reserved daemons is held to what is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// In every resource.
    Full,
    /// Only its share of CPU.
    Compressible,
}

/// A cgroup for reserved daemons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Path below the cgroup mount.
    pub path: String,
    /// How much of the reservation holds there.
    pub extent: Extent,
}

/// How requests protect memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reservation {
    /// Not at all: what an earlier policy left is taken back.
    #[default]
    None,
    /// Guaranteed pods strictly, Burstable ones as long as there is enough.
    Tiered,
}

/// The feature MemoryQoS.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryQos {
    /// How requests protect.
    pub reservation: Reservation,
    /// Where between request and limit a container is slowed down; `None` means nowhere.
    pub throttling_factor: Option<f64>,
}

/// Checked options.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Who makes cgroups.
    pub driver: Driver,
    /// The cgroup below which all pods are.
    pub root: CgroupName,
    /// Pods together are held to what the node has left for them.
    pub enforce_pods: bool,
    /// The cgroup of Kubernetes' own daemons, where it is held to anything.
    pub kube: Option<Reserved>,
    /// The cgroup of the system's daemons, where it is held to anything.
    pub system: Option<Reserved>,
    /// What is set aside for Kubernetes' own daemons.
    pub kube_reserved: Amounts,
    /// What is set aside for the system's daemons.
    pub system_reserved: Amounts,
    /// Percent of memory requests kept from lower classes.
    pub qos_reserved_memory: Option<u64>,
    /// Tasks in a pod at most.
    pub pod_pids_limit: Option<u64>,
    /// Whether CPU limits are enforced by quota.
    pub cfs_quota: bool,
    /// The period of the quota in microseconds.
    pub cfs_period_us: u64,
    /// Whether Burstable containers may swap in proportion to their requests.
    pub limited_swap: bool,
    /// The feature MemoryQoS, where it is on.
    pub memory_qos: Option<MemoryQos>,
    /// The feature PodLevelResources.
    pub pod_level_resources: bool,
    /// The OOM killer takes a container as a whole.
    pub oom_group: bool,
    /// The kubelet leaves CPUs to the kernel.
    pub all_cpus: bool,
    /// The hard threshold on `memory.available` as written.
    pub eviction_hard_memory: Option<String>,
    /// The curve at the levels that the kubelet writes.
    pub pod_curve: Curve,
    /// The curve of the container runtime.
    pub container_curve: Curve,
}

/// More tasks than any cgroup can be held to: the kernel refuses them.
const MOST_PIDS: i64 = 4_194_304;

impl Options {
    /// Checks the fields.
    ///
    /// # Errors
    /// Every mistake, each naming its key.
    pub fn new(raw: &RawCgroups) -> Result<Options, Vec<ConfigError>> {
        let mut check = Check(Vec::new());
        let driver = check.word(
            "cgroupDriver",
            raw.cgroup_driver.as_deref(),
            &[("cgroupfs", Driver::Cgroupfs), ("systemd", Driver::Systemd)],
        );
        let root = check.root(raw);
        let (kube_reserved, system_reserved) = (
            check.amounts("kubeReserved", raw.kube_reserved.as_ref()),
            check.amounts("systemReserved", raw.system_reserved.as_ref()),
        );
        let enforced = check.enforced(raw);
        let kube = check.reserved(
            "kubeReservedCgroup",
            raw.kube_reserved_cgroup.as_deref(),
            enforced.kube,
            driver,
            &kube_reserved,
        );
        let system = check.reserved(
            "systemReservedCgroup",
            raw.system_reserved_cgroup.as_deref(),
            enforced.system,
            driver,
            &system_reserved,
        );
        if let (Some(kube), Some(system)) = (&kube, &system)
            && kube.path == system.path
        {
            check.refuse(
                "kubeReservedCgroup",
                Some(&kube.path),
                "systemReservedCgroup names the same cgroup, which cannot have two limits",
                "name two cgroups",
            );
        }
        let options = Options {
            driver,
            root,
            enforce_pods: enforced.pods,
            kube,
            system,
            kube_reserved,
            system_reserved,
            qos_reserved_memory: check.qos_reserved(raw.qos_reserved.as_ref()),
            pod_pids_limit: check.pids(raw.pod_pids_limit),
            cfs_quota: raw.cpu_cfs_quota.unwrap_or(true),
            cfs_period_us: check.period(raw.cpu_cfs_quota_period.as_deref()),
            limited_swap: check.word(
                "memorySwap.swapBehavior",
                raw.swap_behavior.as_deref().filter(|word| !word.is_empty()),
                &[("NoSwap", false), ("LimitedSwap", true)],
            ),
            memory_qos: check.memory_qos(raw),
            pod_level_resources: gate(raw, "PodLevelResources").unwrap_or(true),
            oom_group: !raw.single_process_oom_kill.unwrap_or(false),
            all_cpus: check.word(
                "cpuManagerPolicy",
                raw.cpu_manager_policy.as_deref().filter(|word| !word.is_empty()),
                &[("none", true), ("static", false)],
            ),
            eviction_hard_memory: raw.eviction_hard_memory.clone(),
            pod_curve: raw.own.pod_curve,
            container_curve: raw.own.container_curve,
        };
        if check.0.is_empty() { Ok(options) } else { Err(check.0) }
    }
}

fn gate(raw: &RawCgroups, name: &str) -> Option<bool> {
    raw.feature_gates.get(name).copied()
}

/// What `enforceNodeAllocatable` asks for.
struct Enforced {
    pods: bool,
    kube: Option<Extent>,
    system: Option<Extent>,
}

/// Mistakes so far.
struct Check(Vec<ConfigError>);

impl Check {
    fn refuse(&mut self, key: &str, value: Option<&str>, problem: &str, fix: &str) {
        self.0.push(ConfigError {
            key: key.to_string(),
            value: value.map(ToString::to_string),
            problem: problem.to_string(),
            fix: fix.to_string(),
        });
    }

    /// One of a few words; the first is the default.
    fn word<T: Copy + Default>(&mut self, key: &str, text: Option<&str>, words: &[(&str, T)]) -> T {
        let default = words.first().map(|(_, value)| *value).unwrap_or_default();
        let Some(text) = text else { return default };
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return *value;
        }
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        self.refuse(
            key,
            Some(text),
            "not one of the choices",
            &format!("write one of {}", words.join(", ")),
        );
        default
    }

    fn root(&mut self, raw: &RawCgroups) -> CgroupName {
        let text = raw.cgroup_root.as_deref().unwrap_or("/");
        CgroupName::from_path(text).unwrap_or_else(|problem| {
            self.refuse("cgroupRoot", Some(text), problem, "write an absolute path such as \"/\"");
            CgroupName::root()
        })
    }

    fn amounts(&mut self, key: &str, map: Option<&BTreeMap<String, String>>) -> Amounts {
        let mut amounts = Amounts::none();
        for (name, text) in map.into_iter().flatten() {
            let key = format!("{key}[{name:?}]");
            let is_known = matches!(name.as_str(), "cpu" | "memory" | "pid" | "ephemeral-storage")
                || huge_page_size(name).is_some();
            if !is_known {
                self.refuse(
                    &key,
                    Some(text),
                    "this cannot be reserved",
                    "write cpu, memory, pid, ephemeral-storage or hugepages-<size>",
                );
                continue;
            }
            match text.parse::<Quantity>() {
                Ok(amount) if !amount.is_negative() => amounts.set(name, amount),
                Ok(_) => self.refuse(&key, Some(text), "below zero", "write zero or more"),
                Err(error) => self.refuse(
                    &key,
                    Some(text),
                    &error.to_string(),
                    "write a quantity such as \"500m\" or \"1Gi\"",
                ),
            }
        }
        amounts
    }

    fn enforced(&mut self, raw: &RawCgroups) -> Enforced {
        const KEY: &str = "enforceNodeAllocatable";
        const CHOICES: &str = "write pods, kube-reserved, kube-reserved-compressible, system-reserved, system-reserved-compressible or none";
        let per_qos = raw.cgroups_per_qos.unwrap_or(true);
        let given = raw.enforce_node_allocatable.as_deref();
        let mut enforced = Enforced { pods: given.is_none() && per_qos, kube: None, system: None };
        let list = given.unwrap_or_default();
        if !per_qos && list.iter().any(|word| word != "none") {
            self.refuse(
                KEY,
                Some(&list.join(",")),
                "cgroupsPerQOS is false, so there is nothing to enforce it on",
                "leave the list empty, or remove cgroupsPerQOS",
            );
        }
        for word in list {
            let (slot, extent) = match word.as_str() {
                "pods" => {
                    enforced.pods = per_qos;
                    continue;
                }
                "none" => {
                    if list.len() > 1 {
                        self.refuse(
                            KEY,
                            Some(&list.join(",")),
                            "none stands beside others",
                            "write none alone",
                        );
                    }
                    continue;
                }
                "kube-reserved" => (&mut enforced.kube, Extent::Full),
                "kube-reserved-compressible" => (&mut enforced.kube, Extent::Compressible),
                "system-reserved" => (&mut enforced.system, Extent::Full),
                "system-reserved-compressible" => (&mut enforced.system, Extent::Compressible),
                other => {
                    self.refuse(KEY, Some(other), "not one of the choices", CHOICES);
                    continue;
                }
            };
            if slot.replace(extent).is_some_and(|before| before != extent) {
                self.refuse(
                    KEY,
                    Some(word),
                    "the full and the compressible form of one cgroup contradict each other",
                    "keep one of the two",
                );
            }
        }
        enforced
    }

    fn reserved(
        &mut self,
        key: &str,
        text: Option<&str>,
        extent: Option<Extent>,
        driver: Driver,
        amounts: &Amounts,
    ) -> Option<Reserved> {
        let extent = extent?;
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            self.refuse(
                key,
                None,
                "enforceNodeAllocatable asks to hold this cgroup to what is reserved, but it is not named",
                "name a cgroup that exists, such as \"/system.slice\"",
            );
            return None;
        };
        if amounts.is_empty() {
            let reserved = key.strip_suffix("Cgroup").unwrap_or(key);
            self.refuse(
                reserved,
                None,
                "enforceNodeAllocatable asks to enforce it, but nothing is reserved",
                "say how much, such as {cpu: \"500m\", memory: \"1Gi\"}",
            );
        }
        match reserved_path(text, driver) {
            Ok(path) => Some(Reserved { path, extent }),
            Err(problem) => {
                self.refuse(
                    key,
                    Some(text),
                    problem,
                    "write an absolute path such as \"/system.slice\"",
                );
                None
            }
        }
    }

    fn qos_reserved(&mut self, map: Option<&BTreeMap<String, String>>) -> Option<u64> {
        let mut memory = None;
        for (name, text) in map.into_iter().flatten() {
            let key = format!("qosReserved[{name:?}]");
            if name != "memory" {
                self.refuse(&key, Some(text), "only memory can be kept for a class", "remove it");
                continue;
            }
            let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<u64>().ok());
            match percent.filter(|percent| *percent <= 100) {
                Some(percent) => memory = Some(percent),
                None => {
                    self.refuse(&key, Some(text), "not a percentage", "write \"0%\" to \"100%\"")
                }
            }
        }
        memory
    }

    fn pids(&mut self, limit: Option<i64>) -> Option<u64> {
        let limit = limit.filter(|limit| *limit > 0)?;
        if limit > MOST_PIDS {
            let text = limit.to_string();
            self.refuse(
                "podPidsLimit",
                Some(&text),
                "more than the kernel takes",
                "write at most 4194304, or -1 for no limit",
            );
        }
        u64::try_from(limit).ok()
    }

    fn period(&mut self, text: Option<&str>) -> u64 {
        const DEFAULT_US: u64 = 100_000;
        let Some(text) = text else { return DEFAULT_US };
        let micros = duration::parse_nanos(text).ok().map(|nanos| nanos / 1000);
        match micros.and_then(|micros| u64::try_from(micros).ok()) {
            // In a KubeletConfiguration zero stands for the default.
            Some(0) => DEFAULT_US,
            Some(micros) if (1000..=1_000_000).contains(&micros) => micros,
            _ => {
                self.refuse(
                    "cpuCFSQuotaPeriod",
                    Some(text),
                    "not a duration between 1ms and 1s",
                    "write one such as \"100ms\"",
                );
                DEFAULT_US
            }
        }
    }

    fn memory_qos(&mut self, raw: &RawCgroups) -> Option<MemoryQos> {
        let (default_on, default_factor) = match raw.own.kubelet {
            Kubelet::V1_36 => (false, Some(0.9)),
            Kubelet::V1_37 => (true, None),
        };
        let reservation = self.word(
            "memoryReservationPolicy",
            raw.memory_reservation_policy.as_deref().filter(|word| !word.is_empty()),
            &[("None", Reservation::None), ("TieredReservation", Reservation::Tiered)],
        );
        if let Some(factor) = raw.memory_throttling_factor
            && !(factor > 0.0 && factor <= 1.0)
        {
            let text = factor.to_string();
            self.refuse(
                "memoryThrottlingFactor",
                Some(&text),
                "out of range",
                "write a number above 0, at most 1",
            );
        }
        let throttling_factor = raw.memory_throttling_factor.or(default_factor);
        let is_on = gate(raw, "MemoryQoS").unwrap_or(default_on);
        if !is_on && reservation == Reservation::Tiered {
            self.refuse(
                "memoryReservationPolicy",
                Some("TieredReservation"),
                "it has no effect without the feature gate MemoryQoS",
                "set featureGates.MemoryQoS to true",
            );
        }
        is_on.then_some(MemoryQos { reservation, throttling_factor })
    }
}

/// The path of a cgroup that the operator names: as it is, but a slice is where systemd puts it.
fn reserved_path(text: &str, driver: Driver) -> Result<String, &'static str> {
    let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return Err("the root of the hierarchy cannot be limited");
    }
    if parts.iter().any(|part| matches!(*part, "." | "..") || part.contains('\0')) {
        return Err("it would lead to another cgroup");
    }
    let last = parts.last().copied().unwrap_or_default();
    match driver {
        Driver::Systemd if last.ends_with(".slice") => {
            slice_path(last).ok_or("it is not a slice's name")
        }
        Driver::Systemd | Driver::Cgroupfs => Ok(format!("/{}", parts.join("/"))),
    }
}
