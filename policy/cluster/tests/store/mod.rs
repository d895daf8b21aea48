//! A small API server for tests: objects, deletes by policy, finalizers, preconditions, and watches that lag.
//!
//! Each delete that the engine asks for is held against what is in the store at that moment.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "what a test does not find is its failure")]

use ebb_policy_cluster::{
    Answer, Exclusions, FOREGROUND_FINALIZER, Gone, Graph, Kind, ORPHAN_FINALIZER, Object,
    OwnerAnswer, OwnerKey, OwnerReference, Policy, Resource, Scope, State, Time, Uid, Verdict,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The kinds that the tests use: a namespaced one, another, and a cluster-scoped one.
pub(crate) const KINDS: [(&str, &str, Scope); 3] = [
    ("v1", "ConfigMap", Scope::Namespaced),
    ("apps/v1", "Deployment", Scope::Namespaced),
    ("example.com/v1", "Fleet", Scope::Cluster),
];

pub(crate) fn uid(name: &str) -> Uid {
    Uid::new(name)
}

pub(crate) fn resource(kind: &str) -> Resource {
    let (api_version, kind, _) = KINDS.iter().find(|(_, k, _)| *k == kind).unwrap();
    Resource::from(&Kind::new(api_version, kind))
}

/// A config map in namespace `ns`, its uid like its name.
pub(crate) fn object(name: &str) -> Object {
    Object {
        uid: uid(name),
        kind: Kind::new("v1", "ConfigMap"),
        namespace: Some("ns".into()),
        name: name.into(),
        resource_version: String::new(),
        owners: vec![],
        finalizers: vec![],
        deleting_since: None,
        held: false,
    }
}

pub(crate) fn of_kind(kind: &str, name: &str) -> Object {
    let (api_version, kind, scope) = KINDS.iter().find(|(_, k, _)| *k == kind).unwrap();
    let namespace = (*scope == Scope::Namespaced).then(|| "ns".into());
    Object { kind: Kind::new(api_version, kind), namespace, ..object(name) }
}

/// A reference to an object, not blocking.
pub(crate) fn to(owner: &Object) -> OwnerReference {
    OwnerReference {
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        controller: false,
        block_owner_deletion: false,
    }
}

pub(crate) fn blocking(owner: &Object) -> OwnerReference {
    OwnerReference { block_owner_deletion: true, ..to(owner) }
}

pub(crate) fn owned(name: &str, owners: &[OwnerReference]) -> Object {
    Object { owners: owners.to_vec(), ..object(name) }
}

enum Event {
    Changed(Box<Object>),
    Gone(Uid),
}

pub(crate) struct Store {
    pub(crate) objects: BTreeMap<Uid, Object>,
    pub(crate) graph: Graph,
    /// What was done, in words.
    pub(crate) log: Vec<String>,
    /// Live look-ups of owners.
    pub(crate) lookups: usize,
    events: BTreeMap<Resource, VecDeque<Event>>,
    broken: BTreeSet<Resource>,
    spent: BTreeSet<Uid>,
    /// Objects that were once in foreground deletion.
    once_foreground: BTreeSet<Uid>,
    version: u64,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self::excluding(Exclusions::default())
    }

    pub(crate) fn excluding(exclusions: Exclusions) -> Self {
        let mut graph = Graph::new(exclusions);
        for (api_version, kind, scope) in KINDS {
            let resource = Resource::from(&Kind::new(api_version, kind));
            graph.set_resource(resource, Some((scope, State::Synced)));
        }
        let (events, broken, spent) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self {
            objects: BTreeMap::new(),
            graph,
            log: vec![],
            lookups: 0,
            events,
            broken,
            spent,
            once_foreground: BTreeSet::new(),
            version: 0,
        }
    }

    pub(crate) fn with(objects: &[Object]) -> Self {
        let mut store = Self::new();
        objects.iter().for_each(|object| store.put(object.clone()));
        store.deliver_all();
        store
    }

    /// Stores an object; the watch has it later.
    pub(crate) fn put(&mut self, mut object: Object) {
        let is_over = object.deleting_since.is_some() && object.finalizers.is_empty();
        let events = self.events.entry(Resource::from(&object.kind)).or_default();
        if is_over {
            self.objects.remove(&object.uid);
            self.spent.insert(object.uid.clone());
            events.push_back(Event::Gone(object.uid));
            return;
        }
        if is_foreground(&object) {
            self.once_foreground.insert(object.uid.clone());
        }
        self.version += 1;
        object.resource_version = self.version.to_string();
        events.push_back(Event::Changed(Box::new(object.clone())));
        self.objects.insert(object.uid.clone(), object);
    }

    /// Whether an object of this uid was there and is gone.
    pub(crate) fn is_spent(&self, uid: &Uid) -> bool {
        self.spent.contains(uid)
    }

    /// That no object of these uids is ever created.
    pub(crate) fn spend(&mut self, uids: Vec<Uid>) {
        self.spent.extend(uids);
    }

    /// A delete call, the policy of which wins over one before it.
    pub(crate) fn delete(&mut self, uid: &Uid, policy: Option<Policy>) {
        let Some(mut object) = self.objects.get(uid).cloned() else { return };
        if let Some(policy) = policy {
            object.finalizers.retain(|f| f != ORPHAN_FINALIZER && f != FOREGROUND_FINALIZER);
            match policy {
                Policy::Background => {}
                Policy::Foreground => object.finalizers.push(FOREGROUND_FINALIZER.into()),
                Policy::Orphan => object.finalizers.push(ORPHAN_FINALIZER.into()),
            }
        }
        object.deleting_since.get_or_insert(Time(1));
        self.put(object);
    }

    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut Object)) {
        let Some(mut object) = self.objects.get(&uid(name)).cloned() else { return };
        change(&mut object);
        self.put(object);
    }

    /// One event of one watch, if it is not broken.
    pub(crate) fn deliver(&mut self, resource: &Resource) -> bool {
        if self.broken.contains(resource) {
            return false;
        }
        match self.events.get_mut(resource).and_then(VecDeque::pop_front) {
            None => return false,
            Some(Event::Changed(object)) => _ = self.graph.observe(*object),
            Some(Event::Gone(uid)) => _ = self.graph.forget(&uid, Gone::Deleted),
        }
        true
    }

    pub(crate) fn deliver_all(&mut self) {
        for (_, kind, _) in KINDS {
            while self.deliver(&resource(kind)) {}
        }
    }

    pub(crate) fn set(&mut self, kind: &str, state: State) {
        let resource = resource(kind);
        match state {
            State::Broken { .. } => _ = self.broken.insert(resource.clone()),
            _ => _ = self.broken.remove(&resource),
        }
        let scope = KINDS.iter().find(|(_, k, _)| *k == kind).unwrap().2;
        self.graph.set_resource(resource, Some((scope, state)));
    }

    /// What a live look-up finds.
    pub(crate) fn look_up(&self, key: &OwnerKey) -> OwnerAnswer {
        let there = self
            .objects
            .values()
            .find(|o| o.kind == key.kind && o.namespace == key.namespace && o.name == key.name);
        there.map_or(OwnerAnswer::NotFound, |o| OwnerAnswer::Found {
            uid: o.uid.clone(),
            foreground: is_foreground(o),
        })
    }

    /// Does what the verdict on an object says; whether anything was sent.
    pub(crate) fn carry_out(&mut self, uid: &Uid) -> bool {
        let verdict = self.graph.verdict(uid);
        let preconditions = match &verdict {
            Verdict::ConfirmOwner(key) => {
                let answer = self.look_up(key);
                self.lookups += 1;
                self.graph.answer_owner(key.clone(), &answer);
                return true;
            }
            Verdict::Delete { preconditions, .. }
            | Verdict::DropOwners { preconditions, .. }
            | Verdict::RemoveFinalizer { preconditions, .. }
            | Verdict::Unblock { preconditions } => preconditions.clone(),
            _ => return false,
        };
        assert_eq!(preconditions.uid, *uid);
        let version = &preconditions.resource_version;
        let Some(mut object) = self.objects.get(uid).cloned() else {
            self.graph.answer(uid, version, &Answer::NotFound);
            return true;
        };
        if object.resource_version != *version {
            self.graph.answer(uid, version, &Answer::Conflict);
            return true;
        }
        let name = object.name.clone();
        match verdict {
            Verdict::Delete { policy, .. } => {
                self.check(&object);
                self.log.push(format!("delete {name} {policy:?}"));
                self.delete(uid, Some(policy));
            }
            Verdict::DropOwners { owners, .. } => {
                self.log.push(format!("drop owners {owners:?} of {name}"));
                object.owners.retain(|owner| !owners.contains(&owner.uid));
                self.put(object);
            }
            Verdict::RemoveFinalizer { finalizer, .. } => {
                self.log.push(format!("remove {finalizer} of {name}"));
                object.finalizers.retain(|f| f != finalizer);
                self.put(object);
            }
            _ => {
                self.log.push(format!("unblock {name}"));
                object.owners.iter_mut().for_each(|owner| owner.block_owner_deletion = false);
                self.put(object);
            }
        }
        self.graph.answer(uid, version, &Answer::Done);
        true
    }

    /// The invariant: nothing is deleted that has an owner which is there and not being deleted in the foreground.
    ///
    /// A foreground deletion that a second delete makes another one is seen when the watch shows it, and no precondition reaches so far.
    fn check(&self, object: &Object) {
        for reference in &object.owners {
            let Some(owner) = owner_of(&self.objects, object, reference) else { continue };
            let is_waiting = is_foreground(owner)
                || owner.deleting_since.is_some() && self.once_foreground.contains(&owner.uid);
            assert!(is_waiting, "deletes {object:?}, owned by {owner:?}");
        }
    }

    /// Events and verdicts until nothing moves. An owner is released once nothing else is to be done, as a cascade takes it.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            self.deliver_all();
            let (last, first): (Vec<Uid>, Vec<Uid>) = self.graph.uids().cloned().partition(|uid| {
                matches!(self.graph.verdict(uid), Verdict::RemoveFinalizer { .. })
            });
            let sent = first.iter().filter(|uid| self.carry_out(uid)).count();
            if sent == 0 && last.iter().filter(|uid| self.carry_out(uid)).count() == 0 {
                return;
            }
        }
        panic!("does not come to rest: {:?}", self.log);
    }

    pub(crate) fn left(&self) -> Vec<String> {
        self.objects.values().map(|object| object.name.clone()).collect()
    }

    pub(crate) fn owners(&self, name: &str) -> Vec<String> {
        self.objects[&uid(name)].owners.iter().map(|owner| owner.name.clone()).collect()
    }
}

pub(crate) fn is_foreground(object: &Object) -> bool {
    object.deleting_since.is_some() && object.finalizers.iter().any(|f| f == FOREGROUND_FINALIZER)
}

/// The owner that is where a reference says, in the store.
pub(crate) fn owner_of<'a>(
    objects: &'a BTreeMap<Uid, Object>,
    dependent: &Object,
    reference: &OwnerReference,
) -> Option<&'a Object> {
    let owner = objects.get(&reference.uid)?;
    let is_reachable = owner.namespace.is_none() || owner.namespace == dependent.namespace;
    (is_reachable && owner.kind == reference.kind && owner.name == reference.name).then_some(owner)
}
