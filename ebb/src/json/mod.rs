//! JSON that others wrote: text in, a checked type out, with errors in plain words that name the place.
//!
//! ```text
//!  text ─► tree (a key given twice is refused) ─► strict (objects stay objects, every error has its path) ─► type
//! ```
//! The derived readers take an array where an object belongs, and keep the last of two equal keys; whoever writes a snapshot by hand is better told.

mod error;
mod strict;
mod tree;

use anyhow::{Context as _, anyhow, bail, ensure};
use ebb_policy::History;
use ebb_policy::snapshot::SCHEMA_VERSION;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{self, Read as _};
use std::path::Path;

/// Reads a JSON file, or standard input for `-`, into a checked type.
///
/// # Errors
/// The file cannot be read, or is wrong: file, path of the field, what is there and what belongs there.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    text(path).and_then(|text| parse(&text)).with_context(|| path.display().to_string())
}

/// Reads what an earlier pass remembered: a history by itself, or the whole answer of `ebb plan`.
///
/// # Errors
/// As [`read`], or a history of a version that this ebb does not know.
pub(super) fn read_history(path: &Path) -> anyhow::Result<History> {
    let read = || {
        let value = match tree::parse(&text(path)?)? {
            Value::Object(mut both)
                if both.contains_key("plan") && both.contains_key("history") =>
            {
                let own = both.remove("history").unwrap_or_default();
                both.remove("plan");
                if let Some(key) = both.keys().next() {
                    bail!("unknown field `{key}`; beside `history` there is `plan` alone");
                }
                return written(own).context("history");
            }
            other => other,
        };
        written(value)
    };
    read().with_context(|| path.display().to_string())
}

/// Reads a history that a pass has written, which says its version.
fn written(value: Value) -> anyhow::Result<History> {
    let is_versioned = value.get("schemaVersion").is_some() || !value.is_object();
    ensure!(is_versioned, "schemaVersion: missing; without --history a first pass is made");
    history(value)
}

/// Reads a history, and refuses one of another version.
///
/// # Errors
/// It is wrong, or of a version that this ebb does not know.
pub(super) fn history(value: Value) -> anyhow::Result<History> {
    let history: History = typed(value)?;
    let version = history.schema_version;
    // 0 stands for a history that no pass has written yet.
    ensure!(
        version == SCHEMA_VERSION || version == 0,
        "schemaVersion = {version}: this ebb reads a history of version {SCHEMA_VERSION}; without --history a first pass is made"
    );
    Ok(history)
}

/// Reads a text into a checked type.
///
/// # Errors
/// See [`read`].
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    typed(tree::parse(text)?)
}

/// Reads a text as a tree without a type; a key given twice is refused.
///
/// # Errors
/// The text is no JSON, or an object has a key twice.
pub(super) fn tree(text: &str) -> anyhow::Result<Value> {
    tree::parse(text)
}

/// Reads a tree into a checked type.
///
/// # Errors
/// See [`read`].
pub(super) fn typed<T: DeserializeOwned>(value: Value) -> anyhow::Result<T> {
    T::deserialize(strict::Strict::new(value)).map_err(|error| anyhow!("{error}"))
}

fn text(path: &Path) -> anyhow::Result<String> {
    let read = if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    read.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => anyhow!("it is not text in UTF-8"),
        _ => anyhow!("cannot be read: {error}"),
    })
}

/// Indented JSON without the fields that say nothing: an absent field and `null` mean the same.
pub(super) fn pretty(value: &impl Serialize) -> anyhow::Result<String> {
    serde_json::to_string_pretty(&said(value)?).context("cannot be written as JSON")
}

/// The same on one line.
pub(super) fn line(value: &impl Serialize) -> anyhow::Result<String> {
    serde_json::to_string(&said(value)?).context("cannot be written as JSON")
}

fn said(value: &impl Serialize) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(value).context("cannot be written as JSON")?;
    strip(&mut value);
    Ok(value)
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_policy::Snapshot;

    fn wrong(text: &str) -> String {
        parse::<Snapshot>(text).unwrap_err().to_string()
    }

    #[test]
    fn an_error_names_the_path_of_the_field_and_what_belongs_there() {
        for (text, said) in [
            (r#"{"schemaVersion":1}"#, "takenAt: missing"),
            (
                r#"{"schemaVersion":1,"takenAt":"now"}"#,
                "takenAt: text \"now\" where a whole number from 0 on belongs",
            ),
            (
                r#"{"schemaVersion":1,"takenAt":-1}"#,
                "takenAt: -1 where a whole number from 0 on belongs",
            ),
            (
                r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":{"name":"a"}},{"key":{"name":7}}]}"#,
                "workloads[1].key.name: 7 where text belongs",
            ),
            (
                r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":{"name":"a"},"qosClass":"best"}]}"#,
                "workloads[0]: unknown field `qosClass`",
            ),
            (
                r#"{"schemaVersion":1,"takenAt":1,"signals":{"memory.avail":{"available":1}}}"#,
                "signals: unknown value `memory.avail`; did you mean `memory.available`?",
            ),
            (
                r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":{"name":"a"},"state":{"type":"gone"}}]}"#,
                "workloads[0].state.type: unknown value `gone`",
            ),
            (
                r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":{"name":"a"},"state":{"type":"terminating","sinze":1}}]}"#,
                "workloads[0].state: unknown field `sinze`; did you mean `since`?",
            ),
            (
                r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":{"name":"a"},"state":{"type":"active","bogus":1}}]}"#,
                "workloads[0].state: unknown field `bogus`",
            ),
            (
                r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":{"name":"a"},"state":{"type":"active","since":1}}]}"#,
                "workloads[0].state: unknown field `since` beside `type: active`; there is none beside that, remove it",
            ),
            (
                r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":{"name":"a"},"state":{"type":"terminated","since":1}}]}"#,
                "workloads[0].state: unknown field `since` beside `type: terminated`; use at",
            ),
            (
                r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":{"name":"a"},"state":{"type":"terminating","since":"soon"}}]}"#,
                "workloads[0].state.since: text \"soon\" where a whole number from 0 on belongs",
            ),
            (
                r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":{"name":"a"},"state":{"since":1}}]}"#,
                "workloads[0].state.type: missing",
            ),
        ] {
            assert!(
                wrong(text).starts_with(said),
                "{said}\nis not how this begins:\n{}",
                wrong(text)
            );
        }
    }

    #[test]
    fn an_array_is_no_object() {
        assert_eq!(wrong("[1, 2]"), "a list where an object belongs");
        assert_eq!(
            wrong(r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":["a"]}]}"#),
            "workloads[0].key: a list where an object belongs"
        );
        assert_eq!(
            wrong(
                r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":{"name":"a"},"state":["active"]}]}"#
            ),
            "workloads[0].state: a list where an object belongs"
        );
    }

    #[test]
    fn a_key_given_twice_is_refused_with_its_path_and_line() {
        let text = "{\"schemaVersion\":1,\"takenAt\":1,\n\"workloads\":[{\"key\":{\"name\":\"a\",\n\"name\":\"b\"}}]}";
        let said = wrong(text);
        assert!(said.starts_with("workloads[0].key.name: given twice; keep one of them"), "{said}");
        assert!(said.contains("line 3"), "{said}");
    }

    #[test]
    fn no_words_of_the_library_reach_the_reader() {
        for text in [
            "3",
            r#"{"schemaVersion":1,"takenAt":1.5}"#,
            r#"{"schemaVersion":1,"takenAt":1,"workloads":{}}"#,
            r#"{"schemaVersion":1,"takenAt":1,"node":3}"#,
            r#"{"schemaVersion":1,"takenAt":1,"tasks":[1]}"#,
            r#"{"schemaVersion":1,"takenAt":1,"sourcesReady":"yes"}"#,
            r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":{"name":"a"},"priority":"x"}]}"#,
            r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":{"name":"a"},"priority":99999999999}]}"#,
            r#"{"schemaVersion":1,"takenAt":1,"workloads":[{"key":{"name":"a"},"memoryRequest":[]}]}"#,
        ] {
            let said = wrong(text);
            for word in [
                "struct",
                "sequence",
                "u64",
                "i32",
                "map",
                "variant",
                "invalid type",
                "enum",
                "Option",
                "serde",
            ] {
                assert!(!said.contains(word), "{word} in: {said}");
            }
        }
    }
}
