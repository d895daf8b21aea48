//! Whether a delete is right, by what is in the store at its moment and by nothing that the collector believes.
//!
//! Nothing is deleted that has an owner which is there and not itself being deleted in the foreground.
use crate::api::Api;
use crate::proxy::Asked;
use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A delete that was looked at.
#[derive(Debug, Clone)]
pub(crate) struct Judgement {
    /// What is wrong with it.
    pub(crate) wrong: Option<String>,
}

/// Looks at a delete that is about to reach the API server.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn judge(api: &Api, asked: &Asked) -> Result<Judgement> {
    let right = Judgement { wrong: None };
    let path = asked.place();
    let Some(object) = read(api, path)? else { return Ok(right) };
    let options: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let metadata = &object["metadata"];
    // The API server refuses what is about another version or another object.
    let is_about_another = ["uid", "resourceVersion"].iter().any(|&field| {
        let wanted = &options["preconditions"][field];
        !wanted.is_null() && *wanted != metadata[field]
    });
    if is_about_another {
        return Ok(right);
    }
    for reference in metadata["ownerReferences"].as_array().into_iter().flatten() {
        let Some(owner) = owner(api, metadata["namespace"].as_str(), reference)? else { continue };
        let finalizers = owner["metadata"]["finalizers"].as_array().into_iter().flatten();
        let is_waiting = !owner["metadata"]["deletionTimestamp"].is_null()
            && finalizers.into_iter().any(|finalizer| finalizer == "foregroundDeletion");
        if !is_waiting {
            let wrong = format!("{path} was deleted, and its owner was there: {owner}; {object}");
            return Ok(Judgement { wrong: Some(wrong) });
        }
    }
    Ok(right)
}

/// The owner that a reference names, where it is there.
fn owner(api: &Api, namespace: Option<&str>, reference: &Value) -> Result<Option<Value>> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let version = text("apiVersion");
    let root =
        if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    // The kinds of these tests have the plurals of most words.
    let of = format!("{}s/{}", text("kind").to_lowercase(), text("name"));
    let places =
        [namespace.map(|n| format!("{root}/namespaces/{n}/{of}")), Some(format!("{root}/{of}"))];
    for place in places.into_iter().flatten() {
        let found = read(api, &place)?;
        if let Some(found) = found.filter(|found| found["metadata"]["uid"] == reference["uid"]) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn read(api: &Api, path: &str) -> Result<Option<Value>> {
    match api.ask("GET", path, None).with_context(|| format!("the oracle cannot read {path}"))? {
        (200, object) => Ok(Some(object)),
        (404, _) => Ok(None),
        (status, body) => bail!("the oracle cannot read {path}: {status}, {body}"),
    }
}
