//! What records add up to: counters and times for scrapers, and whether the agent lives and is ready for probes.
//!
//! The loop writes and a server reads, and neither ever waits for the other: everything is an atomic number, and every label has its few values from the start.
//! A scrape is so no snapshot of one moment: two numbers of it may be a record apart.

use super::{Done, OomConstraint, Outcome, Record};
use crate::act::runtime::Work;
use crate::act::{Method, Standby};
use crate::clock::Boot;
use ebb_policy::Signal;
use std::fmt::Write as _;
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
    standby: OnceLock<Arc<Standby>>,
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
    pub(crate) fn follow(&self, standby: &Arc<Standby>) {
        // It begins once.
        let _ = self.standby.set(Arc::clone(standby));
    }

    /// What is left of a signal, in its unit, and the highest threshold of it.
    pub(crate) fn observe(&self, signal: Signal, available: Option<u64>, threshold: Option<u64>) {
        if let Some(of) = self.signals.get(index(signal)) {
            of.available.store(available.unwrap_or(UNKNOWN), Ordering::Relaxed);
            of.threshold.store(threshold.unwrap_or(UNKNOWN), Ordering::Relaxed);
        }
    }

    /// Takes in a record.
    pub(crate) fn note(&self, record: &Record<'_>) {
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

    fn evicted(&self, done: &Done<'_>) {
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
        match self.standby.get() {
            // It is still being set up: who set it up would have said so.
            None => Ok(()),
            Some(standby) if standby.is_silent(Boot::now()) => {
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

    /// All of it in the OpenMetrics text format, without the `# EOF` at its end.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::with_capacity(8 << 10);
        self.write_state(&mut out);
        self.write_signals(&mut out);
        let methods = METHODS.iter().zip(&self.evictions);
        counters(
            &mut out,
            "evictions",
            "Workloads that ebb signalled or killed itself, by how; in a dry run, would have.",
            "method",
            methods,
        );
        let limits = LIMITS.iter().zip(&self.oom_kills);
        counters(
            &mut out,
            "oom_kills",
            "Processes that the kernel's OOM killer killed, by whose limit.",
            "limit",
            limits,
        );
        let kinds = KINDS.iter().zip(&self.removed);
        counters(&mut out, "collected", "What was dead or unused and was removed.", "kind", kinds);
        for (name, help, of) in [
            (
                "evictions_not_done",
                "Jobs that were not done: refused, or not needed any more.",
                &self.not_done,
            ),
            ("evictions_refused", "Evictions that a disruption budget refused.", &self.refused),
            ("evictions_told", "Evictions that the API server was told of.", &self.told),
            (
                "terminations",
                "Workloads of which nothing runs any more, whoever ended them for ebb.",
                &self.exited,
            ),
            (
                "terminations_timed_out",
                "Workloads that were still there when their time was over.",
                &self.timed_out,
            ),
            ("degradations", "Times that something ebb relied on was not there.", &self.degraded),
            ("kernel_events_lost", "Records of the kernel that found no room.", &self.lost),
            (
                "records_dropped",
                "Records that whoever reads them did not keep up with.",
                &self.dropped,
            ),
        ] {
            header(&mut out, name, "counter", help);
            // Writing into a String cannot fail, here and below.
            _ = writeln!(out, "ebb_{name}_total {}", of.get());
        }
        for (name, help, of) in [
            (
                "crossing_seen_seconds",
                "From the crossing of a threshold to the look that found it.",
                &self.seen,
            ),
            (
                "crossing_decided_seconds",
                "From the crossing of a threshold to a decision.",
                &self.decided,
            ),
            (
                "crossing_ended_seconds",
                "From the crossing of a threshold to the signal, or to the order to the runtime.",
                &self.ended,
            ),
            (
                "crossing_relieved_seconds",
                "From the crossing of a threshold until enough was available again.",
                &self.relieved,
            ),
        ] {
            histogram(&mut out, name, help, of);
        }
        out
    }

    fn write_state(&self, out: &mut String) {
        let ready = u8::from(self.ready().is_ok());
        header(out, "ready", "gauge", "Whether the node is watched, by all that was asked for.");
        _ = writeln!(out, "ebb_ready {ready}");
        header(out, "source_up", "gauge", "Whether what tells of pods is there.");
        for (name, of) in [("runtime", &self.runtime), ("apiServer", &self.api_server)] {
            let state = of.load(Ordering::Relaxed);
            if state != NOT_WANTED {
                _ = writeln!(
                    out,
                    "ebb_source_up{{source=\"{name}\"}} {}",
                    u8::from(state == THERE)
                );
            }
        }
    }

    fn write_signals(&self, out: &mut String) {
        let known = |of: &AtomicU64| {
            let value = of.load(Ordering::Relaxed);
            (value != UNKNOWN).then_some(value)
        };
        let all = || Signal::ALL.into_iter().zip(&self.signals);
        header(
            out,
            "signal_available",
            "gauge",
            "What is left of a signal, in its unit: bytes, inodes or task ids.",
        );
        for (signal, of) in all() {
            if let Some(value) = known(&of.available) {
                _ = writeln!(out, "ebb_signal_available{{signal=\"{signal}\"}} {value}");
            }
        }
        header(out, "signal_threshold", "gauge", "The highest threshold of a signal, in its unit.");
        for (signal, of) in all() {
            if let Some(value) = known(&of.threshold) {
                _ = writeln!(out, "ebb_signal_threshold{{signal=\"{signal}\"}} {value}");
            }
        }
        header(out, "thresholds_crossed", "counter", "Times that a threshold was crossed.");
        for (signal, of) in all().filter(|(_, of)| known(&of.threshold).is_some()) {
            _ = writeln!(
                out,
                "ebb_thresholds_crossed_total{{signal=\"{signal}\"}} {}",
                of.crossed.get()
            );
        }
    }
}

fn index(signal: Signal) -> usize {
    Signal::ALL.iter().position(|of| *of == signal).unwrap_or_default()
}

fn header(out: &mut String, name: &str, kind: &str, help: &str) {
    _ = writeln!(out, "# TYPE ebb_{name} {kind}");
    if name.ends_with("_seconds") {
        _ = writeln!(out, "# UNIT ebb_{name} seconds");
    }
    _ = writeln!(out, "# HELP ebb_{name} {help}");
}

fn counters<'a>(
    out: &mut String,
    name: &str,
    help: &str,
    label: &str,
    all: impl Iterator<Item = (&'a &'static str, &'a Counter)>,
) {
    header(out, name, "counter", help);
    for (value, counter) in all {
        _ = writeln!(out, "ebb_{name}_total{{{label}=\"{value}\"}} {}", counter.get());
    }
}

fn histogram(out: &mut String, name: &str, help: &str, of: &Histogram) {
    header(out, name, "histogram", help);
    let mut count = 0;
    let bounds = BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
    for (bound, more) in bounds.zip(&of.buckets) {
        count += more.get();
        _ = writeln!(out, "ebb_{name}_bucket{{le=\"{bound}\"}} {count}");
    }
    let microseconds = of.microseconds.get();
    let (seconds, rest) = (microseconds / 1_000_000, microseconds % 1_000_000);
    _ = writeln!(out, "ebb_{name}_count {count}\nebb_{name}_sum {seconds}.{rest:06}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn value(metrics: &Metrics, name: &str) -> Option<String> {
        let text = metrics.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(str::to_owned)
    }

    #[test]
    fn what_is_unknown_is_not_there_and_what_is_zero_is() {
        let metrics = Metrics::new(false, false);
        let name = "ebb_signal_available{signal=\"memory.available\"}";
        assert_eq!(value(&metrics, name), None);
        metrics.observe(Signal::MemoryAvailable, Some(0), None);
        assert_eq!(value(&metrics, name).as_deref(), Some("0"));
        metrics.observe(Signal::MemoryAvailable, None, None);
        assert_eq!(value(&metrics, name), None);
    }

    #[test]
    fn a_time_is_in_each_bucket_that_is_large_enough() {
        let metrics = Metrics::default();
        metrics.decided.observe(7.0);
        metrics.decided.observe(60_000.0);
        let of =
            |le| value(&metrics, &format!("ebb_crossing_decided_seconds_bucket{{le=\"{le}\"}}"));
        assert_eq!(of("0.005").as_deref(), Some("0"));
        assert_eq!(of("0.01").as_deref(), Some("1"));
        assert_eq!(of("30").as_deref(), Some("1"));
        assert_eq!(of("+Inf").as_deref(), Some("2"));
        let sum = value(&metrics, "ebb_crossing_decided_seconds_sum");
        assert_eq!(sum.as_deref(), Some("60.007000"));
    }

    #[test]
    fn it_is_ready_when_all_that_was_asked_for_is_there() {
        let metrics = Metrics::new(true, true);
        assert!(metrics.ready().is_err_and(|why| why.contains("begun")));
        metrics.is_begun.store(1, Ordering::Relaxed);
        assert!(metrics.ready().is_err_and(|why| why.contains("runtime")));
        metrics.note(&Record::Inventory { sandboxes: 0, containers: 0 });
        assert!(metrics.ready().is_err_and(|why| why.contains("API server")));
        let api_server = |up| Record::ApiServer { up, what: String::new() };
        metrics.note(&api_server(true));
        assert_eq!(metrics.ready(), Ok(()));
        metrics.note(&api_server(false));
        assert!(metrics.ready().is_err());
        assert_eq!(value(&metrics, "ebb_ready").as_deref(), Some("0"));
    }

    #[test]
    fn a_loop_that_does_not_come_round_is_not_alive() {
        let (metrics, standby) = (Metrics::default(), Arc::new(Standby::default()));
        assert_eq!(metrics.alive(), Ok(()));
        metrics.follow(&standby);
        assert_eq!(metrics.alive(), Ok(()), "it has not begun");
        standby.beat(Duration::from_secs(60));
        assert_eq!(metrics.alive(), Ok(()));
        standby.silence();
        assert!(metrics.alive().is_err());
    }

    #[test]
    fn alerts_are_about_metrics_that_there_are() {
        let rules = include_str!("../../../deploy/kustomize/node-alerts/rules.yaml");
        let metrics = Metrics::default();
        metrics.observe(Signal::MemoryAvailable, Some(1), Some(2));
        let text = metrics.text();
        let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
        let expressions = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
        let mut named = 0;
        for expression in expressions {
            for (at, _) in expression.match_indices("ebb_") {
                let name = expression[at..].split(|c| !is_part(c)).next().unwrap_or_default();
                let is_there = |line: &str| {
                    line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                };
                assert!(text.lines().any(is_there), "{name}");
                named += 1;
            }
        }
        assert!(named > 8, "{named}");
    }

    #[test]
    fn every_metric_is_in_the_guide_with_its_type() {
        let guide = include_str!("../../../docs/operating.md");
        let text = Metrics::default().text();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        for (name, kind) in types {
            let of = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
            let row = format!("| `{of}` | {kind} |");
            assert!(guide.contains(&row), "docs/operating.md has no {row}");
        }
    }
}
