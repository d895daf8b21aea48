//! Checking the operator's fields one by one; every mistake is kept, none ends the reading.
use super::amounts::{Amounts, huge_page_size};
use super::names::{CgroupName, Driver, slice_path};
use super::options::{Extent, Kubelet, MemoryQos, RawCgroups, Reservation, Reserved};
use crate::Quantity;
use crate::limits::{ConfigError, duration};
use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};

/// More tasks than any cgroup can be held to: the kernel refuses them.
const MOST_PIDS: i64 = 4_194_304;

/// Whether a feature gate is set, if it is mentioned.
pub(super) fn gate(raw: &RawCgroups, name: &str) -> Option<bool> {
    raw.feature_gates.get(name).copied()
}

/// What `enforceNodeAllocatable` asks for.
pub(super) struct Enforced {
    pub(super) pods: bool,
    pub(super) kube: Option<Extent>,
    pub(super) system: Option<Extent>,
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

    pub(super) fn enforced(&mut self, raw: &RawCgroups) -> Enforced {
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

    pub(super) fn period(&mut self, text: Option<&str>) -> u64 {
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

    pub(super) fn memory_qos(&mut self, raw: &RawCgroups) -> Option<MemoryQos> {
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
