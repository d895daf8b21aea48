//! What the reconciler does about orphaned pod cgroups from one look at the whole tree to the next: what belongs to no pod, what is empty, and what is gone but still holds memory.
//!
//! Nothing is told or done on one look alone: a cgroup may be made a moment before its pod is told of, and one that was just removed lets go of its memory by itself.

use super::orphans::Ground;
use super::write::Writer;
use ebb_journal::Record;
use ebb_journal::cgroups::Dying;
use ebb_policy::cgroups::PodTree;
use ebb_policy::cgroups::orphans::{Action, Known, Orphan};
use std::collections::{BTreeMap, BTreeSet};

/// Less than this is not worth reclaiming for.
const WORTH_RECLAIMING: u64 = 1 << 20;

/// What may be done about what is found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct May {
    /// End what belongs to no pod.
    pub(super) remove: bool,
    /// Have the kernel take back what removed cgroups hold.
    pub(super) reclaim: bool,
    /// Only say what would be done: nothing is written, killed or removed.
    pub(super) warm_up: bool,
}

/// What was found at the last look.
#[derive(Debug, Default)]
pub(super) struct Cleanup {
    left_over: BTreeSet<String>,
    /// Those that a rehearsal has told of.
    rehearsed: BTreeSet<String>,
    empty: BTreeSet<String>,
    /// Removed cgroups by the nearest that is there.
    dying: BTreeMap<String, u64>,
    /// Those that were told of, and how many there were.
    told: BTreeMap<String, u64>,
    /// Those that the kernel was asked about in vain, and how many there were.
    in_vain: BTreeMap<String, u64>,
}

/// What there is to tell.
#[derive(Debug, Default)]
pub(super) struct Cleaned {
    found: Vec<Orphan>,
    cleaned_up: Vec<String>,
    would_clean_up: Vec<String>,
    empty: Vec<String>,
    dying: Vec<Dying>,
    reclaimed: u64,
    errors: Vec<String>,
}

impl Cleaned {
    /// The record of it.
    pub(super) fn into_record(self) -> Record {
        let Self { found, cleaned_up, would_clean_up, empty, dying, reclaimed, errors } = self;
        Record::OrphanedPodCgroups {
            found,
            cleaned_up,
            would_clean_up,
            empty,
            dying,
            reclaimed,
            errors,
        }
    }
}

impl Cleanup {
    /// Looks, does what may be done, and returns what is news. `known` are all pods, if every source has reported.
    pub(super) fn look(
        &mut self,
        ground: &Ground,
        tree: &PodTree,
        known: Option<&Known>,
        is_planned: impl Fn(&str) -> bool,
        may: May,
        writer: &Writer,
    ) -> Option<Cleaned> {
        let mut tidied = Cleaned { found: ground.orphaned_pods(tree, known), ..Cleaned::default() };
        let mut is_news = self.clean_up_orphaned_pods(ground, may, &mut tidied);
        let empty: BTreeSet<String> = match known {
            Some(known) => ground.empty(tree, known, is_planned).into_iter().collect(),
            None => BTreeSet::new(),
        };
        tidied.empty = empty.intersection(&self.empty).cloned().collect();
        // Told when one is seen for the second time, not for the third.
        is_news |=
            empty.iter().any(|path| self.empty.contains(path) && !self.told.contains_key(path));
        let told_empty = tidied.empty.iter().map(|path| (path.clone(), 0));
        let mut told: BTreeMap<String, u64> = told_empty.collect();
        self.empty = empty;
        let dying = ground.dying(tree);
        let lasting = |dying: &&Dying| self.dying.contains_key(&dying.path);
        tidied.dying = dying.iter().filter(lasting).cloned().collect();
        self.dying = dying.iter().map(|dying| (dying.path.clone(), dying.count)).collect();
        is_news |= tidied
            .dying
            .iter()
            .any(|dying| self.told.get(&dying.path).is_none_or(|told| dying.count > told * 2));
        for dying in &tidied.dying {
            let before = self.told.get(&dying.path).copied().unwrap_or(0);
            told.insert(dying.path.clone(), if is_news { dying.count } else { before });
        }
        self.told = told;
        if may.reclaim && !may.warm_up {
            self.reclaim(writer, ground, &mut tidied);
            is_news |= tidied.reclaimed > 0;
        }
        is_news |= !tidied.cleaned_up.is_empty() || !tidied.errors.is_empty();
        is_news.then_some(tidied)
    }

    fn clean_up_orphaned_pods(&mut self, ground: &Ground, may: May, tidied: &mut Cleaned) -> bool {
        let paths: BTreeSet<String> =
            tidied.found.iter().map(|orphan| orphan.path.clone()).collect();
        if may.remove {
            let again = |orphan: &&Orphan| {
                self.left_over.contains(&orphan.path) && orphan.action != Action::Skip
            };
            for orphan in tidied.found.iter().filter(again) {
                if may.warm_up {
                    tidied.would_clean_up.push(orphan.path.clone());
                    continue;
                }
                match ground.end(orphan) {
                    Ok(()) => tidied.cleaned_up.push(orphan.path.clone()),
                    Err(error) => tidied.errors.push(format!("{}: {error}", orphan.path)),
                }
            }
        }
        let would: BTreeSet<String> = tidied.would_clean_up.iter().cloned().collect();
        let is_news = paths.iter().any(|path| !self.left_over.contains(path))
            || !would.is_subset(&self.rehearsed);
        self.left_over = paths;
        self.rehearsed = would;
        is_news
    }

    /// Has the kernel take back what removed cgroups hold. Where that did not help it is not tried again until there are more of them.
    fn reclaim(&mut self, writer: &Writer, ground: &Ground, tidied: &mut Cleaned) {
        self.in_vain.retain(|path, _| tidied.dying.iter().any(|dying| dying.path == *path));
        for dying in &tidied.dying {
            let bytes = dying.bytes.unwrap_or(0);
            let was_in_vain =
                self.in_vain.get(&dying.path).is_some_and(|count| dying.count <= *count);
            if bytes < WORTH_RECLAIMING || was_in_vain {
                continue;
            }
            match ground.reclaim(writer, dying) {
                Ok(freed) => tidied.reclaimed += freed,
                Err(error) => tidied.errors.push(super::chain(&error)),
            }
            self.in_vain.insert(dying.path.clone(), dying.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_policy::cgroups::{CgroupName, Driver};
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    const MIB: u64 = 1 << 20;

    struct Case {
        _dir: tempfile::TempDir,
        ground: Ground,
        tree: PodTree,
        writer: Writer,
        cleanup: Cleanup,
    }

    impl Case {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            fs::create_dir_all(at("proc/self")).unwrap();
            fs::write(at("proc/self/mountinfo"), "").unwrap();
            fs::create_dir_all(at("cgroup/kubepods/burstable/podlive/c")).unwrap();
            let root = at("cgroup");
            Self {
                ground: Ground { root: root.clone(), proc: at("proc"), kubelet: at("kubelet") },
                tree: PodTree::below(&CgroupName::root(), Driver::Cgroupfs).unwrap(),
                writer: Writer::new(&root, 4096, Duration::from_secs(5)),
                cleanup: Cleanup::default(),
                _dir: dir,
            }
        }

        fn put(&self, path: &str, file: &str, text: &str) {
            fs::write(self.ground.root.join(path).join(file), text).unwrap();
        }

        fn look(&mut self, reclaim: bool) -> Option<Cleaned> {
            let known = Known { uids: BTreeSet::from(["live".to_owned()]), doubt: None };
            let may = May { remove: false, reclaim, warm_up: false };
            self.cleanup.look(&self.ground, &self.tree, Some(&known), |_| false, may, &self.writer)
        }
    }

    fn holds(case: &Case, count: u64, bytes: u64) {
        let stat = format!("nr_dying_descendants {count}\n");
        case.put("kubepods", "cgroup.stat", &stat);
        case.put("kubepods/burstable", "cgroup.stat", &stat);
        case.put("kubepods", "memory.current", &bytes.to_string());
        case.put("kubepods/burstable", "memory.current", &bytes.to_string());
        case.put("kubepods/burstable/podlive", "memory.current", "0");
    }

    #[test]
    fn an_empty_cgroup_is_told_of_once_when_it_is_still_there() {
        let mut case = Case::new();
        case.put("kubepods/burstable/podlive/c", "cgroup.events", "populated 0\n");
        assert!(case.look(false).is_none(), "it may have been made just now");
        let told = case.look(false).unwrap();
        assert_eq!(told.empty, ["/kubepods/burstable/podlive/c"]);
        assert!(case.look(false).is_none(), "it was told of");
        case.put("kubepods/burstable/podlive/c", "cgroup.events", "populated 1\n");
        assert!(case.look(false).is_none());
    }

    #[test]
    fn what_removed_cgroups_hold_is_told_and_reclaimed_once() {
        let mut case = Case::new();
        case.put("kubepods/burstable", "memory.reclaim", "");
        holds(&case, 3, 40 * MIB);
        assert!(case.look(true).is_none(), "it may go by itself");
        let told = case.look(true).unwrap();
        assert_eq!((told.dying.len(), told.dying[0].count), (1, 3));
        let asked = |case: &Case| {
            let at: &Path = &case.ground.root.join("kubepods/burstable/memory.reclaim");
            fs::read_to_string(at).unwrap()
        };
        assert_eq!(asked(&case), (40 * MIB).to_string());
        case.put("kubepods/burstable", "memory.reclaim", "");
        assert!(case.look(true).is_none(), "once more of the same");
        assert_eq!(asked(&case), "", "what did not help is not tried again");
        holds(&case, 7, 40 * MIB);
        assert!(case.look(true).is_some(), "there are more of them");
        assert_eq!(asked(&case), (40 * MIB).to_string());
    }

    #[test]
    fn reclaim_is_asked_for_or_left() {
        let mut case = Case::new();
        case.put("kubepods/burstable", "memory.reclaim", "");
        holds(&case, 3, 40 * MIB);
        assert!(case.look(false).is_none());
        assert!(case.look(false).is_some());
        let at = case.ground.root.join("kubepods/burstable/memory.reclaim");
        assert_eq!(fs::read_to_string(at).unwrap(), "");
    }
}
