//! The same values as properties of a systemd unit, so that systemd does not undo them when it next writes the unit's files.
use super::plan::{Property, Value};
use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};

/// systemd's granularity of a quota: one percent of a CPU.
const PERCENT_US: u64 = 10_000;

/// What a unit is given for these files; those that systemd knows nothing of (`memory.oom.group`, huge pages) are only written.
#[must_use]
pub fn properties(values: &BTreeMap<String, Value>) -> BTreeMap<String, Property> {
    let mut properties: BTreeMap<String, Property> = [
        ("DefaultDependencies", false),
        ("CPUAccounting", true),
        ("IOAccounting", true),
        ("MemoryAccounting", true),
        ("TasksAccounting", true),
    ]
    .into_iter()
    .map(|(name, flag)| (name.to_string(), Property::Flag(flag)))
    .collect();
    for (file, value) in values {
        properties.extend(of_file(file, &value.value));
    }
    properties
}

/// The properties that stand for one file's value.
#[must_use]
pub fn of_file(file: &str, value: &str) -> Vec<(String, Property)> {
    let number = || match value {
        "max" => Some(u64::MAX),
        digits => digits.parse().ok(),
    };
    let name = match file {
        "cpu.weight" => "CPUWeight",
        "memory.max" => "MemoryMax",
        "memory.min" => "MemoryMin",
        "memory.low" => "MemoryLow",
        "memory.high" => "MemoryHigh",
        "memory.swap.max" => "MemorySwapMax",
        "pids.max" => "TasksMax",
        "cpu.max" => return cpu_max(value),
        "cpuset.cpus" => {
            let cpus =
                cpu_bits(value).map(|bits| ("AllowedCPUs".to_string(), Property::Cpus(bits)));
            return cpus.into_iter().collect();
        }
        _ => return Vec::new(),
    };
    // systemd takes no task at all for a mistake.
    let least = u64::from(file == "pids.max");
    let property = number().map(|n| (name.to_string(), Property::Number(n.max(least))));
    property.into_iter().collect()
}

/// Quota in microseconds per second, rounded up to what systemd can hold.
fn per_second(quota: u64, period: u64) -> u64 {
    let exact = quota.saturating_mul(1_000_000).checked_div(period).unwrap_or(u64::MAX);
    exact.checked_next_multiple_of(PERCENT_US).unwrap_or(u64::MAX)
}

/// A quota rounded up to whole percents of a CPU: the kubelet's and the runtimes' library writes to the file what it has told systemd.
#[must_use]
pub(super) fn whole_percents(quota: u64, period: u64) -> u64 {
    let per_second = u128::from(per_second(quota, period));
    u64::try_from(per_second * u128::from(period) / 1_000_000).unwrap_or(quota)
}

/// Quota per second, rounded up to what systemd can hold, and period.
fn cpu_max(value: &str) -> Vec<(String, Property)> {
    let Some((quota, period)) = value.split_once(' ') else { return Vec::new() };
    let Ok(period) = period.parse::<u64>() else { return Vec::new() };
    let per_second = match quota {
        "max" => u64::MAX,
        quota => {
            let Ok(quota) = quota.parse::<u64>() else { return Vec::new() };
            per_second(quota, period)
        }
    };
    [("CPUQuotaPerSecUSec", per_second), ("CPUQuotaPeriodUSec", period)]
        .map(|(name, number)| (name.to_string(), Property::Number(number)))
        .into()
}

/// A CPU list as a bit mask, the lowest CPU in the lowest bit of the first byte; `None` for what is no list.
#[must_use]
pub fn cpu_bits(list: &str) -> Option<Vec<u8>> {
    /// More than any kernel is built for.
    const MOST: usize = 1 << 16;
    let mut bits = Vec::new();
    for range in list.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        for cpu in first..=last {
            if bits.len() <= cpu / 8 {
                bits.resize(cpu / 8 + 1, 0_u8);
            }
            if let Some(byte) = bits.get_mut(cpu / 8) {
                *byte |= 1 << (cpu % 8);
            }
        }
    }
    Some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_rounded_up_to_whole_percent() {
        let quota = |text| match of_file("cpu.max", text).first() {
            Some((_, Property::Number(n))) => *n,
            other => panic!("{other:?}"),
        };
        assert_eq!(quota("25000 100000"), 250_000);
        assert_eq!(quota("1234 100000"), 20_000);
        assert_eq!(quota("max 100000"), u64::MAX);
    }

    #[test]
    fn cpus_are_bits_and_no_task_is_one() {
        assert_eq!(cpu_bits("0-3,9"), Some([0b1111, 0b10].into()));
        assert_eq!(cpu_bits("3-1"), None);
        assert_eq!(of_file("pids.max", "0"), [("TasksMax".to_string(), Property::Number(1))]);
        assert_eq!(of_file("hugetlb.2MB.max", "0"), []);
    }
}
