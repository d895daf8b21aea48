//! Metrics as OpenMetrics text.

use super::{
    BOUNDS, Counter, Histogram, KINDS, LIMITS, METHODS, Metrics, NOT_WANTED, THERE, UNKNOWN,
};
use ebb_policy::Signal;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

impl Metrics {
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
