//! How an owner stands to one of its dependents: there, going, absent, or not known, and then why not.

use crate::answers::{Known, OwnerKey};
use crate::graph::{Graph, Index, Reference, Seen};
use crate::object::{Time, Uid};
use crate::resource::{Resource, Scope, State};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// Why nothing can be said about an owner, or about what has to be known of a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// The resource is being listed.
    Syncing(Resource),
    /// The resource cannot be listed or watched.
    Broken {
        /// Which one.
        resource: Resource,
        /// Since when.
        since: Time,
        /// What the API server said.
        why: String,
    },
    /// The API server does not serve the kind.
    NotServed(Resource),
    /// A cluster-scoped dependent names an owner of this namespaced kind, which cannot be looked up without a namespace.
    NamespacedOwner(Resource),
}

/// How an owner stands to a dependent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is there, and not being deleted in the foreground.
    Solid,
    /// It is being deleted in the foreground, and waits for its dependents.
    Waiting,
    /// It is not there.
    Absent,
    /// To be looked up.
    Unconfirmed(OwnerKey),
    /// Not to be known now.
    Doubtful(Doubt),
}

impl Graph {
    /// How the owner that `reference` names stands to `dependent`.
    pub(crate) fn standing(&self, dependent: &Seen, reference: &Reference) -> Standing {
        let resource = Resource::from(&*reference.kind);
        let Some((scope, state)) = self.resources.get(&resource) else {
            return Standing::Doubtful(Doubt::NotServed(resource));
        };
        let namespace = match (scope, &dependent.home.namespace) {
            (Scope::Cluster, _) => None,
            (Scope::Namespaced, Some(namespace)) => Some(&**namespace),
            (Scope::Namespaced, None) => {
                return Standing::Doubtful(Doubt::NamespacedOwner(resource));
            }
        };
        if let Some(doubt) = doubt(resource, state) {
            return Standing::Doubtful(doubt);
        }
        if let Some(owner) = self.seen(reference.owner)
            && is_at(owner, reference, namespace)
            && *state == State::Synced
        {
            return if owner.is_foreground() { Standing::Waiting } else { Standing::Solid };
        }
        let key = OwnerKey {
            kind: (*reference.kind).clone(),
            namespace: namespace.map(ToOwned::to_owned),
            name: (*reference.name).to_owned(),
            uid: self.uid(reference.owner).clone(),
        };
        match self.answers.get(&key) {
            Some(Known::Absent) => Standing::Absent,
            // Served under two groups, it is looked up by one and watched by the other.
            Some(Known::Present) if self.seen(reference.owner).is_some_and(Seen::is_foreground) => {
                Standing::Waiting
            }
            Some(Known::Present) => Standing::Solid,
            Some(Known::Waiting) => Standing::Waiting,
            None => Standing::Unconfirmed(key),
        }
    }

    /// Why what the graph knows of an object itself is not to be acted on.
    pub(crate) fn own_doubt(&self, seen: &Seen) -> Option<Doubt> {
        let resource = Resource::from(&seen.home.kind);
        match self.resources.get(&resource) {
            None => Some(Doubt::NotServed(resource)),
            Some((_, state)) => doubt(resource, state),
        }
    }

    /// Why dependents may be there that the graph has not seen: a resource that is syncing or, where `or_broken`, broken.
    pub(crate) fn unseen_dependents(&self, or_broken: bool) -> Option<Doubt> {
        self.resources.iter().find_map(|(resource, (_, state))| {
            doubt(resource.clone(), state)
                .filter(|doubt| or_broken || matches!(doubt, Doubt::Syncing(_)))
        })
    }

    /// The owners of an object that it may not have (`OwnerRefInvalidNamespace`): those in another namespace than its own, and those in some namespace of an object that is in none.
    #[must_use]
    pub fn invalid_owners(&self, uid: &Uid) -> Vec<Uid> {
        let Some(seen) = self.by_uid.get(uid).and_then(|at| self.seen(at)) else {
            return Vec::new();
        };
        let is_namespaced = |reference: &Reference| {
            let of = self.resources.get(&Resource::from(&*reference.kind));
            matches!(of, Some((Scope::Namespaced, _)))
        };
        let is_invalid = |reference: &&Reference| {
            self.crosses_namespaces(seen, reference.owner)
                || seen.home.namespace.is_none() && is_namespaced(reference)
        };
        let invalid = seen.owners.iter().filter(is_invalid);
        invalid.map(|reference| self.uid(reference.owner).clone()).collect()
    }

    /// Whether the owner is seen in a namespace that is not the dependent's.
    pub(crate) fn crosses_namespaces(&self, dependent: &Seen, owner: Index) -> bool {
        self.seen(owner).is_some_and(|o| {
            o.home.namespace.is_some() && o.home.namespace != dependent.home.namespace
        })
    }
}

fn doubt(resource: Resource, state: &State) -> Option<Doubt> {
    match state {
        State::Synced | State::Unwatched => None,
        State::Syncing => Some(Doubt::Syncing(resource)),
        State::Broken { since, why } => {
            Some(Doubt::Broken { resource, since: *since, why: why.clone() })
        }
    }
}

/// Whether an object is where the reference says that its owner is.
fn is_at(owner: &Seen, reference: &Reference, namespace: Option<&str>) -> bool {
    owner.home.kind.kind == reference.kind.kind
        && owner.home.kind.group == reference.kind.group
        && *owner.name == *reference.name
        && owner.home.namespace.as_deref() == namespace
}
