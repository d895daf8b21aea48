//! Who fills a filesystem: what each workload added to it, held against what the filesystem lost in the same time.
//!
//! ```text
//!  directories that grow ──enough to explain the loss?──► those are it
//!          │ no
//!          ▼
//!  cgroups that write ──about as much as is unexplained?──► those are it
//!          │ no, or far more: somebody writes over what is there
//!          ▼
//!      nobody is known to fill it
//! ```
//! A directory's growth is what is looked for. What a cgroup writes is a sign only: a database that writes over its own
//! pages all day fills nothing, so writers count only while all of them together do not write much more than is lost.
use crate::{
    Millis, Signal, Time,
    limits::Options,
    signal::Resource,
    snapshot::{FsFacts, FsGrowth, FsLayout, Snapshot, Stats, Workload, WorkloadKey, WorkloadKind},
    usage::measured_on_disk,
    workload::counted_termination,
};
use alloc::collections::BTreeMap;

/// An eviction and all that follows takes about this long: with less time left until the filesystem is full nothing else is waited for.
pub const EVICTION_TAKES: Millis = Millis(3_000);

/// With less time left than this a victim is killed at once: its grace of one second, and one to find out and to act.
const GRACE_TAKES: Millis = Millis(2_000);

/// Measures of usage since the crossing are waited for this long. The runtime measures writable layers every ten seconds.
const MEASURED_WITHIN: Millis = Millis(20_000);

/// What is seen over less time than this tells nothing.
const LEAST_TIME: Millis = Millis(50);

/// A fall has to last this long for old figures to decide because of it, or for more than one to go: a burst is over by then.
const LASTING: Millis = Millis(1_000);

/// A filesystem that lost less than this in the time looked at loses nothing that anybody could be blamed for.
const MIN_BYTES: u64 = 1 << 20;
const MIN_INODES: u64 = 64;

/// What is known of who uses and who fills the filesystem behind a signal.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    /// What each of those that fill it added.
    added: BTreeMap<&'a WorkloadKey, u64>,
    /// They are known by what they write alone: what they have is not where it was measured.
    by_writing: bool,
    /// What the filesystem lost meanwhile.
    lost: u64,
    over: Millis,
    signal: Signal,
    layout: FsLayout,
    options: &'a Options,
    /// Since when the threshold is met.
    since: Time,
    /// Candidates whose usage has not been measured since then.
    pub(crate) unknown: u64,
    /// Figures from before the crossing count: newer ones were waited for in vain.
    pub(crate) makes_do: bool,
    /// It has been looked at for long enough to tell a fall that lasts from a burst.
    pub(crate) lasts: bool,
    /// Until when they are waited for.
    pub(crate) until: Time,
}

/// What a candidate is by that evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// What it uses, if that is known well enough.
    pub(crate) usage: Option<u64>,
    /// What it added, if it is one of those that fill the filesystem.
    pub(crate) added: Option<u64>,
    /// What comes back with it is unknown, whatever was measured: it fills the filesystem where nobody looks, as by a file that is deleted and still open.
    pub(crate) hides: bool,
}

impl<'a> Evidence<'a> {
    /// Gathers it for a threshold on disk that is met since `since`; `None` where attribution is off.
    pub(crate) fn gather(
        snapshot: &'a Snapshot,
        active: &[&'a Workload],
        signal: Signal,
        layout: FsLayout,
        since: Time,
        options: &'a Options,
    ) -> Option<Evidence<'a>> {
        if !options.disk_attribution || !signal.is_disk() {
            return None;
        }
        let mut evidence = Evidence {
            added: BTreeMap::new(),
            by_writing: false,
            lost: 0,
            over: Millis(0),
            signal,
            layout,
            options,
            since,
            unknown: 0,
            makes_do: false,
            lasts: false,
            until: since.plus(MEASURED_WITHIN),
        };
        let is_unknown = |workload: &&&Workload| evidence.is_candidate(workload);
        let unknown =
            active.iter().filter(is_unknown).filter(|w| evidence.fresh(w).is_none()).count();
        evidence.unknown = unknown as u64;
        let is_urgent = time_left(snapshot, signal).is_some_and(|left| left < EVICTION_TAKES);
        let fall = facts(snapshot, signal).and_then(|facts| facts.fall);
        evidence.lasts = fall.is_some_and(|fall| fall.over >= LASTING);
        evidence.makes_do = is_urgent && evidence.lasts || snapshot.taken_at >= evidence.until;
        evidence.blame(snapshot, active);
        Some(evidence)
    }

    /// Whether the usage of everybody who may go is known, measured since the crossing.
    pub(crate) fn is_complete(&self) -> bool {
        self.unknown == 0
    }

    /// Whether somebody who may go is known to fill the filesystem.
    pub(crate) fn has_culprit(&self, active: &[&Workload]) -> bool {
        active.iter().any(|w| self.is_candidate(w) && self.added.contains_key(&w.key))
    }

    /// What of the filesystem is short.
    pub(crate) fn signal(&self) -> Signal {
        self.signal
    }

    /// How many fill it.
    pub(crate) fn culprits(&self) -> usize {
        self.added.len()
    }

    /// What it says of one workload.
    pub(crate) fn standing(&self, workload: &Workload) -> Standing {
        let added = self.added.get(&workload.key).copied();
        // What was measured of those that fill it before they did tells nothing of what they have now.
        let makes_do = self.makes_do && added.is_none();
        let old = || makes_do.then(|| self.measured(workload)).flatten();
        let usage = self.fresh(workload).or_else(old);
        Standing { usage, added, hides: self.by_writing && added.is_some() }
    }

    /// The time looked at, and the part of the loss that `added` is, percent.
    pub(crate) fn share(&self, added: u64) -> (Millis, u8) {
        let percent = u128::from(added) * 100 / u128::from(self.lost.max(1));
        (self.over, u8::try_from(percent.min(100)).unwrap_or(100))
    }

    fn is_candidate(&self, workload: &Workload) -> bool {
        workload.kind == WorkloadKind::Pod
            && !workload.is_critical()
            && workload.protected.is_none()
            && !self.is_terminating(workload)
    }

    /// Whether it is on its way out as a whole, and ebb does not evict it again.
    fn is_terminating(&self, workload: &Workload) -> bool {
        counted_termination(workload, self.options).is_some_and(|dying| dying.is_whole())
    }

    fn measured(&self, workload: &Workload) -> Option<u64> {
        // What is no pod has nothing on disk that goes with it.
        if workload.kind != WorkloadKind::Pod {
            return Some(0);
        }
        measured_on_disk(workload, self.signal, self.layout)
    }

    /// Usage as measured since the threshold was crossed.
    fn fresh(&self, workload: &Workload) -> Option<u64> {
        let usage = self.measured(workload)?;
        let at = workload.stats.as_ref().and_then(|s| s.disk_observed_at.or(s.observed_at));
        at.is_none_or(|at| at >= self.since).then_some(usage)
    }

    /// Finds those who fill the filesystem.
    fn blame(&mut self, snapshot: &'a Snapshot, active: &[&'a Workload]) {
        let inodes = self.signal.resource() == Resource::Inodes;
        let facts = facts(snapshot, self.signal);
        let Some(fall) = facts.and_then(|facts| facts.fall) else { return };
        let (lost, least) =
            if inodes { (fall.inodes, MIN_INODES) } else { (fall.bytes, MIN_BYTES) };
        let Some(lost) = lost.filter(|lost| *lost >= least && fall.over >= LEAST_TIME) else {
            return;
        };
        (self.lost, self.over) = (lost, fall.over);
        let growth = |workload: &Workload| self.growth_of(workload.stats.as_ref()?);
        let pods = || active.iter().filter(|workload| workload.kind == WorkloadKind::Pod);
        let grown = |growth: FsGrowth| if inodes { growth.inodes_grown } else { growth.grown };
        let by_growth: BTreeMap<&WorkloadKey, u64> =
            pods().filter_map(|w| Some((&w.key, grown(growth(w)?)?))).collect();
        let explained = by_growth.values().copied().fold(0, u64::saturating_add);
        let weighty = |of: u64| move |(_, added): &(&'a WorkloadKey, u64)| *added >= of / 4;
        if explained >= lost / 2 {
            self.added = by_growth.into_iter().filter(weighty(lost)).collect();
            return;
        }
        let rest = lost.saturating_sub(explained);
        if inodes {
            return;
        }
        let by_writing: BTreeMap<&WorkloadKey, u64> =
            pods().filter_map(|w| Some((&w.key, growth(w)?.written?))).collect();
        let written = by_writing.values().copied().fold(0, u64::saturating_add);
        if written >= rest / 2 && written <= lost.saturating_mul(2) {
            self.by_writing = true;
            self.added = by_writing.into_iter().filter(weighty(rest)).collect();
        }
    }

    fn growth_of(&self, stats: &Stats) -> Option<FsGrowth> {
        let growth = stats.disk_growth.as_ref()?;
        match self.signal {
            Signal::NodeFsAvailable | Signal::NodeFsInodesFree => growth.node_fs,
            Signal::ImageFsAvailable | Signal::ImageFsInodesFree => growth.image_fs,
            Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree => growth.container_fs,
            Signal::MemoryAvailable
            | Signal::AllocatableMemoryAvailable
            | Signal::SwapAvailable
            | Signal::MemoryWithSwapAvailable
            | Signal::PidAvailable => None,
        }
    }
}

fn facts(snapshot: &Snapshot, signal: Signal) -> Option<FsFacts> {
    match signal {
        Signal::NodeFsAvailable | Signal::NodeFsInodesFree => snapshot.node.node_fs,
        Signal::ImageFsAvailable | Signal::ImageFsInodesFree => snapshot.node.image_fs,
        Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree => snapshot.node.container_fs,
        Signal::MemoryAvailable
        | Signal::AllocatableMemoryAvailable
        | Signal::SwapAvailable
        | Signal::MemoryWithSwapAvailable
        | Signal::PidAvailable => None,
    }
}

/// Time until nothing is left of what a signal on disk counts, at the rate of the last half second; `None` when it does not fall, or nobody has looked.
pub(crate) fn time_left(snapshot: &Snapshot, signal: Signal) -> Option<Millis> {
    at_rate(snapshot, signal, |latest, _| Some(latest))
}

/// The same at the slower of that rate and the one over all the time looked at, at least a second: for what lies further ahead than a burst lasts.
pub(crate) fn steady_time_left(snapshot: &Snapshot, signal: Signal) -> Option<Millis> {
    at_rate(snapshot, signal, |latest, in_all| in_all.map(|in_all| latest.min(in_all)))
}

fn at_rate(
    snapshot: &Snapshot,
    signal: Signal,
    of: impl Fn(u64, Option<u64>) -> Option<u64>,
) -> Option<Millis> {
    let facts = facts(snapshot, signal)?;
    let fall = facts.fall?;
    let (left, latest, lost, least) = match signal.resource() {
        Resource::Inodes => (facts.inodes_free?, fall.inodes_per_second?, fall.inodes, MIN_INODES),
        _ => (facts.available?, fall.bytes_per_second?, fall.bytes, MIN_BYTES),
    };
    let per_second = |lost: u64| u128::from(lost) * 1000 / u128::from(fall.over.0.max(1));
    let in_all = lost.filter(|_| fall.over >= LASTING).map(per_second);
    let in_all = in_all.map(|rate| u64::try_from(rate).unwrap_or(u64::MAX));
    let rate = of(latest, in_all).filter(|rate| *rate >= least)?;
    let ms = u128::from(left) * 1000 / u128::from(rate);
    Some(Millis(u64::try_from(ms).unwrap_or(u64::MAX)))
}

/// Whether a victim's second of grace is more than the filesystem has.
pub(crate) fn is_no_time_for_grace(time_left: Option<Millis>) -> bool {
    time_left.is_some_and(|left| left < GRACE_TAKES)
}
