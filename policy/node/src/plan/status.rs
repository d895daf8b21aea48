//! Where the node stands: thresholds, conditions, events about the node, and answers to pods that ask to be admitted.
use super::EventType;
use crate::{Millis, Quantity, Signal, Time, signal::NodeConditionType, snapshot::WorkloadKey};
use alloc::string::String;

/// Whether a threshold acts at once or after a grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum Strength {
    /// At once. A soft threshold with a grace period of zero counts as hard.
    Hard,
    /// After its grace period.
    Soft,
}

/// Where a threshold stands in this pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum ThresholdState {
    /// Nothing was observed for its signal.
    Unobserved,
    /// Not met.
    Clear,
    /// Met, its grace period has not passed.
    Grace,
    /// Met, but nothing newer was observed since the last pass.
    Stale,
    /// Met: it drives this pass or would, were it alone.
    Met,
    /// Never met: it was derived from a threshold that does not exist.
    Inert,
}

/// A threshold and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct ThresholdStatus {
    /// Its signal.
    pub signal: Signal,
    /// Hard or soft.
    pub strength: Strength,
    /// Where it stands.
    pub state: ThresholdState,
    /// The threshold as a quantity, percentages resolved; absent while nothing is observed.
    pub threshold: Option<Quantity>,
    /// What is left.
    pub available: Option<u64>,
    /// Whether it is only still met because the minimum reclaim has not been reached.
    pub by_minimum_reclaim: bool,
    /// Since when it is met.
    pub since: Option<Time>,
    /// What remains of its grace period.
    pub grace_left: Option<Millis>,
    /// The second signal that must be short too, where there is one.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub also_below: Option<AlsoBelowStatus>,
}

/// Where the second signal of a threshold on two stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct AlsoBelowStatus {
    /// The second signal.
    pub signal: Signal,
    /// What must be left of it for the threshold not to be met; absent while nothing is observed.
    pub threshold: Option<Quantity>,
    /// What is left of it.
    pub available: Option<u64>,
}

/// A condition of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct NodeCondition {
    /// Type.
    #[cfg_attr(feature = "json", serde(rename = "type"))]
    pub condition_type: NodeConditionType,
    /// Whether it holds.
    pub status: bool,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
    /// When it was last observed, if ever.
    pub last_observed: Option<Time>,
}

/// An event about the node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct NodeEvent {
    /// How grave it is.
    #[cfg_attr(feature = "json", serde(rename = "type"))]
    pub event_type: EventType,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
}

/// The answer to a pod that asks to be admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct AdmissionAnswer {
    /// Who asked.
    pub workload: WorkloadKey,
    /// Whether it may run.
    pub admit: bool,
    /// Phase of its status when it may not.
    pub phase: Option<String>,
    /// Reason when it may not.
    pub reason: Option<String>,
    /// Message when it may not.
    pub message: Option<String>,
}

/// Something worth knowing that is not an action.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "note")
)]
pub enum Note {
    /// A workload is at its own limit; the node is not involved.
    LocalPressure {
        /// Who.
        workload: WorkloadKey,
    },
    /// Tasks wait for memory or IO although no threshold is met.
    StallWithoutShortage,
    /// Tasks of a workload wait for memory, and neither its own growth nor a limit of its own is why.
    Suffers {
        /// Who.
        workload: WorkloadKey,
        /// Microseconds a second, summed over tasks.
        stall_us: i64,
    },
    /// A workload grows while others wait for memory.
    Causes {
        /// Who.
        workload: WorkloadKey,
        /// Bytes a second by which it grows.
        per_second: i64,
        /// Direct reclaims a second by its tasks, where they are counted.
        reclaims: Option<i64>,
    },
    /// The signal is below its threshold, and the second one that must be short too is not: nobody is evicted.
    NotShortOfBoth {
        /// The signal that is below.
        signal: Signal,
        /// The second signal.
        also: Signal,
        /// What is left of the second.
        available: u64,
        /// What would have to be left of it at most.
        threshold: Quantity,
    },
    /// The layers of these images are not known: each counts with its full size, although it may share some of it.
    LayersUnknown {
        /// How many images.
        images: u64,
    },
    /// The layout of the filesystems is not known, so thresholds on disk are not judged.
    LayoutUnknown {
        /// Why, if known.
        error: Option<String>,
    },
    /// A threshold has no observation.
    NoObservation {
        /// Its signal.
        signal: Signal,
    },
    /// A threshold of the configuration is replaced by a derived one.
    ContainerFsOverridden {
        /// Its signal.
        signal: Signal,
    },
    /// Thresholds are met, but no workload is active.
    NoActiveWorkloads,
    /// There are more candidates than a plan lists; those behind are not needed.
    MoreCandidates {
        /// How many there are.
        candidates: u64,
        /// How many are listed.
        listed: u64,
    },
    /// Thresholds are met, but every candidate is skipped.
    NoEvictionCandidates,
    /// What terminating workloads will free covers the need.
    TerminatingCovers {
        /// Units that are on their way.
        expected: u64,
        /// Units needed.
        need: u64,
    },
    /// A dry run: what its would-be victims hold counts as freed.
    DryRunFreed {
        /// Units that they hold.
        freed: u64,
        /// Units needed.
        need: u64,
    },
    /// All candidates together would free less than what is needed.
    CannotSuffice {
        /// Units needed.
        wanted: u64,
        /// Units that the candidates hold, with what is terminating.
        reclaimable: u64,
    },
    /// The threshold is above all that there is, so nobody is evicted for it.
    ThresholdOutOfReach {
        /// Units that must be left.
        threshold: u64,
        /// Units that there are.
        capacity: u64,
    },
    /// As many as may be were evicted within a minute: only the first candidate of a hard threshold goes.
    EvictionRate {
        /// How many were.
        evictions: u32,
        /// How many may be.
        per_minute: u32,
    },
    /// The victims of the last pass are still terminating.
    WaitingForVictims {
        /// Until when, whatever happens.
        until: Time,
    },
    /// Node-level reclaim comes first; the pass goes on with the next snapshot.
    ReclaimFirst,
    /// The filesystem is full in this time at the present rate: node-level reclaim is not waited for.
    FullSoon {
        /// The signal that is short.
        signal: Signal,
        /// Time until then.
        time_left: Millis,
    },
    /// The eviction is deferred: the usage of candidates has not been measured since the threshold was crossed, and what fills the filesystem is not known.
    UsageAwaited {
        /// Candidates whose usage is unknown.
        unknown: u64,
        /// Until when it is waited for; then the last figures known decide.
        until: Time,
    },
    /// The usage of candidates was waited for in vain: the last figures known decide, and nobody goes of whom there are none.
    UsageNotMeasured {
        /// Candidates whose usage is unknown.
        unknown: u64,
    },
    /// A cgroup is under memory pressure, and a workload below it is on its way out: what its end does is waited for.
    PressureAwaitsTermination {
        /// The cgroup under pressure.
        cgroup: String,
        /// Who.
        workload: WorkloadKey,
        /// Of a dry run it only counts as evicted.
        dry_run: bool,
    },
    /// A cgroup is under memory pressure, and there is no eviction candidate below it.
    PressureWithoutCandidate {
        /// The cgroup under pressure.
        cgroup: String,
    },
    /// Node-level reclaim was enough.
    ReclaimSufficed,
    /// What can be freed is less than what is wanted.
    NotEnough {
        /// Units wanted.
        wanted: u64,
        /// Units that the chosen ones should free.
        expected: u64,
    },
    /// The node will reach a threshold.
    Forecast {
        /// Its signal.
        signal: Signal,
        /// Time until then.
        time_left: Millis,
        /// By how much that time may be wrong.
        error: Millis,
    },
    /// An image filesystem reported figures that cannot be.
    ImageFsFigures {
        /// What was wrong.
        what: String,
    },
    /// The page cache in use comes back fast when reclaimed, so it counts as used.
    ActiveCacheNeeded,
    /// Page cache in use that can be given up, counted as available.
    ActiveCacheReclaimable {
        /// Bytes.
        bytes: u64,
    },
}
