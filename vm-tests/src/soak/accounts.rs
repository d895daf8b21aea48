//! The books of a soak: what ebb's records say of each episode and each eviction, held against what was played.
use crate::agent::{is_by_watchdog, name_of};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;

/// What is in the records.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// Episodes that began.
    pub(super) crossed: usize,
    /// Whom ebb chose, or its watchdog in its place, each once, in order.
    pub(super) evicted: Vec<String>,
    /// Timelines of episodes in which something was decided.
    pub(super) decided: Vec<Value>,
    /// Events that the kernel had no room for, as far as that was told.
    pub(super) lost: u64,
    /// How often somebody was told to be there still when his time was over, which is short: a guest that stands still uses it up.
    pub(super) late: usize,
    /// What ebb says it relied on and lost.
    pub(super) degraded: Vec<String>,
}

/// Reads the books, which must balance; `played` are the pods that did wrong.
///
/// # Errors
/// When somebody else was chosen or acted on, or somebody's end or an episode's end is not told.
pub(super) fn audit(records: &[Value], played: &[String]) -> Result<Accounts> {
    let mut books = Accounts::default();
    let mut open: BTreeMap<String, usize> = BTreeMap::new();
    let mut gone: Vec<String> = Vec::new();
    let mut awaited: Vec<String> = Vec::new();
    let mut stood_in: Vec<String> = Vec::new();
    for record in records {
        match text(record, "event").as_str() {
            "thresholdCrossed" => {
                books.crossed += 1;
                let now = open.entry(text(record, "signal")).or_default();
                *now += 1;
                ensure!(*now == 1, "an episode began within another: {record}");
            }
            "pressureRelieved" => {
                let now = open.get_mut(&text(record, "signal")).filter(|now| **now == 1);
                ensure!(now.is_some(), "an episode ended that had not begun: {record}");
                now.into_iter().for_each(|now| *now = 0);
                if let Some(timeline) = decided(record) {
                    tells_all(&timeline).with_context(|| record.to_string())?;
                    books.decided.push(timeline);
                }
            }
            "decided" => {
                let evict = record.get("evict").and_then(Value::as_array);
                for name in evict.into_iter().flatten().filter_map(name_of) {
                    ensure!(played.contains(&name), "{name} was chosen: {record}");
                    if !books.evicted.contains(&name) {
                        books.evicted.push(name);
                    }
                }
            }
            "evicted" => {
                let name = name_of(record).unwrap_or_default();
                ensure!(played.contains(&name), "ebb acted on {name}: {record}");
                // Where the loop is held up while memory is short, the watchdog kills the first of its last ranking.
                if is_by_watchdog(record) {
                    if !books.evicted.contains(&name) {
                        books.evicted.push(name.clone());
                    }
                    stood_in.push(name);
                }
            }
            "terminated" => {
                let name = name_of(record).unwrap_or_default();
                if text(record, "outcome") == "exited" {
                    awaited.retain(|one| *one != name);
                    gone.push(name);
                } else {
                    awaited.push(name);
                    books.late += 1;
                }
            }
            "lost" => books.lost += record.get("records").and_then(Value::as_u64).unwrap_or(0),
            "degraded" => books.degraded.push(text(record, "what")),
            "oomKill" | "panicked" | "dropped" => anyhow::bail!("{record}"),
            _ => {}
        }
    }
    let unclosed: Vec<_> = open.iter().filter(|(_, open)| **open > 0).collect();
    ensure!(unclosed.is_empty(), "episodes that did not end: {unclosed:?}");
    for name in played {
        ensure!(books.evicted.contains(name), "nobody decided on {name}");
    }
    ensure!(awaited.is_empty(), "they did not end: {awaited:?}");
    for name in &books.evicted {
        let count = |of: &[String]| of.iter().filter(|one| *one == name).count();
        // Whom the watchdog killed may have been seen to end before the loop hears of the kill, and then its end is told again.
        let (ends, at_most) = (count(&gone), 1 + count(&stood_in));
        let is_told = (1..=at_most).contains(&ends);
        ensure!(is_told, "{name} was evicted, and its end is told {ends} times");
    }
    Ok(books)
}

/// What a record, or a moment of a timeline, says under a key; nothing where it says nothing.
fn text(record: &Value, key: &str) -> String {
    record.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The timeline of an episode in which something was decided.
fn decided(record: &Value) -> Option<Value> {
    let timeline = record.get("timeline")?;
    timeline.as_array()?.iter().any(is_decision).then(|| timeline.clone())
}

/// Whether a moment of a timeline is that of a decision, before the crossing or after it.
fn is_decision(moment: &Value) -> bool {
    matches!(moment.get("what").and_then(Value::as_str), Some("decided" | "decided ahead"))
}

/// Whether each decision of the timeline is followed by its end: the victim is gone, or was spared with a reason.
fn tells_all(timeline: &Value) -> Result<()> {
    let moments = timeline.as_array().map(Vec::as_slice).unwrap_or_default();
    for (place, moment) in moments.iter().enumerate().filter(|(_, moment)| is_decision(moment)) {
        let later = moments.get(place..).unwrap_or_default();
        for name in text(moment, "detail").split(", ") {
            ensure!(
                later.iter().any(|moment| is_end_of(name, moment)),
                "the timeline does not tell the end of {name}"
            );
        }
    }
    Ok(())
}

/// Whether a moment tells that `name` has ended, or is waited for no more, or why it was spared.
fn is_end_of(name: &str, moment: &Value) -> bool {
    let detail = text(moment, "detail");
    match text(moment, "what").as_str() {
        "terminated" | "termination timed out" => detail == name,
        "not done" => detail.strip_prefix(name).is_some_and(|why| why.starts_with(": ")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::is_calm;
    use serde_json::json;

    fn whole() -> Vec<Value> {
        let who = json!({"name": "default/a"});
        vec![
            json!({"event": "thresholdCrossed", "signal": "memory.available"}),
            json!({"event": "decided", "evict": [{"workload": who}]}),
            json!({"event": "evicted", "workload": who}),
            json!({"event": "terminated", "workload": who, "outcome": "exited"}),
            json!({"event": "pressureRelieved", "signal": "memory.available",
                   "timeline": [{"what": "decided", "afterMs": 1.0, "detail": "default/a"},
                                {"what": "terminated", "afterMs": 2.0, "detail": "default/a"}]}),
        ]
    }

    #[test]
    fn books_that_balance_are_good() {
        let books = audit(&whole(), &["default/a".to_owned()]).unwrap();
        assert_eq!((books.crossed, books.decided.len()), (1, 1));
        assert!(is_calm(&whole()));
    }

    #[test]
    fn whatever_is_missing_is_found() {
        let played = ["default/a".to_owned()];
        for left_out in 0..5 {
            // Who is chosen and has ended needs no further act: a runtime may have been asked.
            if left_out == 2 {
                continue;
            }
            let mut records = whole();
            records.remove(left_out);
            assert!(audit(&records, &played).is_err(), "without {left_out}");
        }
    }

    #[test]
    fn whom_the_watchdog_killed_was_chosen_by_the_last_ranking_and_has_an_end_too() {
        let played = ["default/a".to_owned()];
        let mut records = whole();
        records.remove(1);
        records[1]["byWatchdog"] = json!(true);
        assert_eq!(audit(&records, &played).unwrap().evicted, played);
        records.remove(2);
        assert!(audit(&records, &played).is_err());
    }

    #[test]
    fn an_episode_that_does_not_tell_an_end_is_found() {
        let mut records = whole();
        records[4]["timeline"].as_array_mut().unwrap().pop();
        assert!(audit(&records, &["default/a".to_owned()]).is_err());
    }

    #[test]
    fn who_is_spared_has_an_end_and_somebody_else_spared_has_none() {
        for (detail, is_good) in [("default/a: not needed", true), ("default/ab: x", false)] {
            let mut records = whole();
            let timeline = records[4]["timeline"].as_array_mut().unwrap();
            timeline[1] = json!({"what": "not done", "afterMs": 2.0, "detail": detail});
            let audited = audit(&records, &["default/a".to_owned()]);
            assert_eq!(audited.is_ok(), is_good, "{detail}");
        }
    }

    #[test]
    fn somebody_else_is_a_wrong_victim() {
        assert!(audit(&whole(), &["default/b".to_owned()]).is_err());
        let mut records = whole();
        records.push(json!({"event": "evicted", "workload": {"name": "default/b"}}));
        assert!(audit(&records, &["default/a".to_owned()]).is_err());
    }

    #[test]
    fn an_end_that_is_not_told_or_twice_does_not_pass() {
        let who = json!({"name": "default/a"});
        for outcome in ["timedOut", "exited"] {
            let mut records = whole();
            records.push(json!({"event": "terminated", "workload": who, "outcome": outcome}));
            assert!(audit(&records, &["default/a".to_owned()]).is_err(), "{outcome}");
        }
    }

    #[test]
    fn an_end_may_come_late_and_twice_where_the_loop_was_held_up() {
        let (who, played) = (json!({"name": "default/a"}), ["default/a".to_owned()]);
        let mut records = whole();
        let late = json!({"event": "terminated", "workload": who, "outcome": "timedOut"});
        records.insert(3, late);
        assert_eq!(audit(&records, &played).unwrap().late, 1);
        let again =
            [json!({"event": "evicted", "workload": who, "byWatchdog": true}), records[4].clone()];
        records.extend(again);
        assert!(audit(&records, &played).is_ok());
    }
}
