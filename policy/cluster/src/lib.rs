//! The core of ebb's cluster collector: which objects of a cluster should go, lose a reference or wait, and why.
//!
//! ```text
//! observe ─┐                                        ┌─► verdict  what to do with an object now
//! forget ──┤                                        ├─► explain  why it is still there, and what would release it
//! resource ┼─► Graph { objects, owners, resources } ┼─► cascade  what a delete would do
//! answers ─┘         │                              └─► stuck    what does not move by itself
//!                    └─► uids whose verdict may have changed
//! Pod, Node, now ──────► pods::collect ─► deletions, and when to look again
//! ```
//!
//! The crate is `no_std` without dependencies, so it cannot read a clock, a file, the environment or a random source.
//! What it says depends on what it was told and not on the order of lists or of unrelated events.
//! Watching a cluster, looking owners up and carrying verdicts out are elsewhere.
#![no_std]
extern crate alloc;

mod answers;
mod cascade;
mod compact;
mod explain;
mod graph;
mod names;
mod object;
mod observe;
pub mod pods;
mod resource;
mod standing;
mod stuck;
mod verdict;

pub use answers::Pause;
pub use answers::{ABSENT_OWNERS, OwnerAnswer, OwnerKey};
pub use cascade::{Cascade, Held};
pub use explain::{Explanation, Hold, OwnerView, Release};
pub use graph::{Exclusions, Graph};
pub use object::{
    FOREGROUND_FINALIZER, Kind, ORPHAN_FINALIZER, Object, OwnerReference, Policy, Time, Uid,
};
pub use observe::{Answer, Gone};
pub use resource::{Resource, Scope, State};
pub use standing::{Doubt, Standing};
pub use stuck::{BadReference, Problem, Stuck};
pub use verdict::{Exclusion, Preconditions, Verdict, WaitFor};
