//! What user space asks of the kernel that is to wake it when available memory has fallen.
use crate::Gauge;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What user space asks for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FallAsked {
    /// Until when it is watched, `CLOCK_BOOTTIME` in nanoseconds.
    pub until_ns: u64,
    /// How long it takes at least until a page is gone, nanoseconds.
    pub page_ns: u64,
    /// Pages by which it may fall from now on untold.
    pub pages: i64,
    /// What is measured.
    pub gauge: Gauge,
    /// NUMA nodes that there can be.
    pub nodes: u32,
    /// Always 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<FallAsked>() == 56);
