//! What directories take up on disk: by their project quota where they have one, else walked a bounded number of entries at a time.
//!
//! ```text
//!                         ┌─ a project of its own ─► one question ─┐
//!  directories ─► Survey ─┤                                        ├─► usage of each
//!                         └─ step(budget) ─► … ─► a whole walk ────┘
//! ```
//! A walk of a large directory costs seconds of disk and processor, so it is never done in one go: each [`Survey::step`] looks at no more entries than it is allowed, and the next goes on from there.
//! Until a directory has been walked once its usage is not known; from then on the last whole walk stands.
//! How a directory is walked that its owner changes meanwhile is in `sense::walk`.

use super::pod_dirs::Figure;
use super::quota;
use super::walk::{Walk, open_dir};
use crate::clock::Boot;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Walks directories in turn, again and again.
#[derive(Debug, Default)]
pub struct Survey {
    dirs: Vec<PathBuf>,
    /// Which is next, once the present walk is done.
    next: usize,
    walk: Option<Begun>,
    /// Projects that belong to one of the directories alone; looked up once a round.
    projects: Option<BTreeMap<PathBuf, u32>>,
    found: BTreeMap<PathBuf, Figure>,
}

/// A walk that is under way, of which directory, and since when.
#[derive(Debug)]
struct Begun {
    dir: PathBuf,
    at: Boot,
    walk: Walk,
}

impl Survey {
    /// Says which directories there are; what is known of others is forgotten, a walk of one that stays goes on.
    pub fn set_dirs(&mut self, mut dirs: Vec<PathBuf>) {
        dirs.sort();
        dirs.dedup();
        self.found.retain(|dir, _| dirs.binary_search(dir).is_ok());
        if self.walk.as_ref().is_some_and(|walk| dirs.binary_search(&walk.dir).is_err()) {
            self.walk = None;
        }
        let reached = self.dirs.get(self.next);
        self.next = reached.map_or(0, |dir| dirs.partition_point(|other| other < dir));
        self.dirs = dirs;
        self.projects = None;
    }

    /// Looks at up to `budget` more entries; returns whether every directory has been walked since the last time this was so.
    pub fn step(&mut self, budget: u64) -> bool {
        let mut left = budget;
        let dirs = &self.dirs;
        let projects = self.projects.get_or_insert_with(|| {
            let of = |dir: &PathBuf| Some((dir.clone(), quota::project_of(dir)?));
            of_one_alone(dirs.iter().filter_map(of).collect())
        });
        while left > 0 {
            let begun = match &mut self.walk {
                Some(begun) => begun,
                None => {
                    let Some(dir) = self.dirs.get(self.next) else {
                        self.next = 0;
                        self.projects = None;
                        return true;
                    };
                    self.next += 1;
                    let at = Boot::now();
                    let usage = projects.get(dir).and_then(|project| quota::usage(dir, *project));
                    if let Some(usage) = usage {
                        self.found.insert(dir.clone(), Figure { usage, at });
                        left -= 1;
                        continue;
                    }
                    let Ok(walk) = open_dir(dir).and_then(Walk::begin) else {
                        // It is not there: nothing is known, which is not the same as nothing being used.
                        self.found.remove(dir);
                        left -= 1;
                        continue;
                    };
                    self.walk.insert(Begun { dir: dir.clone(), at, walk })
                }
            };
            if begun.walk.go_on(&mut left)
                && let Some(Begun { dir, at, walk }) = self.walk.take()
            {
                self.found.insert(dir, Figure { usage: walk.usage(), at });
            }
        }
        false
    }

    /// What a directory takes up, as of the beginning of the last whole walk; `None` before the first.
    #[must_use]
    pub fn usage(&self, dir: &Path) -> Option<Figure> {
        self.found.get(dir).copied()
    }
}

/// Without those projects that several directories have: their total says nothing about any one of them.
fn of_one_alone(mut projects: BTreeMap<PathBuf, u32>) -> BTreeMap<PathBuf, u32> {
    let mut times = BTreeMap::<u32, usize>::new();
    for project in projects.values() {
        *times.entry(*project).or_default() += 1;
    }
    projects.retain(|_, project| times.get(project) == Some(&1));
    projects
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["a/deep", "b"] {
            fs::create_dir_all(dir.path().join(sub)).unwrap();
        }
        for n in 0..10 {
            fs::write(dir.path().join(format!("a/deep/{n}")), vec![b'x'; 20_000]).unwrap();
        }
        fs::hard_link(dir.path().join("a/deep/0"), dir.path().join("a/again")).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("a/out")).unwrap();
        dir
    }

    #[test]
    fn a_directory_is_known_after_as_many_steps_as_its_size_asks_for() {
        let dir = tree();
        let a = dir.path().join("a");
        let mut survey = Survey::default();
        survey.set_dirs(vec![a.clone()]);
        assert!(!survey.step(4));
        assert_eq!(survey.usage(&a), None, "not known before it was walked as a whole");
        let mut steps = 1;
        while !survey.step(4) {
            steps += 1;
            assert!(steps < 100);
        }
        assert!(steps >= 3, "{steps}");
        let usage = survey.usage(&a).unwrap().usage;
        // Two directories, ten files one of which has a second name, a link.
        assert_eq!(usage.inodes_used, Some(13));
        assert!((200_000..260_000).contains(&usage.used_bytes.unwrap()), "{usage:?}");
    }

    #[test]
    fn a_project_of_several_directories_speaks_for_none_of_them() {
        let of = |projects: [(&str, u32); 3]| {
            let projects = projects.map(|(dir, project)| (PathBuf::from(dir), project));
            of_one_alone(BTreeMap::from(projects)).into_values().collect::<Vec<_>>()
        };
        assert_eq!(of([("a", 1), ("b", 2), ("c", 3)]), [1, 2, 3]);
        assert_eq!(of([("a", 7), ("b", 2), ("c", 7)]), [2]);
    }

    #[test]
    fn directories_take_turns_and_what_is_gone_is_forgotten() {
        let dir = tree();
        let (a, b, none) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("none"));
        let mut survey = Survey::default();
        survey.set_dirs(vec![b.clone(), a.clone(), none.clone()]);
        assert!(survey.step(1000));
        assert!(survey.usage(&a).is_some() && survey.usage(&b).is_some());
        assert_eq!(survey.usage(&none), None);
        survey.set_dirs(vec![b.clone()]);
        assert_eq!(survey.usage(&a), None);
        assert!(survey.usage(&b).is_some());
        fs::remove_dir(&b).unwrap();
        assert!(survey.step(1000));
        assert_eq!(survey.usage(&b), None);
    }
}
