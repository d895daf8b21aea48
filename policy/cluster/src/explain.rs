//! Why an object is still there, as values: what holds it, since when, and what would release it.

use crate::answers::Pause;
use crate::graph::{Exclusions, Graph, Index, Seen};
use crate::object::{FOREGROUND_FINALIZER, Kind, ORPHAN_FINALIZER, Time, Uid};
use crate::standing::{Doubt, Standing};
use crate::verdict::{Exclusion, Verdict, WaitFor};
use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;

/// One thing that keeps an object, or keeps its deletion from ending.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// A finalizer that is not the collector's.
    Finalizer(String),
    /// A dependent that blocks the object's foreground deletion.
    BlockingDependent(Uid),
    /// A dependent that has not yet lost its reference to the object, which orphans.
    Orphan(Uid),
    /// An owner that is there.
    Owner(Uid),
    /// What is not known of a resource.
    Doubt(Doubt),
    /// The object is left as it is.
    Excluded(Exclusion),
    /// The object blocks its own foreground deletion, by way of these, in their order round the cycle.
    Cycle(Vec<Uid>),
    /// An owner whose absence is to be looked up first.
    Unconfirmed(Uid),
    /// A request under way, or refused.
    Request(Pause),
}

/// What would release a hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// Whoever set the finalizer removes it.
    FinalizerRemoved(String),
    /// This object goes, or its reference no longer blocks.
    Gone(Uid),
    /// The resource can be listed and watched.
    ResourceSynced(Doubt),
    /// Nobody and nothing: a reference, kind or namespace was given wrongly and has to be changed by hand.
    ReferenceChanged,
    /// The exclusion is lifted.
    ExclusionLifted(Exclusion),
    /// The next answer of the API server, or the next event of a watch.
    ApiServer,
}

/// An owner of an object, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerView {
    /// Its uid.
    pub uid: Uid,
    /// The kind that the reference claims.
    pub kind: Kind,
    /// The name that the reference claims.
    pub name: String,
    /// Whether the reference blocks a foreground deletion of the owner.
    pub blocks: bool,
    /// Whether the owner is the managing controller.
    pub controller: bool,
    /// How the owner stands.
    pub standing: Standing,
    /// Whether the owner was seen in another namespace: the reference is not valid (`OwnerRefInvalidNamespace`).
    pub crosses_namespaces: bool,
}

/// Why an object is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What is to be done with it now.
    pub verdict: Verdict,
    /// Since when it is being deleted; `None` while nobody has deleted it.
    pub deleting_since: Option<Time>,
    /// Its owners, in the order of its references.
    pub owners: Vec<OwnerView>,
    /// What holds it, in a fixed order.
    pub holds: Vec<Hold>,
}

impl Hold {
    /// What would release it.
    #[must_use]
    pub fn release(&self) -> Release {
        match self {
            Self::Finalizer(name) => Release::FinalizerRemoved(name.clone()),
            Self::BlockingDependent(uid) | Self::Owner(uid) => Release::Gone(uid.clone()),
            Self::Doubt(Doubt::NamespacedOwner(_)) | Self::Cycle(_) => Release::ReferenceChanged,
            Self::Doubt(doubt) => Release::ResourceSynced(doubt.clone()),
            Self::Excluded(exclusion) => Release::ExclusionLifted(exclusion.clone()),
            Self::Request(Pause::Invalid) => Release::ReferenceChanged,
            Self::Orphan(_) | Self::Unconfirmed(_) | Self::Request(_) => Release::ApiServer,
        }
    }
}

impl Graph {
    /// Why an object is still there; `None` where it was not seen or is gone.
    #[must_use]
    pub fn explain(&self, uid: &Uid) -> Option<Explanation> {
        let at = self.by_uid.get(uid)?;
        let seen = self.seen(at)?;
        let verdict = self.verdict(uid);
        let owners: Vec<OwnerView> = seen
            .owners
            .iter()
            .map(|reference| OwnerView {
                uid: self.uid(reference.owner).clone(),
                kind: (*reference.kind).clone(),
                name: (*reference.name).to_owned(),
                blocks: reference.block,
                controller: reference.controller,
                standing: self.standing(seen, reference),
                crosses_namespaces: self.crosses_namespaces(seen, reference.owner),
            })
            .collect();
        let mut holds = Vec::new();
        if seen.deleting_since().is_some() {
            self.holds_of_deletion(at, seen, &mut holds);
        } else {
            let solid = owners.iter().filter(|owner| owner.standing == Standing::Solid);
            holds.extend(solid.map(|owner| Hold::Owner(owner.uid.clone())));
        }
        match &verdict {
            Verdict::Unknown(doubt) | Verdict::Wait(WaitFor::Resource(doubt)) => {
                holds.push(Hold::Doubt(doubt.clone()));
            }
            Verdict::Excluded(exclusion) => holds.push(Hold::Excluded(exclusion.clone())),
            Verdict::ConfirmOwner(key) => holds.push(Hold::Unconfirmed(key.uid.clone())),
            Verdict::Wait(WaitFor::Watch(pause)) => holds.push(Hold::Request(*pause)),
            _ => {}
        }
        holds.sort_unstable();
        Some(Explanation { verdict, deleting_since: seen.deleting_since(), owners, holds })
    }

    fn holds_of_deletion(&self, at: Index, seen: &Seen, holds: &mut Vec<Hold>) {
        let ours = [ORPHAN_FINALIZER, FOREGROUND_FINALIZER];
        let foreign = seen.finalizers().iter().filter(|name| !ours.contains(&&***name));
        holds.extend(foreign.map(|name| Hold::Finalizer((**name).to_owned())));
        if seen.is_orphaning() {
            holds.extend(self.dependents_of(at).map(|d| Hold::Orphan(self.uid(d).clone())));
        } else if seen.is_foreground() {
            let blocking = self.dependents_of(at).filter(|&d| self.blocks(d, at));
            holds.extend(blocking.map(|d| Hold::BlockingDependent(self.uid(d).clone())));
            if let Some(cycle) = self.blocking_cycle(at) {
                holds.push(Hold::Cycle(cycle));
            }
        }
    }

    /// The objects by which one in foreground deletion waits for itself, all of them in foreground deletion.
    fn blocking_cycle(&self, start: Index) -> Option<Vec<Uid>> {
        let mut path = Vec::from([(start, self.blocking_foreground(start))]);
        let mut visited = alloc::collections::BTreeSet::from([start]);
        while let Some((_, next)) = path.last_mut() {
            match next.pop() {
                None => _ = path.pop(),
                Some(at) if at == start => {
                    return Some(path.iter().map(|(at, _)| self.uid(*at).clone()).collect());
                }
                Some(at) if visited.insert(at) => path.push((at, self.blocking_foreground(at))),
                Some(_) => {}
            }
        }
        None
    }

    /// Blocking dependents in foreground deletion, the smallest uid last.
    fn blocking_foreground(&self, at: Index) -> Vec<Index> {
        let is_waiting =
            |d: &Index| self.blocks(*d, at) && self.seen(*d).is_some_and(Seen::is_foreground);
        let mut found: Vec<Index> = self.dependents_of(at).filter(is_waiting).collect();
        found.sort_unstable_by(|a, b| self.uid(*b).cmp(self.uid(*a)));
        found
    }

    /// What is left as it is.
    #[must_use]
    pub fn exclusions(&self) -> &Exclusions {
        &self.exclusions
    }
}
