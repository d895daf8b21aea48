//! The maps that this half shares with `ebpf/core`, and the three things done with them: send, count, count as lost.
//!
//! Sizes given here are for a loader that gives none.
use aya_ebpf::bindings::{
    BPF_NOEXIST, BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP, BPF_RB_RING_SIZE,
};
use aya_ebpf::helpers::{
    bpf_get_current_cgroup_id, bpf_get_smp_processor_id, bpf_ktime_get_boot_ns,
};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, LruHashMap, PerCpuArray, RingBuf};
use aya_log_ebpf::warn;
use core::intrinsics::{AtomicOrdering, atomic_xadd};
use ebb_wire::{Counters, Header, NodeCounters, QUIET_NS, kind, unhurried};

/// OOM kills and exits: what must not be crowded out by anything else.
#[map]
pub static VITAL: RingBuf = RingBuf::with_byte_size(512 * 1024, 0);

/// Everything else that somebody must react to.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(512 * 1024, 0);

/// Records that found no room, by kind.
#[map]
static LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(kind::COUNT, 0);

/// Running totals by cgroup id. Not per CPU: with many CPUs that would cost more memory than the additions cost time.
#[map]
static CGROUPS: LruHashMap<u64, Counters> = LruHashMap::with_max_entries(8192, 0);

/// Running totals by NUMA node.
#[map]
pub static NODES: Array<NodeCounters> = Array::with_max_entries(1024, 0);

/// When a record that is in no hurry was last sent.
#[map]
static UNHURRIED: Array<u64> = Array::with_max_entries(unhurried::COUNT, 0);

/// How often a cgroup could not be counted.
#[map]
static UNCOUNTED: Array<u64> = Array::with_max_entries(1, 0);

/// Nanoseconds of `CLOCK_BOOTTIME`.
pub fn now() -> u64 {
    // SAFETY: takes nothing and can be called from every program type used here.
    unsafe { bpf_ktime_get_boot_ns() }
}

/// The current task's cgroup.
pub fn current_cgroup() -> u64 {
    // SAFETY: takes nothing and can be called from every program type used here.
    unsafe { bpf_get_current_cgroup_id() }
}

/// The header of a record of type `T`.
pub fn header<T>(kind: u16) -> Header {
    // SAFETY: takes nothing and can be called from every program type used here.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    Header { kind, len: size_of::<T>() as u16, cpu, ts_ns: now() }
}

/// How soon the reader is to know of a record.
#[derive(Clone, Copy)]
pub enum Hurry {
    /// It is woken.
    Now,
    /// It is woken by the first after a quiet time, and then looks in by itself; the index is one of
    /// [`ebb_wire::unhurried`].
    Unhurried(u32),
}

/// Put a record into a ring, or count it as lost.
#[inline(always)]
pub fn send<T: 'static>(ring: &RingBuf, kind: u16, record: T, hurry: Hurry) {
    match ring.reserve::<T>(0) {
        Some(mut room) => {
            room.write(record);
            room.submit(match hurry {
                Hurry::Now => u64::from(BPF_RB_FORCE_WAKEUP),
                Hurry::Unhurried(which) => unhurried(ring, which),
            });
        }
        None => lose(kind),
    }
}

/// How to submit a record of a kind that can come in floods.
#[inline(always)]
fn unhurried(ring: &RingBuf, which: u32) -> u64 {
    let now = now();
    let quiet = UNHURRIED.get_ptr_mut(which).is_none_or(|last| {
        // SAFETY: the pointer is to an entry of the array. Of two CPUs at once both may find a quiet time, and then wake
        // the reader once too often.
        let since = now.wrapping_sub(unsafe { *last });
        // A line of memory that another CPU has written is a good part of what a program costs: the time is brought up to
        // date only now and then, so that a quiet time seems longer than it was.
        if since > QUIET_NS / 4 {
            // SAFETY: as above.
            unsafe { *last = now };
        }
        since > QUIET_NS
    });
    let size = ring.query(u64::from(BPF_RB_RING_SIZE));
    if ring.query(u64::from(BPF_RB_AVAIL_DATA)) > size / 2 {
        return u64::from(BPF_RB_FORCE_WAKEUP);
    }
    if quiet { 0 } else { u64::from(BPF_RB_NO_WAKEUP) }
}

/// Count a record that could not be sent.
pub fn lose(kind: u16) {
    if let Some(lost) = LOST.get_ptr_mut(u32::from(kind)) {
        // Per CPU, and atomic all the same: a program can be preempted, and another run on the same CPU.
        // SAFETY: the pointer is to this CPU's entry of `LOST`, which is memory of the map while a program runs, and aligned.
        unsafe { add(lost, 1) };
    }
}

/// Whether the vital ring has room for more than OOM kills, for which its last eighth is kept.
pub fn vital_has_room() -> bool {
    let size = VITAL.query(u64::from(BPF_RB_RING_SIZE));
    VITAL.query(u64::from(BPF_RB_AVAIL_DATA)) < size - size / 8
}

/// Add to totals of the current task's cgroup.
#[inline(always)]
pub fn count(add: impl Fn(&Totals)) {
    let cgroup = current_cgroup();
    // One lookup for all but the first: it is most of what counting costs.
    let counters = CGROUPS.get_ptr_mut(cgroup).or_else(|| {
        // Whoever else is first at the same time has put the same zeros there.
        let _ = CGROUPS.insert(cgroup, Counters::default(), u64::from(BPF_NOEXIST));
        CGROUPS.get_ptr_mut(cgroup)
    });
    match counters {
        Some(counters) => add(&Totals(counters)),
        None => uncounted(cgroup),
    }
}

/// One cgroup's totals, to be added to from any CPU.
pub struct Totals(*mut Counters);

/// A method per counter of [`Totals`].
macro_rules! adders {
    ($($field:ident)*) => {
        impl Totals {
            $(#[inline(always)]
            pub fn $field(&self, amount: u64) {
                // SAFETY: the pointer is to an entry of `CGROUPS`, which stays memory of the map while a program runs,
                // and is aligned.
                unsafe { add(&raw mut (*self.0).$field, amount) };
            })*
        }
    };
}

adders!(forks execs stall_ns direct_reclaims direct_reclaim_ns refaults);

/// Add atomically. The intrinsic, because the BPF target has no `AtomicU64::fetch_add`; relaxed and with its result unused,
/// because kernels before 5.12 know no addition that returns.
///
/// # Safety
/// The pointer is to memory of a map, aligned to 8 bytes.
#[inline(always)]
unsafe fn add(counter: *mut u64, amount: u64) {
    // SAFETY: as above; while it is shared it is only ever added to like this.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, amount) };
}

/// Say that a cgroup could not be counted: the first time and then ever more rarely, whatever a workload does.
///
/// Out of line, because it is long and rare. Not mangled, because the compiler would mangle into its name, and so into the
/// object, where the source was.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn uncounted(cgroup: u64) {
    if let Some(times) = UNCOUNTED.get_ptr_mut(0) {
        // SAFETY: the pointer is to the array's only entry; a lost addition only delays a message.
        let times = unsafe {
            *times += 1;
            *times
        };
        if times.is_power_of_two() {
            // The place for a program's context stays empty: a message does not depend on it.
            warn!((), "cgroup {} has no room in the map of counters ({} times)", cgroup, times);
        }
    }
}
