//! What directories take up on disk, walked a bounded number of entries at a time.
//!
//! ```text
//!  directories ─► Survey ─► step(budget) ─► … ─► a whole walk ─► usage of each
//! ```
//! A walk of a large directory costs seconds of disk and processor, so it is never done in one go: each [`Survey::step`] looks at no more entries than it is allowed, and the next goes on from there.
//! Until a directory has been walked once its usage is not known; from then on the last whole walk stands.
//! A round passes over a directory that is larger than its share and goes on with it in the next: one pod's files keep nobody else's from being counted.
//! What was counted of it by then stands where it is more than the last whole walk found, or where it has been walked for a minute: it uses that at least.
//! The same goes for a walk that had to leave something out. Such a figure says that it is no whole one.
//! How a directory is walked that its owner changes meanwhile is in `sense::walk`.

use super::pod_dirs::Figure;
use super::walk::{Walk, open_dir};
use crate::clock::Boot;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Entries of one directory in a round.
const SHARE: u64 = 50_000;

/// Walks that wait for the next round.
const WAITING: usize = 4;

/// After this long what was counted stands for a directory of which nothing was known.
const LONG: Duration = Duration::from_secs(60);

/// Walks directories in turn, again and again.
#[derive(Debug)]
pub struct Survey {
    share: u64,
    dirs: Vec<PathBuf>,
    /// Which is next, once the present walk is done.
    next: usize,
    walk: Option<Begun>,
    /// Walks of directories that were larger than their share of a round.
    waiting: Vec<Begun>,
    /// Since when directories are walked of which no walk has come to its end.
    since: BTreeMap<PathBuf, Boot>,
    found: BTreeMap<PathBuf, Figure>,
}

/// A walk that is under way, of which directory, and since when.
#[derive(Debug)]
struct Begun {
    dir: PathBuf,
    at: Boot,
    walk: Walk,
    /// Entries that are left of its share of the round.
    left: u64,
}

impl Default for Survey {
    fn default() -> Self {
        Self {
            share: SHARE,
            dirs: Vec::new(),
            next: 0,
            walk: None,
            waiting: Vec::new(),
            since: BTreeMap::new(),
            found: BTreeMap::new(),
        }
    }
}

impl Survey {
    /// Says which directories there are; what is known of others is forgotten, a walk of one that stays goes on.
    pub fn set_dirs(&mut self, mut dirs: Vec<PathBuf>) {
        dirs.sort();
        dirs.dedup();
        self.found.retain(|dir, _| dirs.binary_search(dir).is_ok());
        let is_there = |begun: &Begun| dirs.binary_search(&begun.dir).is_ok();
        self.walk = self.walk.take().filter(is_there);
        self.waiting.retain(is_there);
        self.since.retain(|dir, _| dirs.binary_search(dir).is_ok());
        let reached = self.dirs.get(self.next);
        self.next = reached.map_or(0, |dir| dirs.partition_point(|other| other < dir));
        self.dirs = dirs;
    }

    /// Looks at up to `budget` more entries; returns whether every directory has been walked, or has had its share, since the last time this was so.
    pub fn step(&mut self, budget: u64) -> bool {
        let mut left = budget;
        while left > 0 {
            let begun = match &mut self.walk {
                Some(begun) => begun,
                None => {
                    let Some(dir) = self.dirs.get(self.next) else {
                        self.next = 0;
                        return true;
                    };
                    self.next += 1;
                    let at = Boot::now();
                    if let Some(place) = self.waiting.iter().position(|begun| &begun.dir == dir) {
                        let begun = self.waiting.swap_remove(place);
                        self.walk = Some(Begun { left: self.share, ..begun });
                        continue;
                    }
                    let Ok(walk) = open_dir(dir).and_then(Walk::begin) else {
                        // It is not there: nothing is known, which is not the same as nothing being used.
                        self.found.remove(dir);
                        left -= 1;
                        continue;
                    };
                    self.since.entry(dir.clone()).or_insert(at);
                    self.walk.insert(Begun { dir: dir.clone(), at, walk, left: self.share })
                }
            };
            let granted = left.min(begun.left);
            let mut rest = granted;
            let is_over = begun.walk.go_on(&mut rest);
            left -= granted - rest;
            begun.left -= granted - rest;
            let is_enough = is_over || begun.left == 0;
            if let Some(begun) = self.walk.take_if(|_| is_enough) {
                self.end(begun, is_over);
            }
        }
        false
    }

    /// A walk has come to its end, or has had its share of the round.
    fn end(&mut self, begun: Begun, is_over: bool) {
        let is_whole = is_over && begun.walk.is_whole();
        let figure = Figure { usage: begun.walk.usage(), at: begun.at, is_whole };
        let figure = match self.found.get(&begun.dir) {
            Some(found) if !is_whole => Some(found.or_more(figure)),
            Some(_) => Some(figure),
            None => {
                let since = self.since.get(&begun.dir);
                let is_long = since.is_some_and(|since| Boot::now().since(*since) >= LONG);
                (is_over || is_long).then_some(figure)
            }
        };
        if let Some(figure) = figure {
            self.found.insert(begun.dir.clone(), figure);
        }
        if is_over {
            self.since.remove(&begun.dir);
        } else if self.waiting.len() < WAITING {
            self.waiting.push(begun);
        }
    }

    /// What a directory takes up, as of the beginning of the last whole walk, or more that was found since; `None` before the first.
    #[must_use]
    pub fn usage(&self, dir: &Path) -> Option<Figure> {
        self.found.get(dir).copied()
    }
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
    fn a_large_directory_keeps_nobody_elses_from_being_counted_and_is_known_after_some_rounds() {
        let dir = tree();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let mut survey = Survey { share: 4, ..Survey::default() };
        survey.set_dirs(vec![a.clone(), b.clone()]);
        assert!(survey.step(1000), "a round ends although one is larger than its share");
        assert_eq!(survey.usage(&a), None);
        assert!(survey.usage(&b).is_some());
        let mut rounds = 1;
        while survey.usage(&a).is_none() {
            assert!(survey.step(1000));
            rounds += 1;
            assert!(rounds < 10);
        }
        assert_eq!(survey.usage(&a).unwrap().usage.inodes_used, Some(13));
    }

    #[test]
    fn what_was_counted_of_a_directory_that_grew_stands_before_its_walk_is_over() {
        let dir = tree();
        let a = dir.path().join("a");
        let mut survey = Survey::default();
        survey.set_dirs(vec![a.clone()]);
        assert!(survey.step(1000));
        let before = survey.usage(&a).unwrap().usage.used_bytes.unwrap();
        for n in 0..100 {
            fs::write(a.join(format!("more-{n}")), vec![b'x'; 20_000]).unwrap();
        }
        survey.share = 60;
        assert!(survey.step(1000));
        let now = survey.usage(&a).unwrap().usage.used_bytes.unwrap();
        assert!(now > before, "{now}");
    }

    #[test]
    fn a_walk_that_lost_something_tells_the_least_that_is_there_until_one_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (a, away) = (dir.path().join("a"), dir.path().join("away"));
        fs::create_dir_all(a.join("d/".repeat(100))).unwrap();
        let moved = a.join("d/".repeat(20));
        let mut survey = Survey::default();
        survey.set_dirs(vec![a.clone()]);
        // It is deep in there, however entries are ordered.
        assert!(!survey.step(200));
        fs::rename(&moved, &away).unwrap();
        assert!(survey.step(1000));
        let least = survey.usage(&a).unwrap();
        assert!(!least.is_whole);
        assert_eq!(least.usage.inodes_used, Some(101));
        fs::rename(&away, &moved).unwrap();
        assert!(survey.step(1000));
        assert!(survey.usage(&a).unwrap().is_whole);
        assert!(!survey.step(200));
        fs::rename(&moved, &away).unwrap();
        assert!(survey.step(1000));
        assert!(survey.usage(&a).unwrap().is_whole, "all of it stands until more is found");
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
