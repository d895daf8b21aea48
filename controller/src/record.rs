//! What the controller says on standard output: one record for each act, refusal or change of what it can see.

use crate::name;
use ebb_policy_cluster::Object;
use serde::Serialize;
use std::fmt;

/// How records are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A line for people.
    Text,
    /// A JSON object on a line.
    Json,
}

/// An object by what people call it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Named {
    /// Its kind.
    pub kind: String,
    /// Its group; empty for the core group.
    pub group: String,
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl From<&Object> for Named {
    fn from(object: &Object) -> Self {
        Self {
            kind: object.kind.kind.clone(),
            group: object.kind.group.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            uid: object.uid.to_string(),
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.as_ref().map(|n| format!("{n}/")).unwrap_or_default();
        write!(f, "{} {namespace}{} (uid {})", self.kind, self.name, self.uid)
    }
}

/// What is done with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Act {
    /// It is deleted.
    Delete,
    /// References to owners are removed.
    DropOwners,
    /// The collector's finalizer is removed.
    RemoveFinalizer,
    /// Its references no longer block, which breaks a cycle.
    Unblock,
    /// A Warning Event says that an owner is in another namespace.
    WarnInvalidNamespace,
}

/// How far that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It was done.
    Done,
    /// It would be done: nothing is changed in observe mode.
    Would,
    /// The API server refused it, or did not answer.
    Failed,
    /// The object is excluded.
    Excluded,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "record", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Record {
    /// The controller began.
    Started {
        /// The API server.
        server: String,
        /// `observe` or `enforce`.
        mode: &'static str,
    },
    /// All that can be watched is.
    Ready {
        /// Objects in the graph.
        objects: usize,
        /// Kinds that are watched.
        resources: usize,
        /// Kinds that cannot be watched.
        broken: usize,
    },
    /// Something was done with an object, or not.
    Act {
        /// What.
        act: Act,
        /// How far it came.
        outcome: Outcome,
        /// With which object.
        object: Named,
        /// Why.
        why: String,
        /// What the API server said against it.
        error: Option<String>,
    },
    /// A kind cannot be watched, or can be again.
    Resource {
        /// Its kind and group.
        resource: String,
        /// `broken`, `synced`, `added` or `removed`.
        state: &'static str,
        /// Why.
        why: Option<String>,
    },
    /// This process may act from now on, or may not.
    Leader {
        /// Whether it may.
        acts: bool,
        /// Who else holds the Lease.
        holder: Option<String>,
        /// What kept the Lease from being read or renewed.
        error: Option<String>,
    },
    /// Nobody can probe or scrape yet: somebody else has the address.
    NotServed {
        /// The address.
        address: String,
    },
    /// Records that nobody took in time are lost.
    Lost {
        /// How many.
        records: u64,
    },
    /// The controller ended.
    Stopped,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { server, mode } => {
                let what = if *mode == "enforce" { "" } else { ": nothing is changed" };
                write!(f, "started on {server} in {mode} mode{what}")
            }
            Self::Ready { objects, resources, broken } => {
                write!(f, "ready: {objects} objects of {resources} kinds")?;
                if *broken > 0 {
                    write!(f, "; {broken} cannot be watched")?;
                }
                Ok(())
            }
            Self::Act { act, outcome, object, why, error } => {
                write!(f, "{} {object}: {why}", phrase(*act, *outcome))?;
                error.as_ref().map_or(Ok(()), |error| write!(f, "; the API server said {error}"))
            }
            Self::Resource { resource, state, why } => match (*state, why) {
                ("broken", Some(why)) => {
                    write!(f, "{resource} cannot be watched, what depends on it waits: {why}")
                }
                ("synced", _) => write!(f, "{resource} is watched again"),
                (state, _) => write!(f, "{resource} {state}"),
            },
            Self::Leader { acts: true, .. } => {
                write!(f, "this controller holds the Lease and acts")
            }
            Self::Leader { acts: false, holder, error } => {
                write!(f, "standby: ")?;
                match (holder, error) {
                    (_, Some(error)) => write!(f, "the Lease cannot be used: {error}"),
                    (Some(holder), None) => write!(f, "{holder} holds the Lease"),
                    (None, None) => write!(f, "the Lease is not held"),
                }
            }
            Self::NotServed { address } => {
                write!(
                    f,
                    "somebody else has {address}; it is tried again, and nothing is served meanwhile"
                )
            }
            Self::Lost { records } => {
                write!(f, "{records} records were lost: nobody read them in time")
            }
            Self::Stopped => write!(f, "stopped"),
        }
    }
}

fn phrase(act: Act, outcome: Outcome) -> &'static str {
    match (outcome, act) {
        (Outcome::Done, Act::Delete) => "deleted",
        (Outcome::Done, Act::DropOwners) => "removed owner references from",
        (Outcome::Done, Act::RemoveFinalizer) => "removed the finalizer from",
        (Outcome::Done, Act::Unblock) => "cleared blockOwnerDeletion of",
        (Outcome::Done, Act::WarnInvalidNamespace) => "warned about",
        (Outcome::Would, Act::Delete) => "would delete",
        (Outcome::Would, Act::DropOwners) => "would remove owner references from",
        (Outcome::Would, Act::RemoveFinalizer) => "would remove the finalizer from",
        (Outcome::Would, Act::Unblock) => "would clear blockOwnerDeletion of",
        (Outcome::Would, Act::WarnInvalidNamespace) => "would warn about",
        (Outcome::Failed, Act::Delete) => "could not delete",
        (Outcome::Failed, Act::DropOwners) => "could not remove owner references from",
        (Outcome::Failed, Act::RemoveFinalizer) => "could not remove the finalizer from",
        (Outcome::Failed, Act::Unblock) => "could not clear blockOwnerDeletion of",
        (Outcome::Failed, Act::WarnInvalidNamespace) => "could not warn about",
        (Outcome::Excluded, _) => "left alone",
    }
}

/// A kind's record.
pub(crate) fn resource(
    of: &ebb_policy_cluster::Resource,
    state: &'static str,
    why: Option<String>,
) -> Record {
    Record::Resource { resource: name::resource(of), state, why }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn deleted(error: Option<&str>, outcome: Outcome) -> Record {
        let object = Named {
            kind: "Pod".into(),
            group: String::new(),
            namespace: Some("shop".into()),
            name: "web-1".into(),
            uid: "u1".into(),
        };
        let why = "owner ReplicaSet shop/web is gone".into();
        Record::Act { act: Act::Delete, outcome, object, why, error: error.map(Into::into) }
    }

    #[test]
    fn a_record_says_what_was_done_and_why() {
        assert_eq!(
            deleted(None, Outcome::Done).to_string(),
            "deleted Pod shop/web-1 (uid u1): owner ReplicaSet shop/web is gone"
        );
        assert_eq!(
            deleted(Some("403: no"), Outcome::Failed).to_string(),
            "could not delete Pod shop/web-1 (uid u1): owner ReplicaSet shop/web is gone; the API server said 403: no"
        );
    }
}
