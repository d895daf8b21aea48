//! What to do with one object now.
//!
//! ```text
//! not believed? ─► Unknown     sent, refused? ─► Wait
//! an owner orphans it ─► DropOwners
//! being deleted: orphan ─► RemoveFinalizer once nobody refers to it · foreground ─► RemoveFinalizer once nobody blocks · else Nothing
//! owners: all doubtful ones known? ─► some solid: DropOwners of the others · some waiting, with dependents: Delete foreground · none: Delete
//! ```

use crate::answers::OwnerKey;
use crate::answers::Pause;
use crate::graph::{Graph, Index, Seen};
use crate::object::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER, Policy, Uid};
use crate::resource::Resource;
use crate::standing::{Doubt, Standing};
use alloc::borrow::ToOwned as _;
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

/// What a request is about, so that nothing else is changed by it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Preconditions {
    /// The object's uid.
    pub uid: Uid,
    /// The version of the object that was judged.
    pub resource_version: String,
}

/// What an object waits for before anything is done with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitFor {
    /// The next version of itself.
    Watch(Pause),
    /// Dependents that block its foreground deletion; `explain` lists them.
    BlockingDependents,
    /// Dependents that still refer to it; `explain` lists them.
    Orphans,
    /// A resource in which there may be dependents that nobody has seen.
    Resource(Doubt),
}

/// By what an object is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exclusion {
    /// Its namespace.
    Namespace(String),
    /// Its kind.
    Resource(Resource),
    /// The label `ebb.dev/hold: "true"`.
    Label,
}

/// What to do with an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It stays, or goes without help.
    Nothing,
    /// Delete it.
    Delete {
        /// What becomes of its dependents.
        policy: Policy,
        /// What the request is about.
        preconditions: Preconditions,
    },
    /// Remove the references to these owners.
    DropOwners {
        /// Whom, in the order of uids.
        owners: Vec<Uid>,
        /// What the request is about.
        preconditions: Preconditions,
    },
    /// Remove `orphan` or `foregroundDeletion`.
    RemoveFinalizer {
        /// Which one.
        finalizer: &'static str,
        /// What the request is about.
        preconditions: Preconditions,
    },
    /// Clear `blockOwnerDeletion` in all of its references, to break a cycle.
    Unblock {
        /// What the request is about.
        preconditions: Preconditions,
    },
    /// Look an owner up: something irreversible would rest on its absence. Dependents of one owner ask for the same.
    ConfirmOwner(OwnerKey),
    /// Nothing until then.
    Wait(WaitFor),
    /// Not to be judged now.
    Unknown(Doubt),
    /// It is left as it is, though something would have to be done with it.
    Excluded(Exclusion),
}

impl Graph {
    /// What to do with an object now; `Nothing` with one that was not seen.
    #[must_use]
    pub fn verdict(&self, uid: &Uid) -> Verdict {
        let Some(at) = self.by_uid.get(uid) else { return Verdict::Nothing };
        let Some(seen) = self.seen(at) else { return Verdict::Nothing };
        let verdict = self.judge(at, seen);
        let acts = !matches!(verdict, Verdict::Nothing | Verdict::Wait(_) | Verdict::Unknown(_));
        if acts {
            if let Some(exclusion) = self.exclusion(seen) {
                return Verdict::Excluded(exclusion);
            }
            if let Some(pause) = seen.pause() {
                return Verdict::Wait(WaitFor::Watch(pause));
            }
        }
        verdict
    }

    fn judge(&self, at: Index, seen: &Seen) -> Verdict {
        let is_orphaned_by = |owner: Index| self.seen(owner).is_some_and(Seen::is_orphaning);
        if seen.owners.is_empty() && seen.deleting_since().is_none() {
            return Verdict::Nothing;
        }
        if let Some(doubt) = self.own_doubt(seen) {
            return Verdict::Unknown(doubt);
        }
        let preconditions = || Preconditions {
            uid: self.uid(at).clone(),
            resource_version: seen.resource_version.to_string(),
        };
        let orphaned =
            self.uids_of(seen.owners.iter().map(|r| r.owner).filter(|&o| is_orphaned_by(o)));
        if !orphaned.is_empty() {
            return Verdict::DropOwners { owners: orphaned, preconditions: preconditions() };
        }
        if seen.is_orphaning() {
            return if self.dependents_of(at).next().is_some() {
                Verdict::Wait(WaitFor::Orphans)
            } else if let Some(doubt) = self.unseen_dependents(true) {
                Verdict::Wait(WaitFor::Resource(doubt))
            } else {
                Verdict::RemoveFinalizer {
                    finalizer: ORPHAN_FINALIZER,
                    preconditions: preconditions(),
                }
            };
        }
        if seen.is_foreground() {
            return if self.dependents_of(at).any(|d| self.blocks(d, at)) {
                Verdict::Wait(WaitFor::BlockingDependents)
            } else if let Some(doubt) = self.unseen_dependents(false) {
                Verdict::Wait(WaitFor::Resource(doubt))
            } else {
                let finalizer = FOREGROUND_FINALIZER;
                Verdict::RemoveFinalizer { finalizer, preconditions: preconditions() }
            };
        }
        if seen.deleting_since().is_some() {
            return Verdict::Nothing;
        }
        self.judge_owners(at, seen, preconditions)
    }

    /// What follows for an object, not being deleted, from how its owners stand.
    fn judge_owners(
        &self,
        at: Index,
        seen: &Seen,
        preconditions: impl Fn() -> Preconditions,
    ) -> Verdict {
        let (mut solid, mut waiting, mut absent) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (mut doubtful, mut unconfirmed) = (BTreeSet::new(), BTreeSet::new());
        for reference in &seen.owners {
            match self.standing(seen, reference) {
                Standing::Solid => _ = solid.insert(reference.owner),
                Standing::Waiting => _ = waiting.insert(reference.owner),
                Standing::Absent => _ = absent.insert(reference.owner),
                Standing::Doubtful(doubt) => _ = doubtful.insert(doubt),
                Standing::Unconfirmed(key) => _ = unconfirmed.insert(key),
            }
        }
        if let Some(doubt) = doubtful.pop_first() {
            return Verdict::Unknown(doubt);
        }
        if let Some(key) = unconfirmed.pop_first() {
            return Verdict::ConfirmOwner(key);
        }
        if !solid.is_empty() {
            // A patch removes by uid: an owner that one of two references finds solid keeps both.
            let gone = absent.union(&waiting).copied().filter(|owner| !solid.contains(owner));
            let owners = self.uids_of(gone);
            return if owners.is_empty() {
                Verdict::Nothing
            } else {
                Verdict::DropOwners { owners, preconditions: preconditions() }
            };
        }
        let policy = if !waiting.is_empty() && self.dependents_of(at).next().is_some() {
            let is_cycle = self
                .dependents_of(at)
                .any(|dependent| self.seen(dependent).is_some_and(Seen::is_foreground));
            if is_cycle && seen.owners.iter().any(|r| r.block) {
                return Verdict::Unblock { preconditions: preconditions() };
            }
            Policy::Foreground
        } else if seen.has_finalizer(ORPHAN_FINALIZER) {
            Policy::Orphan
        } else if seen.has_finalizer(FOREGROUND_FINALIZER) {
            Policy::Foreground
        } else {
            Policy::Background
        };
        Verdict::Delete { policy, preconditions: preconditions() }
    }

    /// By what an object is left as it is.
    pub(crate) fn exclusion(&self, seen: &Seen) -> Option<Exclusion> {
        let resource = Resource::from(&seen.home.kind);
        let namespace = seen.home.namespace.as_deref();
        if seen.is_held() {
            Some(Exclusion::Label)
        } else if self.exclusions.resources.contains(&resource) {
            Some(Exclusion::Resource(resource))
        } else {
            let namespace = namespace.filter(|&n| self.exclusions.namespaces.contains(n))?;
            Some(Exclusion::Namespace(namespace.to_owned()))
        }
    }

    fn uids_of(&self, places: impl Iterator<Item = Index>) -> Vec<Uid> {
        let uids: BTreeSet<&Uid> = places.map(|at| self.uid(at)).collect();
        uids.into_iter().cloned().collect()
    }
}
