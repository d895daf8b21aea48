//! Which part of the tree the reconciler is to look at again, and what woke it.

use ebb_policy::cgroups::Cgroup;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// What woke the reconciler.
#[derive(Debug, Default)]
pub(super) struct Woken {
    /// What to look at again.
    pub(super) part: Scope,
    /// Some of it is new.
    pub(super) is_new: bool,
    /// When the first of it was noticed.
    pub(super) noticed: Option<Instant>,
    /// The whole tree is to be looked at.
    pub(super) everything: bool,
    /// It is over.
    pub(super) stop: bool,
}

/// A part of the tree: paths of cgroups, each with what of it.
pub(super) type Scope = BTreeMap<String, Files>;

/// Files of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Files {
    /// All that are planned.
    All,
    /// These.
    Some(BTreeSet<String>),
}

impl Files {
    fn and(&mut self, more: Files) {
        match (&mut *self, more) {
            (Files::Some(files), Files::Some(more)) => files.extend(more),
            _ => *self = Files::All,
        }
    }

    /// What the plan says of them.
    pub(super) fn of(&self, cgroup: &Cgroup) -> Cgroup {
        let mut part = cgroup.clone();
        if let Files::Some(files) = self {
            part.values.retain(|file, _| files.contains(file));
            part.oom_score_adj = None;
        }
        part
    }
}

/// Takes these files of the cgroup `path` into a part.
pub(super) fn add(part: &mut Scope, path: String, files: Files) {
    match part.get_mut(&path) {
        Some(known) => known.and(files),
        None => {
            part.insert(path, files);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(files: &[&str]) -> Files {
        Files::Some(files.iter().map(|file| (*file).to_owned()).collect())
    }

    #[test]
    fn files_of_one_cgroup_add_up_and_all_stays_all() {
        let mut part = Scope::new();
        for (files, known) in [
            (some(&["memory.max"]), some(&["memory.max"])),
            (some(&["cpu.max"]), some(&["cpu.max", "memory.max"])),
            (Files::All, Files::All),
            (some(&["cpu.max"]), Files::All),
        ] {
            add(&mut part, "/a".to_owned(), files);
            assert_eq!(part.get("/a"), Some(&known));
        }
    }
}
