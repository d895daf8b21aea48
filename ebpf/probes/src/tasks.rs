//! How fast a cgroup makes tasks and starts programs. Only counted: who wants a rate reads twice.
use crate::maps::count;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

/// Runs in the parent, whose cgroup the child starts in unless it was cloned into another.
#[raw_tracepoint]
pub fn fork(_: RawTracePointContext) -> i32 {
    count(|totals| totals.forks(1));
    0
}

/// Runs once the new program is in place.
#[raw_tracepoint]
pub fn exec(_: RawTracePointContext) -> i32 {
    count(|totals| totals.execs(1));
    0
}
