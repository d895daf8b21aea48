//! What a delete would do, before anyone deletes: the verdicts of the engine itself, carried out on a copy of what hangs on the object.
//!
//! A watch that is synced and does not show an owner is believed here, for nothing is at stake; an owner that no watch shows stays unconfirmed.
//! Finalizers of others are taken to stay.
//! An owner is released after all that hangs on it was judged.
//! Of an owner that is deleted in the foreground and kept by a finalizer of others, dependents that do not block it are therefore counted as deleted: at work, under kube-controller-manager too, requests in parallel decide whether they go at once or with their owner.

use crate::answers::{OwnerAnswer, OwnerKey};
use crate::explain::Hold;
use crate::graph::Graph;
use crate::object::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER, Object, Policy, Time, Uid};
use crate::observe::Gone;
use crate::resource::{Resource, State};
use crate::verdict::Verdict;
use alloc::borrow::ToOwned as _;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// An object that the cascade reaches and does not remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Which one.
    pub uid: Uid,
    /// By what, in a fixed order.
    pub holds: Vec<Hold>,
}

/// What a delete would do. Lists are in the order of uids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cascade {
    /// Objects that would go: those below, and owners that are being deleted already and wait for nothing else.
    pub deleted: Vec<Uid>,
    /// Objects that would stay and lose a reference.
    pub loses_references: Vec<Uid>,
    /// Objects that would have to go and are held up.
    pub held: Vec<Held>,
    /// Of those that would go, how many of each kind.
    pub counts: BTreeMap<Resource, usize>,
}

impl Graph {
    /// What deleting an object by `policy` would do; `None` where it was not seen or is gone.
    #[must_use]
    pub fn cascade(&self, uid: &Uid, policy: Policy) -> Option<Cascade> {
        let root = self.object(uid)?;
        let below = self.descendants(uid);
        let above = self.waiting_owners(&below);
        let mut copy = self.copy_of(&below, &above);
        let mut due: BTreeSet<Uid> = BTreeSet::new();
        let mut last: BTreeSet<Uid> = BTreeSet::new();
        due.extend(copy.delete_copy(root, policy));
        while let Some(uid) = due.pop_first().or_else(|| last.pop_first()) {
            if !below.contains(&uid) && !above.contains(&uid) {
                continue;
            }
            let releases = matches!(copy.verdict(&uid), Verdict::RemoveFinalizer { .. });
            if releases && !due.is_empty() {
                last.insert(uid);
            } else {
                due.extend(copy.carry_out(&uid));
            }
        }
        let mut outcome = self.outcome(&below, &copy);
        for uid in above.into_iter().filter(|uid| copy.object(uid).is_none()) {
            let Some(owner) = self.object(&uid) else { continue };
            *outcome.counts.entry(Resource::from(&owner.kind)).or_default() += 1;
            outcome.deleted.push(uid);
        }
        outcome.deleted.sort_unstable();
        Some(outcome)
    }

    /// An object and all that hang on it, however far.
    fn descendants(&self, uid: &Uid) -> BTreeSet<Uid> {
        let mut reached = BTreeSet::from([uid.clone()]);
        let mut due = Vec::from([uid.clone()]);
        while let Some(owner) = due.pop() {
            let Some(at) = self.by_uid.get(&owner) else { continue };
            for dependent in self.dependents_of(at) {
                let dependent = self.uid(dependent);
                if reached.insert(dependent.clone()) {
                    due.push(dependent.clone());
                }
            }
        }
        reached
    }

    /// Owners of these objects, and theirs in turn, that are being deleted and wait for dependents: what goes below may release them.
    fn waiting_owners(&self, below: &BTreeSet<Uid>) -> BTreeSet<Uid> {
        let mut above = BTreeSet::new();
        let mut due: Vec<Uid> = below.iter().cloned().collect();
        while let Some(dependent) = due.pop() {
            let seen = self.by_uid.get(&dependent).and_then(|at| self.seen(at));
            for reference in seen.iter().flat_map(|seen| &seen.owners) {
                let owner = self.uid(reference.owner);
                let waits = self
                    .seen(reference.owner)
                    .is_some_and(|owner| owner.is_foreground() || owner.is_orphaning());
                if waits && !below.contains(owner) && above.insert(owner.clone()) {
                    due.push(owner.clone());
                }
            }
        }
        above
    }

    /// A graph of these objects and of what stands directly around them: the owners of all, and the dependents of those `above`.
    fn copy_of(&self, below: &BTreeSet<Uid>, above: &BTreeSet<Uid>) -> Self {
        let mut copy = Self::new(self.exclusions.clone());
        copy.resources = self.resources.clone();
        copy.answers = self.answers.clone();
        let mut around: BTreeSet<Uid> = below | above;
        for uid in below | above {
            let Some(at) = self.by_uid.get(&uid) else { continue };
            let owners = self.seen(at).into_iter().flat_map(|seen| &seen.owners);
            around.extend(owners.map(|owner| self.uid(owner.owner).clone()));
            if above.contains(&uid) {
                around.extend(self.dependents_of(at).map(|dependent| self.uid(dependent).clone()));
            }
        }
        around.iter().filter_map(|uid| self.object(uid)).for_each(|object| {
            copy.observe(object);
        });
        copy
    }

    /// Does what the verdict says, as the API server would.
    fn carry_out(&mut self, uid: &Uid) -> Vec<Uid> {
        let verdict = self.verdict(uid);
        if let Verdict::ConfirmOwner(key) = verdict {
            return self.believe_watch(key);
        }
        let Some(mut object) = self.object(uid) else { return Vec::new() };
        match verdict {
            Verdict::Delete { policy, .. } => self.delete_copy(object, policy),
            Verdict::DropOwners { owners, .. } => {
                object.owners.retain(|owner| !owners.contains(&owner.uid));
                self.observe(object)
            }
            Verdict::RemoveFinalizer { finalizer, .. } => {
                object.finalizers.retain(|name| name != finalizer);
                self.settle(object)
            }
            Verdict::Unblock { .. } => {
                object.owners.iter_mut().for_each(|owner| owner.block_owner_deletion = false);
                self.observe(object)
            }
            _ => Vec::new(),
        }
    }

    fn believe_watch(&mut self, key: OwnerKey) -> Vec<Uid> {
        match self.resources.get(&Resource::from(&key.kind)) {
            Some((_, State::Synced)) => self.answer_owner(key, &OwnerAnswer::NotFound),
            _ => Vec::new(),
        }
    }

    /// A delete by the rules of the API server: the policy's finalizer takes the place of the others' of the collector.
    fn delete_copy(&mut self, mut object: Object, policy: Policy) -> Vec<Uid> {
        let ours = [ORPHAN_FINALIZER, FOREGROUND_FINALIZER];
        object.finalizers.retain(|name| !ours.contains(&name.as_str()));
        match policy {
            Policy::Background => {}
            Policy::Foreground => object.finalizers.push(FOREGROUND_FINALIZER.to_owned()),
            Policy::Orphan => object.finalizers.push(ORPHAN_FINALIZER.to_owned()),
        }
        object.deleting_since.get_or_insert(Time::default());
        self.settle(object)
    }

    /// An object that is being deleted goes with its last finalizer.
    fn settle(&mut self, object: Object) -> Vec<Uid> {
        if object.deleting_since.is_some() && object.finalizers.is_empty() {
            self.forget(&object.uid, Gone::Deleted)
        } else {
            self.observe(object)
        }
    }

    fn outcome(&self, reached: &BTreeSet<Uid>, after: &Self) -> Cascade {
        let (mut deleted, mut loses_references) = (Vec::new(), Vec::new());
        let mut held: BTreeMap<Uid, Vec<Hold>> = BTreeMap::new();
        let mut counts = BTreeMap::new();
        let mut stays = Vec::new();
        for uid in reached {
            let Some(before) = self.object(uid) else { continue };
            let Some(object) = after.object(uid) else {
                deleted.push(uid.clone());
                *counts.entry(Resource::from(&before.kind)).or_default() += 1;
                continue;
            };
            if object.owners.len() < before.owners.len() {
                loses_references.push(uid.clone());
            }
            let explained = after.explain(uid);
            let in_doubt = |verdict: &Verdict| !matches!(verdict, Verdict::Nothing);
            let is_held = object.deleting_since.is_some()
                || explained.as_ref().is_some_and(|e| in_doubt(&e.verdict));
            if is_held {
                held.insert(uid.clone(), explained.map(|e| e.holds).unwrap_or_default());
            } else {
                stays.push(object);
            }
        }
        // What hangs on nothing but held objects goes once they do.
        loop {
            let (more, rest): (Vec<Object>, Vec<Object>) = stays.into_iter().partition(|object| {
                !object.owners.is_empty()
                    && object.owners.iter().all(|owner| held.contains_key(&owner.uid))
            });
            if more.is_empty() {
                break;
            }
            for object in more {
                let owners = object.owners.into_iter().map(|owner| Hold::Owner(owner.uid));
                held.insert(object.uid, owners.collect());
            }
            stays = rest;
        }
        let held = held.into_iter().map(|(uid, holds)| Held { uid, holds }).collect();
        Cascade { deleted, loses_references, held, counts }
    }
}
