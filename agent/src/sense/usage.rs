//! What directories take up on disk: by their project quota where they have one, else walked a bounded number of entries at a time.
//!
//! ```text
//!                         ┌─ a project of its own ─► one question ─┐
//!  directories ─► Survey ─┤                                        ├─► usage of each
//!                         └─ step(budget) ─► … ─► a whole walk ────┘
//! ```
//! A walk of a large directory costs seconds of disk and processor, so it is never done in one go: each [`Survey::step`] looks at no more entries than it is allowed, and the next goes on from there.
//! Until a directory has been walked once its usage is not known; from then on the last whole walk stands.
//! Links are not followed, other filesystems not entered, and a file with several names in one directory counts once.

use super::quota;
use ebb_policy::snapshot::FsUsage;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, ReadDir};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Files with several names that are told apart in one directory; those beyond count once for each name.
const LINKED_AT_MOST: usize = 100_000;

/// Walks directories in turn, again and again.
#[derive(Debug, Default)]
pub struct Survey {
    dirs: Vec<PathBuf>,
    /// Which is next, once the present walk is done.
    next: usize,
    walk: Option<Walk>,
    /// Projects that belong to one of the directories alone; looked up once a round.
    projects: Option<BTreeMap<PathBuf, u32>>,
    found: BTreeMap<PathBuf, FsUsage>,
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
            let walk = match &mut self.walk {
                Some(walk) => walk,
                None => {
                    let Some(dir) = self.dirs.get(self.next) else {
                        self.next = 0;
                        self.projects = None;
                        return true;
                    };
                    self.next += 1;
                    let usage = projects.get(dir).and_then(|project| quota::usage(dir, *project));
                    if let Some(usage) = usage {
                        self.found.insert(dir.clone(), usage);
                        left -= 1;
                        continue;
                    }
                    self.walk.insert(Walk::begin(dir))
                }
            };
            if walk.go_on(&mut left)
                && let Some(walk) = self.walk.take()
            {
                match walk.device {
                    Some(_) => {
                        self.found.insert(walk.dir.clone(), walk.usage());
                    }
                    // It is not there: nothing is known, which is not the same as nothing being used.
                    None => {
                        self.found.remove(&walk.dir);
                    }
                }
            }
        }
        false
    }

    /// What a directory takes up; `None` before its first whole walk.
    #[must_use]
    pub fn usage(&self, dir: &Path) -> Option<FsUsage> {
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

/// A walk that is under way.
#[derive(Debug)]
struct Walk {
    dir: PathBuf,
    /// Device of the directory; `None` when it is not there.
    device: Option<u64>,
    /// Directories that are being read, the innermost last.
    open: Vec<ReadDir>,
    linked: BTreeSet<u64>,
    bytes: u64,
    inodes: u64,
}

/// Directories that are nested deeper are left out: each level keeps one open.
const DEEPEST: usize = 256;

impl Walk {
    fn begin(dir: &Path) -> Self {
        let about = fs::symlink_metadata(dir).ok().filter(fs::Metadata::is_dir);
        let open = about.as_ref().and_then(|_| fs::read_dir(dir).ok());
        Self {
            dir: dir.to_owned(),
            device: about.as_ref().map(std::os::unix::fs::MetadataExt::dev),
            open: open.into_iter().collect(),
            linked: BTreeSet::new(),
            bytes: about.as_ref().map_or(0, |about| about.blocks() * 512),
            inodes: u64::from(about.is_some()),
        }
    }

    /// Looks at entries until there are none left (true) or `left` is used up (false).
    fn go_on(&mut self, left: &mut u64) -> bool {
        while let Some(dir) = self.open.last_mut() {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            let Some(entry) = dir.next() else {
                self.open.pop();
                continue;
            };
            // What vanishes while it is looked at takes up nothing.
            let Ok(entry) = entry else { continue };
            let Ok(about) = entry.metadata() else { continue };
            if Some(about.dev()) != self.device {
                continue;
            }
            let has_other_names = !about.is_dir() && about.nlink() > 1;
            if has_other_names
                && self.linked.len() < LINKED_AT_MOST
                && !self.linked.insert(about.ino())
            {
                continue;
            }
            self.bytes = self.bytes.saturating_add(about.blocks().saturating_mul(512));
            self.inodes += 1;
            if about.is_dir() && self.open.len() < DEEPEST {
                self.open.extend(fs::read_dir(entry.path()));
            }
        }
        true
    }

    fn usage(&self) -> FsUsage {
        FsUsage { used_bytes: Some(self.bytes), inodes_used: Some(self.inodes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let usage = survey.usage(&a).unwrap();
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
