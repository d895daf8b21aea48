//! ebb's policy core: a snapshot of a node, limits and a history in; a plan and the next history out.
//!
//! ```text
//! Snapshot ─┐
//! Limits ───┼─► decide ─► Plan { actions, kept, conditions, events, wake_in }, History
//! History ──┘
//! ```
//!
//! The crate is `no_std` and depends on `ebb-model` alone, which is so too; it cannot read a clock, a file, the environment or a random source.
//! Same snapshot, limits and history give the same plan byte for byte, whatever the order of the lists inside.
//! Reading the node and acting on a plan live in the agent.
#![no_std]
extern crate alloc;

mod admit;
pub mod cgroups;
mod choose;
mod decide;
mod decided_by;
mod evict;
mod extensions;
mod gc;
pub mod history;
mod ladder;
mod layout;
pub mod limits;
mod local_storage;
mod message;
mod need;
mod observe;
mod pass;
pub mod plan;
mod preempt;
mod pressure;
mod rank;
mod reclaim;
mod request;
pub mod signal;
pub mod snapshot;
pub mod swap;
mod usage;
mod workload;
mod worth;

pub use decide::decide;
pub use decided_by::decided_by;
pub use ebb_model::{Millis, Quantity, Secs, StallShare, Time};
pub use extensions::fill::EVICTION_TAKES;
pub use history::History;
pub use limits::{Limits, RawEviction};
pub use observe::observed;
pub use plan::Plan;
pub use rank::{last_resort, rank, spared};
pub use signal::Signal;
pub use snapshot::Snapshot;
