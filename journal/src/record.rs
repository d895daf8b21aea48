//! What happened, as one owned value for each thing that an operator may ask about later.
//!
//! ```text
//!  agent ─► Record ─► Entry: with the time and the episodes that it belongs to ─► each Sink
//! ```
//! JSON is the records' own form, and reads back; words are made by the sink for people ([`crate::text`]), also where JSON carries them ([`Worded`]).

use crate::cgroups::{Dying, Written};
use crate::client::ClientRefusal;
use crate::guard_band::GuardBand;
use crate::hook::HookOutcome;
use crate::job::{Job, Method, Mode};
use crate::losses::Losses;
use crate::note::PlanNote;
use crate::part::Part;
use crate::refusal::NotDone;
use crate::removal::Work;
use crate::threshold::InForce;
use crate::worded::Worded;
use ebb_policy::cgroups::compare::Difference;
use ebb_policy::cgroups::orphans::Orphan;
use ebb_policy::plan::{Evict, Ranked};
use ebb_policy::snapshot::WorkloadKey;
use ebb_policy::{Millis, Signal, StallShare, Time};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// How a termination ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Nothing of it runs any more.
    Exited,
    /// It was still there when its time was over.
    TimedOut,
}

/// A step of an episode, in milliseconds since the threshold was crossed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Moment {
    /// What happened.
    pub what: Cow<'static, str>,
    /// Milliseconds since the crossing.
    pub after_ms: f64,
    /// Whom it concerned, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Moment {
    /// What stands in a timeline for `count` others of which it has no more.
    #[must_use]
    pub fn left_out(count: u64, of: &str, after_ms: f64) -> Self {
        Self { what: format!("and {count} more: {of}").into(), after_ms, detail: None }
    }

    /// How many times it happened: more than once where it stands for others.
    #[must_use]
    pub fn times(&self) -> u64 {
        let more = self.what.strip_prefix("and ").and_then(|rest| rest.split_once(" more: "));
        more.and_then(|(count, _)| count.parse().ok()).unwrap_or(1)
    }
}

/// Whose limit the kernel's OOM killer acted for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum OomConstraint {
    /// The node was out of memory.
    Node,
    /// A cgroup was at its limit.
    Cgroup {
        /// Its id.
        id: u64,
        /// Its path, where known.
        path: Option<String>,
    },
    /// A cgroup of a v1 hierarchy was at its limit.
    CgroupV1 {
        /// Its id.
        id: u64,
    },
    /// The kernel did not say.
    Unknown,
}

impl OomConstraint {
    /// As policy has it: the cgroup by its path, else by its id; `/` for the node.
    #[must_use]
    pub fn for_policy(&self) -> Option<String> {
        match self {
            Self::Node => Some("/".to_owned()),
            Self::Cgroup { path: Some(path), .. } => Some(path.clone()),
            Self::Cgroup { id, path: None } => Some(format!("cgroup {id}")),
            Self::CgroupV1 { id } => Some(format!("cgroup v1 {id}")),
            Self::Unknown => None,
        }
    }
}

/// A job that was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// The job.
    pub job: Job,
    /// Who it was, by name.
    pub workload: Option<WorkloadKey>,
    /// How.
    pub method: Method,
    /// Milliseconds since the crossing, when there was one.
    pub after_ms: Option<f64>,
    /// Microseconds that it took from being taken up.
    pub took_us: u64,
    /// It was the watchdog that acted.
    pub by_watchdog: bool,
    /// In a dry run: units of the signal that count as freed by it from here on, for as long as it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumes_freed: Option<u64>,
}

/// What is reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "event")]
pub enum Record {
    /// The agent has begun.
    Started {
        /// Its version.
        version: String,
        /// Whether it acts.
        mode: Mode,
        /// The source of each fact.
        sources: Vec<String>,
        /// What could not be had, and why.
        unavailable: Vec<String>,
        /// Thresholds in force.
        thresholds: Vec<Worded<InForce>>,
        /// Number of workloads found.
        workloads: usize,
    },
    /// A threshold was crossed.
    ThresholdCrossed {
        /// Signal.
        signal: Signal,
        /// Threshold in the signal's unit.
        threshold: u64,
        /// What was available at the first look below it.
        available: u64,
        /// Milliseconds from the crossing, as estimated, to that look.
        seen_after_ms: f64,
    },
    /// The memory pressure of a watched cgroup is above its limit.
    MemoryPressureAboveLimit {
        /// The cgroup.
        cgroup: String,
        /// `full avg10`, hundredths of a percent.
        full_avg10: StallShare,
        /// The limit of it.
        limit: StallShare,
        /// For how long it must last before somebody is evicted, milliseconds.
        duration: Millis,
    },
    /// It is no longer.
    MemoryPressureRelieved {
        /// The cgroup.
        cgroup: String,
        /// `full avg10`, hundredths of a percent; absent when the cgroup or the file is gone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        full_avg10: Option<StallShare>,
        /// Everything that happened in between.
        timeline: Vec<Moment>,
    },
    /// A plan with at least one action was made.
    Decided {
        /// When it was made: `decidedAt` of its plan in the incident record, milliseconds since the Unix epoch. What carries it out names it, too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decision: Option<Time>,
        /// Milliseconds since the crossing.
        after_ms: Option<f64>,
        /// Whom it evicts.
        evict: Vec<Evict>,
        /// The ranking behind it, best victims first, shortened.
        ranking: Vec<Ranked>,
        /// How many candidates there were.
        candidates: usize,
        /// The plan's own notes.
        notes: Vec<Worded<PlanNote>>,
    },
    /// Pressure is there, but nothing can or need be done; told once until that changes.
    EvictionDeferred {
        /// Signal, if one threshold was handled.
        signal: Option<Signal>,
        /// Why.
        notes: Vec<Worded<PlanNote>>,
    },
    /// The hook before an eviction is asked; the eviction waits for it until the deadline.
    HookCalled {
        /// Who would be evicted.
        workload: WorkloadKey,
        /// The signal whose soft threshold is met.
        signal: Signal,
        /// Milliseconds that it has.
        deadline_ms: f64,
    },
    /// That is over.
    HookEnded {
        /// Who would be evicted.
        workload: WorkloadKey,
        /// The signal whose soft threshold was met.
        signal: Signal,
        /// How it ended.
        outcome: HookOutcome,
        /// Milliseconds that it took.
        took_ms: f64,
        /// What the kernel says of it; absent where the outcome says all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// A workload is warned that it will be evicted first.
    Warned {
        /// Who.
        workload: WorkloadKey,
        /// Why.
        message: String,
    },
    /// A workload was terminated, killed, or would have been in a dry run.
    Evicted(Done),
    /// A step before eviction was taken: reclaim, throttle, freeze or release.
    StepTaken(Done),
    /// Whom the reflex in the kernel kills at the threshold has changed.
    ReflexArmed {
        /// Who.
        workload: WorkloadKey,
    },
    /// The reflex in the kernel found the threshold crossed.
    ReflexFired {
        /// Whom it was armed for.
        workload: WorkloadKey,
        /// Processes that it sent SIGKILL.
        killed: Vec<i32>,
        /// Processes that were no longer what they had been when it was armed, or were protected.
        skipped: Vec<i32>,
        /// What was available then, in bytes.
        available: u64,
        /// The threshold, in bytes.
        threshold: u64,
        /// Microseconds from finding it crossed until the last signal was sent.
        took_us: u64,
        /// Milliseconds from then until the agent saw it.
        seen_after_ms: f64,
        /// The decision by which it was armed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decision: Option<Time>,
    },
    /// A job was not done.
    NotDone {
        /// The job.
        job: Job,
        /// Who it was, by name.
        workload: Option<WorkloadKey>,
        /// Why.
        why: Worded<NotDone>,
    },
    /// A workload has ended, or has not in time.
    Terminated {
        /// Who.
        workload: WorkloadKey,
        /// How that ended.
        outcome: Outcome,
        /// Milliseconds since it was chosen.
        after_ms: f64,
        /// The decision by which it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decision: Option<Time>,
    },
    /// The signal is back above its threshold.
    PressureRelieved {
        /// Signal.
        signal: Signal,
        /// What is available now.
        available: u64,
        /// Everything that happened in between.
        timeline: Vec<Moment>,
    },
    /// The kernel's OOM killer acted.
    OomKill {
        /// Command of the process killed.
        comm: String,
        /// Its pid.
        pid: u32,
        /// Its cgroup.
        cgroup: Option<u64>,
        /// That cgroup's path, where known.
        path: Option<String>,
        /// Whose limit was hit.
        limit: OomConstraint,
        /// When the kernel did it: milliseconds since the Unix epoch.
        killed_at: u64,
        /// When the process had started: milliseconds since the Unix epoch.
        started_at: u64,
        /// Its `oom_score_adj`, -1000 to 1000.
        oom_score_adj: i32,
        /// Kills before this one that have no record of their own, at the same limit or in the same tree that was handed to somebody: of more than ten in a minute (or 64 of all together) the last one has, for all of them.
        #[serde(default, skip_serializing_if = "is_zero")]
        not_told: u64,
    },
    /// Workloads at their own limit: the node is not involved, nothing is done.
    LocalPressure {
        /// Who; who came to it last first, and ten at most.
        workloads: Vec<WorkloadKey>,
        /// How many more there are.
        #[serde(default, skip_serializing_if = "is_zero")]
        more: u64,
    },
    /// Records from the kernel were lost, and the state was read anew.
    Lost {
        /// How many since the last report.
        records: u64,
        /// Of which kinds.
        kinds: Worded<Losses>,
    },
    /// Records or incidents were dropped: whoever reads them, or the disk, did not keep up.
    Dropped {
        /// How many since the last report.
        records: u64,
    },
    /// The container runtime is there, or is not.
    Runtime {
        /// Whether it is.
        up: bool,
        /// Its name and version, or why it is not.
        what: String,
    },
    /// How ebb's thresholds stand to those of the kubelet beside it, at start and when that has changed.
    KubeletThresholds(GuardBand),
    /// The API server tells of this node's pods, or does not.
    ApiServer {
        /// Whether it does.
        up: bool,
        /// What it told, or why it does not.
        what: String,
    },
    /// The API server was told of an eviction: the pod's status, its deletion, an Event.
    EvictionTold {
        /// Who.
        workload: WorkloadKey,
        /// The pod was gone by then, or another had its name: nothing was changed.
        was_gone: bool,
        /// What it did not take, and why.
        refused: Vec<String>,
        /// Milliseconds from the eviction, or from the start of this run for one of an earlier.
        took_ms: f64,
        /// The decision of which it is told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decision: Option<Time>,
    },
    /// A disruption budget does not allow an eviction now.
    EvictionRefused {
        /// Who stays.
        workload: WorkloadKey,
        /// What the API server said.
        why: String,
    },
    /// What the runtime has is known, for the first time since it is there.
    Inventory {
        /// Sandboxes.
        sandboxes: usize,
        /// Containers, dead ones too.
        containers: usize,
    },
    /// What is dead or unused is being removed.
    Collecting {
        /// Dead containers.
        containers: u64,
        /// Sandboxes.
        sandboxes: u64,
        /// Unused images.
        images: u64,
        /// Log directories and links.
        logs: u64,
        /// Bytes that the images should free; absent without images.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected: Option<u64>,
    },
    /// One thing was removed (in a dry run: would have been).
    Removed {
        /// What.
        work: Work,
        /// Milliseconds that it took.
        took_ms: f64,
    },
    /// One thing was not removed.
    NotRemoved {
        /// What.
        work: Work,
        /// Why.
        why: String,
    },
    /// All of a collection is over, and the node has been looked at again.
    Collected {
        /// How many things were removed.
        removed: u64,
        /// How many were not.
        skipped: u64,
        /// Bytes that the removed images should have freed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected: Option<u64>,
        /// Bytes by which what is available on their filesystem has grown meanwhile, whoever caused it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        measured: Option<i64>,
        /// Milliseconds from beginning to the second look.
        took_ms: f64,
    },
    /// The configuration was read again.
    Reloaded {
        /// Whether the new one is in force.
        accepted: bool,
        /// Why not.
        errors: Vec<String>,
        /// Thresholds in force.
        thresholds: Vec<Worded<InForce>>,
    },
    /// Cgroups of pods were held against the plan, and something was different.
    Cgroups {
        /// What was written, and read back.
        written: Vec<Written>,
        /// Cgroups that were made.
        created: Vec<String>,
        /// Differences that are not ebb's to write.
        remaining: Vec<Difference>,
        /// What would have been written, in a dry run.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        would_write: Vec<Difference>,
        /// Cgroups that would have been made, in a dry run.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        would_create: Vec<String>,
        /// What could not be done, and why.
        errors: Vec<String>,
        /// Milliseconds since the first change was noticed; absent when the whole tree was looked at.
        after_ms: Option<f64>,
    },
    /// Cgroups of pods were found that belong to no pod or container, or that are removed and still hold memory.
    OrphanedPodCgroups {
        /// All of them.
        found: Vec<Orphan>,
        /// Paths of those that were removed, or had their CPU reduced.
        cleaned_up: Vec<String>,
        /// Paths of those that would have been, in a dry run.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        would_clean_up: Vec<String>,
        /// Cgroups below pods that are there, in which nothing runs and which belong to no container.
        empty: Vec<String>,
        /// Removed cgroups that still hold memory.
        dying: Vec<Dying>,
        /// Bytes that those held and no longer do.
        reclaimed: u64,
        /// What could not be done, and why.
        errors: Vec<String>,
    },
    /// A client of the API was refused, or lost its connection. At most one a minute for each reason.
    ApiClientRefused {
        /// Its user.
        uid: u32,
        /// Its process, where the kernel tells.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<i32>,
        /// Why.
        why: ClientRefusal,
        /// How many more met the same since that was told last.
        others: u64,
    },
    /// Something that ebb relied on is no longer there.
    Degraded {
        /// What of ebb, or of what it relies on.
        part: Part,
        /// What, and what is used instead.
        what: String,
    },
    /// A thread has panicked: the last record of an agent that ends at once, to be started again.
    Panicked {
        /// Which.
        thread: String,
        /// What it said.
        what: String,
        /// File, line and column.
        place: String,
    },
    /// The agent ends.
    Stopping {
        /// Why.
        why: String,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over like this")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
