//! Requests about objects of the measured kinds, as the API server counts them; lists and watches are left out.
use anyhow::{Context, Result};
use ebb_cluster_tests::api::Api;

const VERBS: [&str; 6] = ["GET", "DELETE", "PATCH", "PUT", "POST", "APPLY"];
const RESOURCES: [&str; 5] = ["deployments", "replicasets", "pods", "configmaps", "secrets"];

/// How many there were so far, by everybody.
pub(crate) fn requests(api: &Api) -> Result<u64> {
    let (_, body) = api.ask("GET", "/metrics", None)?;
    let text = body.as_str().context("the API server shows no metrics")?;
    let lines = text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{"));
    let counted = lines.filter_map(|line| {
        let (labels, value) = line.rsplit_once("} ")?;
        let is_of = |key: &str, of: &[&str]| {
            of.iter().any(|value| labels.contains(&format!("{key}=\"{value}\"")))
        };
        let counts = is_of("verb", &VERBS) && is_of("resource", &RESOURCES);
        counts.then(|| value.trim().parse::<f64>().ok())?
    });
    // Counters of whole requests, far below 2^53.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter")]
    let sum = counted.sum::<f64>() as u64;
    Ok(sum)
}
