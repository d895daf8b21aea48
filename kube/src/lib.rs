//! ebb's client of the Kubernetes API: what the cluster collector reads and writes there, and nothing else.
//!
//! ```text
//! connect ─► Api ─┬─► discover   what is served, by group and kind          ─► Catalogue (keeps what an error hides)
//!                 ├─► watch      list, then watch, one task for a resource  ─► Event: listing · changes · listed · broken
//!                 ├─► owner, node, delete, patch, event: one call, one deadline, one Reply
//!                 └─► leases     get, create, replace
//! ```
//! No other crate names a Kubernetes client: what goes in and out are values of `ebb-policy-cluster` and of this crate.
//! Of objects only metadata is read; of pods and nodes, where asked for, the few fields that the pod collector needs.

mod call;
mod catalogue;
mod connect;
mod discover;
mod failure;
mod lease;
mod snapshot;
mod time;
mod watch;
mod wire;
mod write;

pub use call::{Api, Requests};
pub use catalogue::{ApiResource, Catalogue, Difference, Discovered};
pub use connect::{ConnectError, connect};
pub use discover::{Discovery, Look};
pub use failure::Failure;
pub use lease::LeaseRecord;
pub use snapshot::{Listed, list_all};
pub use watch::{Change, Content, Event, watch};
pub use wire::Seen;
pub use write::{Reply, Target};
