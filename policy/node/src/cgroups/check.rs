//! Checking the operator's fields one by one; every mistake is kept, none ends the reading.
use super::gates::{
    CFS_PERIOD, EXCLUSIVE_CPUS, GATES, MEMORY_QOS, POD_LEVEL_RESOURCES, QOS_RESERVED, gate,
};
use super::names::{CgroupName, Driver, PodTree, reserved};
use super::options::{Extent, Kubelet, MemoryQos, Options, RawCgroups, Reservation, Reserved};
use super::systemd::cpu_bits;
use crate::Quantity;
use crate::limits::{ConfigError, duration};
use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};
use ebb_model::amounts::{Amounts, CPU, huge_page_size};

/// The kernel's and the kubelet's period of a quota, microseconds.
const DEFAULT_US: u64 = 100_000;
/// More tasks than any cgroup can be held to: the kernel refuses them.
const MOST_PIDS: i64 = 4_194_304;

/// What `enforceNodeAllocatable` asks for.
pub(super) struct Enforced {
    pub(super) pods: bool,
    pub(super) kube: Option<Extent>,
    pub(super) system: Option<Extent>,
}

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
        let (mut kube_reserved, mut system_reserved) = (
            check.amounts("kubeReserved", raw.kube_reserved.as_ref()),
            check.amounts("systemReserved", raw.system_reserved.as_ref()),
        );
        check.gates(raw);
        check.reserved_cpus(raw, &mut kube_reserved, &mut system_reserved);
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
        check.apart_from_pods("kubeReservedCgroup", kube.as_ref(), &root, driver);
        check.apart_from_pods("systemReservedCgroup", system.as_ref(), &root, driver);
        let all_cpus = check.word(
            "cpuManagerPolicy",
            raw.cpu_manager_policy.as_deref().filter(|word| !word.is_empty()),
            &[("none", true), ("static", false)],
        );
        check.static_cpus(all_cpus, &kube_reserved, &system_reserved);
        let qos_reserved_memory = check.qos_reserved(raw.qos_reserved.as_ref());
        let options = Options {
            driver,
            root,
            per_qos: raw.cgroups_per_qos.unwrap_or(true),
            enforce_pods: enforced.pods,
            kube,
            system,
            kube_reserved,
            system_reserved,
            qos_reserved_memory: qos_reserved_memory.filter(|_| gate(raw, &QOS_RESERVED)),
            pod_pids_limit: check.pids(raw.pod_pids_limit),
            cfs_quota: raw.cpu_cfs_quota.unwrap_or(true),
            cfs_period_us: check.period(raw),
            limited_swap: check.word(
                "memorySwap.swapBehavior",
                raw.swap_behavior.as_deref().filter(|word| !word.is_empty()),
                &[("NoSwap", false), ("LimitedSwap", true)],
            ),
            memory_qos: check.memory_qos(raw),
            pod_level_resources: gate(raw, &POD_LEVEL_RESOURCES),
            oom_group: !raw.single_process_oom_kill.unwrap_or(false),
            all_cpus,
            no_quota_when_exclusive: gate(raw, &EXCLUSIVE_CPUS),
            eviction_hard_memory: raw.eviction_hard_memory.clone(),
            pod_curve: raw.own.pod_curve,
            container_curve: raw.own.container_curve,
        };
        if check.0.is_empty() { Ok(options) } else { Err(check.0) }
    }
}

/// Mistakes so far.
pub(super) struct Check(pub(super) Vec<ConfigError>);

impl Check {
    pub(super) fn refuse(&mut self, key: &str, value: Option<&str>, problem: &str, fix: &str) {
        self.0.push(ConfigError {
            key: key.to_string(),
            value: value.map(ToString::to_string),
            problem: problem.to_string(),
            fix: fix.to_string(),
        });
    }

    /// One of a few words; the first is the default.
    pub(super) fn word<T: Copy + Default>(
        &mut self,
        key: &str,
        text: Option<&str>,
        words: &[(&str, T)],
    ) -> T {
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

    pub(super) fn root(&mut self, raw: &RawCgroups) -> CgroupName {
        let text = raw.cgroup_root.as_deref().unwrap_or("/");
        CgroupName::from_path(text).unwrap_or_else(|problem| {
            self.refuse("cgroupRoot", Some(text), problem, "write an absolute path such as \"/\"");
            CgroupName::root()
        })
    }

    pub(super) fn amounts(&mut self, key: &str, map: Option<&BTreeMap<String, String>>) -> Amounts {
        let mut amounts = Amounts::none();
        for (name, text) in map.into_iter().flatten() {
            let key = format!("{key}[{name:?}]");
            if !matches!(name.as_str(), "cpu" | "memory" | "pid" | "ephemeral-storage") {
                let problem = if huge_page_size(name).is_some() {
                    "huge pages cannot be reserved: the kubelet refuses them (kubernetes/kubernetes#124357)"
                } else {
                    "this cannot be reserved"
                };
                let fix = "write cpu, memory, pid or ephemeral-storage";
                self.refuse(&key, Some(text), problem, fix);
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

    pub(super) fn enforced(&mut self, raw: &RawCgroups) -> Enforced {
        const KEY: &str = "enforceNodeAllocatable";
        const CHOICES: &str = "write pods, kube-reserved, kube-reserved-compressible, system-reserved, system-reserved-compressible or none";
        let per_qos = raw.cgroups_per_qos.unwrap_or(true);
        let given = raw.enforce_node_allocatable.as_deref();
        let mut enforced = Enforced { pods: given.is_none() && per_qos, kube: None, system: None };
        let list = given.unwrap_or_default();
        if !per_qos && (given.is_none() || list.iter().any(|word| word != "none")) {
            let list =
                if given.is_none() { String::from("pods, the default") } else { list.join(",") };
            self.refuse(
                KEY,
                Some(&list),
                "cgroupsPerQOS is false, so there is nothing to enforce it on",
                "write enforceNodeAllocatable: [none], or remove cgroupsPerQOS",
            );
        }
        for (place, word) in list.iter().enumerate() {
            if list.iter().take(place).any(|before| before == word) {
                self.refuse(
                    KEY,
                    Some(word),
                    "it is there twice, which the kubelet refuses",
                    "write it once",
                );
                continue;
            }
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

    pub(super) fn reserved(
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
        match reserved(text, driver) {
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

    /// A reserved cgroup cannot be where pods are: two rules would write the same files.
    pub(super) fn apart_from_pods(
        &mut self,
        key: &str,
        reserved: Option<&Reserved>,
        root: &CgroupName,
        driver: Driver,
    ) {
        let pods = PodTree::below(root, driver).map(|tree| tree.kubepods().path(driver));
        let (Some(Reserved { path, .. }), Ok(pods)) = (reserved, pods) else { return };
        let below = path.strip_prefix(pods.as_str());
        if below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            let problem = format!("it is, or is in, the cgroup of all pods, {pods}");
            self.refuse(
                key,
                Some(path),
                &problem,
                "name a cgroup beside it, such as \"/system.slice\"",
            );
        }
    }

    /// Feature gates that nothing here depends on.
    pub(super) fn gates(&mut self, raw: &RawCgroups) {
        if raw.other_gates {
            return;
        }
        for (name, on) in &raw.feature_gates {
            if !GATES.contains(&name.as_str()) {
                self.refuse(
                    &format!("featureGates[{name:?}]"),
                    Some(if *on { "true" } else { "false" }),
                    "unknown feature gate: nothing here depends on it",
                    &format!("write one of {}, or remove it", GATES.join(", ")),
                );
            }
        }
    }

    /// CPUs by number that are set aside: they replace the CPU of both reservations.
    pub(super) fn reserved_cpus(
        &mut self,
        raw: &RawCgroups,
        kube: &mut Amounts,
        system: &mut Amounts,
    ) {
        const KEY: &str = "reservedSystemCPUs";
        let Some(list) = raw.reserved_system_cpus.as_deref().filter(|list| !list.is_empty()) else {
            return;
        };
        let count =
            cpu_bits(list).map(|bits| bits.iter().map(|byte| byte.count_ones()).sum::<u32>());
        let Some(count) = count.filter(|count| *count > 0) else {
            return self.refuse(KEY, Some(list), "not a list of CPUs", "write one such as \"0-1\"");
        };
        for (key, path) in [
            ("kubeReservedCgroup", &raw.kube_reserved_cgroup),
            ("systemReservedCgroup", &raw.system_reserved_cgroup),
        ] {
            if path.as_deref().is_some_and(|path| !path.is_empty()) {
                let problem = format!("{key} is set as well, which the kubelet refuses");
                self.refuse(KEY, Some(list), &problem, "keep one of the two");
            }
        }
        kube.remove(CPU);
        system.set(CPU, Quantity::count(count.into()));
    }

    /// The static CPU policy keeps at least one CPU from pods.
    pub(super) fn static_cpus(&mut self, all_cpus: bool, kube: &Amounts, system: &Amounts) {
        if !all_cpus && !kube.has(CPU) && !system.has(CPU) {
            self.refuse(
                "cpuManagerPolicy",
                Some("static"),
                "no CPU is reserved, which the kubelet refuses",
                "reserve some with kubeReserved, systemReserved or reservedSystemCPUs",
            );
        }
    }

    pub(super) fn qos_reserved(&mut self, map: Option<&BTreeMap<String, String>>) -> Option<u64> {
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

    pub(super) fn pids(&mut self, limit: Option<i64>) -> Option<u64> {
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

    pub(super) fn period(&mut self, raw: &RawCgroups) -> u64 {
        let text = raw.cpu_cfs_quota_period.as_deref();
        let period = self.checked_period(text);
        if period != DEFAULT_US && !gate(raw, &CFS_PERIOD) {
            self.refuse(
                "cpuCFSQuotaPeriod",
                text,
                "the kubelet refuses another period than 100ms without the feature gate CustomCPUCFSQuotaPeriod",
                "set featureGates.CustomCPUCFSQuotaPeriod to true, or remove it",
            );
        }
        period
    }

    fn checked_period(&mut self, text: Option<&str>) -> u64 {
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

    pub(super) fn memory_qos(&mut self, raw: &RawCgroups) -> Option<MemoryQos> {
        let default_factor = match raw.own.kubelet {
            Kubelet::V1_36 => Some(0.9),
            Kubelet::V1_37 => None,
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
        let is_on = gate(raw, &MEMORY_QOS);
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
