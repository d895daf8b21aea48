//! Metrics as OpenMetrics text.

use super::histogram::{BOUNDS, Exemplar, Histogram};
use super::threshold::{OfThreshold, STATES, STRENGTHS};
use super::{
    Counter, KINDS, Known, LIMITS, LOSSES, MEMORY_PRESSURE, METHODS, Metrics, NOT_WANTED, OUTCOMES,
    THERE,
};
use crate::hook::HookOutcome;
use crate::part::Part;
use ebb_policy::Signal;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;

impl Metrics {
    /// All of it in the OpenMetrics text format, without the `# EOF` at its end.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::with_capacity(8 << 10);
        self.write_state(&mut out);
        self.write_signals(&mut out);
        self.write_thresholds(&mut out);
        self.write_decided(&mut out);
        let methods = METHODS.iter().zip(&self.evictions);
        counters(
            &mut out,
            "evictions",
            "Workloads that ebb signalled or killed itself, by how; in a dry run, would have.",
            "method",
            methods,
        );
        let outcomes = HookOutcome::ALL.map(HookOutcome::word);
        counters(
            &mut out,
            "hooks",
            "Calls of the hook before an eviction, by how they ended.",
            "outcome",
            outcomes.iter().zip(&self.hooks),
        );
        let parts = Part::ALL.map(Part::word);
        counters(
            &mut out,
            "degradations",
            "Times that something ebb relied on was not there, by what.",
            "part",
            parts.iter().zip(&self.degraded),
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
        let losses = LOSSES.iter().zip(&self.lost);
        counters(
            &mut out,
            "kernel_events_lost",
            "Records of the kernel that found no room, by kind.",
            "kind",
            losses,
        );
        let outcomes = OUTCOMES.iter().zip(&self.differences);
        counters(
            &mut out,
            "cgroup_differences",
            "Differences between cgroups of pods and their plan, by what came of them.",
            "outcome",
            outcomes,
        );
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
            (
                "collection_expected_bytes",
                "Bytes that removed images should have freed.",
                &self.expected_bytes,
            ),
            (
                "collection_freed_bytes",
                "Bytes that were left more on the images' filesystem after a collection.",
                &self.freed_bytes,
            ),
            (
                "records_dropped",
                "Records that whoever reads them did not keep up with.",
                &self.dropped,
            ),
            (
                "incidents_lost",
                "Incident records that could not be stored and are lost.",
                &self.incidents_lost,
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
        let all = || Signal::ALL.into_iter().zip(&self.signals);
        header(
            out,
            "signal_available",
            "gauge",
            "What is left of a signal, in its unit: bytes, inodes or task ids.",
        );
        for (signal, of) in all() {
            if let Some(value) = of.available.get() {
                _ = writeln!(out, "ebb_signal_available{{signal=\"{signal}\"}} {value}");
            }
        }
        header(out, "signal_threshold", "gauge", "The highest threshold of a signal, in its unit.");
        for (signal, of) in all() {
            if let Some(value) = of.threshold.get() {
                _ = writeln!(out, "ebb_signal_threshold{{signal=\"{signal}\"}} {value}");
            }
        }
        let observed = all().map(|(signal, of)| (signal, of.observed.get()));
        timestamps(
            out,
            "signal_observed",
            "When a signal was last looked at and known.",
            observed.map(|(signal, at)| (format!("signal=\"{signal}\""), at)),
        );
        header(out, "thresholds_crossed", "counter", "Times that a threshold was crossed.");
        for (signal, of) in all().filter(|(_, of)| of.threshold.get().is_some()) {
            _ = writeln!(
                out,
                "ebb_thresholds_crossed_total{{signal=\"{signal}\"}} {}",
                of.crossed.get()
            );
        }
    }

    fn write_thresholds(&self, out: &mut String) {
        let all = || {
            let signals = Signal::ALL.into_iter().zip(&self.thresholds);
            signals.flat_map(|(signal, of)| {
                STRENGTHS.iter().zip(of).map(move |(strength, of)| {
                    (format!("signal=\"{signal}\",strength=\"{strength}\""), of)
                })
            })
        };
        header(out, "threshold_limit", "gauge", "A threshold, in the unit of its signal.");
        for (labels, of) in all() {
            if let Some(limit) = of.limit.get() {
                _ = writeln!(out, "ebb_threshold_limit{{{labels}}} {limit}");
            }
        }
        header(out, "threshold_state", "gauge", "Where a threshold stood when last decided on.");
        for (labels, of) in all() {
            let Some(at) = of.state.get() else { continue };
            for (n, state) in (0..).zip(STATES) {
                let is_it = u8::from(n == at);
                _ = writeln!(out, "ebb_threshold_state{{{labels},state=\"{state}\"}} {is_it}");
            }
        }
        let mut when = |name, help, when: fn(&OfThreshold) -> &Known| {
            timestamps(out, name, help, all().map(|(labels, of)| (labels, when(of).get())));
        };
        when("threshold_evaluated", "When a threshold was last decided on.", |of| &of.evaluated);
        when("threshold_met", "When a threshold was last met.", |of| &of.met);
        when("threshold_acted", "When somebody was last evicted for a threshold.", |of| &of.acted);
    }

    fn write_decided(&self, out: &mut String) {
        header(
            out,
            "evictions_decided",
            "counter",
            "Decisions to evict a workload, by what was short.",
        );
        let short = Signal::ALL.iter().map(|signal| signal.name()).chain([MEMORY_PRESSURE]);
        for (signal, decided) in short.zip(&self.decided_on) {
            let count = decided.get();
            _ = writeln!(out, "ebb_evictions_decided_total{{signal=\"{signal}\"}} {count}");
        }
    }
}

fn header(out: &mut String, name: &str, kind: &str, help: &str) {
    _ = writeln!(out, "# TYPE ebb_{name} {kind}");
    if name.ends_with("_seconds") {
        _ = writeln!(out, "# UNIT ebb_{name} seconds");
    }
    _ = writeln!(out, "# HELP ebb_{name} {help}");
}

/// Times in seconds since the Unix epoch, of milliseconds; what is not known is left out.
fn timestamps(
    out: &mut String,
    name: &str,
    help: &str,
    all: impl Iterator<Item = (String, Option<u64>)>,
) {
    let name = format!("{name}_timestamp_seconds");
    header(out, &name, "gauge", help);
    for (labels, at) in all {
        if let Some(at) = at {
            _ = writeln!(out, "ebb_{name}{{{labels}}} {}", seconds(at));
        }
    }
}

/// Seconds of milliseconds.
fn seconds(milliseconds: u64) -> String {
    format!("{}.{:03}", milliseconds / 1_000, milliseconds % 1_000)
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
        count += more.count.get();
        _ = write!(out, "ebb_{name}_bucket{{le=\"{bound}\"}} {count}");
        if let Some(Exemplar { incident, seconds: took, at }) = more.exemplar() {
            _ = write!(out, " # {{incident=\"{incident}\"}} {took} {}", seconds(at.0));
        }
        out.push('\n');
    }
    let microseconds = of.microseconds.get();
    let (seconds, rest) = (microseconds / 1_000_000, microseconds % 1_000_000);
    _ = writeln!(out, "ebb_{name}_count {count}\nebb_{name}_sum {seconds}.{rest:06}");
}
