//! A live tree held against the plan: every difference with the rule behind it.
//!
//! The kernel rounds: memory to whole pages, huge pages to whole ones of their size. A value that it rounded is no difference.
use super::node::Node;
use super::plan::{Cgroup, Level, Plan, PodRef, Value};
use super::systemd::cpu_bits;
use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::{String, ToString},
    vec::Vec,
};

/// More bytes than this are no limit to the kernel.
const NO_LIMIT: u64 = i64::MAX as u64;

/// What was read of one cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Content by file, without the end of the line; a file that is not there is left out.
    pub files: BTreeMap<String, String>,
    /// The different `oom_score_adj` of its processes; empty when there is none, or none was looked at.
    pub scores: BTreeSet<i64>,
}

/// What was read of the tree, by path; a cgroup that is not there is left out.
pub type Live = BTreeMap<String, Found>;

/// What is different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum Kind {
    /// The cgroup is not there.
    NoCgroup,
    /// The file is not there: its controller is not enabled, or the kernel lacks it.
    NoFile,
    /// The file says something else.
    Value,
    /// A process has another score.
    Score,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub struct Difference {
    /// What is different.
    pub kind: Kind,
    /// Path of the cgroup below the mount.
    pub path: String,
    /// Which part of the tree it is.
    pub level: Level,
    /// The pod, of a pod or a container.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub pod: Option<PodRef>,
    /// The container's name.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub container: Option<String>,
    /// The file; absent when the cgroup itself is missing.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub file: Option<String>,
    /// What it is to say.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub expected: Option<String>,
    /// What it says.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub found: Option<String>,
    /// The rule behind what is expected.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub rule: Option<String>,
}

/// Every difference, in the plan's order. Containers without a known path are not looked for.
#[must_use]
pub fn differences(plan: &Plan, live: &Live, node: &Node) -> Vec<Difference> {
    let page = node.page_size();
    let mut found = Vec::new();
    for cgroup in &plan.cgroups {
        let Some(path) = &cgroup.path else { continue };
        match live.get(path) {
            None => found.push(difference(cgroup, path, Kind::NoCgroup)),
            Some(read) => of_cgroup(cgroup, path, read, page, &mut found),
        }
    }
    found
}

fn of_cgroup(cgroup: &Cgroup, path: &str, read: &Found, page: u64, found: &mut Vec<Difference>) {
    for (file, value) in &cgroup.values {
        let text = read.files.get(file);
        let kind = match text {
            None if value.if_present => continue,
            None => Kind::NoFile,
            Some(text) if agrees(file, &value.value, text, page) => continue,
            Some(text) if value.or.as_ref().is_some_and(|or| agrees(file, or, text, page)) => {
                continue;
            }
            Some(_) => Kind::Value,
        };
        let Value { value, rule, .. } = value;
        found.push(Difference {
            file: Some(file.clone()),
            expected: Some(value.clone()),
            found: text.cloned(),
            rule: Some(rule.clone()),
            ..difference(cgroup, path, kind)
        });
    }
    let Some(score) = &cgroup.oom_score_adj else { return };
    // A process may offer itself to the OOM killer; none may be safer than the rule says.
    let is_as_expected =
        read.scores.contains(&score.value) && read.scores.iter().all(|other| *other >= score.value);
    if !read.scores.is_empty() && !is_as_expected {
        let scores: Vec<String> = read.scores.iter().map(ToString::to_string).collect();
        found.push(Difference {
            file: Some("oom_score_adj".to_string()),
            expected: Some(score.value.to_string()),
            found: Some(scores.join(" ")),
            rule: Some(score.rule.clone()),
            ..difference(cgroup, path, Kind::Score)
        });
    }
}

fn difference(cgroup: &Cgroup, path: &str, kind: Kind) -> Difference {
    Difference {
        kind,
        path: path.to_string(),
        level: cgroup.level,
        pod: cgroup.pod.clone(),
        container: cgroup.container.clone(),
        file: None,
        expected: None,
        found: None,
        rule: None,
    }
}

/// Whether a file that was given `expected` may say `found`; `page` is the size of a page in bytes.
#[must_use]
pub fn agrees(file: &str, expected: &str, found: &str, page: u64) -> bool {
    let (expected, found) = (expected.trim(), found.trim());
    if expected == found {
        return true;
    }
    match file {
        "cpuset.cpus" => match (cpu_bits(expected), cpu_bits(found)) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        },
        "cpu.max" => expected.split_whitespace().eq(found.split_whitespace()),
        _ => match granule(file, page) {
            Some(granule) => rounded(expected, granule) == rounded(found, granule),
            None => false,
        },
    }
}

/// The unit in bytes to which the kernel rounds a file's value down.
fn granule(file: &str, page: u64) -> Option<u64> {
    if let Some(rest) = file.strip_prefix("hugetlb.") {
        let name = rest.split('.').next()?;
        let (digits, unit) = name.split_at(name.find(|c: char| !c.is_ascii_digit())?);
        let bits = match unit {
            "KB" => 10,
            "MB" => 20,
            "GB" => 30,
            _ => return None,
        };
        return digits.parse::<u64>().ok()?.checked_mul(1 << bits);
    }
    (file.starts_with("memory.") && file != "memory.oom.group").then_some(page)
}

/// A number of bytes in whole granules; `Some(None)` is no limit, `None` no number.
fn rounded(text: &str, granule: u64) -> Option<Option<u64>> {
    if text == "max" {
        return Some(None);
    }
    let bytes: u64 = text.parse().ok()?;
    let whole = bytes / granule.max(1) * granule.max(1);
    Some((whole < NO_LIMIT / granule.max(1) * granule.max(1)).then_some(whole))
}

impl core::fmt::Display for Difference {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Difference { kind, path, file, expected, found, rule, .. } = self;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let line = match kind {
            Kind::NoCgroup => format!("{path}: the cgroup is not there"),
            Kind::NoFile => format!("{path}: there is no {}", text(file)),
            Kind::Value | Kind::Score => {
                format!("{path}: {} is {}, expected {}", text(file), text(found), text(expected))
            }
        };
        f.write_str(&line)?;
        match rule {
            Some(rule) => write!(f, " ({rule})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_rounds_is_no_difference() {
        for (file, expected, found) in [
            ("memory.max", "1000000", "999424"),
            ("memory.high", "max", "max"),
            ("memory.max", "9223372036854775807", "max"),
            ("hugetlb.2MB.max", "3145728", "2097152"),
            ("hugetlb.2MB.max", "4611686018427387904", "4611686018427387904"),
            ("cpuset.cpus", "0-3", "0,1,2,3"),
            ("cpu.max", "max 100000", "max  100000\n"),
        ] {
            assert!(agrees(file, expected, found, 4096), "{file} {expected} {found}");
        }
    }

    #[test]
    fn what_differs_is_seen() {
        for (file, expected, found) in [
            ("memory.max", "1000000", "1003520"),
            ("memory.max", "max", "4096"),
            ("memory.oom.group", "1", "0"),
            ("cpu.weight", "39", "100"),
            ("cpu.max", "25000 100000", "max 100000"),
            ("cpuset.cpus", "0-3", ""),
            ("pids.max", "100", "101"),
        ] {
            assert!(!agrees(file, expected, found, 4096), "{file} {expected} {found}");
        }
    }
}
