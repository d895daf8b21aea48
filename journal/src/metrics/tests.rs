//! What of metrics is there, and when; and that alerts and the guide name them.
use super::*;

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
fn alerts_and_dashboards_are_about_metrics_that_there_are() {
    let rules = include_str!("../../../deploy/kustomize/node-alerts/rules.yaml");
    let dashboard = include_str!("../../../deploy/grafana/ebb-node.json");
    let metrics = Metrics::new(true, true);
    metrics.observe(Signal::MemoryAvailable, Some(1), Some(2));
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
