//! The node is short of memory: who pays for it now (direct reclaim), and the background worker that should have prevented
//! it (kswapd).
use crate::maps::{EVENTS, Hurry, NODES, count, header, now, send};
use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::{map, raw_tracepoint};
use aya_ebpf::maps::LruHashMap;
use aya_ebpf::programs::RawTracePointContext;
use ebb_wire::{KswapdWake, kind};

/// When a thread began to reclaim, by thread id.
#[map]
static RECLAIMS: LruHashMap<u32, u64> = LruHashMap::with_max_entries(8192, 0);

/// At most one record per NUMA node in this time.
const WAKE_GAP_NS: u64 = 10_000_000;

/// The current task could not get memory and begins to reclaim some itself.
#[raw_tracepoint]
pub fn direct_reclaim_begin(_: RawTracePointContext) -> i32 {
    let thread = bpf_get_current_pid_tgid() as u32;
    // Without an entry the time goes uncounted; the occurrence does not.
    let _ = RECLAIMS.insert(thread, now(), u64::from(BPF_ANY));
    count(|totals| totals.direct_reclaims(1));
    0
}

/// It is done with that.
#[raw_tracepoint]
pub fn direct_reclaim_end(_: RawTracePointContext) -> i32 {
    let thread = bpf_get_current_pid_tgid() as u32;
    let Some(since) = RECLAIMS.get_ptr_mut(thread) else { return 0 };
    // SAFETY: the entry is the current task's own, which runs nowhere else meanwhile.
    let took = now().saturating_sub(unsafe { *since });
    let _ = RECLAIMS.remove(thread);
    count(|totals| totals.direct_reclaim_ns(took));
    0
}

/// kswapd of a NUMA node begins a round. Runs in kswapd, of which a node has one: nobody else writes the node's entry.
#[raw_tracepoint]
pub fn kswapd_wake(ctx: RawTracePointContext) -> i32 {
    let node: u32 = ctx.arg(0);
    let Some(counters) = NODES.get_ptr_mut(node) else { return 0 };
    let ts_ns = now();
    // SAFETY: the pointer is to an entry of the array, which lives as long as the program.
    let counters = unsafe { &mut *counters };
    counters.kswapd_wakes += 1;
    if ts_ns.saturating_sub(counters.sent_ns) < WAKE_GAP_NS {
        return 0;
    }
    let folded = counters.kswapd_wakes - counters.sent_wakes - 1;
    counters.sent_ns = ts_ns;
    counters.sent_wakes = counters.kswapd_wakes;
    let record =
        KswapdWake { header: header::<KswapdWake>(kind::KSWAPD_WAKE), node, folded: folded as u32 };
    send(&EVENTS, kind::KSWAPD_WAKE, record, Hurry::Now);
    0
}
