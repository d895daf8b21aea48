//! What a decision remembers for the next one. Bounded by what exists: whatever is gone from the snapshot is forgotten.
use crate::{
    Millis, Signal, StallShare, Time,
    plan::Strength,
    signal::NodeConditionType,
    snapshot::{FsLayout, KernelCounts, Observation, Workload, WorkloadKey},
};
use alloc::{collections::BTreeMap, collections::BTreeSet, string::String, sync::Arc, vec::Vec};

/// What a decision remembers for the next one. The default is that of an agent that has just started.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct History {
    /// Version of this form; 1 (0 stands for a history that has never been written).
    pub schema_version: u32,
    /// How many passes have evaluated thresholds, counted up to 2: derived thresholds take part from the second on.
    pub passes: u8,
    /// The layout as first seen; later changes are not noticed.
    pub layout: Option<FsLayout>,
    /// Thresholds that were met, and since when.
    pub first_observed: Vec<MetThreshold>,
    /// Thresholds met with their grace passed, until their minimum reclaim is reached.
    pub met: Vec<ThresholdId>,
    /// When each condition was last observed.
    pub conditions_last_observed: BTreeMap<NodeConditionType, Time>,
    /// Conditions that held after the last pass.
    pub conditions: BTreeSet<NodeConditionType>,
    /// When each signal of the last pass was observed; absent time for one that did not say.
    pub last_observations: BTreeMap<Signal, Option<Time>>,
    /// A pass that stopped for node-level reclaim and goes on with the next snapshot.
    pub reclaiming: Option<Reclaiming>,
    /// Victims of the last pass that are waited for.
    pub waiting: Option<Waiting>,
    /// Victims for want of disk. Only thresholds on disk wait for them: what is dead of them is removed in its own time, and memory does not wait so long.
    #[cfg_attr(feature = "json", serde(skip_serializing_if = "Option::is_none"))]
    pub waiting_for_disk: Option<Waiting>,
    /// When dead containers were last collected.
    pub last_container_gc: Option<Time>,
    /// When images were last collected.
    pub last_image_gc: Option<Time>,
    /// Image collections in a row that did not free enough.
    pub image_gc_failures: u32,
    /// Images that were seen; `None` before the first look.
    pub images: Option<Arc<BTreeMap<String, ImageRecord>>>,
    /// Growth of workloads, ordered by who they are.
    pub growth: Vec<Growth>,
    /// Trend of each signal.
    pub trends: BTreeMap<Signal, Trend>,
    /// Steps of the ladder that are in force, ordered by who they are about.
    pub steps: Vec<Step>,
    /// When workloads were evicted for the node's sake within the last minute, the oldest first.
    pub evictions: Vec<Time>,
    /// Running totals of the last snapshot that are compared with those of the next.
    pub totals: Totals,
    /// Cgroups whose memory pressure is watched, ordered by their paths.
    #[cfg_attr(feature = "json", serde(skip_serializing_if = "Vec::is_empty"))]
    pub memory_pressure: Vec<WatchedCgroup>,
}

impl History {
    /// No longer waits for the termination of `workload`: it had ended before it could be told to.
    pub fn forget_waiting(&mut self, workload: &WorkloadKey) {
        for slot in [&mut self.waiting, &mut self.waiting_for_disk] {
            let Some(waiting) = slot else { continue };
            waiting.workloads.retain(|waited| waited != workload);
            if waiting.workloads.is_empty() {
                *slot = None;
            }
        }
    }

    /// What is remembered when these evictions of the decision made `at` are not ordered, but put off: nobody waits for their ends, and they do not count towards those of their minute. `before` is what that decision went by.
    ///
    /// Thresholds stay met, and for as long as they were: the next decision is made afresh.
    pub fn put_off(&mut self, workloads: &[WorkloadKey], at: Time, before: &History) {
        // A decision of which everything is ordered stands as it is, also where it found a wait to be over.
        if workloads.is_empty() {
            return;
        }
        for workload in workloads {
            self.forget_waiting(workload);
            if self.evictions.last() == Some(&at) {
                self.evictions.pop();
            }
        }
        // Earlier victims for want of disk are waited for as before; whether that is over, the next decision finds out again.
        if self.waiting_for_disk.is_none() {
            self.waiting_for_disk.clone_from(&before.waiting_for_disk);
        }
    }

    /// Takes in that nothing could happen for `lasted`, as seen at `now` (the machine was suspended, or the caller was given no processor): none of that counts towards a grace period, a transition period or a wait. The kubelet's clock stands still in suspend, too.
    ///
    /// What began within that time begins now.
    pub fn note_standstill(&mut self, lasted: Millis, now: Time) {
        let later = |began: &mut Time| *began = began.plus(lasted).min(now.max(*began));
        self.first_observed.iter_mut().map(|met| &mut met.since).for_each(later);
        self.conditions_last_observed.values_mut().for_each(later);
        for waiting in self.waiting.iter_mut().chain(&mut self.waiting_for_disk) {
            let mut began = waiting.until.minus(LONGEST_WAIT);
            later(&mut began);
            waiting.until = began.plus(LONGEST_WAIT);
        }
    }

    /// Counts an eviction that no pass has ordered (the reflex did, or a pass that was made ahead) towards those of its minute.
    pub fn note_eviction(&mut self, at: Time) {
        self.evictions.push(at);
    }

    /// A copy without the two lists that every pass makes anew: growth and images.
    pub(crate) fn without_lists(&self) -> History {
        let History {
            schema_version,
            passes,
            layout,
            first_observed,
            met,
            conditions_last_observed,
            conditions,
            last_observations,
            reclaiming,
            waiting,
            waiting_for_disk,
            last_container_gc,
            last_image_gc,
            image_gc_failures,
            images: _,
            growth: _,
            trends,
            steps,
            evictions,
            totals,
            memory_pressure,
        } = self;
        History {
            schema_version: *schema_version,
            passes: *passes,
            layout: *layout,
            first_observed: first_observed.clone(),
            met: met.clone(),
            conditions_last_observed: conditions_last_observed.clone(),
            conditions: conditions.clone(),
            last_observations: last_observations.clone(),
            reclaiming: reclaiming.clone(),
            waiting: waiting.clone(),
            waiting_for_disk: waiting_for_disk.clone(),
            last_container_gc: *last_container_gc,
            last_image_gc: *last_image_gc,
            image_gc_failures: *image_gc_failures,
            images: None,
            growth: Vec::new(),
            trends: trends.clone(),
            steps: steps.clone(),
            evictions: evictions.clone(),
            totals: *totals,
            memory_pressure: memory_pressure.clone(),
        }
    }
}

/// What makes two thresholds the same one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct ThresholdId {
    /// Its signal.
    pub signal: Signal,
    /// Hard or soft, by the list that it was configured in.
    pub strength: Strength,
    /// Its value as configured.
    pub value: String,
    /// Its grace period.
    pub grace: Millis,
}

/// A threshold that is met, and since when.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct MetThreshold {
    /// Which.
    pub threshold: ThresholdId,
    /// Since when.
    pub since: Time,
}

/// A pass that stopped for node-level reclaim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Reclaiming {
    /// The threshold that it handled.
    pub threshold: ThresholdId,
    /// When it stopped.
    pub since: Time,
    /// What it had observed; messages of the pass name these figures.
    pub observation: Observation,
}

/// Victims whose termination is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Waiting {
    /// Who.
    pub workloads: Vec<WorkloadKey>,
    /// Until when, whatever happens.
    pub until: Time,
}

/// At most as long as an eviction manager waits for its victims.
const LONGEST_WAIT: Millis = Millis(30_000);

impl Waiting {
    /// Waits for `workloads`, which were told to end `at`.
    pub(crate) fn begin(workloads: Vec<WorkloadKey>, at: Time) -> Self {
        Self { workloads, until: at.plus(LONGEST_WAIT) }
    }

    /// Whether a workload is one of them. What was started again in the place of a victim is not waited for.
    pub(crate) fn has(&self, workload: &Workload) -> bool {
        workload.restarted.is_none() && self.workloads.contains(&workload.key)
    }
}

/// What is remembered of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct ImageRecord {
    /// When it was first seen.
    pub first_detected: Time,
    /// When it was last in use; absent when never, as far as is known.
    pub last_used: Option<Time>,
}

/// How fast a workload grows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Growth {
    /// Who; shared from one history to the next.
    pub workload: Arc<WorkloadKey>,
    /// When it was last measured.
    pub at: Time,
    /// Memory at that time, bytes.
    pub memory: Option<u64>,
    /// Memory, bytes a second, smoothed.
    pub memory_rate: Option<i64>,
    /// Processes at that time.
    pub processes: Option<u64>,
    /// Processes a second, smoothed.
    pub process_rate: Option<i64>,
    /// Running total of refaults.
    pub refaults: Option<u64>,
    /// What the kernel counted of it at that time.
    #[cfg_attr(feature = "json", serde(default))]
    pub kernel_counts: Option<KernelCounts>,
    /// Microseconds a second that its tasks wait for memory, summed over tasks, smoothed.
    #[cfg_attr(feature = "json", serde(default))]
    pub stall_rate: Option<i64>,
    /// Direct reclaims in a thousand seconds, smoothed.
    #[cfg_attr(feature = "json", serde(default))]
    pub reclaim_rate: Option<i64>,
    /// Reclaims in a thousand seconds because of a limit of its own, smoothed.
    #[cfg_attr(feature = "json", serde(default))]
    pub own_reclaim_rate: Option<i64>,
}

/// How fast a signal falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Trend {
    /// When it was last observed.
    pub at: Time,
    /// What was left then.
    pub available: u64,
    /// Change of what is left, units a second, smoothed; negative when falling.
    pub rate: Option<i64>,
    /// Mean deviation of single measurements from that rate, units a second.
    pub deviation: Option<u64>,
}

/// A step of the ladder that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Step {
    /// Who.
    pub workload: WorkloadKey,
    /// Which.
    pub kind: StepKind,
    /// Since when.
    pub since: Time,
    /// The `memory.high` that it had before, if any.
    pub high_before: Option<u64>,
}

/// A step of the ladder before eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum StepKind {
    /// It was told.
    Warned,
    /// The kernel was asked to reclaim from it.
    Reclaimed,
    /// It is slowed down.
    Throttled,
    /// It is stopped.
    Frozen,
}

/// Running totals that are compared from one snapshot to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct Totals {
    /// When they were read.
    pub at: Option<Time>,
    /// Refaults of the root cgroup.
    pub refaults: Option<u64>,
    /// Direct reclaims.
    pub direct_reclaims: Option<u64>,
    /// Microseconds in which some task waited for memory.
    pub memory_some_us: Option<u64>,
    /// Microseconds in which some task waited for IO.
    pub io_some_us: Option<u64>,
}

/// What is remembered of a cgroup whose memory pressure is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct WatchedCgroup {
    /// Its path, as configured.
    pub cgroup: String,
    /// The limit that it is held against; with another one everything begins anew.
    pub limit: StallShare,
    /// When it was last observed.
    pub observed_at: Time,
    /// How long all its tasks had waited by then, microseconds.
    pub full_total: Option<u64>,
    /// The part of the time since the observation before in which they did.
    pub stall: Option<StallShare>,
    /// Since when its pressure is above the limit without a break; absent while it is not.
    pub above_since: Option<Time>,
    /// When somebody was last evicted, wherever that was.
    pub evicted_at: Option<Time>,
    /// `above_since` before that eviction.
    pub above_before: Option<Time>,
    /// How much was reclaimed from it as a whole.
    pub own: Option<Scans>,
    /// How much was reclaimed from each workload below it, ordered by who they are.
    pub scans: Vec<Scans>,
}

impl WatchedCgroup {
    /// Takes back that somebody below it was evicted: it could not be done.
    pub fn forget_eviction(&mut self) {
        if let Some(since) = self.above_before.take() {
            self.above_since = Some(since);
            self.evicted_at = None;
        }
    }
}

/// How much was reclaimed from a workload of late.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Scans {
    /// Who.
    pub workload: WorkloadKey,
    /// The beginning of the time over which the rate is taken.
    pub older: Scan,
    /// A moment within it, which becomes its beginning later.
    pub newer: Scan,
    /// Pages a second; absent before there is a second reading.
    pub rate: Option<u64>,
}

/// Pages scanned by a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Scan {
    /// The moment.
    pub at: Time,
    /// The running total.
    pub pages: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{string::ToString as _, vec};

    fn key(name: &str) -> WorkloadKey {
        WorkloadKey { name: name.to_string(), ..WorkloadKey::default() }
    }

    #[test]
    fn of_one_decision_those_that_were_put_off_do_not_count_and_those_that_were_ordered_do() {
        let (earlier, now) = (Time(40_000), Time(60_000));
        let before = History { evictions: vec![earlier], ..History::default() };
        let mut after = History { evictions: vec![earlier, now, now, now], ..before.clone() };
        after.waiting = Some(Waiting::begin(vec![key("a"), key("b"), key("c")], now));
        after.put_off(&[key("a"), key("c")], now, &before);
        assert_eq!(after.evictions, [earlier, now]);
        assert_eq!(after.waiting.as_ref().unwrap().workloads, [key("b")]);
        after.put_off(&[key("b")], now, &before);
        assert_eq!((after.evictions, after.waiting), (vec![earlier], None));
    }

    #[test]
    fn what_the_machine_slept_through_counts_for_nothing() {
        let threshold = ThresholdId {
            signal: Signal::MemoryAvailable,
            strength: Strength::Soft,
            value: "100Mi".to_string(),
            grace: Millis(60_000),
        };
        let met = |at| History {
            first_observed: vec![MetThreshold { threshold: threshold.clone(), since: at }],
            conditions_last_observed: [(NodeConditionType::MemoryPressure, at)].into(),
            waiting: Some(Waiting::begin(vec![key("a")], at)),
            ..History::default()
        };
        let (hour, woken) = (Millis::from_secs(3600), Time(5_000_000));
        let mut before = met(Time(1_000_000));
        before.note_standstill(hour, woken);
        assert_eq!(before, met(Time(4_600_000)));
        for (began, since) in
            [(4_999_000, 5_000_000), (5_000_000, 5_000_000), (5_001_000, 5_001_000)]
        {
            let mut within = met(Time(began));
            within.note_standstill(hour, woken);
            assert_eq!(within, met(Time(since)));
        }
    }

    /// What is dead of them has yet to be removed; a new victim would have taken their place.
    #[test]
    fn earlier_victims_for_want_of_disk_are_waited_for_as_before() {
        let earlier = Some(Waiting::begin(vec![key("old")], Time(50_000)));
        let before = History { waiting_for_disk: earlier.clone(), ..History::default() };
        let mut after = before.clone();
        after.waiting_for_disk = Some(Waiting::begin(vec![key("new")], Time(60_000)));
        after.put_off(&[key("new")], Time(60_000), &before);
        assert_eq!(after.waiting_for_disk, earlier);
        // Where nobody is put off, what the decision found to be over is over.
        let mut over = History::default();
        over.put_off(&[], Time(60_000), &before);
        assert_eq!(over.waiting_for_disk, None);
    }
}
