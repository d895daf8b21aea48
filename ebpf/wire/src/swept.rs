//! What a sweep over the cgroup tree writes down, one record per cgroup, in an array that both sides see.
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// How far the last sweep came.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Sweep {
    /// Cgroups come across, those for which there was no room included.
    pub found: u32,
    /// 1 when the sweep has reached its end.
    pub whole: u32,
}

/// One cgroup. Which of the values were written is told by [`Swept::told`]; the others are left over from earlier sweeps.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Swept {
    /// Its id.
    pub cgroup: u64,
    /// The id of the cgroup above; 0 at the root.
    pub parent: u64,
    /// Number of cgroups above it.
    pub level: u32,
    /// Bits of [`told`].
    pub told: u32,
    /// Pages in use.
    pub usage: u64,
    /// Pages.
    pub min: u64,
    /// Pages.
    pub low: u64,
    /// Pages; the kernel's largest page count is no limit.
    pub high: u64,
    /// Pages; the kernel's largest page count is no limit.
    pub max: u64,
    /// Pages swapped out.
    pub swap: u64,
    /// `low` of `memory.events`.
    pub low_events: u64,
    /// `high` of `memory.events`.
    pub high_events: u64,
    /// `max` of `memory.events`.
    pub max_events: u64,
    /// `oom` of `memory.events`.
    pub oom_events: u64,
    /// `oom_kill` of `memory.events`.
    pub oom_kills: u64,
    /// Threads.
    pub pids: u64,
    /// Bytes from the kernel's functions, pages from its statistics; as the five below.
    pub anon: u64,
    /// See `anon`.
    pub file: u64,
    /// See `anon`.
    pub active_file: u64,
    /// See `anon`.
    pub inactive_file: u64,
    /// See `anon`.
    pub shmem: u64,
    /// See `anon`.
    pub kernel: u64,
    /// Page-cache refaults, cumulative.
    pub refaults: u64,
    /// Pages scanned by reclaim, cumulative.
    pub scans: u64,
}

/// Groups of values that a record holds.
pub mod told {
    /// `usage` to `swap`.
    pub const MEMORY: u32 = 1;
    /// `low_events` to `oom_kills`.
    pub const EVENTS: u32 = 2;
    /// `pids`.
    pub const PIDS: u32 = 4;
    /// `anon` to `refaults`.
    pub const STAT: u32 = 8;
    /// `scans`.
    pub const SCANS: u32 = 16;
}

const _: () = {
    assert!(size_of::<Sweep>() == 8);
    assert!(size_of::<Swept>() == 184);
};
