//! The order of candidates and the keys that made it.
use crate::{
    Millis, Signal, Time,
    snapshot::{Preference, WorkloadKey},
};
use alloc::vec::Vec;

/// Candidates that a plan lists at most: a plan is kept in records, so its size is bounded.
pub const LISTED: usize = 1000;

/// A candidate in its place, with the keys that placed it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Ranked {
    /// Place, from 1: the first victim.
    pub place: u32,
    /// Who.
    pub workload: WorkloadKey,
    /// The signal that it is ranked for; absent where it is the memory pressure of a cgroup.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub signal: Option<Signal>,
    /// Keys in the order in which they were compared.
    pub keys: Vec<RankKey>,
}

/// One key of a ranking, with the candidate's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "key")
)]
pub enum RankKey {
    /// Whether statistics exist; those without come first.
    Stats {
        /// Whether they exist.
        found: bool,
    },
    /// Whether it uses more than it asked for; those that do come first.
    ExceedsRequest {
        /// Whether it does.
        exceeds: bool,
        /// What it uses.
        usage: u64,
        /// What it asked for.
        request: u64,
    },
    /// Priority; the lowest first.
    Priority {
        /// Priority.
        priority: i32,
    },
    /// What its owner or the configuration says; `prefer` first, `avoid` last.
    Preference {
        /// The preference.
        preference: Preference,
    },
    /// How fast it grows; the fastest first.
    Growth {
        /// Units (bytes, inodes or tasks) a second.
        per_second: i64,
    },
    /// What it added to the filesystem that is short, of late; the most first. It comes before all other keys while the usage of somebody is unknown.
    Filled {
        /// Units (bytes or inodes) added.
        added: u64,
        /// The time in which it did, milliseconds.
        over: Millis,
        /// Its part of what the filesystem lost meanwhile, percent.
        percent: u8,
    },
    /// What it has swapped out; part of its usage where memory is short together with swap, and all of it where swap is.
    Swapped {
        /// Bytes.
        bytes: u64,
    },
    /// What it uses above what it asked for; the most first.
    AboveRequest {
        /// Units above (or below, if negative).
        above: i64,
    },
    /// When ebb evicted what ran in its place before; such a one comes first among equals.
    Restarted {
        /// When that had terminated.
        at: Time,
    },
    /// Pages of it that the kernel scans to reclaim memory; the most first.
    PagesScanned {
        /// Pages a second.
        per_second: u64,
        /// Its part of what is scanned below the cgroup under pressure, percent.
        percent: u8,
    },
    /// Processes; the most first.
    Processes {
        /// How many.
        count: u64,
    },
}
