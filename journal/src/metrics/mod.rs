//! What records add up to: counters and times for scrapers, and whether the agent lives and is ready for probes.
//!
//! The loop writes and a server reads, and neither ever waits for the other: everything is an atomic number, and every label has its few values from the start.
//! A scrape is so no snapshot of one moment: two numbers of it may be a record apart.

mod text;

use crate::job::Method;
use crate::record::{Done, OomConstraint, Outcome, Record};
use crate::removal::Work;
use crate::sink::{Entry, Sink};
use ebb_policy::Signal;
use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of the histograms, in seconds: from a kill in time to one that came too late for anything.
const BOUNDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];
/// A number that is not known: no amount of anything is as large.
const UNKNOWN: u64 = u64::MAX;
/// How a workload was ended, as the label `method` has it.
const METHODS: [&str; 4] = ["kill", "signal", "terminate", "dryRun"];
/// What was removed, as the label `kind` has it.
const KINDS: [&str; 4] = ["container", "sandbox", "image", "log"];
/// Whose limit an OOM kill was for, as the label `limit` has it.
const LIMITS: [&str; 3] = ["node", "cgroup", "unknown"];
const SIGNALS: usize = Signal::ALL.len();

/// Something that may be there, or is not wanted at all.
const NOT_WANTED: u64 = 0;
const AWAY: u64 = 1;
const THERE: u64 = 2;

/// All of it; shared by the loop, by whoever else reports, and by the server.
#[derive(Debug, Default)]
pub struct Metrics {
    heartbeat: OnceLock<Arc<dyn Heartbeat>>,
    is_begun: AtomicU64,
    runtime: AtomicU64,
    api_server: AtomicU64,
    signals: [OfSignal; SIGNALS],
    evictions: [Counter; METHODS.len()],
    refused: Counter,
    not_done: Counter,
    exited: Counter,
    timed_out: Counter,
    oom_kills: [Counter; LIMITS.len()],
    lost: Counter,
    dropped: Counter,
    removed: [Counter; KINDS.len()],
    degraded: Counter,
    told: Counter,
    seen: Histogram,
    decided: Histogram,
    ended: Histogram,
    relieved: Histogram,
}

/// Whoever knows whether the loop still comes round.
pub trait Heartbeat: fmt::Debug + Send + Sync {
    /// Whether the loop has not been heard of for longer than it said.
    fn has_stopped(&self) -> bool;
}

/// What is known of a signal.
#[derive(Debug)]
struct OfSignal {
    available: AtomicU64,
    threshold: AtomicU64,
    crossed: Counter,
}

impl Default for OfSignal {
    fn default() -> Self {
        let unknown = || AtomicU64::new(UNKNOWN);
        Self { available: unknown(), threshold: unknown(), crossed: Counter::default() }
    }
}

#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Times by their upper bound.
#[derive(Debug, Default)]
struct Histogram {
    buckets: [Counter; BOUNDS.len() + 1],
    microseconds: Counter,
}

impl Histogram {
    fn observe(&self, milliseconds: f64) {
        let at = BOUNDS.iter().position(|bound| milliseconds <= bound * 1e3);
        if let Some(bucket) = self.buckets.get(at.unwrap_or(BOUNDS.len())) {
            bucket.add(1);
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        self.microseconds.add((milliseconds * 1e3) as u64);
    }
}

impl Metrics {
    /// What takes part from the start: without a runtime or an API server none is waited for.
    #[must_use]
    pub fn new(has_runtime: bool, has_api_server: bool) -> Arc<Self> {
        let state = |is_wanted| AtomicU64::new(if is_wanted { AWAY } else { NOT_WANTED });
        Arc::new(Self {
            runtime: state(has_runtime),
            api_server: state(has_api_server),
            ..Self::default()
        })
    }

    /// Whose word says that the loop lives.
    pub fn follow(&self, heartbeat: Arc<dyn Heartbeat>) {
        // It begins once.
        let _ = self.heartbeat.set(heartbeat);
    }

    /// What is left of a signal, in its unit, and the highest threshold of it.
    pub fn observe(&self, signal: Signal, available: Option<u64>, threshold: Option<u64>) {
        if let Some(of) = self.signals.get(index(signal)) {
            of.available.store(available.unwrap_or(UNKNOWN), Ordering::Relaxed);
            of.threshold.store(threshold.unwrap_or(UNKNOWN), Ordering::Relaxed);
        }
    }

    /// Takes in a record.
    fn note(&self, record: &Record) {
        let set = |of: &AtomicU64, is_there| {
            of.store(if is_there { THERE } else { AWAY }, Ordering::Relaxed);
        };
        match record {
            Record::Started { .. } => self.is_begun.store(1, Ordering::Relaxed),
            Record::ThresholdCrossed { signal, seen_after_ms, .. } => {
                if let Some(of) = self.signals.get(index(*signal)) {
                    of.crossed.add(1);
                }
                self.seen.observe(*seen_after_ms);
            }
            Record::Decided { after_ms: Some(after), .. } => self.decided.observe(*after),
            Record::Evicted(done) => self.evicted(done),
            Record::NotDone { .. } => self.not_done.add(1),
            Record::EvictionRefused { .. } => self.refused.add(1),
            Record::EvictionTold { .. } => self.told.add(1),
            Record::Terminated { outcome: Outcome::Exited, .. } => self.exited.add(1),
            Record::Terminated { outcome: Outcome::TimedOut, .. } => self.timed_out.add(1),
            Record::PressureRelieved { timeline, .. } => {
                if let Some(last) = timeline.last() {
                    self.relieved.observe(last.after_ms);
                }
            }
            Record::OomKill { limit, .. } => {
                let at = match limit {
                    OomConstraint::Node => 0,
                    OomConstraint::Cgroup { .. } | OomConstraint::CgroupV1 { .. } => 1,
                    OomConstraint::Unknown => 2,
                };
                if let Some(kills) = self.oom_kills.get(at) {
                    kills.add(1);
                }
            }
            Record::Lost { records, .. } => self.lost.add(*records),
            Record::Dropped { records } => self.dropped.add(*records),
            Record::Removed { work, .. } => {
                let at = match work {
                    Work::RemoveContainer { .. } => 0,
                    Work::RemoveSandbox { .. } => 1,
                    Work::RemoveImage { .. } => 2,
                    Work::RemoveLogDir { .. } | Work::RemoveLogLink { .. } => 3,
                };
                if let Some(removed) = self.removed.get(at) {
                    removed.add(1);
                }
            }
            Record::Degraded { .. } => self.degraded.add(1),
            Record::Inventory { .. } => set(&self.runtime, true),
            Record::Runtime { up: false, .. } => set(&self.runtime, false),
            Record::ApiServer { up, .. } => set(&self.api_server, *up),
            _ => {}
        }
    }

    fn evicted(&self, done: &Done) {
        let at = match done.method {
            Method::CgroupKill | Method::FreezeAndSignal => 0,
            Method::Signal => 1,
            Method::Terminate => 2,
            Method::DryRun => 3,
            Method::Reclaim | Method::Throttle | Method::Freeze | Method::Release => return,
        };
        if let Some(evictions) = self.evictions.get(at) {
            evictions.add(1);
        }
        if let Some(after) = done.after_ms {
            self.ended.observe(after);
        }
    }

    /// Why the agent is to be started anew; `Ok` where it is not.
    ///
    /// # Errors
    /// The loop does not come round.
    pub fn alive(&self) -> Result<(), &'static str> {
        match self.heartbeat.get() {
            // It is still being set up: who set it up would have said so.
            None => Ok(()),
            Some(heartbeat) if heartbeat.has_stopped() => {
                Err("the loop does not come round; the watchdog acts in its place")
            }
            Some(_) => Ok(()),
        }
    }

    /// Whether the node is watched, and by all that was asked for.
    ///
    /// # Errors
    /// What is missing.
    pub fn ready(&self) -> Result<(), &'static str> {
        if self.is_begun.load(Ordering::Relaxed) == 0 {
            return Err("ebb has not begun to watch the node");
        }
        if self.runtime.load(Ordering::Relaxed) == AWAY {
            return Err("the container runtime's inventory is not known");
        }
        if self.api_server.load(Ordering::Relaxed) == AWAY {
            return Err("the API server does not tell of this node's pods");
        }
        Ok(())
    }
}

fn index(signal: Signal) -> usize {
    Signal::ALL.iter().position(|of| *of == signal).unwrap_or_default()
}

impl Sink for Arc<Metrics> {
    fn take(&mut self, entry: &Entry) {
        self.note(&entry.record);
    }
}

#[cfg(test)]
mod tests;
