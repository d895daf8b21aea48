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
mod pod_rest;
mod pod_usage;
mod reclaim;
pub mod rules;
mod sample;
mod snapshot;
mod storage;
mod targets;
mod terminations;
mod tracked;
mod workloads;

pub use disk::Disk;
pub use filling::Filling;
pub use sample::{Depth, UNEXPLAINED};
pub use snapshot::Extent;
pub use storage::PodStorage;
pub use terminations::{Cause, Termination, Terminations};

use crate::clock::{Boot, Clock};
use crate::pods::PodBook;
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
use ebb_journal::Target;
use ebb_policy::snapshot::{OomKill, ProtectedReason, WorkloadKey};
use ebb_policy::{Signal, Time};
use ebb_probes::{CgroupChange, KernelEvent};
use moved::{Moved, Search};
use pod_rest::PodRests;
use rules::Rules;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tracked::{Ceiling, Tracked};

/// Kills by the kernel that a decision is told of at most.
const OOM_KILLS_KEPT: usize = 64;

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
    pod_rests: PodRests,
    /// Since when cgroups were known whose workloads are made anew.
    since: BTreeMap<u64, Boot>,
    processes: Vec<Process>,
    terminations: Terminations,
    disk: Disk,
    filling: Filling,
    pods: PodBook,
    storage: PodStorage,
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
    /// Bytes of memory that were available then.
    available_then: Option<u64>,
    search: Search,
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
            pod_rests: PodRests::default(),
            since: BTreeMap::new(),
            processes: Vec::new(),
            terminations: Terminations::default(),
            disk: Disk::default(),
            filling: Filling::default(),
            pods: PodBook::default(),
            storage: PodStorage::default(),
            found_protected: BTreeMap::new(),
            ceilings: BTreeMap::new(),
            found_empty: BTreeMap::new(),
            oom_kills: Vec::new(),
            reading: None,
            sampled: None,
            available_then: None,
            search: Search::default(),
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
                self.search.note_left(self.moved.may_be_taken_along(tracked));
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
        let has_left = emptied.is_some_and(|emptied| self.moved.may_be_taken_along(emptied));
        self.search.note_left(has_left);
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

    /// Number of workloads that are found anew for each reading, because there are no descriptors left to hold them open.
    #[must_use]
    pub fn not_held(&self) -> usize {
        self.cgroups.values().filter(|tracked| !tracked.cgroup.is_held()).count()
    }

    /// Whether the tree is so deep that not all of it is followed.
    #[must_use]
    pub fn has_deep_cgroups(&self) -> bool {
        self.tree.is_deep()
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

    /// Whether anything is on its way out.
    #[must_use]
    pub fn has_terminations(&self) -> bool {
        !self.terminations.is_empty()
    }

    /// Whether anything is on its way out of which something is to be expected still. One that hangs past its deadline keeps nobody waiting.
    #[must_use]
    pub fn awaits_terminations(&self) -> bool {
        self.terminations.awaits_anybody()
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
            self.storage.observe_sizes(sizes.clone());
        }
    }

    /// Time until the filesystem behind a signal is full, at the rate of late.
    #[must_use]
    pub fn disk_time_left(&self, signal: Signal) -> Option<Duration> {
        self.filling.time_left(signal)
    }

    /// Which pods there are.
    #[must_use]
    pub fn pods(&self) -> &PodBook {
        &self.pods
    }

    /// What pods take up on disk.
    #[must_use]
    pub fn storage(&self) -> &PodStorage {
        &self.storage
    }

    /// What pods take up on disk, to take in what is told of it.
    pub fn storage_mut(&mut self) -> &mut PodStorage {
        &mut self.storage
    }

    /// Takes in what the runtime has.
    pub fn observe_inventory(&mut self, mut inventory: Inventory) {
        if let Some(images) = inventory.images.take() {
            self.storage.observe_images(images);
        }
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

    /// Which pods there are, to take in what is told of them.
    pub fn pods_mut(&mut self) -> &mut PodBook {
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

    /// Every cgroup that is followed, by identity.
    pub fn cgroups(&self) -> impl Iterator<Item = (u64, &Path)> {
        self.cgroups.iter().map(|(id, tracked)| (*id, tracked.path.as_path()))
    }

    /// Notes that ebb ends this pod: what is left of it when it has ended may go.
    pub fn note_evicted(&mut self, uid: &str) {
        let payloads = self.payloads(uid);
        let unlisted = payloads.iter().filter_map(|payload| container_id(&payload.path));
        self.pods.note_evicted(uid, unlisted.map(str::to_owned));
    }
}

#[cfg(test)]
mod tests;
