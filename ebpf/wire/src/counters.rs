//! What the kernel programs only add up, and the agent reads on demand.
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Running totals of one cgroup since the programs were attached or the cgroup last fell out of the map.
///
/// The map forgets the cgroup that was longest not counted when it is full, so a total can start again at 0:
/// a reader who wants a rate takes a total smaller than the last one as new.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Counters {
    /// Tasks created by tasks of this cgroup, threads included.
    pub forks: u64,
    /// Programs started.
    pub execs: u64,
    /// Nanoseconds that tasks spent stalled on memory, summed over tasks.
    pub stall_ns: u64,
    /// How often tasks had to reclaim memory themselves because the node was short.
    pub direct_reclaims: u64,
    /// Nanoseconds spent in that.
    pub direct_reclaim_ns: u64,
    /// How often page cache that tasks of this cgroup need had to be read again soon after its eviction: once for a
    /// folio, which newer kernels make of many pages.
    pub refaults: u64,
    /// How often memory was reclaimed from this cgroup because of its own limits, or on request.
    pub memcg_reclaims: u64,
    /// Nanoseconds spent in that.
    pub memcg_reclaim_ns: u64,
    /// Pages that it gave back.
    pub reclaimed_pages: u64,
    /// Changes of its `memory.events`, those that no record was sent for included.
    pub memory_events: u64,
}

/// Running totals of one NUMA node, and when its last record was sent.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct NodeCounters {
    /// How often kswapd was woken.
    pub kswapd_wakes: u64,
    /// `kswapd_wakes` when the last record was sent.
    pub sent_wakes: u64,
    /// When that was, `CLOCK_BOOTTIME` in nanoseconds.
    pub sent_ns: u64,
}

const _: () = {
    assert!(size_of::<Counters>() == 80);
    assert!(size_of::<NodeCounters>() == 24);
};
