//! Memory that is off the free lists for a moment and in nobody's hands: it counts as available, or an innocent goes for it.
//!
//! A virtual machine whose balloon has free page reporting (KVM, Hyper-V) tells its host every two seconds which of its pages are free.
//! The kernel takes up to 32 blocks of 2 to 4 MiB off the free lists for that and puts them back once the host has answered (`mm/page_reporting.c`): `MemFree` and `MemAvailable` fall by 64 MiB within microseconds, and rise by as much after 0.1 s or more.
//! What a workload takes shows in `AnonPages`, `Shmem` and the like at the same time. These pages show nowhere.

use super::meminfo::MemInfo;
use crate::clock::Boot;
use std::time::Duration;

/// What shows nowhere may grow by less than this between two readings: the kernel also takes free pages off its count in batches, for each processor.
const JUMP: u64 = 16 << 20;

/// The most that the kernel sets aside at once, 32 blocks of 4 MiB.
const MOST: u64 = 128 << 20;

/// What is away for longer is gone. The host took 0.1 to 0.16 s where this was found.
const LASTS: Duration = Duration::from_millis(500);

/// Memory set aside may be this many times what is left without it: so whoever runs short meanwhile is seen to, at a quarter of the threshold at the latest.
const SHARE: u64 = 3;

/// Follows what of the node's memory shows nowhere.
#[derive(Debug, Default)]
pub(super) struct SetAside {
    /// Bytes that show nowhere, before the jump if there is one; `None` before the first reading.
    usual: Option<u64>,
    /// When the jump had been seen first.
    since: Option<Boot>,
}

impl SetAside {
    /// Takes in a reading that was made between two moments, and returns the bytes that are to be counted as available beside what it says.
    ///
    /// They may be far apart on a busy node: only what lies between two readings is time in which memory stayed away.
    pub(super) fn take(&mut self, begun: Boot, done: Boot, memory: &MemInfo) -> u64 {
        let Some(unaccounted) = memory.unaccounted else { return 0 };
        // What is swapped to memory shows there, too.
        let zram = memory.zram.and_then(|zram| zram.memory).unwrap_or(0);
        let unaccounted = unaccounted.saturating_sub(zram);
        let usual = *self.usual.get_or_insert(unaccounted);
        let jump = unaccounted.saturating_sub(usual);
        let since = *self.since.get_or_insert(done);
        if jump < JUMP || begun.since(since) > LASTS {
            (self.usual, self.since) = (Some(unaccounted), None);
            return 0;
        }
        let left = memory.available.unwrap_or(0);
        jump.min(MOST).min(left.saturating_mul(SHARE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// With so many MiB available and so many that show nowhere.
    fn memory(available: u64, unaccounted: u64) -> MemInfo {
        MemInfo {
            available: Some(available * MIB),
            unaccounted: Some(unaccounted * MIB),
            ..MemInfo::default()
        }
    }

    fn at(ms: u64) -> Boot {
        Boot(ms * 1_000_000)
    }

    /// What counts in MiB after each reading: milliseconds, available, what shows nowhere.
    fn counted(readings: &[(u64, u64, u64)]) -> Vec<u64> {
        let mut aside = SetAside::default();
        let count = |&(ms, available, unaccounted)| {
            available + aside.take(at(ms), at(ms), &memory(available, unaccounted)) / MIB
        };
        readings.iter().map(count).collect()
    }

    #[test]
    fn what_is_set_aside_for_a_moment_counts_and_what_stays_away_does_not() {
        let dip = [(0, 140, 30), (9_000, 76, 94), (9_150, 75, 95), (9_160, 140, 30)];
        assert_eq!(counted(&dip), [140, 140, 140, 140]);
        let gone =
            [(0, 140, 30), (9_000, 76, 94), (9_500, 76, 94), (9_501, 76, 94), (9_510, 70, 94)];
        assert_eq!(counted(&gone), [140, 140, 140, 76, 70]);
        let again = [(0, 140, 30), (5, 76, 94), (400, 140, 30), (600, 76, 94), (1_050, 76, 94)];
        assert_eq!(counted(&again), [140, 140, 140, 140, 140], "each time anew");
    }

    #[test]
    fn time_that_passes_within_a_reading_is_none_in_which_memory_stays_away() {
        let mut aside = SetAside::default();
        let mut counted = |begun, done, available, unaccounted| {
            let memory = memory(available, unaccounted);
            available + aside.take(at(begun), at(done), &memory) / MIB
        };
        assert_eq!(counted(0, 0, 140, 30), 140);
        assert_eq!(counted(5, 2_000, 76, 94), 140);
        assert_eq!(counted(2_010, 5_000, 76, 94), 140, "it was read 10 ms after the first");
        assert_eq!(counted(5_000, 5_000, 76, 94), 76);
    }

    #[test]
    fn what_workloads_take_meanwhile_is_seen_at_once() {
        let hog = [(0, 140, 30), (5, 76, 94), (10, 56, 94), (15, 36, 95)];
        assert_eq!(counted(&hog), [140, 140, 120, 101]);
    }

    #[test]
    fn a_slow_rise_is_nothing_that_comes_back() {
        let rise: Vec<_> = (0..20).map(|n| (n * 10, 400 - n * 15, 30 + n * 15)).collect();
        assert_eq!(
            counted(&rise),
            rise.iter().map(|(_, available, _)| *available).collect::<Vec<_>>()
        );
    }

    #[test]
    fn it_counts_for_so_much_only_as_leaves_time_before_memory_is_gone() {
        assert_eq!(
            counted(&[(0, 600, 0), (5, 100, 500)]),
            [600, 228],
            "no more than is reported at once"
        );
        assert_eq!(counted(&[(0, 64, 0), (5, 24, 40), (10, 5, 40), (15, 0, 40)]), [64, 64, 20, 0]);
    }

    #[test]
    fn where_it_is_not_told_nothing_counts() {
        let mut aside = SetAside::default();
        let memory = |available| MemInfo { available: Some(available * MIB), ..MemInfo::default() };
        assert_eq!(aside.take(at(0), at(0), &memory(140)), 0);
        assert_eq!(aside.take(at(5), at(5), &memory(76)), 0);
    }
}
