//! Arithmetic that guests and their host do alike.

/// The nearest rank of sorted values; `None` of none.
#[must_use]
pub fn percentile<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).copied()
}
