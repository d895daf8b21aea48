//! The JSON Schemas of the black-box seam, generated from the types.
use ebb_policy::{History, Plan, Snapshot, cgroups};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// File name and text of each schema under `docs/schema`.
#[must_use]
pub fn all() -> Vec<(&'static str, String)> {
    vec![
        (
            "snapshot.json",
            text::<Snapshot>(
                "A node at one moment, as `ebb snapshot` prints it and `ebb plan` reads it.",
            ),
        ),
        (
            "plan.json",
            text::<Plan>(
                "What to do, what was left alone and why: the field `plan` of what `ebb plan --output json` prints. Fields that say nothing are left out.",
            ),
        ),
        (
            "history.json",
            text::<History>(
                "What a decision remembers for the next one: the field `history` of what `ebb plan --output json` prints, and what `--history` reads. README.md beside this file shows a pass that stops for reclaim and goes on from its history.",
            ),
        ),
        (
            "cgroup-plan.json",
            text::<cgroups::Plan>(
                "The cgroup tree that the rules demand, as `ebb cgroups plan --output json` prints it.",
            ),
        ),
        (
            "cgroup-node.json",
            text::<cgroups::Node>(
                "Facts about a node, as `ebb cgroups --node` reads them from JSON or YAML. A Kubernetes Node object is read too.",
            ),
        ),
        (
            "cgroup-difference.json",
            text::<cgroups::compare::Difference>(
                "One of the `differences` that `ebb cgroups audit --output json` prints.",
            ),
        ),
    ]
}

fn text<T: JsonSchema>(title: &str) -> String {
    let mut schema: Schema =
        SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), Value::String(title.to_owned()));
    // A schema is made of texts, numbers and lists, which always have a JSON form.
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}
