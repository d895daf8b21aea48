//! The Lease by which one of several controllers acts: read, created, replaced in one version.

use crate::call::{Api, Call};
use crate::failure::Failure;
use crate::time;
use ebb_policy_cluster::Time;
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// What a Lease says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseRecord {
    /// Who holds it; empty: nobody.
    pub holder: String,
    /// For how many seconds from a renewal on.
    pub seconds: u64,
    /// `renewTime` as the API server has it: compared, never read, for clocks differ.
    pub renewed: String,
    /// Since when it has this holder, as the API server has it.
    pub acquired: String,
    /// How often it changed hands.
    pub transitions: u64,
    /// Of which version this is said; empty for one that is to be created.
    pub version: String,
}

impl Api {
    /// A Lease; `None` where there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn lease(
        &self,
        namespace: &str,
        name: &str,
        deadline: Duration,
    ) -> Result<Option<LeaseRecord>, Failure> {
        let call = Call { deadline, ..Call::get("get", path(namespace, name)) };
        match self.read::<Value>(call).await {
            Ok(value) => Ok(Some(record(&value))),
            Err(failure) if failure.is_absence_of(name) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Creates a Lease, or replaces the version that `record` names, as renewed at `now`; returns it as it is then.
    ///
    /// # Errors
    /// Somebody else was faster (409), or it cannot be written.
    pub async fn put_lease(
        &self,
        namespace: &str,
        name: &str,
        record: &LeaseRecord,
        now: Time,
        deadline: Duration,
    ) -> Result<LeaseRecord, Failure> {
        let acquired =
            if record.acquired.is_empty() { time::write(now) } else { record.acquired.clone() };
        let mut lease = json!({
            "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
            "metadata": { "namespace": namespace, "name": name },
            "spec": {
                "holderIdentity": record.holder, "leaseDurationSeconds": record.seconds.max(1),
                "acquireTime": acquired, "renewTime": time::write(now), "leaseTransitions": record.transitions,
            },
        });
        let (verb, method, at) = if record.version.is_empty() {
            let all = path(namespace, "");
            ("create", Method::POST, all.trim_end_matches('/').to_owned())
        } else {
            lease["metadata"]["resourceVersion"] = json!(record.version);
            ("update", Method::PUT, path(namespace, name))
        };
        let call = Call { deadline, ..Call::new(verb, method, at) };
        self.read::<Value>(call.body(&lease)).await.map(|value| self::record(&value))
    }
}

fn path(namespace: &str, name: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
}

fn record(value: &Value) -> LeaseRecord {
    let spec = &value["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    LeaseRecord {
        holder: text(&spec["holderIdentity"]),
        seconds: spec["leaseDurationSeconds"].as_u64().unwrap_or_default(),
        renewed: text(&spec["renewTime"]),
        acquired: text(&spec["acquireTime"]),
        transitions: spec["leaseTransitions"].as_u64().unwrap_or_default(),
        version: text(&value["metadata"]["resourceVersion"]),
    }
}
