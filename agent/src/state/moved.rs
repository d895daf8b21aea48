//! Memory of processes that have moved to another cgroup: the kernel leaves it charged to the one in which it was taken.
//!
//! ```text
//!  user@1000.service        anon 8 GiB
//!   ├─ a.scope              anon 8 GiB, nobody left in it: no workload
//!   └─ b.scope              anon 1 MiB, one process whose RssAnon is 8 GiB: it counts as having them
//! ```
//! Whoever was handed a tree moves processes in it at will, and the cgroup that they have left may be removed: what was charged to it is its parent's then.
//! So what such a tree has, less what its workloads have, is held by processes that have moved. Where that is more than any session leaves behind, the processes are asked what they hold.
//! Where there are more of them than can be asked, whoever was not asked counts as having all that is left: its owner hides among what is its own.

use super::tracked::Tracked;
use crate::clock::Boot;
use crate::sense::Roots;
use crate::sense::file::{keyed, read_once};
use crate::sense::process::anonymous_memory;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Bytes that a tree may have beside its workloads before its processes are asked: a session leaves some behind that nobody hides.
const NOTABLE: u64 = 64 << 20;

/// The same as a part of what the tree has: one in so many.
const SHARE: u64 = 10;

/// Processes that are asked at once.
const ASKED: usize = 2048;

/// How long what they said stands.
const STANDS_FOR: Duration = Duration::from_millis(100);

/// Who was found to have memory that is charged elsewhere.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// Bytes by the id of the cgroup.
    bytes: BTreeMap<u64, u64>,
    asked: Option<Boot>,
}

/// What one workload's processes hold beyond what is charged to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Excess {
    id: u64,
    /// `None`: not all of its processes were asked.
    bytes: Option<u64>,
}

impl Moved {
    /// What the workload `id` has in other cgroups, in bytes.
    pub(super) fn of(&self, id: u64) -> u64 {
        self.bytes.get(&id).copied().unwrap_or(0)
    }

    /// Looks at the trees that were handed over, once their workloads were read.
    pub(super) fn look(&mut self, now: Boot, cgroups: &BTreeMap<u64, Tracked>, roots: &Roots) {
        let mut trees: BTreeMap<&Path, Vec<&Tracked>> = BTreeMap::new();
        for tracked in cgroups.values().filter(|tracked| tracked.is_handed_over) {
            trees.entry(&tracked.named).or_default().push(tracked);
        }
        let hiding: Vec<_> = trees
            .into_iter()
            .filter_map(|(tree, own)| Some((missing(&roots.cgroup.join(tree), &own)?, own)))
            .collect();
        if hiding.is_empty() {
            *self = Self::default();
            return;
        }
        if self.asked.is_some_and(|at| now.since(at) < STANDS_FOR) {
            return;
        }
        let mut left = ASKED;
        let found = hiding.iter().flat_map(|(missing, own)| {
            let held = own.iter().map(|tracked| excess(tracked, &roots.proc, &mut left)).collect();
            share(*missing, held)
        });
        (self.bytes, self.asked) = (found.collect(), Some(now));
    }
}

/// Anonymous memory of a tree that none of its workloads has, if it is worth a question.
fn missing(tree: &Path, own: &[&Tracked]) -> Option<u64> {
    let stat = read_once(&tree.join("memory.stat")).ok()?;
    let all = keyed(&stat, "anon")?;
    let charged: u64 = own.iter().filter_map(|tracked| tracked.populated_anon()).sum();
    let missing = all.saturating_sub(charged);
    (missing >= NOTABLE && missing >= all / SHARE).then_some(missing)
}

fn excess(tracked: &Tracked, proc: &Path, left: &mut usize) -> Excess {
    let pids = tracked.cgroup.processes(left.saturating_add(1));
    let is_whole = pids.len() <= *left;
    *left = left.saturating_sub(pids.len());
    let held = || pids.iter().filter_map(|&pid| anonymous_memory(proc, pid)).sum::<u64>();
    let charged = tracked.populated_anon().unwrap_or(0);
    Excess { id: tracked.cgroup.id(), bytes: is_whole.then(|| held().saturating_sub(charged)) }
}

/// Gives each what its processes hold, the largest first and together no more than is `missing`, as memory that processes share counts for each of them.
fn share(missing: u64, mut held: Vec<Excess>) -> Vec<(u64, u64)> {
    held.sort_by_key(|excess| std::cmp::Reverse(excess.bytes.unwrap_or(0)));
    let mut left = missing;
    let mut found = Vec::new();
    for Excess { id, bytes } in &held {
        let bytes = bytes.unwrap_or(0).min(left);
        left -= bytes;
        found.push((*id, bytes));
    }
    let unasked = held.iter().filter(|excess| excess.bytes.is_none());
    found.extend(unasked.map(|excess| (excess.id, left)));
    found.retain(|(_, bytes)| *bytes > 0);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(missing: u64, held: &[(u64, Option<u64>)]) -> Vec<(u64, u64)> {
        share(missing, held.iter().map(|&(id, bytes)| Excess { id, bytes }).collect())
    }

    #[test]
    fn whoever_holds_what_is_missing_has_it_and_all_together_no_more() {
        assert_eq!(shared(100, &[(1, Some(0)), (2, Some(90))]), [(2, 90)]);
        // Two processes that share their memory.
        assert_eq!(shared(100, &[(1, Some(80)), (2, Some(90))]), [(2, 90), (1, 10)]);
    }

    #[test]
    fn whoever_was_not_asked_may_have_all_that_is_left() {
        assert_eq!(
            shared(100, &[(1, Some(30)), (2, None), (3, None)]),
            [(1, 30), (2, 70), (3, 70)]
        );
        assert_eq!(shared(100, &[(1, Some(120)), (2, None)]), [(1, 100)]);
    }
}
