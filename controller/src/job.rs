//! What waits for its turn, and what comes back.

use crate::record::{Act, Named};
use ebb_kube::{Discovered, Failure, Reply};
use ebb_policy_cluster::{OwnerAnswer, OwnerKey, Uid, pods};
use std::time::{Duration, Instant};

/// What may be queued. What exactly is to be done with an object is decided when its turn comes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Job {
    /// Whatever is to be done with an object.
    Object(Uid),
    /// An owner is to be looked up.
    Owner(OwnerKey),
    /// A pod is to be deleted, after its mark where it has one.
    Pod(pods::Deletion),
    /// A pod is to be deleted that this process has marked.
    Marked(pods::Deletion),
    /// A node is to be looked up.
    Node(String),
    /// An Event about an object and one of its owners is to be written.
    Warning(Uid, Uid),
}

/// What comes back from a request.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) of: Finished,
    /// How long the API server took for its last answer.
    pub(crate) took: Duration,
}

/// A request that was answered, or that got no answer.
#[derive(Debug)]
pub(crate) enum Finished {
    /// A delete or patch of an object for one version of it.
    Object(Box<Answered>),
    /// A pod was marked, and is to be deleted.
    Marked(pods::Deletion),
    /// An owner's look-up.
    Owner(OwnerKey, Result<OwnerAnswer, Failure>),
    /// A node's look-up: whether it is there.
    Node(String, Result<bool, Failure>),
    /// An Event.
    Warning { named: Named, why: String, result: Result<(), Failure> },
}

/// What became of a delete or a patch.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) act: Act,
    pub(crate) named: Named,
    pub(crate) why: String,
    pub(crate) uid: Uid,
    /// The version of the object that was judged.
    pub(crate) version: String,
    /// When the act became due, where that is known.
    pub(crate) since: Option<Instant>,
    pub(crate) reply: Reply,
}

/// What a discovery came to.
pub(crate) type Found = Result<Discovered, Failure>;
