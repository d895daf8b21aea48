//! How long tasks wait for memory, by cgroup: the stretches that pressure stall information is made from, but with the name of
//! who waits and without opening a file per cgroup.
//!
//! ```text
//!  enter        enter   leave        leave
//!  ├─────────────┼────────┤────────────┤     stretches nest; the outermost counts, once
//!  since                               + (now - since)
//! ```
//! The hooks' argument says the same as the depth kept here, but some kernels refuse programs that read it.
use crate::maps::{count, now};
use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::{fentry, map};
use aya_ebpf::maps::LruHashMap;
use aya_ebpf::programs::FEntryContext;

/// A task that waits.
#[repr(C)]
#[derive(Clone, Copy)]
struct Stall {
    since_ns: u64,
    depth: u64,
}

/// By thread id. Of more waiting tasks than this, those that have waited longest are not counted.
#[map]
static STALLS: LruHashMap<u32, Stall> = LruHashMap::with_max_entries(8192, 0);

/// A stretch begins.
#[fentry]
pub fn memstall_enter(_: FEntryContext) -> i32 {
    let thread = bpf_get_current_pid_tgid() as u32;
    match STALLS.get_ptr_mut(thread) {
        // SAFETY: the entry is the current task's own, which runs nowhere else meanwhile.
        Some(stall) => unsafe { (*stall).depth += 1 },
        None => {
            let stall = Stall { since_ns: now(), depth: 1 };
            // Without an entry this stretch goes uncounted, and its end is ignored.
            let _ = STALLS.insert(thread, stall, u64::from(BPF_ANY));
        }
    }
    0
}

/// A stretch ends.
#[fentry]
pub fn memstall_leave(_: FEntryContext) -> i32 {
    let thread = bpf_get_current_pid_tgid() as u32;
    // A stretch that began before the programs were attached has no entry.
    let Some(stall) = STALLS.get_ptr_mut(thread) else { return 0 };
    // SAFETY: the entry is the current task's own, which runs nowhere else meanwhile.
    let Stall { since_ns, depth } = unsafe { *stall };
    if depth > 1 {
        // SAFETY: as above.
        unsafe { (*stall).depth = depth - 1 };
        return 0;
    }
    let _ = STALLS.remove(thread);
    let waited = now().saturating_sub(since_ns);
    count(|totals| totals.stall_ns(waited));
    0
}
