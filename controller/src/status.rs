//! What the controller shows of itself: whether it lives and is ready, and its metrics in the OpenMetrics text format.

use crate::name;
use ebb_kube::Requests;
use ebb_policy_cluster::{Resource, State, Verdict};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Upper bounds of the histogram, in seconds.
const BOUNDS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0];
/// A loop that has not come round for so long hangs.
const HANGS: Duration = Duration::from_secs(30);

/// What verdicts are called, so that each is counted from zero.
const WORDS: [&str; 9] = [
    "nothing",
    "delete",
    "dropOwners",
    "removeFinalizer",
    "unblock",
    "confirmOwner",
    "wait",
    "unknown",
    "excluded",
];

/// Shared by the collector, which writes it, and the server, which reads it.
#[derive(Debug)]
pub(crate) struct Status(Mutex<Inner>);

/// What is shown.
#[derive(Debug)]
pub(crate) struct Inner {
    /// When the loop last came round.
    pub(crate) beat: Instant,
    pub(crate) is_ready: bool,
    pub(crate) is_leading: bool,
    pub(crate) objects: usize,
    pub(crate) queued: usize,
    pub(crate) in_flight: usize,
    pub(crate) window: usize,
    /// Each watched kind, its state, and when it was last heard.
    pub(crate) resources: BTreeMap<Resource, (State, Instant)>,
    verdicts: BTreeMap<&'static str, u64>,
    /// By bound, the last beyond all of them.
    buckets: [u64; BOUNDS.len() + 1],
    seconds: f64,
}

impl Status {
    pub(crate) fn new(now: Instant) -> Self {
        Self(Mutex::new(Inner {
            beat: now,
            is_ready: false,
            is_leading: false,
            objects: 0,
            queued: 0,
            in_flight: 0,
            window: 0,
            resources: BTreeMap::new(),
            verdicts: WORDS.map(|word| (word, 0)).into(),
            buckets: [0; BOUNDS.len() + 1],
            seconds: 0.0,
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    pub(crate) fn judged(&mut self, verdict: &Verdict) {
        *self.verdicts.entry(word(verdict)).or_default() += 1;
    }

    /// From the event that made an act due to its good answer.
    pub(crate) fn acted(&mut self, after: Duration) {
        let seconds = after.as_secs_f64();
        let at = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.buckets[at] += 1;
        self.seconds += seconds;
    }

    pub(crate) fn is_alive(&self, now: Instant) -> bool {
        now.duration_since(self.beat) < HANGS
    }

    /// All metrics.
    pub(crate) fn metrics(&self, requests: &Requests, now: Instant) -> String {
        let mut out = String::new();
        let mut gauge = |name: &str, help: &str, value: usize| {
            // Writing into a String cannot fail.
            _ = write!(
                out,
                "# TYPE ebb_controller_{name} gauge\n# HELP ebb_controller_{name} {help}\nebb_controller_{name} {value}\n"
            );
        };
        gauge("objects", "Objects in the graph.", self.objects);
        gauge("queued", "Objects and look-ups that wait for their turn.", self.queued);
        gauge("requests_in_flight", "Requests under way.", self.in_flight);
        gauge("requests_window", "Requests that may be under way.", self.window);
        gauge(
            "ready",
            "Whether every watch is synced or known to be broken.",
            usize::from(self.is_ready),
        );
        gauge("leading", "Whether this process may act.", usize::from(self.is_leading));
        self.write_resources(&mut out, now);
        out.push_str("# TYPE ebb_controller_verdicts counter\n# HELP ebb_controller_verdicts Verdicts by kind.\n");
        for (verdict, count) in &self.verdicts {
            _ = writeln!(out, "ebb_controller_verdicts_total{{verdict=\"{verdict}\"}} {count}");
        }
        out.push_str("# TYPE ebb_controller_requests counter\n# HELP ebb_controller_requests Requests by verb and code.\n");
        for ((verb, code), count) in requests {
            _ = writeln!(
                out,
                "ebb_controller_requests_total{{verb=\"{verb}\",code=\"{code}\"}} {count}"
            );
        }
        out.push_str("# TYPE ebb_controller_act_seconds histogram\n# UNIT ebb_controller_act_seconds seconds\n# HELP ebb_controller_act_seconds From the event that made an act due to its good answer.\n");
        let mut count = 0;
        for (bound, more) in
            BOUNDS.iter().map(f64::to_string).chain(["+Inf".into()]).zip(self.buckets)
        {
            count += more;
            _ = writeln!(out, "ebb_controller_act_seconds_bucket{{le=\"{bound}\"}} {count}");
        }
        _ = writeln!(
            out,
            "ebb_controller_act_seconds_count {count}\nebb_controller_act_seconds_sum {}",
            self.seconds
        );
        out.push_str("# EOF\n");
        out
    }

    fn write_resources(&self, out: &mut String, now: Instant) {
        out.push_str("# TYPE ebb_controller_resource_synced gauge\n# HELP ebb_controller_resource_synced Whether a kind's watch shows all of it.\n");
        for (resource, (state, _)) in &self.resources {
            let synced = u8::from(*state == State::Synced);
            _ = writeln!(
                out,
                "ebb_controller_resource_synced{{resource=\"{}\"}} {synced}",
                name::resource(resource)
            );
        }
        out.push_str("# TYPE ebb_controller_resource_broken gauge\n# HELP ebb_controller_resource_broken Whether a kind cannot be listed or watched.\n");
        for (resource, (state, _)) in &self.resources {
            let broken = u8::from(matches!(state, State::Broken { .. }));
            _ = writeln!(
                out,
                "ebb_controller_resource_broken{{resource=\"{}\"}} {broken}",
                name::resource(resource)
            );
        }
        out.push_str("# TYPE ebb_controller_resource_quiet_seconds gauge\n# UNIT ebb_controller_resource_quiet_seconds seconds\n# HELP ebb_controller_resource_quiet_seconds Since a kind's watch last reported.\n");
        for (resource, (_, heard)) in &self.resources {
            let quiet = now.duration_since(*heard).as_secs();
            _ = writeln!(
                out,
                "ebb_controller_resource_quiet_seconds{{resource=\"{}\"}} {quiet}",
                name::resource(resource)
            );
        }
    }
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Nothing => "nothing",
        Verdict::Delete { .. } => "delete",
        Verdict::DropOwners { .. } => "dropOwners",
        Verdict::RemoveFinalizer { .. } => "removeFinalizer",
        Verdict::Unblock { .. } => "unblock",
        Verdict::ConfirmOwner(_) => "confirmOwner",
        Verdict::Wait(_) => "wait",
        Verdict::Unknown(_) => "unknown",
        Verdict::Excluded(_) => "excluded",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_end_as_openmetrics_asks_and_buckets_add_up() {
        let now = Instant::now();
        let status = Status::new(now);
        let mut inner = status.lock();
        inner.acted(Duration::from_millis(7));
        inner.acted(Duration::from_secs(3_600));
        inner.judged(&Verdict::Nothing);
        let text = inner.metrics(&Requests::from([(("delete", "200".into()), 2)]), now);
        for word in WORDS {
            let count = u64::from(word == "nothing");
            assert!(text.contains(&format!(
                "ebb_controller_verdicts_total{{verdict=\"{word}\"}} {count}\n"
            )));
        }
        assert!(text.ends_with("# EOF\n"));
        assert!(text.contains("ebb_controller_act_seconds_bucket{le=\"0.01\"} 1\n"));
        assert!(text.contains("ebb_controller_act_seconds_bucket{le=\"+Inf\"} 2\n"));
        assert!(text.contains("ebb_controller_requests_total{verb=\"delete\",code=\"200\"} 2\n"));
    }

    #[test]
    fn alerts_and_dashboards_are_about_metrics_that_there_are() {
        let rules = include_str!("../../deploy/kustomize/controller-alerts/rules.yaml");
        let dashboard = include_str!("../../deploy/grafana/ebb-controller.json");
        let now = Instant::now();
        let status = Status::new(now);
        let mut inner = status.lock();
        let of = Resource { group: String::new(), kind: "Pod".to_owned() };
        inner.resources.insert(of, (State::Synced, now));
        let text = inner.metrics(&Requests::from([(("delete", "200".into()), 2)]), now);
        let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
        let names = |source: &'static str| {
            let found = source.match_indices("ebb_controller_");
            found.map(|(at, _)| source[at..].split(|c| !is_part(c)).next().unwrap_or_default())
        };
        let named: std::collections::BTreeSet<&str> =
            names(rules).chain(names(dashboard)).collect();
        assert!(named.len() > 10, "{named:?}");
        for name in named {
            assert!(
                text.lines().any(|line| {
                    line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                }),
                "{name}"
            );
        }
    }
}
