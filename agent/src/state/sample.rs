//! Reading the workloads: the tree where it may have changed, what all use, and more of those that could matter.

use super::NodeState;
use super::moved::{Explained, Moved};
use super::targets::PROTECTED_FOR;
use super::tracked::{Ceiling, Tracked};
use crate::clock::Boot;
use crate::sense::process::Process;
use crate::sense::tree::Tree;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Workloads that are read in full at every sample; of the rest only `memory.current` is, and the other values stay as they were.
pub(super) const READ_IN_FULL: usize = 128;

/// How old the tree may get where no kernel event says when it changes: while nothing is near, and at least while something is.
pub(super) const TREE_MAX_AGE: Duration = Duration::from_secs(1);

const TREE_LEAST_AGE: Duration = Duration::from_millis(20);

/// Bytes by which available memory may fall between a reading of workloads and a choice by it: what somebody has taken who came since is less than this.
pub const UNEXPLAINED: u64 = 16 << 20;

/// How often the tree is read in a row for somebody who moves on.
const LOOKS_FOR_THE_MOVING: usize = 3;

/// While something is near, the part of one core that reading the tree may take is one in this many.
const TREE_SHARE: u32 = 10;

/// Workloads that are not protected and are looked at again for that with one sample.
const JUDGED_AT_ONCE: usize = 16;

/// How much of each workload is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// What changes by the millisecond: just before a decision.
    Memory,
    /// Everything, of each workload by itself: nobody who holds a lock of the cgroup tree can hold this up.
    Full,
    /// Everything, in one sweep over the tree where there is one: cheaper, for when nothing is near.
    Swept,
}

impl NodeState {
    /// Reads the workloads: the tree if it may have changed, usage of all, and as much as `depth` says about the largest.
    ///
    /// # Errors
    /// When the cgroup root (or, on hosts without unified cgroups, `/proc`) cannot be read at all; what was known before then still stands.
    pub fn sample(&mut self, now: Boot, depth: Depth) -> io::Result<()> {
        if self.layout.unified().is_some() {
            self.search.begin();
            let explained = self.sample_cgroups(now, depth)?;
            self.search.conclude(explained);
        } else {
            self.processes = Process::all(&self.roots.proc)?;
            self.processes.retain(|p| !p.is_kernel_thread() && p.state != 'Z');
        }
        self.found_protected.retain(|_, (_, at)| now.since(*at) < PROTECTED_FOR);
        self.sampled = Some(now);
        self.available_then = self.memory_available();
        Ok(())
    }

    /// Whether available memory has fallen so far since workloads were read that who has taken it need not be among them, however young the reading is.
    #[must_use]
    pub fn has_unexplained_fall(&self) -> bool {
        let fall = self.available_then.zip(self.memory_available());
        fall.is_some_and(|(then, now)| then.saturating_sub(now) >= UNEXPLAINED)
    }

    /// Has the tree read anew with the next sample where no kernel event tells of a newcomer.
    pub fn look_for_newcomers(&mut self) {
        if !self.tree_events {
            self.forget_tree();
        }
    }

    /// Whether nobody is to be chosen by what was read last, however young it is: somebody has left a tree that was handed over, perhaps for another cgroup of it. What it holds is nobody's until workloads are read again, and the next in size would go for it.
    ///
    /// After a reading it lasts where that found nobody in such a tree: for a quarter of a second from when a choice was first put off for it.
    #[must_use]
    pub fn is_outdated(&self, now: Boot) -> bool {
        self.search.is_on(now)
    }

    /// The same, when somebody is to be chosen now.
    pub fn holds_choice(&mut self, now: Boot) -> bool {
        self.search.holds(now)
    }

    fn sample_cgroups(&mut self, now: Boot, depth: Depth) -> io::Result<Explained> {
        if self.tree_read.is_none_or(|at| now.since(at) > self.tree_max_age(depth)) {
            self.read_tree(now)?;
        }
        self.follow_workloads();
        self.judge_again(now);
        if depth != Depth::Memory {
            self.ceilings.clear();
        }
        if depth == Depth::Swept {
            self.sweeper.sweep();
        } else {
            self.sweeper.forget();
        }
        // With many workloads, first find out which are large enough to matter.
        let largest = if self.cgroups.len() > READ_IN_FULL {
            self.largest()
        } else {
            self.cgroups.keys().copied().collect()
        };
        for id in largest {
            self.read_workload(id, depth);
        }
        for id in Moved::unread(&self.cgroups, &self.roots) {
            self.read_workload(id, depth);
        }
        self.forget_the_gone();
        if depth != Depth::Memory {
            self.pod_rests.read(&self.cgroups, &self.tree, &mut self.buffer);
        }
        match self.look_at_the_moved(now) {
            Explained::All => Ok(Explained::All),
            explained => self.look_for_the_moving(now, explained),
        }
    }

    /// Reads the workload `id`: everything of one that was not read before.
    fn read_workload(&mut self, id: u64, depth: Depth) {
        let ceiling = self.ceiling(id);
        let Some(tracked) = self.cgroups.get_mut(&id) else { return };
        tracked.ceiling = ceiling;
        if let Some(swept) = self.sweeper.of(id) {
            tracked.take(swept, &mut self.buffer);
        } else if depth != Depth::Memory || tracked.current().is_none() {
            tracked.read(&mut self.buffer);
        } else {
            tracked.read_memory(&mut self.buffer);
        }
    }

    /// Reads the tree again, as somebody may have moved into a new cgroup since: the others of its tree would be chosen for what nobody of them is found to hold. And again where it has moved on meanwhile. All of that takes no larger a part of a core than reading the tree otherwise.
    ///
    /// Returns whether it is known who holds what: as `explained` says, where it is too early to look again.
    fn look_for_the_moving(
        &mut self,
        now: Boot,
        mut explained: Explained,
    ) -> io::Result<Explained> {
        if !self.search.may_look(now, TREE_SHARE, TREE_MAX_AGE) {
            return Ok(explained);
        }
        let begun = Boot::now();
        for _ in 0..LOOKS_FOR_THE_MOVING {
            self.read_tree(now)?;
            self.follow_workloads();
            let unread = self.cgroups.iter().filter(|(_, tracked)| tracked.current().is_none());
            for id in unread.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.read_workload(id, Depth::Memory);
            }
            self.moved.forget_answers();
            explained = self.look_at_the_moved(now);
            if explained == Explained::All {
                break;
            }
        }
        self.search.note_look(now, Boot::now().since(begun));
        Ok(explained)
    }

    fn look_at_the_moved(&mut self, now: Boot) -> Explained {
        self.moved.look(now, &self.cgroups, self.rules.chosen().is_some(), &self.roots)
    }

    fn read_tree(&mut self, now: Boot) -> io::Result<()> {
        let begun = Boot::now();
        self.tree = Tree::scan(&self.roots.cgroup)?;
        (self.tree_read, self.tree_took) = (Some(now), Boot::now().since(begun));
        Ok(())
    }

    /// How old the tree may be. Who was made since is not in it, so that others would be evicted for what the newcomer takes.
    fn tree_max_age(&self, depth: Depth) -> Duration {
        match depth {
            _ if self.tree_events => Duration::MAX,
            Depth::Swept => TREE_MAX_AGE,
            Depth::Memory | Depth::Full => {
                (self.tree_took * TREE_SHARE).clamp(TREE_LEAST_AGE, TREE_MAX_AGE)
            }
        }
    }

    /// Looks again at protection that was found a while ago: it must not outlast what it was found by.
    fn judge_again(&mut self, now: Boot) {
        let mut others = 0;
        for tracked in self.cgroups.values_mut().filter(|tracked| tracked.is_to_be_judged(now)) {
            others += usize::from(tracked.protected.is_none());
            if tracked.protected.is_some() || others <= JUDGED_AT_ONCE {
                tracked.judge(&self.rules, &self.roots);
            }
        }
    }

    /// What the cgroups above the workload `id` protect at most.
    fn ceiling(&mut self, id: u64) -> Ceiling {
        let parent = |tree: &Tree, id: u64| tree.get(id).map(|node| node.parent);
        let mut all = Ceiling::default();
        let mut at = parent(&self.tree, id);
        while let Some(above) = at {
            let next = parent(&self.tree, above).filter(|next| *next != above);
            // The root protects nothing and bounds nothing.
            if next.is_none() {
                break;
            }
            let own = match self.ceilings.get(&above) {
                Some(own) => *own,
                None => {
                    let path = self.tree.get(above).map(|node| self.roots.cgroup.join(&node.path));
                    let own = path.map(|path| Ceiling::read(&path)).unwrap_or_default();
                    *self.ceilings.entry(above).or_insert(own)
                }
            };
            all = all.and(own);
            at = next;
        }
        all
    }

    /// Forgets what has been removed without a word: chosen, it would be refused as gone, again and again.
    fn forget_the_gone(&mut self) {
        let reaped = self.terminations.being_reaped();
        let before = self.cgroups.len();
        self.cgroups.retain(|id, tracked| {
            tracked.current().is_some() || reaped.contains(id) || tracked.is_there()
        });
        if self.cgroups.len() < before {
            self.forget_tree();
        }
    }

    /// The largest workloads by a fresh look at `memory.current` of all, and as many of those of which it is not known.
    fn largest(&mut self) -> Vec<u64> {
        let mut by_size = Vec::with_capacity(self.cgroups.len());
        for (id, tracked) in &mut self.cgroups {
            let swept = self.sweeper.of(*id).and_then(|swept| swept.usage);
            let size = match swept {
                Some(told) => Some(told.value),
                None => {
                    tracked.read_current(&mut self.buffer);
                    tracked.current()
                }
            };
            by_size.push((size, *id));
        }
        by_size.sort_unstable_by(|a, b| b.cmp(a));
        let is_known = |(size, _): &(Option<u64>, u64)| size.is_some();
        let (known, unknown): (Vec<_>, Vec<_>) = by_size.into_iter().partition(is_known);
        let some = |of: Vec<(_, u64)>| of.into_iter().take(READ_IN_FULL).map(|(_, id)| id);
        some(known).chain(some(unknown)).collect()
    }

    /// Makes the followed workloads those that the tree has now.
    fn follow_workloads(&mut self) {
        let chosen = self.rules.chosen().map(|globs| |path: &Path| globs.is_match(path));
        let wanted = match &chosen {
            Some(accepts) => self.tree.workloads(Some(accepts)),
            None => self.tree.workloads(None),
        };
        let reaped = self.terminations.being_reaped();
        self.cgroups.retain(|id, _| wanted.binary_search(id).is_ok() || reaped.contains(id));
        for id in wanted {
            if self.cgroups.contains_key(&id) {
                continue;
            }
            let Some(node) = self.tree.get(id) else { continue };
            let new =
                Tracked::new(id, node, &self.tree, &self.rules, &self.roots, &self.descriptors);
            if let Some(mut new) = new {
                new.owner = self.pods.owner(&node.path);
                new.since = self.since.remove(&id).unwrap_or(new.since);
                self.cgroups.insert(id, new);
            }
        }
        self.since.clear();
    }
}
