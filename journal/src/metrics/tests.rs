//! What of metrics is there, and when; and that alerts and the guide name them.
use super::*;
use crate::worded::Worded;
use ebb_policy::plan::{EventType, EvictionCause, PodEvent, Strength, ThresholdState};
use ebb_policy::snapshot::WorkloadKey;
use ebb_policy::{Quantity, Secs};

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
    metrics.observe(Signal::MemoryAvailable, Time(9), Some(0), None);
    assert_eq!(value(&metrics, name).as_deref(), Some("0"));
    metrics.observe(Signal::MemoryAvailable, Time(9), None, None);
    assert_eq!(value(&metrics, name), None);
}

#[test]
fn a_time_is_in_each_bucket_that_is_large_enough() {
    let metrics = Metrics::default();
    metrics.decided.observe(7.0, Time(0), None);
    metrics.decided.observe(60_000.0, Time(0), None);
    let of = |le| value(&metrics, &format!("ebb_crossing_decided_seconds_bucket{{le=\"{le}\"}}"));
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
    metrics.note(&told(Record::Inventory { sandboxes: 0, containers: 0 }));
    assert!(metrics.ready().is_err_and(|why| why.contains("API server")));
    let api_server = |up| told(Record::ApiServer { up, what: String::new() });
    metrics.note(&api_server(true));
    assert_eq!(metrics.ready(), Ok(()));
    metrics.note(&api_server(false));
    assert!(metrics.ready().is_err());
    assert_eq!(value(&metrics, "ebb_ready").as_deref(), Some("0"));
}

#[test]
fn calls_of_the_hook_are_counted_by_how_they_ended() {
    let metrics = Metrics::default();
    let of = |outcome| value(&metrics, &format!("ebb_hooks_total{{outcome=\"{outcome}\"}}"));
    for outcome in HookOutcome::ALL {
        assert_eq!(of(outcome.word()).as_deref(), Some("0"));
    }
    for outcome in [HookOutcome::TimedOut, HookOutcome::Answered, HookOutcome::TimedOut] {
        metrics.note(&told(Record::HookEnded {
            workload: WorkloadKey::default(),
            signal: Signal::MemoryAvailable,
            outcome,
            took_ms: 1.0,
            why: None,
        }));
    }
    let counts = HookOutcome::ALL.map(|outcome| of(outcome.word()).unwrap());
    assert_eq!(counts, ["1", "0", "2", "0", "0", "0"]);
}

#[test]
fn alerts_and_dashboards_are_about_metrics_that_there_are() {
    let rules = include_str!("../../../deploy/kustomize/node-alerts/rules.yaml");
    let dashboard = include_str!("../../../deploy/grafana/ebb-node.json");
    let metrics = Metrics::new(true, true);
    metrics.observe(Signal::MemoryAvailable, Time(9), Some(1), Some(2));
    let text = metrics.text();
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    for (source, before, least) in [(rules, "expr: ", 8), (dashboard, "\"expr\": ", 20)] {
        let lines = source.lines();
        let expressions = lines.filter_map(|line| line.trim().strip_prefix(before));
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
        assert!(named > least, "{named}");
    }
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

fn told(record: Record) -> Entry {
    Entry::new(Time(1_700_000_000_123), record)
}

fn status(signal: Signal, strength: Strength, state: ThresholdState) -> ThresholdStatus {
    ThresholdStatus {
        signal,
        strength,
        state,
        threshold: Some(Quantity::bytes(2 << 10)),
        available: None,
        by_minimum_reclaim: false,
        since: None,
        grace_left: None,
        also_below: None,
    }
}

#[test]
fn a_threshold_shows_where_it_stands_and_when_it_was_last_judged_and_met() {
    let (memory, disk) = (Signal::MemoryAvailable, Signal::NodeFsAvailable);
    let (hard, soft) = (Strength::Hard, Strength::Soft);
    let metrics = Metrics::default();
    let all = [
        status(memory, hard, ThresholdState::Met),
        status(memory, soft, ThresholdState::Unobserved),
        status(disk, hard, ThresholdState::Clear),
    ];
    metrics.judge(Time(7_000), &all, |_| true);
    metrics.judge(Time(8_500), &all, |signal| !signal.is_disk());
    let of =
        |name: &str, labels: &str| value(&metrics, &format!("ebb_threshold_{name}{{{labels}}}"));
    let (hard, soft, disk) = (
        "signal=\"memory.available\",strength=\"hard\"",
        "signal=\"memory.available\",strength=\"soft\"",
        "signal=\"nodefs.available\",strength=\"hard\"",
    );
    assert_eq!(of("limit", hard).as_deref(), Some("2048"));
    assert_eq!(of("state", &format!("{hard},state=\"met\"")).as_deref(), Some("1"));
    assert_eq!(of("state", &format!("{hard},state=\"clear\"")).as_deref(), Some("0"));
    assert_eq!(of("evaluated_timestamp_seconds", hard).as_deref(), Some("8.500"));
    assert_eq!(of("met_timestamp_seconds", hard).as_deref(), Some("8.500"));
    assert_eq!(of("evaluated_timestamp_seconds", disk).as_deref(), Some("7.000"));
    assert_eq!(of("met_timestamp_seconds", disk), None);
    // What was not observed was not judged.
    assert_eq!(of("evaluated_timestamp_seconds", soft), None);
    assert_eq!(of("acted_timestamp_seconds", hard), None);
    metrics.judge(Time(9_000), &all[2..], |_| true);
    assert_eq!(of("limit", hard), None, "it is in force no more");
}

/// Below the hard threshold of a signal; for pressure where there is none.
fn evict(signal: Option<Signal>) -> Evict {
    let (strength, text) = (signal.map(|_| Strength::Hard), String::new);
    Evict {
        workload: WorkloadKey::default(),
        cause: EvictionCause::MemoryPressure,
        signal,
        strength,
        threshold: None,
        threshold_value: None,
        available: None,
        memory_pressure: None,
        grace: Secs(1),
        overdue_after: Secs(2),
        expected_free: None,
        phase: text(),
        reason: text(),
        message: text(),
        condition: None,
        event: PodEvent {
            event_type: EventType::Warning,
            reason: text(),
            message: text(),
            annotations: Default::default(),
        },
        metric: text(),
        why: Vec::new(),
    }
}

#[test]
fn an_eviction_counts_for_its_signal_and_its_threshold_and_names_its_incident() {
    let metrics = Metrics::default();
    let evict = vec![evict(Some(Signal::MemoryAvailable)), evict(None)];
    let record = Record::Decided {
        decision: Some(Time(1_700_000_000_002)),
        after_ms: Some(3.0),
        evict,
        ranking: Vec::new(),
        candidates: 1,
        notes: Vec::new(),
    };
    let episodes = vec!["1700000000001-memory.available".to_owned()];
    metrics.note(&Entry { episodes, ..told(record) });
    let of = |name: &str| value(&metrics, name);
    let total = |signal| of(&format!("ebb_evictions_decided_total{{signal=\"{signal}\"}}"));
    assert_eq!(total("memory.available").as_deref(), Some("1"));
    assert_eq!(total("nodefs.available").as_deref(), Some("0"));
    assert_eq!(total("memoryPressure").as_deref(), Some("1"));
    let acted =
        "ebb_threshold_acted_timestamp_seconds{signal=\"memory.available\",strength=\"hard\"}";
    assert_eq!(of(acted).as_deref(), Some("1700000000.123"));
    assert_eq!(
        of("ebb_crossing_decided_seconds_bucket{le=\"0.005\"}").as_deref(),
        Some("1 # {incident=\"1700000000001-memory.available\"} 0.003 1700000000.123")
    );
}

#[test]
fn a_name_that_a_workload_chose_is_no_part_of_the_text_unless_it_is_plain() {
    let metrics = Metrics::default();
    for name in ["a\"} 1\nebb_ready 7", "a\\", "ä", &"x".repeat(200)] {
        metrics.decided.observe(7.0, Time(0), Some(name));
    }
    let line = value(&metrics, "ebb_crossing_decided_seconds_bucket{le=\"0.01\"}");
    assert_eq!(line.as_deref(), Some("4"));
}

/// However many have no record of their own.
#[test]
fn each_kill_by_the_kernel_is_counted_by_whose_limit_it_was() {
    let metrics = Metrics::default();
    let limit = OomConstraint::Cgroup { id: 7, path: None };
    (0..3).for_each(|_| metrics.count_oom_kill(&limit));
    metrics.count_oom_kill(&OomConstraint::Node);
    for (limit, times) in [("node", "1"), ("cgroup", "3"), ("unknown", "0")] {
        let told = value(&metrics, &format!("ebb_oom_kills_total{{limit=\"{limit}\"}}"));
        assert_eq!(told.as_deref(), Some(times), "{limit}");
    }
}

#[test]
fn what_was_lost_collected_and_different_is_counted_by_kind() {
    let metrics = Metrics::default();
    let kinds = Losses(vec![(Loss::Exits, 2), (Loss::OomKills, 3)]);
    metrics.note(&told(Record::Lost { records: 5, kinds: Worded::from(kinds) }));
    let collected = |expected, measured| {
        told(Record::Collected { removed: 1, skipped: 0, expected, measured, took_ms: 1.0 })
    };
    metrics.note(&collected(Some(10), Some(7)));
    metrics.note(&collected(None, Some(-4)));
    let difference = Record::Cgroups {
        written: Vec::new(),
        created: vec!["/a".into(), "/b".into()],
        remaining: Vec::new(),
        would_write: Vec::new(),
        would_create: Vec::new(),
        errors: vec!["no".into()],
        after_ms: None,
    };
    metrics.note(&told(difference));
    for (name, expected) in [
        ("kernel_events_lost_total{kind=\"exit\"}", "2"),
        ("kernel_events_lost_total{kind=\"oomKill\"}", "3"),
        ("kernel_events_lost_total{kind=\"corrupt\"}", "0"),
        ("collection_expected_bytes_total", "10"),
        ("collection_freed_bytes_total", "7"),
        ("cgroup_differences_total{outcome=\"created\"}", "2"),
        ("cgroup_differences_total{outcome=\"failed\"}", "1"),
        ("cgroup_differences_total{outcome=\"written\"}", "0"),
    ] {
        assert_eq!(value(&metrics, &format!("ebb_{name}")).as_deref(), Some(expected), "{name}");
    }
}
