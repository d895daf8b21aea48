//! Numbers as the tables of `docs/benchmarks.md` show them.

pub(super) use ebb_vm_protocol::figures::percentile;

/// Microseconds as milliseconds with one digit, cut off.
pub(super) fn ms(micros: u64) -> String {
    format!("{} ms", tenths(micros / 100))
}

/// Tenths with their point.
pub(super) fn tenths(value: u64) -> String {
    format!("{}.{}", value / 10, value % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times: Vec<u64> = (1..=100).map(|n| n * 1000).collect();
        let shown = |times: &[u64], percent| percentile(times, percent).map(ms);
        assert_eq!(shown(&times, 50).as_deref(), Some("50.0 ms"));
        assert_eq!(shown(&times, 99).as_deref(), Some("99.0 ms"));
        assert_eq!(shown(&[1550], 99).as_deref(), Some("1.5 ms"));
        assert_eq!(shown(&[], 50), None);
    }
}
