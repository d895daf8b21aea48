//! How the graph changes: what watches see, what the API server answers, what becomes of resources.
//!
//! Each change returns the uids, in their order, whose verdict may have changed; asking for a verdict more often does no harm.

use crate::answers::Pause;
use crate::answers::{Known, OwnerAnswer, OwnerKey};
use crate::compact::{Home, Rare, Version};
use crate::graph::{Graph, Index, Node, Reference, Seen};
use crate::object::{Object, Uid};
use crate::resource::{Resource, Scope, State};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// How it is known that an object is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// Its watch reported the deletion, or a request for its uid was answered by 404.
    Deleted,
    /// It is missing from a new list, which may have been cut short: who owns by it is looked up before anything rests on its absence.
    Missing,
}

/// What the API server said to a delete or a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// 2xx: the watch will show it.
    Done,
    /// 404: the object is gone.
    NotFound,
    /// 409: the object is no longer what the request was about.
    Conflict,
    /// 422: the API server refuses the request for this version of the object.
    Invalid,
    /// 429, or no answer: to be sent again, no sooner than the API server says.
    Retry,
}

type Changed = BTreeSet<Index>;

impl Graph {
    /// An object as a list or watch shows it, new or changed.
    ///
    /// An object that was created again under the name of another has another uid: `forget` tells of the old one.
    pub fn observe(&mut self, object: Object) -> Vec<Uid> {
        let at = self.node(&object.uid);
        let mut changed = Changed::from([at]);
        let before = self.nodes[at as usize].seen.take();
        let seen = self.shared(object, before.as_ref());
        let owners: BTreeSet<Index> = seen.owners.iter().map(|r| r.owner).collect();
        let old: BTreeSet<Index> =
            before.iter().flat_map(|seen| seen.owners.iter().map(|r| r.owner)).collect();
        for &owner in owners.difference(&old) {
            self.edges.insert((owner, at));
        }
        let matters_to_owners = before.as_ref().is_none_or(|before| {
            before.owners != seen.owners || before.is_foreground() != seen.is_foreground()
        });
        let matters_to_dependents = before.as_ref().is_none_or(|before| {
            before.is_foreground() != seen.is_foreground()
                || before.is_orphaning() != seen.is_orphaning()
                || (&before.home, &before.name) != (&seen.home, &seen.name)
        });
        if matters_to_owners {
            changed.extend(owners.union(&old));
        }
        if matters_to_dependents {
            changed.extend(self.dependents_of(at));
        }
        self.nodes[at as usize].seen = Some(seen);
        let uids = self.named(&changed);
        for &owner in old.difference(&owners) {
            self.edges.remove(&(owner, at));
            self.drop_if_unused(owner);
        }
        if let Some(before) = before {
            self.release(before);
        }
        uids
    }

    /// An object that is there no more.
    pub fn forget(&mut self, uid: &Uid, gone: Gone) -> Vec<Uid> {
        let Some(at) = self.by_uid.get(uid) else { return Vec::new() };
        let Some(before) = self.nodes[at as usize].seen.take() else { return Vec::new() };
        let owners: BTreeSet<Index> = before.owners.iter().map(|r| r.owner).collect();
        let mut changed: Changed = owners.clone();
        changed.extend(self.dependents_of(at));
        changed.remove(&at);
        let uids = self.named(&changed);
        self.answers.forget_present(uid);
        for owner in owners {
            self.edges.remove(&(owner, at));
            if owner != at {
                self.drop_if_unused(owner);
            }
        }
        if gone == Gone::Deleted && self.dependents_of(at).next().is_some() {
            let key = OwnerKey {
                kind: before.home.kind.clone(),
                namespace: before.home.namespace.clone(),
                name: String::from(&*before.name),
                uid: uid.clone(),
            };
            self.answers.put(key, Known::Absent);
        }
        self.drop_if_unused(at);
        self.release(before);
        uids
    }

    /// How a resource is watched from now on; `None` where it is no longer served.
    pub fn set_resource(&mut self, resource: Resource, to: Option<(Scope, State)>) -> Vec<Uid> {
        let is_new_list = matches!(to, Some((_, State::Syncing)));
        let before = match to {
            Some(to) => self.resources.insert(resource.clone(), to),
            None => self.resources.remove(&resource),
        };
        if before.as_ref() != self.resources.get(&resource) {
            // An owner that only a look-up found may have gone where no watch saw it go: a list tells of what is there.
            self.answers.forget_all_present(&resource);
        }
        // A finalizer is removed once all dependents are known: no resource may be syncing or, for `orphan`, broken.
        let mattered = |of: Option<&(Scope, State)>| {
            matches!(of, Some((_, State::Syncing | State::Broken { .. })))
        };
        let to_finalizers = mattered(before.as_ref()) || mattered(self.resources.get(&resource));
        let mut changed = Changed::new();
        for at in (0..).zip(&mut self.nodes) {
            let (at, node) = at;
            let Some(seen) = &mut node.seen else { continue };
            let is_of =
                |kind: &crate::Kind| kind.kind == resource.kind && kind.group == resource.group;
            let own = is_of(&seen.home.kind);
            if own && is_new_list {
                seen.set_pause(None);
            }
            let finalizing = seen.is_foreground() || seen.is_orphaning();
            if own || to_finalizers && finalizing || seen.owners.iter().any(|r| is_of(&r.kind)) {
                changed.insert(at);
            }
        }
        self.named(&changed)
    }

    /// What a live look-up of an owner found.
    pub fn answer_owner(&mut self, key: OwnerKey, answer: &OwnerAnswer) -> Vec<Uid> {
        let known = match answer {
            OwnerAnswer::Found { uid, foreground } if *uid == key.uid => {
                if *foreground {
                    Known::Waiting
                } else {
                    Known::Present
                }
            }
            OwnerAnswer::Found { .. } | OwnerAnswer::NotFound => Known::Absent,
        };
        let uid = key.uid.clone();
        self.answers.put(key, known);
        self.around_owner(&uid)
    }

    /// That what was found present of an owner is to be looked up again: an owner that no watch shows may have gone since.
    pub fn doubt_owner(&mut self, uid: &Uid) -> Vec<Uid> {
        self.answers.forget_present(uid);
        self.around_owner(uid)
    }

    /// What the API server said to a request for `uid` that had been made for `resource_version`.
    pub fn answer(&mut self, uid: &Uid, resource_version: &str, answer: &Answer) -> Vec<Uid> {
        let pause = match answer {
            Answer::NotFound => return self.forget(uid, Gone::Deleted),
            Answer::Done => Some(Pause::Sent),
            Answer::Conflict => Some(Pause::Conflict),
            Answer::Invalid => Some(Pause::Invalid),
            Answer::Retry => None,
        };
        let Some(at) = self.by_uid.get(uid) else { return Vec::new() };
        let Some(seen) = &mut self.nodes[at as usize].seen else { return Vec::new() };
        if seen.resource_version == Version::from(resource_version.to_owned()) {
            seen.set_pause(pause);
        }
        Vec::from([uid.clone()])
    }

    fn around_owner(&self, uid: &Uid) -> Vec<Uid> {
        let Some(at) = self.by_uid.get(uid) else { return Vec::new() };
        self.named(&self.dependents_of(at).collect())
    }

    /// The seen ones among `changed`.
    fn named(&self, changed: &Changed) -> Vec<Uid> {
        let seen = changed.iter().filter(|&&at| self.seen(at).is_some());
        let mut uids: Vec<Uid> = seen.map(|&at| self.uid(at).clone()).collect();
        uids.sort_unstable();
        uids
    }

    /// The place of a uid: a virtual node where it is new.
    fn node(&mut self, uid: &Uid) -> Index {
        if let Some(at) = self.by_uid.get(uid) {
            return at;
        }
        let node = Node { uid: uid.clone(), seen: None };
        let at = if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            at
        } else {
            self.nodes.push(node);
            // Four thousand million objects fit into no store.
            Index::try_from(self.nodes.len() - 1).unwrap_or(Index::MAX)
        };
        self.by_uid.insert(uid, at);
        at
    }

    /// Lets a virtual node go that nobody refers to any more.
    fn drop_if_unused(&mut self, at: Index) {
        if self.seen(at).is_none() && self.dependents_of(at).next().is_none() {
            self.by_uid.remove(&self.nodes[at as usize].uid);
            self.nodes[at as usize].uid = Uid::new("");
            self.free.push(at);
        }
    }

    /// The object as it is kept. A pause stays while the version does.
    fn shared(&mut self, object: Object, before: Option<&Seen>) -> Seen {
        let version = Version::from(object.resource_version);
        let pause =
            before.filter(|before| before.resource_version == version).and_then(Seen::pause);
        let mut owners = Vec::with_capacity(object.owners.len());
        for reference in object.owners {
            owners.push(Reference {
                owner: self.node(&reference.uid),
                block: reference.block_owner_deletion,
                controller: reference.controller,
                kind: self.kinds.share(&reference.kind, |kind| Arc::new(kind.clone())),
                name: self.texts.share(&reference.name, |text| Arc::from(text)),
            });
        }
        let text = |texts: &mut crate::names::Names<str>, s: &str| texts.share(s, |s| Arc::from(s));
        let finalizers = object.finalizers.iter().map(|f| text(&mut self.texts, f)).collect();
        let (deleting_since, held) = (object.deleting_since, object.held);
        let rare = Rare { finalizers, deleting_since, held, pause };
        let home = Home { kind: object.kind, namespace: object.namespace };
        Seen {
            home: self.homes.share(&home, |home| Arc::new(home.clone())),
            name: object.name.into(),
            resource_version: version,
            owners: owners.into(),
            rare: rare.boxed(),
        }
    }

    /// Gives back what an object shared with others.
    fn release(&mut self, seen: Seen) {
        let Seen { home, owners, rare, .. } = seen;
        for reference in Vec::from(owners) {
            let Reference { kind, name, .. } = reference;
            self.kinds.release(&kind);
            self.texts.release(&name);
        }
        let finalizers = rare.map(|rare| rare.finalizers).unwrap_or_default();
        self.homes.release(&home);
        for text in finalizers {
            self.texts.release(&text);
        }
    }
}
