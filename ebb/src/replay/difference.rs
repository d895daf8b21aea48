//! Where two plans differ: every field of them, by its path.

use anyhow::Context as _;
use ebb_policy::Plan;
use serde_json::Value;

/// The fields of a plan, the most telling ones first.
const FIRST: [&str; 4] = ["actions", "handled", "thresholds", "skipped"];

/// Where `now` differs from `then`, each as its path with both values. An absent field and `null` mean the same.
pub(crate) fn differences(then: &Plan, now: &Plan) -> anyhow::Result<Vec<String>> {
    let value = |plan: &Plan| serde_json::to_value(plan).context("a plan cannot be compared");
    let (then, now) = (value(then)?, value(now)?);
    let mut found = Vec::new();
    let empty = serde_json::Map::new();
    let (then, now) = (then.as_object().unwrap_or(&empty), now.as_object().unwrap_or(&empty));
    let rest = then.keys().chain(now.keys()).map(String::as_str);
    let mut seen = Vec::new();
    for field in FIRST.into_iter().chain(rest) {
        if !seen.contains(&field) {
            seen.push(field);
            compare(field, then.get(field), now.get(field), &mut found);
        }
    }
    Ok(found)
}

fn compare(path: &str, then: Option<&Value>, now: Option<&Value>, found: &mut Vec<String>) {
    let (then, now) = (then.unwrap_or(&Value::Null), now.unwrap_or(&Value::Null));
    match (then, now) {
        _ if then == now => {}
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                compare(&format!("{path}.{key}"), a.get(key), b.get(key), found);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                found.push(format!("{path}: {} then, {} now", a.len(), b.len()));
            }
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}[{index}]"), Some(a), Some(b), found);
            }
        }
        _ => found.push(format!("{path}: {} then, {} now", shown(then), shown(now))),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use ebb_agent::config::Config;
    use ebb_policy::plan::{SkipReason, Skipped, Subject};
    use ebb_policy::{History, Millis, Snapshot, decide};

    #[test]
    fn every_field_is_compared_and_named_by_its_path() {
        let snapshot: Snapshot = json::parse(r#"{"schemaVersion":1,"takenAt":1}"#).unwrap();
        let limits = Config::standalone_default().limits;
        let (mut then, _) = decide(&snapshot, &limits, &History::default());
        let kept = |reason| Skipped { subject: Subject::Container { id: "c".into() }, reason };
        then.skipped = vec![kept(SkipReason::NotNeeded)];
        then.wake_in = None;
        assert_eq!(differences(&then, &then).unwrap(), Vec::<String>::new());
        let mut now = then.clone();
        now.skipped = vec![kept(SkipReason::Newest), kept(SkipReason::Running)];
        now.wake_in = Some(Millis(7));
        assert_eq!(
            differences(&then, &now).unwrap(),
            [
                "skipped: 1 then, 2 now",
                "skipped[0].reason.why: notNeeded then, newest now",
                "wakeIn: nothing then, 7 now",
            ]
        );
    }
}
