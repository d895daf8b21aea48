//! What the API server has said about owners that the graph cannot see for itself.
//!
//! The oldest answer in use goes when there are too many, which costs a look-up and never a wrong verdict.

use crate::object::{Kind, Uid};
use crate::resource::Resource;
use alloc::collections::BTreeMap;
use alloc::string::String;

/// Why nothing is sent for this version of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pause {
    /// A request was accepted; its watch has not shown it yet.
    Sent,
    /// A request came too late: the object has changed, and its watch has not shown it yet.
    Conflict,
    /// The API server refuses what would have to be done with this version.
    Invalid,
}

/// Answers about owners that are remembered: some 200 bytes each.
pub const ABSENT_OWNERS: usize = 10_000;

/// An owner as a reference claims it: where to look, and for which uid.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerKey {
    /// The kind that the reference claims.
    pub kind: Kind,
    /// The dependent's namespace, for an owner of a namespaced kind; `None` for a cluster-scoped one.
    pub namespace: Option<String>,
    /// The name that the reference claims.
    pub name: String,
    /// The uid that the reference claims.
    pub uid: Uid,
}

impl OwnerKey {
    /// The key that all versions of the kind share: an object is the same in each.
    fn of_any_version(mut self) -> Self {
        self.kind.version.clear();
        self
    }
}

/// What a live look-up of an owner found at its coordinates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerAnswer {
    /// 404: nothing of that name.
    NotFound,
    /// An object of that name, which is the owner only if the uid is its.
    Found {
        /// The uid of what is there.
        uid: Uid,
        /// Whether it is being deleted and has the finalizer `foregroundDeletion`.
        foreground: bool,
    },
}

/// What is known of an owner by a live answer or by its delete event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    Absent,
    Present,
    Waiting,
}

/// Answers, the least recently given first to go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers {
    known: BTreeMap<Uid, BTreeMap<OwnerKey, (Known, u64)>>,
    by_age: BTreeMap<u64, OwnerKey>,
    next: u64,
}

impl Answers {
    pub(crate) fn get(&self, key: &OwnerKey) -> Option<Known> {
        self.known.get(&key.uid)?.get(&key.clone().of_any_version()).map(|(known, _)| *known)
    }

    pub(crate) fn put(&mut self, key: OwnerKey, known: Known) {
        let key = key.of_any_version();
        let age = self.next;
        self.next += 1;
        let of_uid = self.known.entry(key.uid.clone()).or_default();
        if let Some((_, old)) = of_uid.insert(key.clone(), (known, age)) {
            self.by_age.remove(&old);
        }
        self.by_age.insert(age, key);
        if self.by_age.len() > ABSENT_OWNERS
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.remove(&oldest);
        }
    }

    /// Forgets what was found present of an owner: only its absence is for ever.
    pub(crate) fn forget_present(&mut self, uid: &Uid) {
        let Some(of_uid) = self.known.get_mut(uid) else { return };
        forget_present_where(of_uid, &mut self.by_age, |_| true);
        if of_uid.is_empty() {
            self.known.remove(uid);
        }
    }

    /// The same of every owner of a resource.
    pub(crate) fn forget_all_present(&mut self, of: &Resource) {
        let is_of = |key: &OwnerKey| key.kind.kind == of.kind && key.kind.group == of.group;
        self.known.retain(|_, of_uid| {
            forget_present_where(of_uid, &mut self.by_age, is_of);
            !of_uid.is_empty()
        });
    }

    fn remove(&mut self, key: &OwnerKey) {
        if let Some(of_uid) = self.known.get_mut(&key.uid) {
            of_uid.remove(key);
            if of_uid.is_empty() {
                self.known.remove(&key.uid);
            }
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.known.values().map(BTreeMap::len).sum()
    }
}

/// Forgets which of the answers about one uid found an owner present, of those that are meant.
fn forget_present_where(
    of_uid: &mut BTreeMap<OwnerKey, (Known, u64)>,
    by_age: &mut BTreeMap<u64, OwnerKey>,
    is_meant: impl Fn(&OwnerKey) -> bool,
) {
    of_uid.retain(|key, (known, age)| {
        let keep = *known == Known::Absent || !is_meant(key);
        if !keep {
            by_age.remove(age);
        }
        keep
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn answers_are_bounded_and_the_oldest_goes_first() {
        let mut answers = Answers::default();
        let key = |n: usize| OwnerKey {
            kind: Kind::new("v1", "Pod"),
            namespace: None,
            name: format!("p{n}"),
            uid: Uid::new(&format!("u{n}")),
        };
        for n in 0..=ABSENT_OWNERS {
            answers.put(key(n), Known::Absent);
        }
        assert_eq!(answers.len(), ABSENT_OWNERS);
        assert_eq!(answers.get(&key(0)), None);
        assert_eq!(answers.get(&key(1)), Some(Known::Absent));
    }
}
