//! Record layouts shared by ebb's kernel programs and its agent.
//!
//! ```text
//!  kernel program ── writes ──► ring ── bytes ──► decode ──► Record          (what somebody must react to)
//!  kernel program ── adds  ──► map  ── batch ──► Counters, NodeCounters     (what is read on demand)
//!  kernel program ── writes ─► array ── shared ─► Sweep, Swept             (what a sweep finds)
//! ```
//! The Rust programs (`ebpf/probes`) and the agent use these types; the C programs (`ebpf/core`) use `ebpf/core/wire.h`,
//! and a test holds the two against each other field by field. All integers are in the machine's own byte order: a record
//! never leaves the machine that wrote it. There is no implicit padding and no `bool`, so every byte pattern of the
//! right length is a value, and every value is fully initialised memory.
//!
//! What a record means to the agent (names, `Option`s, text) is `ebb_probes::KernelEvent`.
#![no_std]
#![forbid(unsafe_code)]

mod counters;
mod decode;
mod fall;
mod record;
mod reflex;
mod swept;

pub use counters::{Counters, NodeCounters};
pub use decode::{DecodeError, Record, decode};
pub use fall::FallAsked;
pub use record::{
    COMM_LEN, Cgroup, CgroupNamed, Exit, Header, KswapdWake, MemoryEvent, OomKill, PATH_LEN,
    QUIET_NS, change, exit_flags, kind, oom_limit, unhurried, which,
};
pub use reflex::{Arm, Gauge, Process, Reflex, TARGETS, Target, answer, fate, reflex_state};
pub use swept::{Sweep, Swept, told};
