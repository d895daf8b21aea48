//! What a collector decides on, of each object, as one line of words: `b of a! with example.com/keep terminating`.
//!
//! `of` names the owners, with `!` where the reference has `blockOwnerDeletion`; `with` names the finalizers.
use serde_json::Value;

/// The line of an object.
pub(crate) fn line(object: &Value) -> String {
    let metadata = &object["metadata"];
    let mut line = metadata["name"].as_str().unwrap_or_default().to_owned();
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten().map(|owner| {
        let mark = if owner["blockOwnerDeletion"] == true { "!" } else { "" };
        format!("{}{mark}", owner["name"].as_str().unwrap_or_default())
    });
    add(&mut line, "of", owners.collect());
    let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
    let mut finalizers: Vec<String> =
        finalizers.filter_map(Value::as_str).map(str::to_owned).collect();
    finalizers.sort();
    add(&mut line, "with", finalizers);
    if !metadata["deletionTimestamp"].is_null() {
        line.push_str(" terminating");
    }
    line
}

fn add(line: &mut String, word: &str, names: Vec<String>) {
    if !names.is_empty() {
        line.push_str(&format!(" {word} {}", names.join(", ")));
    }
}
