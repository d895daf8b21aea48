//! Measurements of the agent beside its peers, in guests that run nothing else.

mod peers;

pub(crate) mod idle;
pub(crate) mod programs;
pub(crate) mod race;
pub(crate) mod reflex;
pub(crate) mod sweep;

/// The nearest rank of sorted times; `None` of none.
pub(crate) fn percentile(
    sorted: &[std::time::Duration],
    percent: usize,
) -> Option<std::time::Duration> {
    sorted.get((sorted.len() * percent).div_ceil(100).max(1) - 1).copied()
}
