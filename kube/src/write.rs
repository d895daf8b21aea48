//! The calls about one object: look-ups, deletes and patches. Each is about a uid, so that nothing else is changed by it.

use crate::call::{Api, Call, METADATA};
use crate::catalogue::ApiResource;
use crate::failure::Failure;
use crate::time;
use crate::wire::Found;
use ebb_policy_cluster::{
    Answer, Kind, Object, OwnerAnswer, OwnerReference, Policy, Preconditions, Time,
};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// The field of an Event and of its source: who wrote it.
const COMPONENT: &str = "ebb-controller";

/// What a call is about.
#[derive(Debug, Clone)]
pub struct Target {
    /// Of which resource.
    pub of: ApiResource,
    /// In which namespace.
    pub namespace: Option<String>,
    /// By which name.
    pub name: String,
}

/// What became of a delete or a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// What the graph has to know.
    pub answer: Answer,
    /// Why it was not done.
    pub failure: Option<Failure>,
}

impl Reply {
    fn of(result: Result<Vec<u8>, Failure>, name: &str) -> Self {
        let Err(failure) = result else { return Self { answer: Answer::Done, failure: None } };
        let answer = match failure.code() {
            Some(404) if failure.is_absence_of(name) => Answer::NotFound,
            Some(409) => Answer::Conflict,
            Some(400 | 405 | 422) => Answer::Invalid,
            _ => Answer::Retry,
        };
        Self { answer, failure: Some(failure) }
    }

    /// Whether the API server asks for fewer requests.
    #[must_use]
    pub fn is_too_many(&self) -> bool {
        self.failure.as_ref().is_some_and(|f| f.code() == Some(429))
    }

    /// Whether the API server could not answer, or not in time.
    #[must_use]
    pub fn is_overload(&self) -> bool {
        self.failure.as_ref().is_some_and(|f| f.code().is_none_or(|code| code >= 500))
    }

    /// When to ask again, where the API server says so.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.failure.as_ref()?.retry_after()
    }
}

impl Target {
    fn path(&self) -> String {
        format!("{}/{}", self.of.path(self.namespace.as_deref()), self.name)
    }
}

impl Api {
    /// What is at the coordinates of an owner.
    ///
    /// # Errors
    /// There is no answer to that, so nothing is known.
    pub async fn owner(&self, at: &Target) -> Result<OwnerAnswer, Failure> {
        let call = Call { accept: METADATA, ..Call::get("get", at.path()) };
        match self.read::<Found>(call).await {
            Ok(found) => {
                let (uid, foreground) = found.owner();
                Ok(OwnerAnswer::Found { uid, foreground })
            }
            Err(failure) if failure.is_absence_of(&at.name) => Ok(OwnerAnswer::NotFound),
            Err(failure) => Err(failure),
        }
    }

    /// Deletes the version of the object that was judged.
    pub async fn delete(&self, at: &Target, policy: Policy, on: &Preconditions) -> Reply {
        let policy = match policy {
            Policy::Background => "Background",
            Policy::Foreground => "Foreground",
            Policy::Orphan => "Orphan",
        };
        let options = json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy,
            "preconditions": { "uid": on.uid.to_string(), "resourceVersion": on.resource_version },
        });
        self.write("delete", Method::DELETE, at.path(), &at.name, &options, None).await
    }

    /// Deletes a pod at once, whatever its version.
    pub async fn delete_now(&self, at: &Target, on: &Preconditions) -> Reply {
        let options = json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
            "preconditions": { "uid": on.uid.to_string() },
        });
        self.write("delete", Method::DELETE, at.path(), &at.name, &options, None).await
    }

    /// Gives an object these owner references and no others. References keep the version that they name.
    pub async fn set_owners(
        &self,
        at: &Target,
        owners: &[OwnerReference],
        on: &Preconditions,
    ) -> Reply {
        let owners: Vec<Value> = owners.iter().map(reference).collect();
        self.patch(at, "ownerReferences", &json!(owners), on).await
    }

    /// Takes one finalizer of an object away.
    pub async fn remove_finalizer(
        &self,
        at: &Target,
        object: &Object,
        finalizer: &str,
        on: &Preconditions,
    ) -> Reply {
        let rest: Vec<&String> = object.finalizers.iter().filter(|f| *f != finalizer).collect();
        self.patch(at, "finalizers", &json!(rest), on).await
    }

    async fn patch(&self, at: &Target, key: &str, value: &Value, on: &Preconditions) -> Reply {
        let patch = json!({ "metadata": {
            "uid": on.uid.to_string(), "resourceVersion": on.resource_version, key: value,
        }});
        let content = Some("application/merge-patch+json");
        self.write("patch", Method::PATCH, at.path(), &at.name, &patch, content).await
    }

    /// Makes a pod's phase Failed before it is deleted; `message` is that of its condition DisruptionTarget.
    pub async fn mark_failed(
        &self,
        at: &Target,
        message: Option<&str>,
        on: &Preconditions,
    ) -> Reply {
        let mut status = json!({ "phase": "Failed" });
        if let Some(message) = message {
            status["conditions"] = json!([{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                "message": message, "lastTransitionTime": whole_seconds(time::now()),
            }]);
        }
        let patch = json!({ "metadata": { "uid": on.uid.to_string() }, "status": status });
        let content = Some("application/strategic-merge-patch+json");
        let path = at.path() + "/status";
        self.write("patch", Method::PATCH, path, &at.name, &patch, content).await
    }

    /// Writes the Warning Event `OwnerRefInvalidNamespace` about an object and one of its references.
    ///
    /// # Errors
    /// The Event was not created.
    pub async fn warn_invalid_namespace(
        &self,
        object: &Object,
        owner: &OwnerReference,
    ) -> Result<(), Failure> {
        let namespace = object.namespace.as_deref().unwrap_or("default");
        let now = whole_seconds(time::now());
        let of = object.namespace.as_deref().unwrap_or_default();
        let message = format!(
            "ownerRef [{}/{}, namespace: {of}, name: {}, uid: {}] does not exist in namespace \"{of}\"",
            api_version(&owner.kind),
            owner.kind.kind,
            owner.name,
            owner.uid,
        );
        let event = json!({
            "kind": "Event", "apiVersion": "v1", "type": "Warning",
            "metadata": { "namespace": namespace, "name": format!("{}.{:016x}", object.name, fastrand::u64(..)) },
            "involvedObject": {
                "kind": object.kind.kind, "apiVersion": api_version(&object.kind), "namespace": object.namespace,
                "name": object.name, "uid": object.uid.to_string(), "resourceVersion": object.resource_version,
            },
            "reason": "OwnerRefInvalidNamespace", "message": message,
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
            "source": { "component": COMPONENT }, "reportingComponent": COMPONENT,
        });
        let path = format!("/api/v1/namespaces/{namespace}/events");
        self.send(Call::new("create", Method::POST, path).body(&event)).await.map(drop)
    }

    async fn write(
        &self,
        verb: &'static str,
        method: Method,
        path: String,
        name: &str,
        body: &Value,
        content_type: Option<&'static str>,
    ) -> Reply {
        let mut call = Call::new(verb, method, path).body(body);
        // The object comes back otherwise, whole: nobody reads it.
        call.accept = METADATA;
        if let Some(content_type) = content_type {
            call.content_type = content_type;
        }
        Reply::of(self.send(call).await, name)
    }
}

/// A time as fields of type `Time` want it.
pub(crate) fn whole_seconds(at: Time) -> String {
    let text = time::write(at);
    text.split_once('.').map_or(text.clone(), |(whole, _)| format!("{whole}Z"))
}

fn api_version(kind: &Kind) -> String {
    let Kind { group, version, .. } = kind;
    if group.is_empty() { version.clone() } else { format!("{group}/{version}") }
}

fn reference(of: &OwnerReference) -> Value {
    let mut value = json!({
        "apiVersion": api_version(&of.kind), "kind": of.kind.kind, "name": of.name, "uid": of.uid.to_string(),
        "blockOwnerDeletion": of.block_owner_deletion,
    });
    if of.controller {
        value["controller"] = json!(true);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(code: u16, name: Option<&str>) -> Reply {
        let details = name.map(|name| json!({ "name": name }));
        let body =
            json!({ "kind": "Status", "message": "m", "details": details.unwrap_or(json!({})) });
        Reply::of(Err(Failure::of(code, body.to_string().as_bytes(), Some(3))), "web")
    }

    #[test]
    fn answers_map_to_what_the_graph_has_to_know() {
        assert_eq!(Reply::of(Ok(Vec::new()), "web").answer, Answer::Done);
        assert_eq!(reply(404, Some("web")).answer, Answer::NotFound);
        assert_eq!(reply(404, None).answer, Answer::Retry);
        assert_eq!(reply(409, Some("web")).answer, Answer::Conflict);
        assert_eq!(reply(422, Some("web")).answer, Answer::Invalid);
        assert_eq!(reply(403, None).answer, Answer::Retry);
        let too_many = reply(429, None);
        assert_eq!(too_many.answer, Answer::Retry);
        assert!(too_many.is_too_many() && !too_many.is_overload());
        assert_eq!(too_many.retry_after(), Some(Duration::from_secs(3)));
        assert!(reply(503, None).is_overload());
    }
}
