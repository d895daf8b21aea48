//! Pods of the API server: made for the node, run by its kubelet, and what their status says.
use super::{Kube, NODE};
use crate::containerd::{GATE, GATES, SOON};
use crate::init::SELF;
use crate::wait;
use anyhow::{Context, Result};
use ebb_vm_protocol::images::APP;
use serde_json::{Value, json};
use std::time::Duration;

/// All pods that tests make.
pub(super) const ALL: &str = "/api/v1/namespaces/default/pods";

/// A pod with one container, `main`, which its kubelet starts again whenever it has ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PodSpec<'a> {
    pub(crate) name: &'a str,
    /// Program and arguments.
    pub(crate) command: &'a [&'a str],
    /// Names of `emptyDir` volumes, each mounted at `/NAME`.
    pub(crate) empty_dirs: &'a [&'a str],
    /// Seconds that it wants to end in, where that is not the usual half a minute.
    pub(crate) grace: Option<u64>,
}

/// A pod that the API server has.
#[derive(Debug, Clone)]
pub(crate) struct ApiPod {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// How a container's last run ended, as its pod's status tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) exit_code: i64,
    pub(crate) reason: String,
    /// The container that ended, as `containerd://ID`.
    pub(crate) container: String,
}

impl Kube {
    /// Make a pod and wait until its kubelet says that it runs.
    pub(crate) fn run(&self, spec: &PodSpec<'_>) -> Result<ApiPod> {
        let mut of = template(spec);
        // There may be no scheduler, and none is asked.
        of["nodeName"] = json!(NODE);
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "spec": of,
            "metadata": {"name": spec.name, "labels": {"app": spec.name}},
        });
        let made = self.api.create(ALL, &object);
        let made = made.with_context(|| format!("cannot make the pod {}", spec.name))?;
        let uid = made.pointer("/metadata/uid").and_then(Value::as_str);
        let uid = uid.context("the API server gave a pod no UID")?.to_owned();
        let pod = ApiPod { name: spec.name.to_owned(), uid };
        wait::seldom(SOON, &format!("the pod {} runs", spec.name), || {
            self.container_id(&pod).is_ok_and(|id| id.is_some())
        })?;
        Ok(pod)
    }

    /// The pod as the API server has it.
    pub(crate) fn pod(&self, pod: &ApiPod) -> Result<Value> {
        self.api.get(&path(&pod.name))
    }

    /// This very pod, if the API server has it in its memory: who asks again and again must not keep an emulated one from its work.
    pub(super) fn find(&self, pod: &ApiPod) -> Result<Option<Value>> {
        let found = self.api.find(&format!("{}?resourceVersion=0", path(&pod.name)))?;
        let uid = |object: &Value| Some(object.pointer("/metadata/uid")?.as_str()?.to_owned());
        Ok(found.filter(|object| uid(object).as_deref() == Some(&pod.uid)))
    }

    /// Waits until the API server does not have this very pod any more.
    pub(crate) fn until_gone(&self, pod: &ApiPod, patience: Duration) -> Result<()> {
        wait::seldom(patience, &format!("{} is gone", pod.name), || {
            self.find(pod).is_ok_and(|found| found.is_none())
        })
    }

    /// The Events about a pod with this reason, whoever wrote them.
    pub(crate) fn events(&self, pod: &ApiPod, reason: &str) -> Result<Vec<Value>> {
        let list = self.api.get("/api/v1/namespaces/default/events")?;
        let items = list.get("items").and_then(Value::as_array).context("no list of events")?;
        let is = |event: &&Value, path: &str, wanted: &str| {
            event.pointer(path).and_then(Value::as_str) == Some(wanted)
        };
        let own = items.iter().filter(|event| {
            is(event, "/involvedObject/uid", &pod.uid) && is(event, "/reason", reason)
        });
        Ok(own.cloned().collect())
    }

    /// Delete the Events about pods and about the Node.
    pub(crate) fn delete_events(&self) -> Result<()> {
        self.api.delete("/api/v1/namespaces/default/events")
    }

    /// Delete a pod without a grace, and wait until the API server has it no more.
    pub(crate) fn delete(&self, name: &str) -> Result<()> {
        self.api.delete(&path(name))?;
        wait::seldom(SOON, &format!("the pod {name} is gone"), || {
            self.api.has(&path(name)).is_ok_and(|has| !has)
        })
    }

    /// The id of its container while the kubelet says that it runs, without the runtime's name.
    pub(crate) fn container_id(&self, pod: &ApiPod) -> Result<Option<String>> {
        let object = self.pod(pod)?;
        let status = container_status(&object);
        let runs = status.is_some_and(|status| status.pointer("/state/running").is_some());
        let id = status.and_then(|status| status.get("containerID")).and_then(Value::as_str);
        Ok(id.filter(|_| runs).and_then(|id| id.rsplit('/').next()).map(str::to_owned))
    }

    /// What the latest run has written, as `kubectl logs` shows it.
    pub(crate) fn log(&self, pod: &ApiPod) -> Result<String> {
        self.log_at(pod, "")
    }

    /// The same of the run before that, as `kubectl logs --previous` shows it.
    pub(crate) fn previous_log(&self, pod: &ApiPod) -> Result<String> {
        self.log_at(pod, "?previous=true")
    }

    fn log_at(&self, pod: &ApiPod, query: &str) -> Result<String> {
        let log = self.api.get(&format!("{}/log{query}", path(&pod.name)))?;
        Ok(log.as_str().map_or_else(|| log.to_string(), str::to_owned))
    }

    /// How many times its kubelet has started the container again.
    pub(crate) fn restarts(&self, pod: &ApiPod) -> Result<u64> {
        let object = self.pod(pod)?;
        let restarts = container_status(&object).and_then(|status| status.get("restartCount"));
        restarts.and_then(Value::as_u64).context("a pod without a count of restarts")
    }
}

/// How the latest of a pod's runs that have ended did so, `None` when none has.
pub(crate) fn ending(object: &Value) -> Option<Ending> {
    ending_at(object, &["/state/terminated", "/lastState/terminated"])
}

/// The same of the run before the present one, or before the one that is waited for.
pub(crate) fn last_ending(object: &Value) -> Option<Ending> {
    ending_at(object, &["/lastState/terminated"])
}

fn ending_at(object: &Value, places: &[&str]) -> Option<Ending> {
    let status = container_status(object)?;
    let terminated = places.iter().find_map(|place| status.pointer(place))?;
    let text = |key: &str| terminated.get(key).and_then(Value::as_str).unwrap_or_default();
    Some(Ending {
        exit_code: terminated.get("exitCode").and_then(Value::as_i64)?,
        reason: text("reason").to_owned(),
        container: text("containerID").to_owned(),
    })
}

fn container_status(object: &Value) -> Option<&Value> {
    object.pointer("/status/containerStatuses/0")
}

/// The `spec` of a pod that runs anywhere.
pub(super) fn template(spec: &PodSpec<'_>) -> Value {
    let mut mounts = vec![
        json!({"name": "actor", "mountPath": SELF, "readOnly": true}),
        json!({"name": "gates", "mountPath": GATE}),
    ];
    let mut volumes = vec![
        json!({"name": "actor", "hostPath": {"path": SELF, "type": "File"}}),
        json!({"name": "gates", "hostPath": {"path": GATES, "type": "DirectoryOrCreate"}}),
    ];
    for name in spec.empty_dirs {
        mounts.push(json!({"name": name, "mountPath": format!("/{name}")}));
        volumes.push(json!({"name": name, "emptyDir": {}}));
    }
    let mut of = json!({
        "restartPolicy": "Always",
        "hostNetwork": true,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "containers": [{
            "name": "main",
            "image": APP,
            "imagePullPolicy": "Never",
            "command": spec.command,
            "volumeMounts": mounts,
        }],
        "volumes": volumes,
    });
    if let Some(grace) = spec.grace {
        of["terminationGracePeriodSeconds"] = json!(grace);
    }
    of
}

pub(super) fn path(name: &str) -> String {
    format!("{ALL}/{name}")
}
