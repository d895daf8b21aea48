//! The kinds of the Prometheus operator that `deploy/` has objects of, with the fields of theirs that those use and no others.
//!
//! What such a schema does not have the API server leaves out, and whoever compares what was sent with what was taken sees it.
use crate::kinds;
use anyhow::Result;
use ebb_cluster_tests::api::Api;
use serde_json::{Value, json};

const GROUP: &str = "monitoring.coreos.com";
/// How Prometheus writes a time; without parts smaller than a second, which no alert waits for.
const DURATION: &str = "^([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$";

/// Teaches the server both kinds, and waits until it serves them.
pub(crate) fn define(api: &Api) -> Result<()> {
    for (kind, spec) in [("PodMonitor", pod_monitor()), ("PrometheusRule", prometheus_rule())] {
        let schema = fields(json!({ "spec": spec }), &["spec"]);
        let version = kinds::define_as(api, GROUP, kind, "Namespaced", &schema)?;
        kinds::served(api, &format!("/apis/{version}/{}s", kind.to_lowercase()))?;
    }
    Ok(())
}

fn pod_monitor() -> Value {
    let relabeling = json!({ "sourceLabels": list(text()), "targetLabel": text() });
    let endpoint = json!({ "port": text(), "relabelings": list(fields(relabeling, &[])) });
    let spec = json!({
        "selector": fields(json!({ "matchLabels": texts() }), &[]),
        "podMetricsEndpoints": list(fields(endpoint, &[])),
    });
    fields(spec, &["selector", "podMetricsEndpoints"])
}

fn prometheus_rule() -> Value {
    let rule = json!({
        "alert": text(), "expr": { "x-kubernetes-int-or-string": true },
        "for": { "type": "string", "pattern": DURATION }, "labels": texts(), "annotations": texts(),
    });
    let group = json!({
        "name": { "type": "string", "minLength": 1 }, "rules": list(fields(rule, &["expr"])),
    });
    fields(json!({ "groups": list(fields(group, &["name"])) }), &[])
}

fn fields(properties: Value, required: &[&str]) -> Value {
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn texts() -> Value {
    json!({ "type": "object", "additionalProperties": text() })
}
