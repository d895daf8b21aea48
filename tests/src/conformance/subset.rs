//! Whether an answer says everything that was expected of it.
//!
//! An expectation names what a scenario is about and nothing else: an object may have more fields than expected, a list may not have more items.
//! `null` is expected of a field that is absent.
use serde_json::Value;

/// What is missing or different, each with its path; empty when the answer is as expected.
#[must_use]
pub fn differences(expected: &Value, actual: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", expected, actual, &mut found);
    found
}

fn compare(path: &str, expected: &Value, actual: &Value, found: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(wanted), Value::Object(fields)) => {
            for (key, wanted) in wanted {
                let path = format!("{path}.{key}");
                compare(&path, wanted, fields.get(key).unwrap_or(&Value::Null), found);
            }
        }
        (Value::Array(wanted), Value::Array(items)) => {
            if wanted.len() != items.len() {
                found.push(format!(
                    "{path}: {} items expected, {} there: {actual}",
                    wanted.len(),
                    items.len()
                ));
                return;
            }
            for (index, (wanted, item)) in wanted.iter().zip(items).enumerate() {
                compare(&format!("{path}[{index}]"), wanted, item, found);
            }
        }
        _ if expected == actual => {}
        _ => found.push(format!("{path}: {expected} expected, {actual} there")),
    }
}

#[cfg(test)]
mod tests {
    use super::differences;
    use serde_json::json;

    #[test]
    fn more_fields_are_fine_more_items_are_not() {
        assert!(differences(&json!({"a": [{}]}), &json!({"a": [{"b": 1}], "c": 2})).is_empty());
        let found = differences(&json!({"a": [], "d": null}), &json!({"a": [1], "d": 3}));
        assert_eq!(found, [".a: 0 items expected, 1 there: [1]", ".d: null expected, 3 there"]);
    }
}
