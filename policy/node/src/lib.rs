//! ebb's policy core: a snapshot of a node, limits and a history in; a plan and the next history out.
//!
//! ```text
//! Snapshot ─┐
//! Limits ───┼─► decide ─► Plan { actions, kept, conditions, events, wake_in }, History
//! History ──┘
//! ```
//!
//! The crate is `no_std` and has no mandatory dependency, so it cannot read a clock, a file, the environment or a random source.
//! Same snapshot, limits and history give the same plan byte for byte, whatever the order of the lists inside.
//! Reading the node and acting on a plan live in the agent.
#![no_std]
extern crate alloc;

mod admit;
mod beyond;
pub mod cgroups;
mod choose;
mod decide;
mod evict;
mod gc;
pub mod history;
mod layout;
pub mod limits;
mod local_storage;
mod message;
mod observe;
mod pass;
pub mod plan;
mod preempt;
mod pressure;
pub mod quantity;
mod rank;
mod reclaim;
mod request;
pub mod signal;
pub mod snapshot;
pub mod swap;
pub mod units;
mod usage;
mod workload;
mod worth;

pub use beyond::fill::EVICTION_TAKES;
pub use decide::decide;
pub use history::History;
pub use limits::{Limits, RawEviction};
pub use plan::Plan;
pub use quantity::Quantity;
pub use rank::{last_resort, rank};
pub use signal::Signal;
pub use snapshot::Snapshot;
pub use units::{Millis, Secs, StallShare, Time};
pub use workload::class_priority;
