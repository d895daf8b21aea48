//! ebb's client of the Kubernetes API: what the cluster collector and the agent of a node read and write there, and nothing else.
//!
//! ```text
//! connect ─► Api ─┬─► discover   what is served, by group and kind          ─► Catalogue (keeps what an error hides)
//!                 ├─► watch      list, then watch, one task for a resource  ─► Event: listing · changes · listed · broken
//!                 ├─► owner, node, delete, patch, event: one call, one deadline, one Reply
//!                 ├─► leases     get, create, replace
//!                 ├─► follow     the few objects of one node, whole           ─► Update: all · broken
//!                 └─► set_pod_status, delete_pod, evict_pod, write_event, set_node_*: a node's agent
//! ```
//! No other crate names a Kubernetes client: what goes in and out are values of `ebb-policy-cluster` and of this crate.
//! The collector reads metadata alone of objects; of pods and nodes, where asked for, the few fields that the pod collector needs.

mod call;
mod catalogue;
mod connect;
mod discover;
mod failure;
mod follow;
mod lease;
mod lines;
mod list;
mod node;
mod snapshot;
mod time;
mod watch;
mod wire;
mod write;

pub use call::{Api, Requests};
pub use catalogue::{ApiResource, Catalogue, Difference, Discovered};
pub use connect::{ConnectError, connect};
pub use discover::{Discovery, Look};
pub use ebb_policy_cluster::Time;
pub use failure::Failure;
pub use follow::{Update, follow};
pub use lease::LeaseRecord;
pub use node::{About, Condition, NewEvent, NodeTaints, PodRef, PodStatus};
pub use snapshot::{Listed, list_all};
pub use time::write as timestamp;
pub use watch::{Change, Event, backoff, pause_after, pause_of, watch};
pub use wire::{Content, Seen};
pub use write::{Reply, Target};
