//! What a graph of a million objects keeps of each: the usual case in place, the rare one behind a pointer.

use crate::answers::Pause;
use crate::object::{Kind, Time, Uid};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

/// A place in the arena.
pub(crate) type Index = u32;

/// A resource version: a number where its text is that number's, the text itself otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Version {
    Number(u64),
    Text(Box<str>),
}

impl From<String> for Version {
    fn from(text: String) -> Self {
        match text.parse::<u64>() {
            // Two texts are one version only when they are equal.
            Ok(number) if number.to_string() == text => Self::Number(number),
            _ => Self::Text(text.into()),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// A reference to an owner.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reference {
    pub(crate) owner: Index,
    pub(crate) block: bool,
    pub(crate) controller: bool,
    pub(crate) kind: Arc<Kind>,
    pub(crate) name: Arc<str>,
}

/// References to owners, of which most objects have one or none.
#[derive(Debug, Clone)]
pub(crate) enum Owners {
    One(Reference),
    Any(Box<[Reference]>),
}

impl From<Vec<Reference>> for Owners {
    fn from(mut all: Vec<Reference>) -> Self {
        match (all.pop(), all.is_empty()) {
            (Some(one), true) => Self::One(one),
            (last, _) => {
                all.extend(last);
                Self::Any(all.into())
            }
        }
    }
}

impl From<Owners> for Vec<Reference> {
    fn from(owners: Owners) -> Self {
        match owners {
            Owners::One(one) => Self::from([one]),
            Owners::Any(all) => all.into(),
        }
    }
}

impl Deref for Owners {
    type Target = [Reference];

    fn deref(&self) -> &[Reference] {
        match self {
            Self::One(one) => core::slice::from_ref(one),
            Self::Any(all) => all,
        }
    }
}

impl<'a> IntoIterator for &'a Owners {
    type Item = &'a Reference;
    type IntoIter = core::slice::Iter<'a, Reference>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Owners {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

/// What the objects of one kind in one namespace have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Home {
    pub(crate) kind: Kind,
    pub(crate) namespace: Option<String>,
}

/// What most objects have nothing of.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rare {
    pub(crate) finalizers: Box<[Arc<str>]>,
    pub(crate) deleting_since: Option<Time>,
    pub(crate) held: bool,
    /// Why nothing is to be sent for this version of the object.
    pub(crate) pause: Option<Pause>,
}

impl Rare {
    /// `None` where there is nothing to keep.
    pub(crate) fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

/// Places in the arena by uid, in the order of uids.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    uuids: BTreeMap<[u8; 16], Index>,
    texts: BTreeMap<Box<str>, Index>,
}

impl Places {
    pub(crate) fn get(&self, uid: &Uid) -> Option<Index> {
        match uid.parts() {
            Ok(uuid) => self.uuids.get(uuid).copied(),
            Err(text) => self.texts.get(text).copied(),
        }
    }

    pub(crate) fn insert(&mut self, uid: &Uid, at: Index) {
        match uid.parts() {
            Ok(uuid) => _ = self.uuids.insert(*uuid, at),
            Err(text) => _ = self.texts.insert(text.into(), at),
        }
    }

    pub(crate) fn remove(&mut self, uid: &Uid) {
        match uid.parts() {
            Ok(uuid) => _ = self.uuids.remove(uuid),
            Err(text) => _ = self.texts.remove(text),
        }
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = Index> {
        self.uuids.values().chain(self.texts.values()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned as _;

    #[test]
    fn a_version_reads_back_as_it_was_written() {
        for text in ["0", "7", "18446744073709551615", "007", "+7", "", "18446744073709551616", "a"]
        {
            assert_eq!(Version::from(text.to_owned()).to_string(), text);
        }
        assert_ne!(Version::from("7".to_owned()), Version::from("07".to_owned()));
    }

    #[test]
    fn places_are_in_the_order_of_uids() {
        let mut places = Places::default();
        let texts = [
            "z",
            "ffffffff-0000-4000-8000-000000000000",
            "a",
            "00000000-0000-4000-8000-000000000000",
        ];
        let mut uids: Vec<Uid> = texts.iter().map(|text| Uid::new(text)).collect();
        uids.sort();
        (0..).zip(&uids).for_each(|(at, uid)| places.insert(uid, at));
        assert_eq!(places.values().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(places.get(&uids[2]), Some(2));
        places.remove(&uids[2]);
        assert_eq!(places.get(&uids[2]), None);
    }
}
