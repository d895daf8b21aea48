//! The order of candidates and the keys that made it.
use crate::{
    Signal,
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
    /// The signal that it is ranked for.
    pub signal: Signal,
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
    /// What it uses above what it asked for; the most first.
    AboveRequest {
        /// Units above (or below, if negative).
        above: i64,
    },
    /// Processes; the most first.
    Processes {
        /// How many.
        count: u64,
    },
}
