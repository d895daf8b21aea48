//! What swap is worth: how much it can still take off memory, and what comes back when swapped pages go.
//!
//! A page on a disk takes no memory. A page on zram does, compressed: swapping it out frees only the difference.
//! Pages in zswap are charged to their cgroup (`memory.current`) and so are counted as its memory already.
use crate::snapshot::{NodeFacts, ZramFacts};

/// The part of a page that zram is taken to need while it holds too little to tell, percent.
const ASSUMED_PERCENT: u64 = 50;

/// zram that holds less than this many bytes is too empty for its compression to be told.
const ENOUGH_TO_TELL: u64 = 1 << 20;

/// Bytes that swap can still take off memory: free space on disks, and of free space on zram what compression saves.
///
/// `total` and `free` are those of all swap devices (`SwapTotal`, `SwapFree`), bytes. `None` when either is unknown, or there is no swap.
#[must_use]
pub fn available(total: Option<u64>, free: Option<u64>, zram: Option<ZramFacts>) -> Option<u64> {
    total.filter(|total| *total > 0)?;
    let free = free?;
    let Some(zram) = zram else { return Some(free) };
    let on_zram = zram.total.saturating_sub(zram.used).min(free);
    Some(free.saturating_sub(kept_in_memory(zram, on_zram)))
}

/// Bytes of memory that `swapped` bytes take on zram, by what it holds now.
fn kept_in_memory(zram: ZramFacts, swapped: u64) -> u64 {
    let (memory, stored) = match (zram.memory, zram.stored) {
        (Some(memory), Some(stored)) if stored >= ENOUGH_TO_TELL => (memory, stored),
        _ => (ASSUMED_PERCENT, 100),
    };
    part(swapped, memory, stored)
}

/// How much of what is swapped out is in memory all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Swapped {
    /// Bytes swapped out on the whole node; zero also where that is unknown.
    all: u64,
    /// Bytes of memory that zram takes for them.
    in_memory: u64,
}

impl Swapped {
    pub(crate) fn of(node: &NodeFacts) -> Swapped {
        let all = node.swap_total.zip(node.swap_free);
        let all = all.map_or(0, |(total, free)| total.saturating_sub(free));
        let zram = node.zram.filter(|zram| zram.used > 0);
        let in_memory =
            zram.map_or(0, |zram| zram.memory.unwrap_or(kept_in_memory(zram, zram.used)));
        Swapped { all, in_memory: in_memory.min(all) }
    }

    /// Whether anything is swapped out at all.
    pub(crate) fn any(self) -> bool {
        self.all > 0
    }

    /// Bytes of memory that come back with `swapped` bytes, beside the swap space.
    pub(crate) fn memory_of(self, swapped: u64) -> u64 {
        part(swapped, self.in_memory, self.all)
    }
}

/// `of * numerator / denominator`, at most `of`; zero of nothing.
fn part(of: u64, numerator: u64, denominator: u64) -> u64 {
    let part = u128::from(of) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(part).unwrap_or(u64::MAX).min(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn zram(used: u64, stored: u64, memory: u64) -> ZramFacts {
        ZramFacts {
            total: 1000 * MIB,
            used: used * MIB,
            stored: Some(stored * MIB),
            memory: Some(memory * MIB),
        }
    }

    #[test]
    fn swap_on_a_disk_counts_in_full_and_no_swap_is_unknown() {
        assert_eq!(available(Some(1000), Some(400), None), Some(400));
        assert_eq!(available(Some(1000), Some(0), None), Some(0));
        assert_eq!(available(Some(0), Some(0), None), None);
        assert_eq!(available(None, Some(400), None), None);
        assert_eq!(available(Some(1000), None, None), None);
    }

    #[test]
    fn swap_on_zram_counts_with_what_compression_saves() {
        let all = Some(1000 * MIB);
        let of = |zram| available(all, Some(600 * MIB), Some(zram)).unwrap() / MIB;
        assert_eq!(of(zram(400, 400, 100)), 450, "a quarter stays in memory");
        assert_eq!(of(zram(400, 400, 400)), 0, "what cannot be compressed is not worth swapping");
        assert_eq!(of(zram(400, 400, 440)), 0, "nor what takes more than before");
        assert_eq!(of(ZramFacts { stored: None, memory: None, ..zram(400, 0, 0) }), 300);
        let empty = available(all, all, Some(zram(0, 0, 0)));
        assert_eq!(empty, Some(500 * MIB), "too empty to tell");
        // A disk of 500 MiB free beside 100 MiB free on zram.
        let beside = available(Some(2000 * MIB), Some(600 * MIB), Some(zram(900, 900, 450)));
        assert_eq!(beside, Some(550 * MIB));
    }

    #[test]
    fn memory_comes_back_with_what_is_on_zram_and_not_with_what_is_on_a_disk() {
        let mut node = NodeFacts {
            swap_total: Some(1000 * MIB),
            swap_free: Some(600 * MIB),
            ..NodeFacts::default()
        };
        assert_eq!(Swapped::of(&node).memory_of(40 * MIB), 0);
        node.zram = Some(zram(400, 400, 100));
        assert_eq!(Swapped::of(&node).memory_of(40 * MIB), 10 * MIB);
        assert!(!Swapped::of(&NodeFacts::default()).any());
    }
}
