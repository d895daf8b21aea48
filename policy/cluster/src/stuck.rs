//! What does not move by itself: deletions that do not end, owners in a circle, references that cannot be right.

use crate::explain::Hold;
use crate::graph::{Graph, Index};
use crate::object::{Time, Uid};
use crate::resource::Resource;
use crate::standing::{Doubt, Standing};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// What is wrong with a reference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum BadReference {
    /// The owner is in another namespace: the object counts as one without that owner.
    AcrossNamespaces,
    /// The owner's kind lives in namespaces and the object does not: the object is never deleted for it.
    NamespacedOwner(Resource),
    /// The owner's kind is not served.
    NotServed(Resource),
}

/// Why something is stuck.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// Being deleted since then, and held by these.
    Terminating {
        /// Its `deletionTimestamp`.
        since: Time,
        /// By what, in a fixed order.
        holds: Vec<Hold>,
    },
    /// It owns itself, by way of these (itself alone where it names itself), in the order of uids.
    Cycle(Vec<Uid>),
    /// A reference that is not right.
    Reference {
        /// The owner that it names.
        owner: Uid,
        /// What is wrong with it.
        wrong: BadReference,
    },
}

/// An object that does not move by itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stuck {
    /// Which one; of a cycle the smallest uid.
    pub uid: Uid,
    /// Why.
    pub problem: Problem,
}

impl Graph {
    /// All that is stuck, with deletions that began `older_than` milliseconds or more before `now`, in the order of uids.
    #[must_use]
    pub fn stuck(&self, now: Time, older_than: u64) -> Vec<Stuck> {
        let mut found = Vec::new();
        for at in self.by_uid.values() {
            let uid = self.uid(at);
            let Some(seen) = self.seen(at) else { continue };
            if let Some(since) = seen.deleting_since()
                && now.0.saturating_sub(since.0) >= older_than
            {
                let holds = self.explain(uid).map(|e| e.holds).unwrap_or_default();
                found.push(Stuck {
                    uid: uid.clone(),
                    problem: Problem::Terminating { since, holds },
                });
            }
            for reference in &seen.owners {
                let wrong = match self.standing(seen, reference) {
                    Standing::Doubtful(Doubt::NotServed(resource)) => {
                        BadReference::NotServed(resource)
                    }
                    Standing::Doubtful(Doubt::NamespacedOwner(resource)) => {
                        BadReference::NamespacedOwner(resource)
                    }
                    _ if self.crosses_namespaces(seen, reference.owner) => {
                        BadReference::AcrossNamespaces
                    }
                    _ => continue,
                };
                let owner = self.uid(reference.owner).clone();
                found
                    .push(Stuck { uid: uid.clone(), problem: Problem::Reference { owner, wrong } });
            }
        }
        found.extend(self.cycles());
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Groups of objects that own each other, by Tarjan's strongly connected components with a stack of its own.
    fn cycles(&self) -> Vec<Stuck> {
        let mut search = Search::default();
        for at in self.by_uid.values() {
            if !search.number.contains_key(&at) {
                search.from(self, at);
            }
        }
        let mut found = Vec::new();
        for group in search.groups {
            let mut uids: Vec<Uid> = group.iter().map(|&at| self.uid(at).clone()).collect();
            uids.sort_unstable();
            if let Some(uid) = uids.first().cloned() {
                found.push(Stuck { uid, problem: Problem::Cycle(uids) });
            }
        }
        found
    }
}

#[derive(Default)]
struct Search {
    /// In which order a place was come by, and the earliest place that can be reached from it.
    number: BTreeMap<Index, (u32, u32)>,
    open: Vec<Index>,
    is_open: BTreeSet<Index>,
    groups: Vec<Vec<Index>>,
}

impl Search {
    fn enter(&mut self, graph: &Graph, at: Index) -> (Index, Vec<Index>) {
        let number = u32::try_from(self.number.len()).unwrap_or(u32::MAX);
        self.number.insert(at, (number, number));
        self.open.push(at);
        self.is_open.insert(at);
        (at, graph.dependents_of(at).collect())
    }

    fn reach(&mut self, at: Index, earliest: u32) {
        if let Some((_, low)) = self.number.get_mut(&at) {
            *low = (*low).min(earliest);
        }
    }

    fn from(&mut self, graph: &Graph, start: Index) {
        let mut path = Vec::from([self.enter(graph, start)]);
        while let Some((at, next)) = path.last_mut() {
            let at = *at;
            if let Some(to) = next.pop() {
                match self.number.get(&to) {
                    None => {
                        let entered = self.enter(graph, to);
                        path.push(entered);
                    }
                    Some(&(number, _)) if self.is_open.contains(&to) => self.reach(at, number),
                    Some(_) => {}
                }
                continue;
            }
            path.pop();
            let Some(&(number, low)) = self.number.get(&at) else { continue };
            if let Some((above, _)) = path.last() {
                self.reach(*above, low);
            }
            if number == low {
                self.close(graph, at);
            }
        }
    }

    /// Takes the group of `root` off the stack; one object alone is a cycle only if it names itself.
    fn close(&mut self, graph: &Graph, root: Index) {
        let from = self.open.iter().rposition(|&at| at == root).unwrap_or_default();
        let group = self.open.split_off(from);
        group.iter().for_each(|at| _ = self.is_open.remove(at));
        if group.len() > 1 || graph.edges.contains(&(root, root)) {
            self.groups.push(group);
        }
    }
}
