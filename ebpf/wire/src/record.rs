//! The records that travel through the rings, and the numbers inside them.
//!
//! A number that means "one of these" is a module of constants and not an enum: the bytes come from outside, and
//! [`decode`](crate::decode()) is the one place that refuses a number it does not know.
use core::mem::size_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Length of a task's name in the kernel, terminating NUL included.
pub const COMM_LEN: usize = 16;

/// Longest cgroup path that a record carries; a longer one fills the array and has no terminating NUL.
pub const PATH_LEN: usize = 512;

/// What starts every record.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Header {
    /// One of [`kind`].
    pub kind: u16,
    /// Length of the whole record in bytes, this header included.
    pub len: u16,
    /// CPU that wrote the record.
    pub cpu: u32,
    /// `CLOCK_BOOTTIME` in nanoseconds, the clock of a process's start time in `/proc`.
    pub ts_ns: u64,
}

/// A process has ended: once per process, not per thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Exit {
    /// Kind [`kind::EXIT`].
    pub header: Header,
    /// Id of its cgroup in the v2 hierarchy.
    pub cgroup: u64,
    /// When the process started, `CLOCK_BOOTTIME` in nanoseconds; 0 when the program could not follow the pointer.
    pub start_ns: u64,
    /// Process id (thread group id) in the initial pid namespace.
    pub pid: u32,
    /// Parent's process id; 0 when the program could not follow the pointer.
    pub ppid: u32,
    /// As `waitpid` reports it; meaningful only with [`exit_flags::STATUS`].
    pub status: u32,
    /// Bits of [`exit_flags`].
    pub flags: u32,
    /// Name of the last thread, NUL-padded.
    pub comm: [u8; COMM_LEN],
}

/// The kernel's OOM killer has chosen a victim.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct OomKill {
    /// Kind [`kind::OOM_KILL`].
    pub header: Header,
    /// Id of the victim's cgroup in the v2 hierarchy.
    pub victim_cgroup: u64,
    /// Id of the cgroup whose limit was hit, when `limit` says that there is one; else 0.
    pub limit_cgroup: u64,
    /// When the victim started, `CLOCK_BOOTTIME` in nanoseconds.
    pub start_ns: u64,
    /// The victim's process id in the initial pid namespace.
    pub pid: u32,
    /// The victim's `oom_score_adj`, -1000 to 1000.
    pub oom_score_adj: i32,
    /// One of [`oom_limit`].
    pub limit: u32,
    /// Always 0.
    pub reserved: u32,
    /// The victim's name, NUL-padded.
    pub comm: [u8; COMM_LEN],
}

/// A counter in a cgroup's `memory.events` has changed. Limited per cgroup; see [`MemoryEvent::folded`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct MemoryEvent {
    /// Kind [`kind::MEMORY_EVENT`].
    pub header: Header,
    /// Id of the cgroup in the v2 hierarchy.
    pub cgroup: u64,
    /// One of [`which`].
    pub which: u32,
    /// How many events of this cgroup were swallowed since its last record, so that a workload cannot flood the ring.
    pub folded: u32,
}

/// Something has happened to a cgroup of the v2 hierarchy.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Cgroup {
    /// Kind [`kind::CGROUP`].
    pub header: Header,
    /// Its id.
    pub cgroup: u64,
    /// Its parent's id; 0 when it has none.
    pub parent: u64,
    /// Distance from the root of the hierarchy, which is at 0.
    pub level: u32,
    /// One of [`change`].
    pub change: u32,
}

/// Something has happened to a cgroup that gave it a new path.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CgroupNamed {
    /// What a [`Cgroup`] says; its header is of kind [`kind::CGROUP_NAMED`].
    pub what: Cgroup,
    /// Path from the root of the hierarchy, NUL-padded; empty when the kernel forbids reading strings.
    pub path: [u8; PATH_LEN],
}

/// kswapd was woken on a node, or told to work for a larger order.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct KswapdWake {
    /// Kind [`kind::KSWAPD_WAKE`].
    pub header: Header,
    /// NUMA node.
    pub node: u32,
    /// Wakes of this node that were swallowed since its last record.
    pub folded: u32,
}

/// [`Header::kind`], which is also the index of a kind's counter of lost records.
pub mod kind {
    #![allow(missing_docs, reason = "each is documented by the record of its name")]
    pub const EXIT: u16 = 1;
    pub const OOM_KILL: u16 = 2;
    pub const MEMORY_EVENT: u16 = 3;
    pub const CGROUP: u16 = 4;
    pub const CGROUP_NAMED: u16 = 5;
    pub const KSWAPD_WAKE: u16 = 6;
    /// How many counters of lost records there are; index 0 stays unused.
    pub const COUNT: u32 = 7;
}

/// Index of the map that says when a record in no hurry last went through a ring.
pub mod unhurried {
    #![allow(missing_docs, reason = "each is a ring's name")]
    pub const VITAL: u32 = 0;
    pub const EVENTS: u32 = 1;
    /// How many there are.
    pub const COUNT: u32 = 2;
}

/// Exits and memory events come in floods, and waking the reader costs more than all else that a program does: such a
/// record wakes the reader only when none has been sent for this long. Until longer than this has passed without
/// one, the reader looks in by itself.
pub const QUIET_NS: u64 = 20_000_000;

/// [`Exit::flags`].
pub mod exit_flags {
    /// [`Exit::status`](super::Exit::status) is known.
    pub const STATUS: u32 = 1;
    /// The program saw the group leader end and could not see whether other threads live on.
    pub const LEADER_ONLY: u32 = 2;
}

/// [`OomKill::limit`](super::OomKill::limit): whose shortage it was.
pub mod oom_limit {
    /// The hook that knows was not available, or the victim was marked outside of an OOM kill.
    pub const UNKNOWN: u32 = 0;
    /// The node's.
    pub const NODE: u32 = 1;
    /// That of a cgroup in the v2 hierarchy.
    pub const CGROUP: u32 = 2;
    /// That of a cgroup in a v1 memory hierarchy, whose ids are separate from v2's.
    pub const CGROUP_V1: u32 = 3;
}

/// [`MemoryEvent::which`](super::MemoryEvent::which), by the names in `memory.events`.
pub mod which {
    #![allow(
        missing_docs,
        reason = "each is documented by the kernel's cgroup-v2 guide under its name"
    )]
    /// The hook does not say; reading the file does.
    pub const UNKNOWN: u32 = 0;
    pub const LOW: u32 = 1;
    pub const HIGH: u32 = 2;
    pub const MAX: u32 = 3;
    pub const OOM: u32 = 4;
    pub const OOM_KILL: u32 = 5;
    pub const OOM_GROUP_KILL: u32 = 6;
    pub const SWAP_HIGH: u32 = 7;
    pub const SWAP_MAX: u32 = 8;
    pub const SWAP_FAIL: u32 = 9;
    pub const SOCK_THROTTLED: u32 = 10;
}

/// [`Cgroup::change`](super::Cgroup::change).
pub mod change {
    /// Its directory was made. Limits are not written yet, and nothing runs in it.
    pub const CREATED: u32 = 1;
    /// Its directory was removed; pages charged to it may remain.
    pub const REMOVED: u32 = 2;
    /// Its directory was renamed.
    pub const RENAMED: u32 = 3;
    /// The kernel has let go of it altogether.
    pub const RELEASED: u32 = 4;
    /// The first process arrived in it or below.
    pub const POPULATED: u32 = 5;
    /// The last process in it and below is gone.
    pub const EMPTIED: u32 = 6;
}

// The same numbers stand in `ebpf/core/wire.h`.
const _: () = {
    assert!(size_of::<Header>() == 16);
    assert!(size_of::<Exit>() == 64);
    assert!(size_of::<OomKill>() == 72);
    assert!(size_of::<MemoryEvent>() == 32);
    assert!(size_of::<Cgroup>() == 40);
    assert!(size_of::<CgroupNamed>() == 552);
    assert!(size_of::<KswapdWake>() == 24);
};
