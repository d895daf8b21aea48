//! Pages of incidents as a browser's parser sees them: the whole chain, and nothing but text that a record says.

use super::*;
use crate::json;
use crate::page::tests::{all, text};
use ebb_agent::config::Config;
use ebb_journal::Moment;
use ebb_journal::incident::Incident;
use ebb_journal::text::plain;
use ebb_policy::Signal;
use scraper::Html;

const LEAK: &str = include_str!("../../../../tests/incidents/leak.json");
const OTHER: &str = include_str!("../../../../tests/incidents/longer-grace.yaml");

/// A moment.
pub(in crate::incident) fn entry(what: &str, after_ms: f64, detail: Option<&str>) -> Moment {
    Moment { what: what.to_owned().into(), after_ms, detail: detail.map(str::to_owned) }
}

/// An incident without a decision.
pub(in crate::incident) fn incident(timeline: &[Moment]) -> Incident {
    Incident {
        schema_version: 1,
        ebb_version: "0.1.0".into(),
        signal: Some(Signal::MemoryAvailable),
        memory_pressure: None,
        crossed_at: 1_764_089_130_123,
        config: String::new(),
        decisions: Vec::new(),
        timeline: timeline.to_vec(),
    }
}

fn leak() -> Incident {
    json::parse(LEAK).unwrap()
}

fn page_of(incident: &Incident, other: Option<&str>) -> String {
    let config = other.map(|text| Config::parse(text).unwrap());
    let other = config.as_ref().map(|config| ("other.yaml".to_owned(), config));
    page(&Story::of(incident), &Again::of(incident, other))
}

/// What every page of an incident must be, whatever is in the record.
fn check(page: &str) -> Html {
    crate::page::tests::check(page, &SECTIONS.map(|(id, _)| id))
}

#[test]
fn a_page_has_the_whole_chain_and_needs_nothing_but_itself() {
    let page = page_of(&leak(), Some(OTHER));
    let html = check(&page);
    assert_eq!(page, page_of(&leak(), Some(OTHER)), "the same record, the same page");
    assert!(text(&html, "title").starts_with("memory.available short, 20"));
    assert!(text(&html, ".verdict").starts_with("/apps/batch-report was told to terminate "));
    let chart = text(&html, "#timeline svg.chart text");
    for step in ["threshold crossed", "decided", "killed", "terminated", "back above"] {
        assert!(chart.contains(step), "{step}: {chart}");
    }
    assert!(!all(&html, "#timeline rect.short").is_empty());
    assert_eq!(all(&html, "#workloads tbody tr").len(), 7);
    assert_eq!(text(&html, "#workloads tr.chosen th"), "/apps/batch-report");
    assert!(text(&html, "#workloads tr.chosen").contains("1.4 GiB"));
    assert!(text(&html, "#decisions tr.chosen strong").contains("priority -10"));
    assert!(text(&html, "#decisions").contains("protected: the configuration, or its unit"));
    assert!(text(&html, "#decisions").contains("allocatableMemory.available"));
    let compared = text(&html, "#compared");
    assert!(compared.contains("side by side") && compared.contains("Evicts nobody"), "{compared}");
    assert!(compared.contains("400.0 MiB left, met, within its grace period"), "{compared}");
    assert!(text(&html, "#configuration").contains("evictionSoftGracePeriod"));
}

#[test]
fn whatever_a_record_says_stays_text() {
    let names = [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "</title></style></svg></pre><iframe src=//evil>",
        "a\u{1b}[31mb\u{202e}c\nd\u{0}",
        "&lt;b&gt; &#x3c;",
        "'--><!-- ]]>",
    ];
    for name in names {
        let in_json = serde_json::to_string(name).unwrap();
        let inner = &in_json[1..in_json.len() - 1];
        let mut hostile: Incident = json::parse(
            &LEAK.replace("/apps/batch-report", inner).replace("/apps/database", inner),
        )
        .unwrap();
        hostile.ebb_version = name.to_owned();
        hostile.config = format!("{name}\n{name}");
        hostile.timeline.push(entry(name, 9.0, Some(name)));
        let html = check(&page_of(&hostile, Some(OTHER)));
        let shown = text(&html, "#workloads tr.chosen th");
        assert_eq!(shown, plain(name), "as it is, but for what speaks to a terminal");
        assert!(text(&html, "#timeline td").contains(&*plain(name)));
        let mut pressed = hostile;
        (pressed.signal, pressed.memory_pressure) = (None, Some(name.to_owned()));
        let html = check(&page_of(&pressed, None));
        assert!(text(&html, "h1").contains(&*plain(name)));
    }
}

#[test]
fn a_page_is_small_however_much_is_in_the_record() {
    let mut large = leak();
    let long = "\u{202e}<".repeat(300);
    for decision in &mut large.decisions {
        let workload = decision.snapshot.workloads[0].clone();
        let (ranked, kept) = (decision.plan.ranking[0].clone(), decision.plan.skipped[0].clone());
        for n in 0..10_000 {
            let mut more = workload.clone();
            more.key.name = format!("/{n}/{long}");
            let mut place = ranked.clone();
            place.workload = more.key.clone();
            decision.snapshot.workloads.push(more);
            decision.plan.ranking.push(place);
            decision.plan.skipped.push(kept.clone());
        }
    }
    large.decisions = vec![large.decisions[0].clone(); 4];
    large.timeline = (0..5000).map(|n| entry("killed", f64::from(n), Some(&long))).collect();
    large.config = "#\n".repeat(10_000);
    let html = check(&page_of(&large, Some(OTHER)));
    let workloads = text(&html, "#workloads");
    assert!(workloads.contains("10007 workloads in the snapshot"), "{workloads}");
    assert!(workloads.contains(" more workloads, which are left out here"), "{workloads}");
    assert!(text(&html, "#workloads tr.chosen").contains("/apps/batch-report"));
}

#[test]
fn what_is_missing_is_unknown_and_never_zero() {
    let mut bare = leak();
    let decision = &mut bare.decisions[0];
    for workload in &mut decision.snapshot.workloads {
        workload.stats = None;
    }
    decision.history.growth.clear();
    decision.plan.ranking.clear();
    bare.timeline.clear();
    let html = check(&page_of(&bare, None));
    let row = text(&html, "#workloads tr.chosen td");
    assert_eq!(row, "unknownunknownunknownunknownevicted");
    assert!(all(&html, "#workloads svg").is_empty(), "no bar for what is unknown");
    let tiles = text(&html, "header .tiles");
    assert!(tiles.contains("Killed afterunknown") && !tiles.contains("0.0 ms"), "{tiles}");
    let none = check(&page_of(&incident(&[]), None));
    assert!(text(&none, "#decisions").contains("unknown: the record has no decision"));
}

#[test]
fn figures_that_cannot_be_are_borne() {
    let mut odd = leak();
    odd.crossed_at = u64::MAX;
    for (nth, at) in [f64::MAX, f64::MIN, -0.0, 1e-300, 1e300].into_iter().enumerate() {
        odd.timeline[nth].after_ms = at;
    }
    check(&page_of(&odd, Some(OTHER)));
    odd.timeline.retain(|moment| moment.after_ms == 1e-300);
    check(&page_of(&odd, None));
    for workload in &mut odd.decisions[0].snapshot.workloads {
        let memory = workload.stats.as_mut().and_then(|stats| stats.memory.as_mut());
        memory.unwrap().working_set = Some(u64::MAX);
    }
    check(&page_of(&odd, None));
}
