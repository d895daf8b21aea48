//! The graph: every object by its uid, who owns whom, what is served, and what was answered.
//!
//! An owner that a reference names and nobody has seen yet is a virtual node: it has a uid and dependents, and no object.
//! How the graph changes is in `observe`, what follows from it in `standing` and `verdict`.

use crate::answers::{Answers, Pause};
use crate::compact::{Home, Owners, Places, Rare, Version};
pub(crate) use crate::compact::{Index, Reference};
use crate::names::Names;
use crate::object::{
    FOREGROUND_FINALIZER, Kind, ORPHAN_FINALIZER, Object, OwnerReference, Time, Uid,
};
use crate::resource::{Resource, Scope, State};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What the collector leaves as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// Objects in these namespaces.
    pub namespaces: BTreeSet<String>,
    /// Objects of these resources.
    pub resources: BTreeSet<Resource>,
}

/// Objects, owners and resources of one cluster, as far as they are known.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    /// Places of `nodes` that are free.
    pub(crate) free: Vec<Index>,
    pub(crate) by_uid: Places,
    /// Owner and dependent, for each pair once.
    pub(crate) edges: BTreeSet<(Index, Index)>,
    pub(crate) resources: BTreeMap<Resource, (Scope, State)>,
    pub(crate) answers: Answers,
    pub(crate) exclusions: Exclusions,
    pub(crate) texts: Names<str>,
    pub(crate) kinds: Names<Kind>,
    pub(crate) homes: Names<Home>,
}

/// A uid of the graph, with its object once that was seen.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) uid: Uid,
    pub(crate) seen: Option<Seen>,
}

/// An object, with what it shares with others kept once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) home: Arc<Home>,
    pub(crate) name: Box<str>,
    pub(crate) resource_version: Version,
    pub(crate) owners: Owners,
    pub(crate) rare: Option<Box<Rare>>,
}

impl Seen {
    pub(crate) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers().iter().any(|f| **f == *name)
    }

    pub(crate) fn finalizers(&self) -> &[Arc<str>] {
        self.rare.as_ref().map_or(&[], |rare| &rare.finalizers)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.held)
    }

    pub(crate) fn pause(&self) -> Option<Pause> {
        self.rare.as_ref().and_then(|rare| rare.pause)
    }

    pub(crate) fn set_pause(&mut self, pause: Option<Pause>) {
        if self.pause() != pause {
            let rare = self.rare.take().map(|rare| *rare).unwrap_or_default();
            self.rare = Rare { pause, ..rare }.boxed();
        }
    }

    pub(crate) fn deleting_since(&self) -> Option<Time> {
        self.rare.as_ref().and_then(|rare| rare.deleting_since)
    }

    /// Being deleted, and its blocking dependents go first.
    pub(crate) fn is_foreground(&self) -> bool {
        self.deleting_since().is_some() && self.has_finalizer(FOREGROUND_FINALIZER)
    }

    /// Being deleted, and its dependents lose their reference first.
    pub(crate) fn is_orphaning(&self) -> bool {
        self.deleting_since().is_some() && self.has_finalizer(ORPHAN_FINALIZER)
    }
}

impl Graph {
    /// An empty graph that leaves `exclusions` as they are.
    #[must_use]
    pub fn new(exclusions: Exclusions) -> Self {
        Self { exclusions, ..Self::default() }
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_uid.values().filter(|&at| self.seen(at).is_some()).count()
    }

    /// Whether there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The uids of all objects, in their order.
    pub fn uids(&self) -> impl Iterator<Item = &Uid> {
        self.by_uid.values().filter(|&at| self.seen(at).is_some()).map(|at| self.uid(at))
    }

    /// The uids of all objects of a resource, in their order.
    pub fn uids_of_resource(&self, resource: &Resource) -> impl Iterator<Item = &Uid> {
        let is_of = |kind: &Kind| kind.kind == resource.kind && kind.group == resource.group;
        self.by_uid
            .values()
            .filter(move |&at| self.seen(at).is_some_and(|seen| is_of(&seen.home.kind)))
            .map(|at| self.uid(at))
    }

    /// The object of a uid; `None` where it was not seen or is gone.
    #[must_use]
    pub fn object(&self, uid: &Uid) -> Option<Object> {
        let seen = self.seen(self.by_uid.get(uid)?)?;
        let owners = seen.owners.iter().map(|reference| OwnerReference {
            kind: (*reference.kind).clone(),
            name: (*reference.name).to_owned(),
            uid: self.uid(reference.owner).clone(),
            controller: reference.controller,
            block_owner_deletion: reference.block,
        });
        Some(Object {
            uid: uid.clone(),
            kind: seen.home.kind.clone(),
            namespace: seen.home.namespace.clone(),
            name: (*seen.name).to_owned(),
            resource_version: seen.resource_version.to_string(),
            owners: owners.collect(),
            finalizers: seen.finalizers().iter().map(|f| (**f).to_owned()).collect(),
            deleting_since: seen.deleting_since(),
            held: seen.is_held(),
        })
    }

    /// The uids of those that name `uid` among their owners, in their order.
    #[must_use]
    pub fn dependents(&self, uid: &Uid) -> Vec<Uid> {
        let of = |at| self.dependents_of(at).map(|d| self.uid(d).clone()).collect();
        let mut found: Vec<Uid> = self.by_uid.get(uid).map(of).unwrap_or_default();
        found.sort_unstable();
        found
    }

    /// How a resource is watched, and its scope; `None` where it is not served.
    #[must_use]
    pub fn resource(&self, resource: &Resource) -> Option<&(Scope, State)> {
        self.resources.get(resource)
    }

    /// All that is served.
    pub fn resources(&self) -> impl Iterator<Item = (&Resource, &(Scope, State))> {
        self.resources.iter()
    }

    pub(crate) fn uid(&self, at: Index) -> &Uid {
        &self.nodes[at as usize].uid
    }

    pub(crate) fn seen(&self, at: Index) -> Option<&Seen> {
        self.nodes[at as usize].seen.as_ref()
    }

    pub(crate) fn dependents_of(&self, owner: Index) -> impl Iterator<Item = Index> {
        self.edges.range((owner, 0)..=(owner, Index::MAX)).map(|&(_, dependent)| dependent)
    }

    /// Whether `dependent` holds up a foreground deletion of `owner`.
    pub(crate) fn blocks(&self, dependent: Index, owner: Index) -> bool {
        self.seen(dependent)
            .is_some_and(|seen| seen.owners.iter().any(|r| r.owner == owner && r.block))
    }
}
