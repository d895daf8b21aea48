//! What the API server serves, and how far the collector's view of each of it is to be believed.

use crate::object::{Kind, Time};
use alloc::string::String;

/// Whether objects of a resource live in namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Each object is in a namespace.
    Namespaced,
    /// Objects belong to the cluster as a whole.
    Cluster,
}

/// A group and kind, whatever the version: an object has the same uid in every version that serves it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
}

impl From<&Kind> for Resource {
    fn from(kind: &Kind) -> Self {
        Self { group: kind.group.clone(), kind: kind.kind.clone() }
    }
}

/// How a resource is watched. A resource of which the graph was never told is not served.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Its first list, or the one after a break, is under way.
    Syncing,
    /// The graph has every object of it.
    Synced,
    /// It is served, and left unwatched on purpose: owners of it are looked up, dependents in it are not seen.
    Unwatched,
    /// It cannot be listed or watched.
    Broken {
        /// Since when.
        since: Time,
        /// What the API server said.
        why: String,
    },
}
