//! What records add up to: counters and times for scrapers, and whether the agent lives and is ready for probes.
//!
//! The loop writes and a server reads, and neither ever waits for the other: everything is an atomic number, and every label has its few values from the start.
//! A scrape is so no snapshot of one moment: two numbers of it may be a record apart.

mod histogram;
mod text;
mod threshold;

use crate::hook::HookOutcome;
use crate::job::Method;
use crate::losses::{Loss, Losses};
use crate::part::Part;
use crate::record::{OomConstraint, Outcome, Record};
use crate::removal::Work;
use crate::sink::{Entry, Sink};
use ebb_policy::plan::{Evict, ThresholdStatus};
use ebb_policy::{Signal, Time};
use histogram::Histogram;
use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that is not known: no amount of anything is as large.
const UNKNOWN: u64 = u64::MAX;
/// How a workload was ended, as the label `method` has it.
const METHODS: [&str; 4] = ["kill", "signal", "terminate", "dryRun"];
/// What was removed, as the label `kind` has it.
const KINDS: [&str; 4] = ["container", "sandbox", "image", "log"];
/// Whose limit an OOM kill was for, as the label `limit` has it.
const LIMITS: [&str; 3] = ["node", "cgroup", "unknown"];
/// Which records of the kernel found no room, as the label `kind` has it.
const LOSSES: [&str; 6] =
    ["exit", "oomKill", "memoryEvent", "cgroupChange", "kswapdWake", "corrupt"];
/// What came of a difference between cgroups and their plan, as the label `outcome` has it.
const OUTCOMES: [&str; 4] = ["written", "created", "left", "failed"];
/// What somebody is evicted for beside a signal, as the label `signal` has it.
const MEMORY_PRESSURE: &str = "memoryPressure";
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
    thresholds: [threshold::OfSignal; SIGNALS],
    /// By signal, and last for memory pressure.
    decided_on: [Counter; SIGNALS + 1],
    evictions: [Counter; METHODS.len()],
    /// In the order of [`HookOutcome::ALL`].
    hooks: [Counter; HookOutcome::ALL.len()],
    refused: Counter,
    not_done: Counter,
    exited: Counter,
    timed_out: Counter,
    oom_kills: [Counter; LIMITS.len()],
    lost: [Counter; LOSSES.len()],
    dropped: Counter,
    incidents_lost: Counter,
    removed: [Counter; KINDS.len()],
    expected_bytes: Counter,
    freed_bytes: Counter,
    differences: [Counter; OUTCOMES.len()],
    /// In the order of [`Part::ALL`].
    degraded: [Counter; Part::ALL.len()],
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
#[derive(Debug, Default)]
struct OfSignal {
    available: Known,
    threshold: Known,
    /// Milliseconds since the Unix epoch.
    observed: Known,
    crossed: Counter,
}

/// A number that may not be known, as it is not at first.
#[derive(Debug)]
struct Known(AtomicU64);

impl Default for Known {
    fn default() -> Self {
        Self(AtomicU64::new(UNKNOWN))
    }
}

impl Known {
    fn set(&self, value: Option<u64>) {
        self.0.store(value.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    fn get(&self) -> Option<u64> {
        let value = self.0.load(Ordering::Relaxed);
        (value != UNKNOWN).then_some(value)
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

    /// What is left of a signal, in its unit, and the highest threshold of it, at `at`.
    pub fn observe(
        &self,
        signal: Signal,
        at: Time,
        available: Option<u64>,
        threshold: Option<u64>,
    ) {
        if let Some(of) = self.signals.get(index(signal)) {
            of.available.set(available);
            of.threshold.set(threshold);
            if available.is_some() {
                of.observed.set(Some(at.0));
            }
        }
    }

    /// Where thresholds stood at `at`: all that are in force, of which only those on signals that `is_judged` says were judged.
    pub fn judge(&self, at: Time, decided: &[ThresholdStatus], is_judged: impl Fn(Signal) -> bool) {
        threshold::judge(&self.thresholds, at, decided, is_judged);
    }

    /// So many incident records more are lost.
    pub fn lose_incidents(&self, more: u64) {
        self.incidents_lost.add(more);
    }

    /// The kernel has killed one process, whether or not a record tells of it alone.
    pub fn count_oom_kill(&self, limit: &OomConstraint) {
        let at = match limit {
            OomConstraint::Node => 0,
            OomConstraint::Cgroup { .. } | OomConstraint::CgroupV1 { .. } => 1,
            OomConstraint::Unknown => 2,
        };
        if let Some(kills) = self.oom_kills.get(at) {
            kills.add(1);
        }
    }

    /// Takes in a record.
    fn note(&self, entry: &Entry) {
        let incident = entry.episodes.first().map(String::as_str);
        let observe = |of: &Histogram, after_ms| of.observe(after_ms, entry.at, incident);
        let set = |of: &AtomicU64, is_there| {
            of.store(if is_there { THERE } else { AWAY }, Ordering::Relaxed);
        };
        match &entry.record {
            Record::Started { .. } => self.is_begun.store(1, Ordering::Relaxed),
            Record::ThresholdCrossed { signal, seen_after_ms, .. } => {
                if let Some(of) = self.signals.get(index(*signal)) {
                    of.crossed.add(1);
                }
                observe(&self.seen, *seen_after_ms);
            }
            Record::Decided { after_ms, evict, .. } => {
                after_ms.iter().for_each(|after| observe(&self.decided, *after));
                evict.iter().for_each(|evict| self.decides(evict, entry.at));
            }
            Record::Evicted(done) => {
                let place = method(done.method);
                if let Some(evictions) = place.and_then(|at| self.evictions.get(at)) {
                    evictions.add(1);
                    done.after_ms.iter().for_each(|after| observe(&self.ended, *after));
                }
            }
            Record::HookEnded { outcome, .. } => {
                count(&self.hooks, &HookOutcome::ALL, *outcome);
            }
            Record::NotDone { .. } => self.not_done.add(1),
            Record::EvictionRefused { .. } => self.refused.add(1),
            Record::EvictionTold { .. } => self.told.add(1),
            Record::Terminated { outcome: Outcome::Exited, .. } => self.exited.add(1),
            Record::Terminated { outcome: Outcome::TimedOut, .. } => self.timed_out.add(1),
            Record::PressureRelieved { timeline, .. } => {
                if let Some(last) = timeline.last() {
                    observe(&self.relieved, last.after_ms);
                }
            }
            Record::Lost { kinds, .. } => {
                kinds.typed().into_iter().for_each(|kinds| self.lose(kinds))
            }
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
            Record::Collected { expected, measured, .. } => {
                self.expected_bytes.add(expected.unwrap_or_default());
                // Less is left: others wrote more than was freed.
                let grown = measured.and_then(|grown| u64::try_from(grown).ok());
                self.freed_bytes.add(grown.unwrap_or_default());
            }
            Record::Cgroups { written, created, remaining, errors, .. } => {
                let counts = [written.len(), created.len(), remaining.len(), errors.len()];
                for (counter, count) in self.differences.iter().zip(counts) {
                    counter.add(count as u64);
                }
            }
            Record::Degraded { part, .. } => count(&self.degraded, &Part::ALL, *part),
            Record::Inventory { .. } => set(&self.runtime, true),
            Record::Runtime { up: false, .. } => set(&self.runtime, false),
            Record::ApiServer { up, .. } => set(&self.api_server, *up),
            _ => {}
        }
    }

    /// Somebody is evicted.
    fn decides(&self, evict: &Evict, at: Time) {
        let place = match evict.signal.filter(|_| evict.memory_pressure.is_none()) {
            Some(signal) => index(signal),
            None => SIGNALS,
        };
        if let Some(decided) = self.decided_on.get(place) {
            decided.add(1);
        }
        let strength = evict.strength.map(threshold::at);
        let of = self.thresholds.get(place).zip(strength);
        if let Some(of) = of.and_then(|(of, strength)| of.get(strength)) {
            of.acted.set(Some(at.0));
        }
    }

    fn lose(&self, losses: &Losses) {
        for (loss, count) in &losses.0 {
            let at = match loss {
                Loss::Exits => 0,
                Loss::OomKills => 1,
                Loss::MemoryEvents => 2,
                Loss::CgroupChanges => 3,
                Loss::KswapdWakes => 4,
                Loss::Corrupt => 5,
            };
            if let Some(lost) = self.lost.get(at) {
                lost.add(*count);
            }
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

/// The place of a method in [`METHODS`]; `None` of a step before eviction.
fn method(of: Method) -> Option<usize> {
    match of {
        Method::CgroupKill | Method::FreezeAndSignal => Some(0),
        Method::Signal => Some(1),
        Method::Terminate => Some(2),
        Method::DryRun => Some(3),
        Method::Reclaim | Method::Throttle | Method::Freeze | Method::Release => None,
    }
}

/// Adds to the counter of `one`: each of `all` has its own, in the same order.
fn count<T: PartialEq>(counters: &[Counter], all: &[T], one: T) {
    let own = all.iter().zip(counters).find(|(of, _)| **of == one);
    own.into_iter().for_each(|(_, counter)| counter.add(1));
}

fn index(signal: Signal) -> usize {
    Signal::ALL.iter().position(|of| *of == signal).unwrap_or_default()
}

impl Sink for Arc<Metrics> {
    fn take(&mut self, entry: &Entry) {
        self.note(entry);
    }
}

#[cfg(test)]
mod tests;
