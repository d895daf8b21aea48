//! The calls of a node's agent: a pod is failed, deleted or evicted, an Event is written, the Node gets conditions and taints.
//!
//! Each call about a pod is about one UID: a pod that has taken another's name is never hit.

use crate::call::{Api, Call, METADATA};
use crate::failure::Failure;
use crate::write::whole_seconds;
use ebb_policy_cluster::Time;
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";

/// How often a change of taints is tried that others keep overtaking.
const TAINT_ATTEMPTS: usize = 5;

/// How long the Eviction subresource may take: an API server tries again by itself for ten seconds where the pod changes meanwhile, or another has its name, before it says so.
const EVICTED_WITHIN: Duration = Duration::from_secs(15);

/// A pod, by all that must fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID of the object: of a mirror pod its own, not that of the static pod behind it.
    pub uid: String,
}

/// A condition of a pod or of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Type.
    pub of: String,
    /// Whether it holds.
    pub status: bool,
    /// Reason, in CamelCase.
    pub reason: String,
    /// Message for people.
    pub message: String,
}

/// What a pod's status is to say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodStatus {
    /// Phase, reason and message, where the phase is to be changed.
    pub phase: Option<(String, String, String)>,
    /// A condition.
    pub condition: Option<Condition>,
}

/// An Event to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// Its name; writing the same twice makes one.
    pub name: String,
    /// `Normal` or `Warning`.
    pub of: &'static str,
    /// Reason, in CamelCase.
    pub reason: String,
    /// Message for people.
    pub message: String,
    /// Annotations.
    pub annotations: Vec<(String, String)>,
    /// When it happened.
    pub at: Time,
    /// The node from which it is told.
    pub host: String,
}

/// What an Event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About<'a> {
    /// A pod.
    Pod(&'a PodRef),
    /// A Node, by its name and UID.
    Node(&'a str, &'a str),
}

/// What taints a Node had when it was seen, and in which version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeTaints {
    version: Option<String>,
    taints: Vec<Value>,
}

impl NodeTaints {
    /// Those of a Node's object.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        let taints = object.pointer("/spec/taints").and_then(Value::as_array);
        Self { version: version.map(str::to_owned), taints: taints.cloned().unwrap_or_default() }
    }
}

impl PodRef {
    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", self.namespace, self.name)
    }
}

impl Failure {
    /// Whether the pod is not there, or another has its name: nothing is left to do about it.
    #[must_use]
    pub fn is_gone(&self, pod: &PodRef) -> bool {
        matches!(self.code(), Some(409 | 422)) && self.is_about_uid()
            || self.is_absence_of(&pod.name)
    }
}

impl Api {
    /// A call that is tried again soon. What a write gives back, the whole object, nobody reads.
    fn node_call(&self, verb: &'static str, method: Method, path: String) -> Call {
        let call = Call::new(verb, method, path);
        let accept = if call.method == Method::GET { call.accept } else { METADATA };
        Call { accept, deadline: self.writes_within, ..call }
    }

    /// Writes into a pod's status.
    ///
    /// No version is named: its kubelet writes there all the time, and nothing of what it wrote is taken back by these fields.
    ///
    /// # Errors
    /// It was not written: [`Failure::is_gone`] says whether there is such a pod.
    pub async fn set_pod_status(&self, pod: &PodRef, to: &PodStatus) -> Result<(), Failure> {
        let mut status = json!({});
        if let Some((phase, reason, message)) = &to.phase {
            status = json!({ "phase": phase, "reason": reason, "message": message });
        }
        if let Some(condition) = &to.condition {
            status["conditions"] = json!([self::condition(condition, crate::time::now())]);
        }
        let patch = json!({ "metadata": { "uid": pod.uid }, "status": status });
        let call = Call {
            content_type: STRATEGIC,
            ..self.node_call("patch", Method::PATCH, pod.path() + "/status").body(&patch)
        };
        self.send(call).await.map(drop)
    }

    /// Deletes a pod with so many seconds of grace.
    ///
    /// # Errors
    /// As [`Api::set_pod_status`].
    pub async fn delete_pod(&self, pod: &PodRef, grace: u64) -> Result<(), Failure> {
        let options = options(pod, grace);
        let call = self.node_call("delete", Method::DELETE, pod.path()).body(&options);
        self.send(call).await.map(drop)
    }

    /// Evicts a pod with so many seconds of grace, as far as its disruption budgets allow.
    ///
    /// # Errors
    /// A budget refuses it (429), or as [`Api::set_pod_status`].
    pub async fn evict_pod(&self, pod: &PodRef, grace: u64) -> Result<(), Failure> {
        let eviction = |version: &str| {
            json!({
                "apiVersion": version, "kind": "Eviction",
                "metadata": { "namespace": pod.namespace, "name": pod.name },
                "deleteOptions": options(pod, grace),
            })
        };
        let ask = |version| {
            let path = pod.path() + "/eviction";
            let call = Call::new("create", Method::POST, path).body(&eviction(version));
            self.send(Call { deadline: EVICTED_WITHIN, ..call })
        };
        match ask("policy/v1").await {
            // Before 1.22 it is known by its beta alone.
            Err(failure) if failure.code() == Some(400) => ask("policy/v1beta1").await.map(drop),
            other => other.map(drop),
        }
    }

    /// Writes an Event; one of that name that is there already is the same.
    ///
    /// # Errors
    /// It was not written.
    pub async fn write_event(&self, about: About<'_>, event: &NewEvent) -> Result<(), Failure> {
        let (namespace, involved) = match about {
            About::Pod(PodRef { namespace, name, uid }) => (
                namespace.as_str(),
                json!({ "kind": "Pod", "apiVersion": "v1", "namespace": namespace, "name": name, "uid": uid }),
            ),
            About::Node(name, uid) => {
                ("default", json!({ "kind": "Node", "apiVersion": "v1", "name": name, "uid": uid }))
            }
        };
        let annotations: serde_json::Map<String, Value> =
            event.annotations.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
        let at = whole_seconds(event.at);
        let body = json!({
            "kind": "Event", "apiVersion": "v1", "type": event.of,
            "metadata": { "namespace": namespace, "name": event.name, "annotations": annotations },
            "involvedObject": involved, "reason": event.reason, "message": event.message,
            "firstTimestamp": at, "lastTimestamp": at, "count": 1,
            "source": { "component": "ebb", "host": event.host },
            "reportingComponent": "ebb", "reportingInstance": event.host,
        });
        let path = format!("/api/v1/namespaces/{namespace}/events");
        match self.send(self.node_call("create", Method::POST, path).body(&body)).await {
            Err(failure) if failure.code() == Some(409) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Sets conditions of a Node that have changed at `since`; others stay as they are.
    ///
    /// # Errors
    /// They were not set.
    pub async fn set_node_conditions(
        &self,
        node: &str,
        conditions: &[Condition],
        since: Time,
    ) -> Result<(), Failure> {
        let conditions: Vec<Value> = conditions.iter().map(|of| condition(of, since)).collect();
        let patch = json!({ "status": { "conditions": conditions } });
        let path = format!("/api/v1/nodes/{node}/status");
        let call = Call {
            content_type: STRATEGIC,
            ..self.node_call("patch", Method::PATCH, path).body(&patch)
        };
        self.send(call).await.map(drop)
    }

    /// Of the taints `own` (`NoSchedule`), gives a Node those that are `wanted` and takes the others away; what others put there stays.
    ///
    /// Where the Node is still as it was `seen` that is one call. That it has them already is only believed of a Node that was just read: what was seen may be from before the last change.
    ///
    /// # Errors
    /// They are not so, or others change them all the time (409).
    pub async fn set_node_taints(
        &self,
        node: &str,
        seen: &NodeTaints,
        own: &[&str],
        wanted: &[&str],
    ) -> Result<(), Failure> {
        let path = format!("/api/v1/nodes/{node}");
        let mut attempts = 0;
        let mut change = seen.version.is_some().then(|| seen.with(own, wanted)).flatten();
        loop {
            if change.is_none() {
                let get = self.node_call("get", Method::GET, path.clone());
                change = NodeTaints::read(&self.read(get).await?).with(own, wanted);
            }
            let Some(NodeTaints { version, taints }) = change.take() else { return Ok(()) };
            let patch =
                json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": taints } });
            let call = Call {
                content_type: MERGE,
                ..self.node_call("patch", Method::PATCH, path.clone()).body(&patch)
            };
            match self.send(call).await {
                Err(f) if f.code() == Some(409) && attempts < TAINT_ATTEMPTS => attempts += 1,
                other => return other.map(drop),
            }
        }
    }
}

fn options(pod: &PodRef, grace: u64) -> Value {
    json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace,
        "preconditions": { "uid": pod.uid },
    })
}

fn condition(of: &Condition, since: Time) -> Value {
    let since = whole_seconds(since);
    json!({
        "type": of.of, "status": if of.status { "True" } else { "False" },
        "reason": of.reason, "message": of.message, "lastTransitionTime": since,
    })
}

impl NodeTaints {
    /// The taints that the Node is to have, for this version of it; `None` where it has them.
    fn with(&self, own: &[&str], wanted: &[&str]) -> Option<Self> {
        fn key(taint: &Value) -> &str {
            taint.get("key").and_then(Value::as_str).unwrap_or_default()
        }
        let Self { version, taints: now } = self;
        let is_own = |taint: &&Value| own.contains(&key(taint));
        let there: BTreeSet<&str> = now.iter().filter(is_own).map(key).collect();
        if there == wanted.iter().copied().collect() {
            return None;
        }
        let mut taints: Vec<Value> = now.iter().filter(|taint| !is_own(taint)).cloned().collect();
        taints.extend(wanted.iter().map(|key| json!({ "key": key, "effect": "NoSchedule" })));
        Some(Self { version: version.clone(), taints })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_of_others_stay_and_ones_own_are_those_that_are_wanted() {
        let others = json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoExecute" });
        let own = json!({ "key": "ebb.dev/memory-pressure", "effect": "NoSchedule" });
        let with = |now: &[&Value], keys: &[&str]| {
            let node = json!({ "metadata": { "resourceVersion": "7" }, "spec": { "taints": now } });
            let change = NodeTaints::read(&node).with(&["ebb.dev/memory-pressure"], keys)?;
            assert_eq!(change.version.as_deref(), Some("7"));
            Some(change.taints)
        };
        assert_eq!(with(&[&others], &[]), None);
        assert_eq!(with(&[&others, &own], &["ebb.dev/memory-pressure"]), None);
        assert_eq!(with(&[&others, &own], &[]), Some(vec![others.clone()]));
        let both = with(&[&others], &["ebb.dev/memory-pressure"]);
        assert_eq!(both, Some(vec![others, own]));
    }
}
