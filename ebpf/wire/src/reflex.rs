//! What user space and the reflex in the kernel have in common: whom to end, at which line, until when, and what came of it.
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Processes that can be named at once.
pub const TARGETS: usize = 64;

/// One process, as user space knows it.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Process {
    /// When it started, in hundredths of a second since boot, as in `/proc/PID/stat`.
    pub start_ticks: u64,
    /// Its id in the initial pid namespace.
    pub pid: i32,
    /// Always 0.
    pub reserved: u32,
}

/// How often pages of each kind count as available: -1, 0 or 1.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Gauge {
    /// Free memory.
    pub free: i32,
    /// Inactive page cache: `Inactive(file)`.
    pub inactive_file: i32,
    /// Active page cache: `Active(file)`.
    pub active_file: i32,
    /// Anonymous memory: `AnonPages`.
    pub anon: i32,
    /// All page cache, shared memory and swap cache included.
    pub file: i32,
    /// Reclaimable slab: `SReclaimable`.
    pub slab_reclaimable: i32,
}

/// What user space asks for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Arm {
    /// Id of the cgroup that all processes are in or below.
    pub cgroup: u64,
    /// When the lease ends, `CLOCK_BOOTTIME` in nanoseconds.
    pub until_ns: u64,
    /// [`Reflex::fired_ns`] of the last shot that user space has seen; 0 for none.
    pub seen_ns: u64,
    /// Pages that are available now, as user space measures it.
    pub available: i64,
    /// Fewer available pages than this are too few.
    pub line: i64,
    /// Pages that may have come or gone around that reading; when there were more it says nothing.
    pub slack: i64,
    /// Pages that available memory may fall by from now on without the cgroup taking half of them. Beyond that nobody is killed: somebody else may have come. 0: any number.
    pub unexplained: i64,
    /// What is measured.
    pub gauge: Gauge,
    /// Process id of the agent, which is never ended.
    pub agent: i32,
    /// NUMA nodes that there can be.
    pub nodes: u32,
    /// How many of the processes are named; 0 disarms.
    pub count: u32,
    /// Always 0.
    pub reserved: u32,
    /// The processes.
    pub processes: [Process; TARGETS],
}

/// One process, as the kernel found it when it was named.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Target {
    /// When it started, `CLOCK_BOOTTIME` in nanoseconds.
    pub start_ns: u64,
    /// Id of its own cgroup.
    pub cgroup: u64,
    /// Its id.
    pub pid: i32,
    /// One of [`fate`].
    pub fate: u32,
}

/// How it stands with the reflex.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Reflex {
    /// One of [`reflex_state`].
    pub state: u32,
    /// How many of the targets count.
    pub count: u32,
    /// Targets that were not what they had been, or are protected.
    pub doubts: u32,
    /// Targets that were sent SIGKILL.
    pub killed: u32,
    /// Targets that the kernel would not send a signal to the last time; they are tried again.
    pub refused: u32,
    /// Always 0.
    pub reserved: u32,
    /// Id of the cgroup that was named.
    pub cgroup: u64,
    /// When the lease ends.
    pub until_ns: u64,
    /// When the line was found to be crossed, `CLOCK_BOOTTIME` in nanoseconds; 0 when it was not.
    pub fired_ns: u64,
    /// When the last signal had been sent.
    pub done_ns: u64,
    /// Pages that were available when user space last read that, less what the counters came to.
    pub base: i64,
    /// As asked for.
    pub line: i64,
    /// Available pages when it fired, or else when it was armed.
    pub pages: i64,
    /// What the counters came to when user space was about to read for itself.
    pub before: i64,
    /// As asked for.
    pub unexplained: i64,
    /// Available pages when it was armed.
    pub named: i64,
    /// Pages that the named cgroup was charged for then; -1 when that is not known.
    pub charged: i64,
    /// As asked for.
    pub gauge: Gauge,
    /// As asked for.
    pub agent: i32,
    /// 1 while the line is known to be crossed and nobody could be sent a signal yet.
    pub crossed: u32,
    /// The processes.
    pub targets: [Target; TARGETS],
}

/// Where the reflex stands.
pub mod reflex_state {
    /// Nobody is named.
    pub const FREE: u32 = 0;
    /// Somebody is, until the lease ends.
    pub const ARMED: u32 = 1;
    /// It is being armed, or is firing.
    pub const BUSY: u32 = 2;
    /// It has fired, and user space has not said that it has seen that.
    pub const SHOT: u32 = 3;
}

/// What became of a target.
pub mod fate {
    /// Nothing.
    pub const NONE: u32 = 0;
    /// It was sent SIGKILL.
    pub const KILLED: u32 = 1;
    /// It had ended.
    pub const GONE: u32 = 2;
    /// It was not what it had been, or is protected.
    pub const DOUBT: u32 = 3;
    /// The kernel would not send it a signal.
    pub const REFUSED: u32 = 4;
}

/// What came of asking.
pub mod answer {
    /// Armed.
    pub const ARMED: u32 = 0;
    /// None of those named is what it was taken for, or none was named: disarmed.
    pub const NOBODY: u32 = 1;
    /// One of them is protected: disarmed.
    pub const PROTECTED: u32 = 2;
    /// It has fired, which is to be seen first.
    pub const SHOT: u32 = 3;
    /// Available memory cannot be told: disarmed.
    pub const UNKNOWN: u32 = 4;
    /// Measured: user space may read now.
    pub const MEASURED: u32 = 5;
    /// Too much came or went around what user space read: nothing has changed.
    pub const DISTURBED: u32 = 6;
}

const _: () = {
    assert!(size_of::<Arm>() == 1120);
    assert!(size_of::<Reflex>() == 1680);
};
