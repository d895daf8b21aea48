//! Page cache that was evicted too early, by the cgroup that has to read it again. An early bell: `memory.stat` counts by owner.
use crate::maps::count;
use aya_ebpf::macros::fentry;
use aya_ebpf::programs::FEntryContext;

/// A page comes back soon after its eviction.
#[fentry]
pub fn refault(_: FEntryContext) -> i32 {
    count(|totals| totals.refaults(1));
    0
}
