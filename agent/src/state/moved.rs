//! Memory of processes that have moved to another cgroup: the kernel leaves it charged to the one in which it was taken.
//!
//! ```text
//!  user@1000.service        anon 8 GiB
//!   ├─ a.scope              anon 8 GiB, nobody left in it: no workload
//!   └─ b.scope              anon 1 MiB, one process whose RssAnon is 8 GiB: it counts as having them
//! ```
//! Whoever was handed a tree moves processes in it at will, and the cgroup that they have left may be removed: what was charged to it is its parent's then.
//! So what such a tree has, less what its workloads have, is held by processes that have moved. Where that is more than any session leaves behind, the processes are asked what they hold.
//! Where there are more of them than can be asked, or some came since, whoever was not asked counts as having all that is left: its owner hides among what is its own.
//! Memory that processes share (memfd, shared mappings) moves in the same way, and goes with the last who has it. Files of tmpfs look alike and stay: of shared memory whoever maps it is charged, and what nobody maps is nobody's.
//! What nobody of a tree is found to hold of its own may be anybody's in it, for the same reason. Where the operator lists which cgroups are workloads the others hold it, as far as anybody knows: nobody is charged with what was not found.

use super::tracked::Tracked;
use crate::clock::Boot;
use crate::sense::Roots;
use crate::sense::file::{keyed, read_once};
use crate::sense::members::Members;
use crate::sense::process::{Held, resident_memory};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes that a tree may have beside its workloads before its processes are asked: a session leaves some behind that nobody hides.
const NOTABLE: u64 = 64 << 20;

/// The same as a part of what the tree has: one in so many.
const SHARE: u64 = 10;

/// Processes that are asked at once, the same number of each tree: a crowd in one leaves questions for the others.
const ASKED: usize = 2048;

/// Processes that are left to ask of each workload behind a large one.
const FEW: usize = 16;

/// However long it took, no longer than this.
const STANDS_AT_MOST: Duration = Duration::from_secs(1);

/// What they said stands for so many times as long as it took to ask them: the part of one core that it may take is one in this many.
const STANDS_FOR: u32 = 10;

/// Workloads behind the large ones that are read for this alone.
const READ_FOR_IT: usize = 1024;

/// Who was found to have memory that is charged elsewhere.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// How much, by the id of the cgroup.
    found: BTreeMap<u64, Held>,
    answers: Option<Answers>,
    /// Trees that had workloads when they were looked at last, or memory that nobody was found to have: the only one who is known of a tree may move to where nobody has told of.
    trees: BTreeSet<PathBuf>,
}

/// What processes said when they were asked last.
#[derive(Debug)]
struct Answers {
    at: Boot,
    took: Duration,
    /// What those of a cgroup hold beyond what is charged to it, by its id; `None`: not all of them were asked.
    excess: BTreeMap<u64, Option<Held>>,
}

/// What one workload's processes hold beyond what is charged to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Excess {
    id: u64,
    /// `None`: not all of its processes were asked.
    bytes: Option<u64>,
}

/// Whether it is known who holds what a tree has, the best known first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub(super) enum Explained {
    /// All of it, as far as it matters.
    All,
    /// Somebody may be in a cgroup that is not known yet; whoever is known of its tree is charged with it.
    NotAll,
    /// The same of a tree of which nobody is known: nobody is charged with it.
    ByNobody,
}

/// Looking for somebody who moves on while its tree is read, and how long nobody is chosen meanwhile.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Somebody has left a tree that was handed over since workloads were read, perhaps for another cgroup of it.
    has_left: bool,
    /// When they were read, nobody was known of such a tree that holds memory.
    found_nobody: bool,
    /// Since when nobody was chosen for that, the last time.
    held_since: Option<Boot>,
    /// When its tree was read again for somebody, and how long that took.
    looked: Option<Boot>,
    took: Duration,
}

/// How long nobody is chosen at most because nobody is known of a tree that holds memory, and how long before that may be again: whoever moves on without a rest must not hold up the eviction of others.
const HELD_AT_MOST: Duration = Duration::from_millis(250);
const HELD_AGAIN_AFTER: Duration = Duration::from_secs(10);

impl Search {
    /// Notes that somebody has left, if it may be one who took memory along.
    pub(super) fn note_left(&mut self, may_have_taken: bool) {
        self.has_left |= may_have_taken;
    }

    /// Workloads are about to be read again: who has left by now is looked for there.
    pub(super) fn begin(&mut self) {
        (self.has_left, self.found_nobody) = (false, false);
    }

    /// They were read.
    pub(super) fn conclude(&mut self, explained: Explained) {
        self.found_nobody = explained == Explained::ByNobody;
    }

    /// Whether trees may be read again for somebody at `now`: it takes no more of a core than one part in `share`.
    pub(super) fn may_look(&self, now: Boot, share: u32, at_most: Duration) -> bool {
        let rest = (self.took * share).min(at_most);
        self.looked.is_none_or(|at| now.since(at) >= rest)
    }

    /// Notes that they were, in so much time.
    pub(super) fn note_look(&mut self, now: Boot, took: Duration) {
        (self.looked, self.took) = (Some(now), took);
    }

    /// Whether nobody should be chosen by what was read, however young it is.
    pub(super) fn is_on(&self, now: Boot) -> bool {
        self.has_left || self.found_nobody && self.may_hold(now)
    }

    /// The same for a choice that has to be made: from here on the time counts for which it is put off.
    pub(super) fn holds(&mut self, now: Boot) -> bool {
        let is_on = self.is_on(now);
        if is_on && self.found_nobody && !self.is_held(now) {
            self.held_since = Some(now);
        }
        is_on
    }

    fn may_hold(&self, now: Boot) -> bool {
        let held = self.held_since.map(|since| now.since(since));
        held.is_none_or(|held| held < HELD_AT_MOST || held >= HELD_AGAIN_AFTER)
    }

    fn is_held(&self, now: Boot) -> bool {
        self.held_since.is_some_and(|since| now.since(since) < HELD_AT_MOST)
    }
}

impl Moved {
    /// What the workload `id` has in other cgroups.
    pub(super) fn of(&self, id: u64) -> Held {
        self.found.get(&id).copied().unwrap_or_default()
    }

    /// Whether who leaves the workload may hold memory elsewhere that matters: it lies in a tree that was handed over, and had much or nobody knows what.
    pub(super) fn may_be_taken_along(&self, tracked: &Tracked) -> bool {
        let charged = tracked.charged();
        let had = charged.map(|charged| charged + self.of(tracked.cgroup.id()));
        tracked.is_handed_over && had.is_none_or(|had| had.all() >= NOTABLE)
    }

    /// Workloads of which more must be read before [`Self::look`], the largest first: those of which only the usage was, in trees that may have memory beside what their workloads have. Taken for what they had earlier, what they took since would count twice.
    pub(super) fn unread(cgroups: &BTreeMap<u64, Tracked>, roots: &Roots) -> Vec<u64> {
        if !cgroups.values().any(Tracked::is_read_in_part) {
            return Vec::new();
        }
        let mut unread = Vec::new();
        for (tree, own) in by_tree(cgroups) {
            let (parts, known): (Vec<&Tracked>, Vec<&Tracked>) =
                own.into_iter().partition(|tracked| tracked.is_read_in_part());
            if !parts.is_empty() && Missing::of(&roots.cgroup.join(tree), &known).is_some() {
                unread.extend(parts.iter().map(|one| (one.current(), one.cgroup.id())));
            }
        }
        unread.sort_unstable_by(|a, b| b.cmp(a));
        unread.into_iter().take(READ_FOR_IT).map(|(_, id)| id).collect()
    }

    /// Looks at the trees that were handed over, once their workloads were read, which are whatever lives in such a tree unless `are_listed` by the operator.
    pub(super) fn look(
        &mut self,
        now: Boot,
        cgroups: &BTreeMap<u64, Tracked>,
        are_listed: bool,
        roots: &Roots,
    ) -> Explained {
        let before = std::mem::take(&mut self.trees);
        let mut trees = by_tree(cgroups);
        for tree in &before {
            trees.entry(tree).or_default();
        }
        // Of one that has become a workload as a whole, or lies in another tree now, it is known who holds it.
        trees.retain(|tree, own| !own.is_empty() || !is_held_by_another(tree, cgroups, roots));
        let short: Vec<_> = trees
            .into_iter()
            .filter_map(|(tree, mut own)| {
                let has_workloads = !own.is_empty();
                own.retain(|tracked| tracked.may_run());
                let missing = Missing::of(&roots.cgroup.join(tree), &own);
                if has_workloads || missing.is_some() {
                    self.trees.insert(tree.to_owned());
                }
                Some((missing?, own))
            })
            .collect();
        if short.is_empty() {
            (self.found, self.answers) = (BTreeMap::new(), None);
            return Explained::All;
        }
        let last = self.answers.take().filter(|last| last.stand(now));
        let is_new = last.is_none();
        let answers = last.unwrap_or_else(|| {
            Answers::ask(now, short.iter().map(|(_, own)| own.as_slice()), &roots.proc)
        });
        self.found.clear();
        let mut explained = Explained::All;
        for (missing, own) in &short {
            let ids = || own.iter().map(|one| one.cgroup.id());
            // Whoever came since they were asked has not been asked; where the operator lists workloads a newcomer need not be anybody.
            let mut held: Vec<_> =
                ids().map(|id| answers.of(id, |held| held.own, !are_listed)).collect();
            let Shared { mut bytes, unknown, left } = share(missing.held.own, &mut held);
            if missing.is_notable(unknown) && !are_listed {
                if missing.is_notable(left) {
                    held.iter_mut().for_each(|excess| excess.bytes = None);
                    bytes = share(missing.held.own, &mut held).bytes;
                }
                if own.is_empty() {
                    explained = Explained::ByNobody;
                } else if is_new {
                    // Old answers are no ground to look for somebody else: who gave them has moved on since.
                    explained = explained.max(Explained::NotAll);
                }
            }
            for (id, own) in bytes {
                self.found.entry(id).or_default().own = own;
            }
            // Much of it may be files that nobody maps: a newcomer has none of it.
            let mut held: Vec<_> =
                ids().map(|id| answers.of(id, |held| held.shared, false)).collect();
            for (id, shared) in share(missing.held.shared, &mut held).bytes {
                self.found.entry(id).or_default().shared = shared;
            }
        }
        self.answers = Some(answers);
        explained
    }

    /// Has processes asked again with the next look, however long ago they were.
    pub(super) fn forget_answers(&mut self) {
        self.answers = None;
    }
}

impl Answers {
    /// Asks the processes of each tree's workloads.
    fn ask<'a>(
        now: Boot,
        trees: impl ExactSizeIterator<Item = &'a [&'a Tracked]>,
        proc: &Path,
    ) -> Self {
        let begun = Boot::now();
        let of_each = ASKED / trees.len().max(1);
        let mut excess = BTreeMap::new();
        for own in trees {
            let mut left = of_each;
            for (one, behind) in own.iter().zip((0..own.len()).rev()) {
                // A crowd leaves questions for those behind it.
                let share = (left / 2).max(left.saturating_sub(behind * FEW));
                let (bytes, asked) = excess_of(one, proc, share);
                left -= asked;
                excess.insert(one.cgroup.id(), bytes);
            }
        }
        Self { at: now, took: Boot::now().since(begun), excess }
    }

    fn stand(&self, now: Boot) -> bool {
        now.since(self.at) < (self.took * STANDS_FOR).min(STANDS_AT_MOST)
    }

    /// What the workload `id` was found to hold of one `kind`; of one that came since nothing is known where `newcomers` are asked too, and it is nothing where they are not.
    fn of(&self, id: u64, kind: impl Fn(Held) -> u64, newcomers: bool) -> Excess {
        let bytes = match self.excess.get(&id) {
            Some(excess) => excess.map(kind),
            None => (!newcomers).then_some(0),
        };
        Excess { id, bytes }
    }
}

/// Memory of processes in a tree that none of its workloads has.
#[derive(Clone, Copy, Debug)]
struct Missing {
    held: Held,
    /// What the tree has in all.
    all: Held,
}

impl Missing {
    /// That of `tree` with the workloads `own`, if it is worth a question.
    fn of(tree: &Path, own: &[&Tracked]) -> Option<Self> {
        let stat = read_once(&tree.join("memory.stat")).ok()?;
        let all = Held { own: keyed(&stat, "anon")?, shared: keyed(&stat, "shmem").unwrap_or(0) };
        let charged = own.iter().filter_map(|tracked| tracked.charged());
        let charged = charged.fold(Held::default(), Held::add);
        let missing = Self { held: all.beyond(charged), all };
        let Held { own, shared } = missing.held;
        (missing.is_notable(own) || is_notable(shared, all.shared)).then_some(missing)
    }

    /// Whether so much memory of their own matters.
    fn is_notable(&self, bytes: u64) -> bool {
        is_notable(bytes, self.all.own)
    }
}

fn is_notable(bytes: u64, of: u64) -> bool {
    bytes >= NOTABLE && bytes >= of / SHARE
}

/// What the processes of a workload hold beyond what is charged to it, and how many were asked; `None` when there are more than `most`, or they cannot be told.
///
/// Nor can it be told of one that is exiting: what it had is being taken back, and no longer shown as its own; since Linux 7.0 it is not even listed.
fn excess_of(tracked: &Tracked, proc: &Path, most: usize) -> (Option<Held>, usize) {
    let members = tracked.cgroup.members_up_to(most, proc, &Members::default());
    let Ok(Some(Members { pids, .. })) = members else { return (None, 0) };
    if pids.is_empty() {
        return (None, 0);
    }
    let held = |pid: &i32| match resident_memory(proc, *pid) {
        // It has ended since it was listed.
        None if !proc.join(pid.to_string()).exists() => Some(Held::default()),
        held => held,
    };
    let mut held = pids.iter().map(held);
    let held = held.try_fold(Held::default(), |sum, held| Some(sum + held?));
    let excess = held.map(|held| held.beyond(tracked.charged().unwrap_or_default()));
    (excess, pids.len())
}

/// Who has what of the memory that is charged to no workload of a tree.
#[derive(Debug, PartialEq, Eq)]
struct Shared {
    /// Bytes by the id of the cgroup.
    bytes: Vec<(u64, u64)>,
    /// Bytes that nobody who was asked holds: whoever was not asked is given them.
    unknown: u64,
    /// Bytes that nobody was given.
    left: u64,
}

/// Gives each what its processes hold, the largest first and together no more than is `missing`, as memory that processes share counts for each of them.
fn share(missing: u64, held: &mut [Excess]) -> Shared {
    held.sort_by_key(|excess| std::cmp::Reverse(excess.bytes.unwrap_or(0)));
    let mut unknown = missing;
    let mut found = Vec::new();
    for Excess { id, bytes } in &*held {
        let bytes = bytes.unwrap_or(0).min(unknown);
        unknown -= bytes;
        found.push((*id, bytes));
    }
    let unasked = held.iter().filter(|excess| excess.bytes.is_none());
    found.extend(unasked.clone().map(|excess| (excess.id, unknown)));
    found.retain(|(_, bytes)| *bytes > 0);
    let left = if unasked.count() > 0 { 0 } else { unknown };
    Shared { bytes: found, unknown, left }
}

/// The workloads of each tree that was handed over.
fn by_tree(cgroups: &BTreeMap<u64, Tracked>) -> BTreeMap<&Path, Vec<&Tracked>> {
    let mut trees: BTreeMap<&Path, Vec<&Tracked>> = BTreeMap::new();
    for tracked in cgroups.values().filter(|tracked| tracked.is_handed_over) {
        trees.entry(&tracked.named).or_default().push(tracked);
    }
    trees
}

/// Whether a workload is `tree` itself, or lies below it or above.
fn is_held_by_another(tree: &Path, cgroups: &BTreeMap<u64, Tracked>, roots: &Roots) -> bool {
    cgroups.values().filter(|tracked| tracked.may_run()).any(|tracked| {
        let path = roots.below_mount(&tracked.path);
        path.starts_with(tree) || tree.starts_with(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(missing: u64, held: &[(u64, Option<u64>)]) -> (Vec<(u64, u64)>, u64) {
        let mut held: Vec<_> = held.iter().map(|&(id, bytes)| Excess { id, bytes }).collect();
        let Shared { bytes, left, .. } = share(missing, &mut held);
        (bytes, left)
    }

    #[test]
    fn whoever_holds_what_is_missing_has_it_and_all_together_no_more() {
        assert_eq!(shared(100, &[(1, Some(0)), (2, Some(90))]), (vec![(2, 90)], 10));
        // Two processes that share their memory.
        assert_eq!(shared(100, &[(1, Some(80)), (2, Some(90))]), (vec![(2, 90), (1, 10)], 0));
    }

    #[test]
    fn whoever_was_not_asked_may_have_all_that_is_left() {
        assert_eq!(
            shared(100, &[(1, Some(30)), (2, None), (3, None)]),
            (vec![(1, 30), (2, 70), (3, 70)], 0)
        );
        assert_eq!(shared(100, &[(1, Some(120)), (2, None)]), (vec![(1, 100)], 0));
    }
}
