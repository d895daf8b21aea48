//! What ebb knows of the node now: one owner, no lock, bounded by what exists.
//!
//! ```text
//!  node readings ─┐
//!  kernel events ─┼─► NodeState ─► Snapshot (values only, for policy, replay and reports)
//!  cgroup tree   ─┘
//! ```
//! Every reading happens because the loop asked for it, in one of three depths: the node alone ([`NodeState::observe_node`], microseconds),
//! each workload's `memory.current`, or everything about those that could matter ([`NodeState::sample`]).
//! What is gone is forgotten at once.

mod disk;
mod filling;
mod kernel_counts;
mod moved;
mod pods;
mod reclaim;
pub mod rules;
mod snapshot;
mod terminations;
mod tracked;

pub use disk::Disk;
pub use filling::Filling;
use pods::Owner;
pub use pods::{Evicted, Manifested, Pods};
pub use snapshot::Extent;
pub use terminations::{Termination, Terminations};

use crate::clock::{Boot, Clock};
use crate::sense::Roots;
use crate::sense::block;
use crate::sense::descriptors::Descriptors;
use crate::sense::file::read_once;
use crate::sense::host::CgroupLayout;
use crate::sense::meminfo::Measure;
use crate::sense::node::NodeReading;
use crate::sense::process::Process;
use crate::sense::psi::Stall;
use crate::sense::runtime::Inventory;
use crate::sense::sweep::Sweeper;
use crate::sense::tree::{Tree, container_id};
use ebb_journal::{Payload, Target};
use ebb_policy::snapshot::{CgroupId, OomKill, ProtectedReason, WorkloadKey};
use ebb_policy::{Signal, Time};
use ebb_probes::{CgroupChange, KernelEvent};
use moved::{Explained, Moved};
use rules::Rules;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tracked::{Ceiling, Tracked};

/// Workloads that are read in full at every sample; of the rest only `memory.current` is, and the other values stay as they were.
const READ_IN_FULL: usize = 128;

/// How old the tree may get where no kernel event says when it changes: while nothing is near, and at least while something is.
const TREE_MAX_AGE: Duration = Duration::from_secs(1);
const TREE_LEAST_AGE: Duration = Duration::from_millis(20);

/// How often the tree is read in a row for somebody who moves on.
const LOOKS_FOR_THE_MOVING: usize = 3;

/// How long nobody is chosen at most because nobody is known of a tree that holds memory, and how long before that may be again: whoever moves on without a rest must not hold up the eviction of others.
const HELD_AT_MOST: Duration = Duration::from_millis(250);
const HELD_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// While something is near, the part of one core that reading the tree may take is one in this many.
const TREE_SHARE: u32 = 10;

/// How long it stands that a target was found protected when it was about to be killed: whoever protected it may have gone since.
const PROTECTED_FOR: Duration = Duration::from_secs(1);

/// Workloads that are not protected and are looked at again for that with one sample.
const JUDGED_AT_ONCE: usize = 16;

/// How long a pod of which nothing was found to end counts as one of which nothing runs, unless the runtime tells more of it before.
const EMPTY_FOR: Duration = Duration::from_secs(1);

/// Kills by the kernel that a decision is told of at most.
const OOM_KILLS_KEPT: usize = 64;

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

/// Everything that is known of the node.
#[derive(Debug)]
pub struct NodeState {
    roots: Roots,
    clock: Clock,
    started_at: Time,
    measure: Measure,
    rules: Rules,
    layout: CgroupLayout,
    tree: Tree,
    tree_read: Option<Boot>,
    /// How long that took.
    tree_took: Duration,
    tree_events: bool,
    sweeper: Sweeper,
    cgroups: BTreeMap<u64, Tracked>,
    moved: Moved,
    /// Since when cgroups were known whose workloads are made anew.
    since: BTreeMap<u64, Boot>,
    processes: Vec<Process>,
    terminations: Terminations,
    disk: Disk,
    filling: Filling,
    pods: Pods,
    /// Targets, or cgroups of containers, that were found protected when they were about to be killed, why and when.
    found_protected: BTreeMap<Target, (ProtectedReason, Boot)>,
    /// What each cgroup above a workload protects, by its id.
    ceilings: BTreeMap<u64, Ceiling>,
    /// Pods that were chosen and of which nothing was found to end, and when.
    found_empty: BTreeMap<WorkloadKey, Boot>,
    /// Kills by the kernel since the last decision.
    oom_kills: Vec<OomKill>,
    reading: Option<NodeReading>,
    sampled: Option<Boot>,
    /// Somebody has left a tree that was handed over since workloads were read, or was not found when they were.
    is_outdated: bool,
    /// Since when nobody was chosen for the latter, the last time.
    held_since: Option<Boot>,
    /// When somebody was looked for who moves on, and how long that took.
    looked_for: Option<Boot>,
    looks_took: Duration,
    direct_reclaims: Option<u64>,
    kswapd_wakes: Option<u64>,
    descriptors: Descriptors,
    buffer: Vec<u8>,
}

impl NodeState {
    /// A state that knows nothing yet.
    #[must_use]
    pub fn new(roots: Roots, layout: CgroupLayout, measure: Measure, rules: Rules) -> Self {
        let clock = Clock::of_process();
        Self {
            started_at: clock.time(Boot::now()),
            roots,
            clock,
            measure,
            rules,
            layout,
            tree: Tree::default(),
            tree_read: None,
            tree_took: Duration::ZERO,
            tree_events: false,
            sweeper: Sweeper::default(),
            cgroups: BTreeMap::new(),
            moved: Moved::default(),
            since: BTreeMap::new(),
            processes: Vec::new(),
            terminations: Terminations::default(),
            disk: Disk::default(),
            filling: Filling::default(),
            pods: Pods::default(),
            found_protected: BTreeMap::new(),
            ceilings: BTreeMap::new(),
            found_empty: BTreeMap::new(),
            oom_kills: Vec::new(),
            reading: None,
            sampled: None,
            is_outdated: false,
            held_since: None,
            looked_for: None,
            looks_took: Duration::ZERO,
            direct_reclaims: None,
            kswapd_wakes: None,
            descriptors: Descriptors::of_this_process(),
            buffer: Vec::new(),
        }
    }

    /// The clock of this state's policy times.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Reads cgroups by `sweeper` from now on.
    pub fn sweep_with(&mut self, sweeper: Sweeper) {
        self.sweeper = sweeper;
    }

    /// Where what is known of cgroups comes from, for people; `None` where files are all there is.
    #[must_use]
    pub fn swept(&self) -> Option<String> {
        self.sweeper.shown()
    }

    /// Says that kernel events tell of every change to the tree from now on, so that it need not be read again.
    pub fn tree_events_are_live(&mut self, live: bool) {
        self.tree_events = live;
    }

    /// Says that something about the tree was missed: it is read anew at the next sample.
    pub fn forget_tree(&mut self) {
        self.tree_read = None;
    }

    /// Forgets `target`, which was seen to be gone, if nobody has told of it: then the tree is not what it was either.
    pub fn forget_removed(&mut self, target: &Target) {
        match target {
            Target::Cgroup { id, .. } => {
                let Some(tracked) = self.cgroups.get_mut(id) else { return };
                self.is_outdated |= self.moved.may_be_taken_along(tracked);
                if tracked.is_there() {
                    tracked.has_emptied();
                } else {
                    self.cgroups.remove(id);
                    self.forget_tree();
                }
            }
            Target::Pod { .. } => self.forget_tree(),
            Target::Process { .. } => {}
        }
    }

    /// Takes in new rules; what is already dying stays so.
    pub fn set_rules(&mut self, rules: Rules, measure: Measure) {
        self.rules = rules;
        self.measure = measure;
        self.since = self.cgroups.iter().map(|(id, tracked)| (*id, tracked.since)).collect();
        self.cgroups.clear();
    }

    /// Takes in a reading of the node.
    pub fn observe_node(&mut self, reading: NodeReading) {
        self.reading = Some(reading);
    }

    /// Takes in how long tasks have stalled for memory and for disks by the time of the last reading.
    pub fn observe_stall(&mut self, memory: Stall, io: Stall) {
        if let Some(reading) = &mut self.reading {
            (reading.memory_stall, reading.io_stall) = (memory, io);
        }
    }

    /// The last reading.
    #[must_use]
    pub fn reading(&self) -> Option<&NodeReading> {
        self.reading.as_ref()
    }

    /// Available memory of the last reading, in bytes, by the configured meaning.
    #[must_use]
    pub fn memory_available(&self) -> Option<u64> {
        self.reading?.memory.available_by(self.measure)
    }

    /// Takes in a kill by the kernel's OOM killer: the next decision knows of it. Of many the last ones are kept.
    pub fn observe_oom_kill(&mut self, kill: OomKill) {
        if self.oom_kills.len() >= OOM_KILLS_KEPT {
            self.oom_kills.remove(0);
        }
        self.oom_kills.push(kill);
    }

    /// Forgets the kills by the kernel: a decision has been made with them.
    pub fn forget_oom_kills(&mut self) {
        self.oom_kills.clear();
    }

    /// Takes in one kernel event; only changes to the tree matter here.
    pub fn observe_kernel(&mut self, event: &KernelEvent) {
        let KernelEvent::Cgroup { change, id, path, .. } = event else { return };
        // A tree that is to be read again is kept up to date all the same: until then records name cgroups by it.
        if self.tree.is_empty() {
            return;
        }
        let known = self.tree.get(*id).map(|node| node.path.clone());
        let has_emptied = matches!(
            change,
            CgroupChange::Populated(false) | CgroupChange::Removed | CgroupChange::Released
        );
        let emptied = self.cgroups.get(id).filter(|_| has_emptied);
        self.is_outdated |= emptied.is_some_and(|emptied| self.moved.may_be_taken_along(emptied));
        match (change, path) {
            (CgroupChange::Removed | CgroupChange::Released, _) => {
                self.tree.forget(*id);
                self.cgroups.remove(id);
            }
            (CgroupChange::Created, Some(path)) => {
                let path = Path::new(path.trim_start_matches('/'));
                if !self.tree.refresh(*id, path) && self.tree.is_cut_off(*id, path) {
                    self.forget_tree();
                }
            }
            (CgroupChange::Populated(_), _) if known.is_some() => {
                self.tree.refresh(*id, &known.unwrap_or_default());
            }
            // A path that is not told, a name that moved, a cgroup that was never seen: the tree is read anew.
            (CgroupChange::Created | CgroupChange::Renamed | CgroupChange::Populated(_), _) => {
                self.forget_tree();
            }
        }
    }

    /// Reads the workloads: the tree if it may have changed, usage of all, and as much as `depth` says about the largest.
    ///
    /// # Errors
    /// When the cgroup root (or, on hosts without unified cgroups, `/proc`) cannot be read at all; what was known before then still stands.
    pub fn sample(&mut self, now: Boot, depth: Depth) -> io::Result<()> {
        if self.layout.unified().is_some() {
            self.is_outdated = false;
            self.is_outdated = match self.sample_cgroups(now, depth)? {
                Explained::ByNobody => self.may_hold(now),
                Explained::All | Explained::NotAll => false,
            };
        } else {
            self.processes = Process::all(&self.roots.proc)?;
            self.processes.retain(|p| !p.is_kernel_thread() && p.state != 'Z');
        }
        self.found_protected.retain(|_, (_, at)| now.since(*at) < PROTECTED_FOR);
        self.sampled = Some(now);
        Ok(())
    }

    /// Number of workloads that are found anew for each reading, because there are no descriptors left to hold them open.
    #[must_use]
    pub fn not_held(&self) -> usize {
        self.cgroups.values().filter(|tracked| !tracked.cgroup.is_held()).count()
    }

    /// Whether cgroups are the workloads, rather than processes.
    #[must_use]
    pub fn has_cgroups(&self) -> bool {
        self.layout.unified().is_some()
    }

    /// When workloads were last read.
    #[must_use]
    pub fn sampled(&self) -> Option<Boot> {
        self.sampled
    }

    /// Number of workloads known.
    #[must_use]
    pub fn workload_count(&self) -> usize {
        self.cgroups.len() + self.processes.len()
    }

    /// Whether nobody is to be chosen by what was read last, however young it is: somebody has left a tree that was handed over, perhaps for another cgroup of it. What it holds is nobody's until workloads are read again, and the next in size would go for it.
    ///
    /// After a reading it lasts where that found nobody in such a tree: for a quarter of a second.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        self.is_outdated
    }

    /// Whether nobody is to be chosen at `now` because nobody is known of a tree that holds memory.
    fn may_hold(&mut self, now: Boot) -> bool {
        match self.held_since.map(|since| now.since(since)) {
            Some(held) if held < HELD_AGAIN_AFTER => held < HELD_AT_MOST,
            _ => {
                self.held_since = Some(now);
                true
            }
        }
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
        self.forget_the_gone();
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
        let rest = (self.looks_took * TREE_SHARE).min(TREE_MAX_AGE);
        if self.looked_for.is_some_and(|at| now.since(at) < rest) {
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
        (self.looked_for, self.looks_took) = (Some(now), Boot::now().since(begun));
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

    /// The largest workloads by a fresh look at `memory.current` of all.
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
        by_size.into_iter().take(READ_IN_FULL).map(|(_, id)| id).collect()
    }

    /// The path below the mount of the cgroup `id`, if it is that of a container or sandbox that the runtime told of, or below it.
    #[must_use]
    pub fn path_in_a_pod(&self, id: u64) -> Option<&Path> {
        let path = self.tree.get(id)?.path.as_path();
        self.pods.owner(path).map(|_| path)
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

    /// Whether anything is on its way out.
    #[must_use]
    pub fn has_terminations(&self) -> bool {
        !self.terminations.is_empty()
    }

    /// Whether a dry run takes somebody for evicted who runs on.
    #[must_use]
    pub fn has_would_be_victims(&self) -> bool {
        self.terminations.has_would_be_victims()
    }

    /// When something about the terminations changes by itself.
    #[must_use]
    pub fn next_termination_change(&self) -> Option<Boot> {
        self.terminations.next_change()
    }

    /// Notes that `target` was found to be protected when it was about to be killed: it is not chosen again for a second.
    ///
    /// Of a pod, `cgroup` says which container that was; the others may be killed.
    pub fn protect(&mut self, target: &Target, because: ProtectedReason, cgroup: Option<u64>) {
        let now = Boot::now();
        let found = match (target, cgroup) {
            (Target::Pod { payloads, .. }, Some(id)) => {
                let found = payloads.iter().find(|payload| payload.id == id).cloned();
                found.map(|Payload { id, path }| Target::Cgroup { id, path })
            }
            _ => None,
        };
        self.found_protected.insert(found.unwrap_or_else(|| target.clone()), (because, now));
    }

    /// Why `key` was found to be protected when it was about to be killed, if that was a moment ago: of a pod, each of its containers.
    fn found_protected(&self, key: &WorkloadKey, now: Boot) -> Option<ProtectedReason> {
        // To find a target takes a search, and hardly ever is one found protected.
        if self.found_protected.is_empty() {
            return None;
        }
        let found = |target: &Target| {
            let (because, at) = self.found_protected.get(target)?;
            (now.since(*at) < PROTECTED_FOR).then_some(*because)
        };
        match self.target_of(key)? {
            Target::Pod { uid, payloads } => {
                let of = |Payload { id, path }| found(&Target::Cgroup { id, path });
                let whole = found(&Target::Pod { uid, payloads: payloads.clone() });
                whole.or_else(|| payloads.into_iter().map(of).collect::<Option<Vec<_>>>()?.pop())
            }
            target => found(&target),
        }
    }

    /// Notes that nothing of the chosen `key` was found to end: it is not chosen again before more is known of it, or for a second.
    pub fn found_empty(&mut self, key: &WorkloadKey) {
        let now = Boot::now();
        self.found_empty.retain(|_, at| now.since(*at) < EMPTY_FOR);
        self.found_empty.insert(key.clone(), now);
    }

    /// Path of the cgroup `id` below the mount, if it is known.
    #[must_use]
    pub fn path_of(&self, id: u64) -> Option<String> {
        self.tree.get(id).map(|node| format!("/{}", node.path.display()))
    }

    /// The node's filesystems.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The node's filesystems, to say where they are and what was read of them.
    pub fn disk_mut(&mut self) -> &mut Disk {
        &mut self.disk
    }

    /// Notes what pods have written by the last reading of the filesystems: who fills them shows in the difference to the next.
    pub fn observe_writes(&mut self) {
        let Some((reading, filesystems)) = self.disk.filesystems() else { return };
        let mounts = self.roots.proc.join("self/mountinfo");
        let mounts = read_once(&mounts).unwrap_or_default();
        let counted_as = |device| block::counted_as(device, Path::new("/sys"), &mounts);
        let mut written = BTreeMap::new();
        for (id, tracked) in &self.cgroups {
            let Some(owner) = &tracked.owner else { continue };
            let writes = tracked.cgroup.read_writes(&mut self.buffer);
            written.insert(*id, (Arc::clone(&owner.uid), writes));
        }
        self.filling.observe(reading, filesystems, counted_as, written);
        if let Some(sizes) = &reading.pods {
            self.pods.observe_sizes(sizes.clone());
        }
    }

    /// Time until the filesystem behind a signal is full, at the rate of late.
    #[must_use]
    pub fn disk_time_left(&self, signal: Signal) -> Option<Duration> {
        self.filling.time_left(signal)
    }

    /// What the runtime has.
    #[must_use]
    pub fn pods(&self) -> &Pods {
        &self.pods
    }

    /// Takes in what the runtime has.
    pub fn observe_inventory(&mut self, inventory: Inventory) {
        self.pods.observe(inventory);
        self.found_empty.clear();
        for tracked in self.cgroups.values_mut() {
            let path = self.roots.below_mount(&tracked.path);
            let owner = self.pods.owner(path);
            if owner.is_none() && tracked.owner.is_some() {
                // A list that leaves it out may be one of a runtime that is only just back.
                tracked.since = Boot::now();
            }
            tracked.owner = owner;
        }
    }

    /// What the runtime has, to take in what else it tells.
    pub fn pods_mut(&mut self) -> &mut Pods {
        &mut self.pods
    }

    /// What is left by `signal`, as last read.
    #[must_use]
    pub fn available(&self, signal: Signal) -> Option<u64> {
        match signal {
            Signal::MemoryAvailable => self.memory_available(),
            Signal::SwapAvailable => self.reading?.memory.swap_available(),
            Signal::MemoryWithSwapAvailable => {
                self.reading?.memory.with_swap_available(self.measure)
            }
            Signal::PidAvailable => self.reading?.pids_available(),
            other => self.disk.available(other),
        }
    }

    /// What is on its way out.
    #[must_use]
    pub fn terminations(&mut self) -> &mut Terminations {
        &mut self.terminations
    }

    /// Who `target` is, by name; `None` when it is no longer known.
    #[must_use]
    pub fn key_of(&self, target: &Target) -> Option<WorkloadKey> {
        if let Some(termination) = self.terminations.get(target) {
            return Some(termination.key.clone());
        }
        match target {
            Target::Cgroup { id, .. } => self.cgroups.get(id).map(|t| t.key.clone()),
            Target::Pod { uid, .. } => self.pods.key_of(uid),
            Target::Process { .. } => None,
        }
    }

    /// Who `target` is or was, for people: a cgroup that is no longer known has the name by which it was.
    #[must_use]
    pub fn name_of(&self, target: &Target) -> Option<WorkloadKey> {
        self.key_of(target).or_else(|| match target {
            Target::Cgroup { id, path } => {
                let name = format!("/{}", self.roots.below_mount(path).display());
                Some(WorkloadKey { name, cgroup: Some(CgroupId(*id)), ..WorkloadKey::default() })
            }
            Target::Pod { .. } | Target::Process { .. } => None,
        })
    }

    /// Every cgroup that is followed, by identity.
    pub fn cgroups(&self) -> impl Iterator<Item = (u64, &Path)> {
        self.cgroups.iter().map(|(id, tracked)| (*id, tracked.path.as_path()))
    }

    /// The identity that an action on `key` is to use: of a pod, the containers that are not protected. `None` when it is no longer known.
    #[must_use]
    pub fn target(&self, key: &WorkloadKey) -> Option<Target> {
        match self.target_of(key)? {
            Target::Pod { uid, mut payloads } => {
                payloads.retain(|payload| !self.is_protected(payload));
                (!payloads.is_empty()).then_some(Target::Pod { uid, payloads })
            }
            target => Some(target),
        }
    }

    /// Whether `target` is a cgroup in a tree that was handed to somebody, who may move processes in it at will.
    #[must_use]
    pub fn is_handed_over(&self, target: &Target) -> bool {
        let Target::Cgroup { id, .. } = target else { return false };
        self.cgroups.get(id).is_some_and(|tracked| tracked.is_handed_over)
    }

    /// The cgroups of the containers of the pod `uid` that run, listed or not.
    #[must_use]
    pub fn payloads(&self, uid: &str) -> Vec<Payload> {
        let root = &self.roots.cgroup;
        let mut all = self.pods.payloads(uid, root, |path| self.tree.id_of(path));
        let owners = self.cgroups.values().filter_map(|tracked| tracked.owner.as_ref());
        let own = owners.filter(|owner| &*owner.uid == uid && self.still_owns(owner));
        for cgroup in own.filter_map(|owner| Some(&owner.unlisted.as_ref()?.cgroup)) {
            if let Some(id) = self.tree.id_of(cgroup)
                && all.iter().all(|payload| payload.id != id)
            {
                all.push(Payload { id, path: root.join(cgroup) });
            }
        }
        all
    }

    /// What runs of the pod `uid` and was started since the rest of it was killed here.
    #[must_use]
    pub fn started_since(&self, uid: &str) -> Option<Target> {
        let mut payloads = self.payloads(uid);
        payloads.retain(|payload| {
            let is_old = self.terminations.has(payload.id) || self.terminations.had(payload.id);
            !is_old && !self.is_protected(payload)
        });
        (!payloads.is_empty()).then(|| Target::Pod { uid: uid.to_owned(), payloads })
    }

    /// Notes that ebb ends this pod: what is left of it when it has ended may go.
    pub fn note_evicted(&mut self, uid: &str) {
        let payloads = self.payloads(uid);
        let unlisted = payloads.iter().filter_map(|payload| container_id(&payload.path));
        self.pods.note_evicted(uid, unlisted.map(str::to_owned));
    }

    /// Whether a cgroup is still what it was taken for: one that no list names is, as long as something runs in the sandbox beside it.
    fn still_owns(&self, owner: &Owner) -> bool {
        owner.unlisted.as_ref().is_none_or(|unlisted| self.lives(&unlisted.sandbox))
    }

    /// Whether some process lives in the cgroup at `path` below the mount.
    fn lives(&self, path: &Path) -> bool {
        let node = self.tree.id_of(path).and_then(|id| self.tree.get(id));
        node.is_some_and(|node| node.populated)
    }

    /// Whether a container of the pod `uid` runs that must not be killed with the others: neither the runtime nor the end of the sandbox may do it then.
    #[must_use]
    pub fn spares_some_of(&self, uid: &str) -> bool {
        let payloads = self.payloads(uid);
        let lives = |id| self.tree.get(id).is_some_and(|node| node.populated);
        payloads.iter().any(|payload| lives(payload.id) && self.is_protected(payload))
    }

    /// Whether something in the cgroup of a container is protected.
    fn is_protected(&self, payload: &Payload) -> bool {
        let Payload { id, path } = payload;
        let mut protected = self.cgroups.values().filter(|tracked| tracked.protected.is_some());
        let found = || Target::Cgroup { id: *id, path: path.clone() };
        protected.any(|tracked| tracked.path.starts_with(path))
            || !self.found_protected.is_empty() && self.found_protected.contains_key(&found())
    }

    fn target_of(&self, key: &WorkloadKey) -> Option<Target> {
        if let Some(id) = key.cgroup {
            let path = self.cgroups.get(&id.0)?.path.clone();
            return Some(Target::Cgroup { id: id.0, path });
        }
        if let (Some(uid), None) = (&key.uid, key.process) {
            let mut payloads = self.payloads(uid);
            payloads.retain(|payload| !self.terminations.had(payload.id));
            if payloads.iter().any(|payload| !self.terminations.has(payload.id)) {
                // What was started since the rest of it was killed.
                payloads.retain(|payload| !self.terminations.has(payload.id));
            }
            return (!payloads.is_empty()).then(|| Target::Pod { uid: uid.clone(), payloads });
        }
        let process = key.process?;
        Some(Target::Process { pid: i32::try_from(process.pid).ok()?, start: process.start_time })
    }
}

#[cfg(test)]
mod tests;
