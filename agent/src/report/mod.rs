//! Saying what happened: one record for each thing an operator may ask about later.
//!
//! Records go to standard output, as lines for people or as one JSON object a line; diagnostics of the program itself go to standard error through `tracing`.
//! Where systemd has connected these to its journal, each is an entry with fields there.
//! Nothing here decides anything, and a record is never made for a single kernel event.

pub mod cgroups;
pub mod incident;
pub mod journal;
pub mod last_word;
pub mod metrics;
mod plain;
pub mod queue;
mod reason;
pub mod service;
mod text;

use crate::act::runtime::Work;
use crate::act::{Job, Method, Mode};
use crate::clock::{Boot, Clock};
use crate::config::GuardBand;
use cgroups::{Dying, Written};
use ebb_policy::cgroups::compare::Difference;
use ebb_policy::cgroups::orphans::Orphan;
use ebb_policy::plan::{Evict, Note, Ranked, SkipReason};
use ebb_policy::snapshot::{ProtectedReason, WorkloadKey};
use ebb_policy::{Millis, Plan, Signal, StallShare};
use incident::About;
use journal::entry::Around;
use metrics::Metrics;
use serde::Serialize;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// The form of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// Lines for people; colours only on a terminal.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// How a termination ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Nothing of it runs any more.
    Exited,
    /// It was still there when its time was over.
    TimedOut,
}

/// A step of an episode, in milliseconds since the threshold was crossed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    /// What happened.
    pub what: &'static str,
    /// Milliseconds since the crossing.
    pub after_ms: f64,
    /// Whom it concerned, and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Whose limit the kernel's OOM killer acted for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Done<'a> {
    /// The job.
    pub job: &'a Job,
    /// Who it was, by name.
    pub workload: Option<&'a WorkloadKey>,
    /// How.
    pub method: Method,
    /// Milliseconds since the crossing, when there was one.
    pub after_ms: Option<f64>,
    /// Microseconds that it took from being taken up.
    pub took_us: u64,
    /// It was the watchdog that acted.
    pub by_watchdog: bool,
    /// In a dry run: units of the signal that count as freed by it from here on, for as long as it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assumes_freed: Option<u64>,
}

/// What is reported.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "event")]
pub enum Record<'a> {
    /// The agent has begun.
    Started {
        /// Its version.
        version: &'static str,
        /// Whether it acts.
        mode: Mode,
        /// The source of each fact.
        sources: Vec<String>,
        /// What could not be had, and why.
        unavailable: Vec<String>,
        /// Thresholds in force.
        thresholds: Vec<String>,
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
        cgroup: &'a str,
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
        cgroup: &'a str,
        /// `full avg10`, hundredths of a percent; absent when the cgroup or the file is gone.
        #[serde(skip_serializing_if = "Option::is_none")]
        full_avg10: Option<StallShare>,
        /// Everything that happened in between.
        timeline: &'a [Moment],
    },
    /// A plan with at least one action was made.
    Decided {
        /// Milliseconds since the crossing.
        after_ms: Option<f64>,
        /// Whom it evicts.
        evict: Vec<&'a Evict>,
        /// The ranking behind it, best victims first, shortened.
        ranking: &'a [Ranked],
        /// How many candidates there were.
        candidates: usize,
        /// The plan's own notes.
        notes: Vec<String>,
    },
    /// Pressure is there, but nothing can or need be done; told once until that changes.
    EvictionDeferred {
        /// Signal, if one threshold was handled.
        signal: Option<Signal>,
        /// Why.
        notes: Vec<String>,
    },
    /// A workload is warned that it will be evicted first.
    Warned {
        /// Who.
        workload: &'a WorkloadKey,
        /// Why.
        message: &'a str,
    },
    /// A workload was terminated, killed, or would have been in a dry run.
    Evicted(Done<'a>),
    /// A step before eviction was taken: reclaim, throttle, freeze or release.
    StepTaken(Done<'a>),
    /// Whom the reflex in the kernel kills at the threshold has changed.
    ReflexArmed {
        /// Who.
        workload: &'a WorkloadKey,
    },
    /// The reflex in the kernel found the threshold crossed.
    ReflexFired {
        /// Whom it was armed for.
        workload: &'a WorkloadKey,
        /// Processes that it sent SIGKILL.
        killed: &'a [i32],
        /// Processes that were no longer what they had been when it was armed, or were protected.
        skipped: &'a [i32],
        /// What was available then, in bytes.
        available: u64,
        /// The threshold, in bytes.
        threshold: u64,
        /// Microseconds from finding it crossed until the last signal was sent.
        took_us: u64,
        /// Milliseconds from then until the agent saw it.
        seen_after_ms: f64,
    },
    /// A job was not done.
    NotDone {
        /// The job.
        job: &'a Job,
        /// Who it was, by name.
        workload: Option<&'a WorkloadKey>,
        /// Why.
        why: String,
    },
    /// A workload has ended, or has not in time.
    Terminated {
        /// Who.
        workload: &'a WorkloadKey,
        /// How that ended.
        outcome: Outcome,
        /// Milliseconds since it was chosen.
        after_ms: f64,
    },
    /// The signal is back above its threshold.
    PressureRelieved {
        /// Signal.
        signal: Signal,
        /// What is available now.
        available: u64,
        /// Everything that happened in between.
        timeline: &'a [Moment],
    },
    /// The kernel's OOM killer acted.
    OomKill {
        /// Command of the process killed.
        comm: &'a str,
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
    },
    /// Workloads at their own limit: the node is not involved, nothing is done.
    LocalPressure {
        /// Who.
        workloads: Vec<&'a WorkloadKey>,
    },
    /// Records from the kernel were lost, and the state was read anew.
    Lost {
        /// How many since the last report.
        records: u64,
        /// Of which kinds, for people.
        kinds: String,
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
    KubeletThresholds(&'a GuardBand),
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
        workload: &'a WorkloadKey,
        /// The pod was gone by then, or another had its name: nothing was changed.
        was_gone: bool,
        /// What it did not take, and why.
        refused: Vec<String>,
        /// Milliseconds from the eviction, or from the start of this run for one of an earlier.
        took_ms: f64,
    },
    /// A disruption budget does not allow an eviction now.
    EvictionRefused {
        /// Who stays.
        workload: &'a WorkloadKey,
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
        #[serde(skip_serializing_if = "Option::is_none")]
        expected: Option<u64>,
    },
    /// One thing was removed (in a dry run: would have been).
    Removed {
        /// What.
        work: &'a Work,
        /// Milliseconds that it took.
        took_ms: f64,
    },
    /// One thing was not removed.
    NotRemoved {
        /// What.
        work: &'a Work,
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
        #[serde(skip_serializing_if = "Option::is_none")]
        expected: Option<u64>,
        /// Bytes by which what is available on their filesystem has grown meanwhile, whoever caused it.
        #[serde(skip_serializing_if = "Option::is_none")]
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
        thresholds: Vec<String>,
    },
    /// Cgroups of pods were held against the plan, and something was different.
    Cgroups {
        /// What was written, and read back.
        written: &'a [Written],
        /// Cgroups that were made.
        created: &'a [String],
        /// Differences that are not ebb's to write.
        remaining: &'a [Difference],
        /// What would have been written, in a dry run.
        #[serde(skip_serializing_if = "<[Difference]>::is_empty")]
        would_write: &'a [Difference],
        /// Cgroups that would have been made, in a dry run.
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        would_create: &'a [String],
        /// What could not be done, and why.
        errors: Vec<String>,
        /// Milliseconds since the first change was noticed; absent when the whole tree was looked at.
        after_ms: Option<f64>,
    },
    /// Cgroups of pods were found that belong to no pod or container, or that are removed and still hold memory.
    OrphanedPodCgroups {
        /// All of them.
        found: &'a [Orphan],
        /// Paths of those that were removed, or had their CPU reduced.
        cleaned_up: &'a [String],
        /// Paths of those that would have been, in a dry run.
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        would_clean_up: &'a [String],
        /// Cgroups below pods that are there, in which nothing runs and which belong to no container.
        empty: &'a [String],
        /// Removed cgroups that still hold memory.
        dying: &'a [Dying],
        /// Bytes that those held and no longer do.
        reclaimed: u64,
        /// What could not be done, and why.
        errors: &'a [String],
    },
    /// Something that ebb relied on is no longer there.
    Degraded {
        /// What, and what is used instead.
        what: String,
    },
    /// A thread has panicked: the last record of an agent that ends at once, to be started again.
    Panicked {
        /// Which.
        thread: &'a str,
        /// What it said.
        what: String,
        /// File, line and column.
        place: String,
    },
    /// The agent ends.
    Stopping {
        /// Why.
        why: &'a str,
    },
}

/// Writes records.
pub struct Reporter {
    output: Output,
    colour: bool,
    clock: Clock,
    sink: Box<dyn Write>,
    /// What entries of the journal say beside the record; `None` where lines are written.
    around: Option<Around>,
    /// Where records are counted.
    metrics: Option<Arc<Metrics>>,
}

impl Reporter {
    /// Records to `sink`; `colour` only where people look.
    #[must_use]
    pub fn new(output: Output, colour: bool, clock: Clock, sink: Box<dyn Write>) -> Self {
        Self { output, colour, clock, sink, around: None, metrics: None }
    }

    /// Records as entries of the journal, for a sink that takes such.
    #[must_use]
    pub fn as_entries(self, around: Around) -> Self {
        Self { around: Some(around), ..self }
    }

    /// Records that are counted, too.
    #[must_use]
    pub fn counted_by(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Where records are counted.
    pub(crate) fn metrics(&self) -> Option<&Arc<Metrics>> {
        self.metrics.as_ref()
    }

    /// Until [`Self::episode_ends`], entries name this episode of pressure, crossed at `crossed_at` (milliseconds since the Unix epoch).
    pub fn episode_begins(&mut self, about: About, crossed_at: u64) {
        if let Some(around) = &mut self.around {
            let name = incident::name(&about, crossed_at);
            around.episodes.push((about, name));
        }
    }

    /// The episode of pressure is over.
    pub fn episode_ends(&mut self, about: &About) {
        if let Some(around) = &mut self.around {
            around.episodes.retain(|(of, _)| of != about);
        }
    }

    /// Writes one record.
    ///
    /// A reader that has gone away must not stop a reclaimer: what cannot be written is dropped.
    pub fn tell(&mut self, record: &Record<'_>) {
        if let Some(metrics) = &self.metrics {
            metrics.note(record);
        }
        let at_ms = self.clock.unix_ms(Boot::now());
        let line = match &self.around {
            Some(around) => journal::entry::of_record(self.output, at_ms, record, around),
            None => line(self.output, at_ms, record, self.colour),
        };
        if let Err(error) = self.sink.write_all(&line) {
            tracing::debug!(%error, "a record could not be written");
        }
    }
}

/// A record as it is written; empty when it cannot be put into words.
#[must_use]
pub fn line(output: Output, at_ms: u64, record: &Record<'_>, colour: bool) -> Vec<u8> {
    let mut line = Vec::with_capacity(256);
    let written = match output {
        Output::Json => write_json(&mut line, at_ms, record),
        Output::Text => text::write(&mut line, at_ms, record, colour),
    };
    if let Err(error) = written {
        tracing::debug!(%error, "a record could not be written");
        line.clear();
    }
    line
}

fn write_json(sink: &mut dyn Write, at_ms: u64, record: &Record<'_>) -> io::Result<()> {
    #[derive(Serialize)]
    struct Line<'a> {
        at: u64,
        #[serde(flatten)]
        record: &'a Record<'a>,
    }
    serde_json::to_writer(&mut *sink, &Line { at: at_ms, record })?;
    sink.write_all(b"\n")
}

/// A length of time as records show it.
#[must_use]
pub fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

pub use crate::human::{amount, bytes};
pub use plain::plain;
pub use reason::{protection, reason, skipped};
pub use text::{piece, rank_keys, ranked, time_of_day};

/// What a plan's notes say, for people.
#[must_use]
pub fn notes(plan: &Plan) -> Vec<String> {
    plan.notes.iter().map(|one| note(plan, one)).collect()
}

/// What one of a plan's notes says; its figures have the unit of the signal that the plan handles.
#[must_use]
pub fn note(plan: &Plan, note: &Note) -> String {
    let signal = plan.handled.as_ref().map_or(Signal::MemoryAvailable, |handled| handled.signal);
    let said = text::note(note, signal);
    match (note, unlisted(plan)) {
        (Note::NoEvictionCandidates, 1..) => {
            format!("{said}; waiting for the runtime's pod list")
        }
        _ => said,
    }
}

/// How many workloads a plan keeps for want of the container runtime's word on whose they are.
#[must_use]
pub fn unlisted(plan: &Plan) -> usize {
    let unlisted = SkipReason::Protected { reason: ProtectedReason::Unlisted };
    plan.skipped.iter().filter(|kept| kept.reason == unlisted).count()
}
