//! In which order a tree is brought to the plan, so that on the way nothing is tighter than both before and after.
//!
//! What is raised is raised first, parents before children; what is lowered is lowered after that, children before parents.
//! So a workload's effective limit (the least on its path) never dips below the lower of its old and its new one, and a child's limit never exceeds its parent's unless it did before or does after.
use super::compare::{Difference, Kind};
use super::systemd::cpu_bits;
use alloc::{string::String, vec::Vec};
use core::cmp::Ordering;

/// Whether a write gives more or takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum Direction {
    /// It gives more, or it is not known what was there.
    Raise,
    /// It takes away.
    Lower,
}

/// One value to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Path of the cgroup below the mount.
    pub path: String,
    /// The file.
    pub file: String,
    /// The value.
    pub value: String,
    /// What it says now.
    pub before: String,
    /// Whether that is more.
    pub direction: Direction,
}

impl Write {
    /// Whether usage has to be below the value before it may be written: the kernel's OOM killer sees to it otherwise.
    #[must_use]
    pub fn needs_room(&self) -> bool {
        self.file == "memory.max" && self.direction == Direction::Lower
    }
}

/// The writes that end the differences in files, in a safe order.
#[must_use]
pub fn writes(differences: &[Difference]) -> Vec<Write> {
    let mut writes: Vec<Write> = differences.iter().filter_map(write).collect();
    let depth = |write: &Write| write.path.split('/').filter(|part| !part.is_empty()).count();
    writes.sort_by(|a, b| {
        let by_depth = match a.direction {
            Direction::Raise => depth(a).cmp(&depth(b)),
            Direction::Lower => depth(b).cmp(&depth(a)),
        };
        a.direction
            .cmp(&b.direction)
            .then(by_depth)
            .then_with(|| (&a.path, &a.file).cmp(&(&b.path, &b.file)))
    });
    writes
}

fn write(difference: &Difference) -> Option<Write> {
    let Difference { kind, path, file, expected, found, .. } = difference;
    if *kind != Kind::Value {
        return None;
    }
    let (file, value, before) = (file.clone()?, expected.clone()?, found.clone()?);
    let direction = match more(&file, &value, &before) {
        Some(Ordering::Less) => Direction::Lower,
        _ => Direction::Raise,
    };
    Some(Write { path: path.clone(), file, value, before, direction })
}

/// How much `a` gives compared with `b`; `None` when neither contains the other.
fn more(file: &str, a: &str, b: &str) -> Option<Ordering> {
    match file {
        "cpu.max" => share(a)?.partial_cmp(&share(b)?),
        "cpuset.cpus" => {
            let (a, b) = (cpu_bits(a)?, cpu_bits(b)?);
            // No CPU listed means all of the parent's.
            match (a.is_empty(), b.is_empty()) {
                (true, false) => return Some(Ordering::Greater),
                (false, true) => return Some(Ordering::Less),
                _ => {}
            }
            let within = |a: &[u8], b: &[u8]| {
                a.iter().enumerate().all(|(n, bits)| bits & !b.get(n).copied().unwrap_or(0) == 0)
            };
            match (within(&a, &b), within(&b, &a)) {
                (true, true) => Some(Ordering::Equal),
                (true, false) => Some(Ordering::Less),
                (false, true) => Some(Ordering::Greater),
                (false, false) => Some(Ordering::Less),
            }
        }
        _ => Some(number(a)?.cmp(&number(b)?)),
    }
}

/// CPU time per million, without limit as the largest number.
fn share(text: &str) -> Option<u128> {
    let (quota, period) = text.split_once(' ')?;
    let period: u128 = period.trim().parse().ok()?;
    match quota {
        "max" => Some(u128::MAX),
        quota => quota.parse::<u128>().ok()?.checked_mul(1_000_000)?.checked_div(period),
    }
}

fn number(text: &str) -> Option<u64> {
    match text.trim() {
        "max" => Some(u64::MAX),
        digits => digits.parse().ok(),
    }
}
