//! A node of a cluster in the guest, as tests use it: containerd, a real kubelet, and its API server with a store.
//!
//! ```text
//! etcd ◄── kube-apiserver ◄── kubelet ──CRI──► containerd       services of the guest, each in a cgroup of its own
//!                  ▲ TLS
//!            kubectl proxy ◄── plain HTTP ── the test            api.rs
//! ```
//! On the machine `kubelet` there is neither a scheduler nor a controller: tests bind their pods to the node themselves, and
//! nothing makes a pod anew but the kubelet. The machine `cluster` has both, and ebb as `deploy/` has it (`deployed.rs`). All of it outlives the test that started it. How each is started is in `services.rs`.
mod api;
mod deployed;
mod pods;
mod policies;
mod services;

pub(crate) use deployed::EbbPod;
pub(crate) use pods::{ApiPod, Ending, PodSpec, ending, last_ending};

use crate::cgroup::Cgroup;
use crate::containerd::{Containerd, SOON, Store};
use crate::registry::Context as TestContext;
use crate::{runner, wait};
use anyhow::{Context, Result, ensure};
use api::Api;
use ebb_cri::Sandbox;
use pods::ALL;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// By which file a client finds the API server.
pub(crate) use services::KUBECONFIG;

/// The node's name.
pub(crate) const NODE: &str = "node";
/// From nothing to a node that is ready: 60 to 80 s under TCG on a busy host.
const READY_IN: Duration = Duration::from_secs(300);

/// A running node of a cluster without pods.
pub(crate) struct Kube {
    pub(crate) containerd: Containerd,
    api: Api,
}

impl Kube {
    /// Start whatever does not run yet, wait until the node is ready, and remove all pods.
    pub(crate) fn ensure(test: &TestContext) -> Result<Self> {
        let kube = Self::start();
        if kube.is_err() {
            // What the error says is the end of them.
            let _ = keep_service_logs(test);
        }
        kube
    }

    fn start() -> Result<Self> {
        let api = Api;
        if !api.is_ready() {
            Store::mount()?;
            Store::hold_kubelet()?;
            Store::hold_logs()?;
        }
        services::prepare()?;
        let containerd = Containerd::ensure()?;
        services::start(&api)?;
        let kube = Self { containerd, api };
        let ready = wait::seldom(READY_IN, "the node is ready", || {
            kube.node().is_ok_and(|node| holds(&node, "Ready"))
        });
        ready.with_context(services::last_words)?;
        if services::has_controllers() {
            // No pod is taken before its namespace has one, with a token.
            let account = "/api/v1/namespaces/default/serviceaccounts/default";
            let is_made = || {
                kube.api.get(account).is_ok_and(|account| account.pointer("/secrets/0").is_some())
            };
            wait::seldom(READY_IN, "there is a service account", is_made)
                .with_context(services::last_words)?;
        }
        kube.delete_all_pods()?;
        Ok(kube)
    }

    /// The Node as the API server has it.
    pub(crate) fn node(&self) -> Result<Value> {
        self.api.get(&format!("/api/v1/nodes/{NODE}"))
    }

    /// Delete every pod without a grace, and wait until the runtime has none of their containers.
    pub(crate) fn delete_all_pods(&self) -> Result<()> {
        let pods = self.api.get(ALL)?;
        let items = pods.get("items").and_then(Value::as_array).context("no list of pods")?;
        for pod in items {
            let name = pod.pointer("/metadata/name").and_then(Value::as_str);
            self.delete(name.context("a pod without a name")?)?;
        }
        wait::seldom(SOON, "no pod's container runs", || {
            let list = self.containerd.wait(self.containerd.cri.containers());
            let running = ebb_cri::ContainerState::Running;
            list.is_ok_and(|all| all.iter().all(|container| container.state != running))
        })
    }

    /// Leave the logs of all services for the host.
    pub(crate) fn keep_logs(&self, test: &TestContext) -> Result<()> {
        let dir = keep_service_logs(test)?;
        let pods = self.api.get(ALL)?;
        fs::write(dir.join("pods.json"), format!("{pods:#}")).context("cannot keep the pods")
    }

    /// The cgroup of a pod, which asks for nothing and so is of the lowest class.
    pub(crate) fn cgroup(&self, pod: &ApiPod) -> Cgroup {
        Cgroup::at(&format!("kubepods/besteffort/pod{}", pod.uid))
    }

    /// The API server's cgroup.
    pub(crate) fn api_server_cgroup(&self) -> Cgroup {
        services::api_server_cgroup()
    }

    /// Have the kubelet work with this threshold of memory while `play` goes on.
    pub(crate) fn with_kubelet_threshold<T>(
        &self,
        threshold: &str,
        play: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let played = services::restart_kubelet(threshold).and_then(|()| play());
        // Whatever became of it: the next test wants the usual one.
        services::restart_kubelet(services::MEMORY_THRESHOLD)?;
        played
    }

    /// Ids of the sandboxes that the runtime has for a pod, the newest first.
    pub(crate) fn sandboxes(&self, pod: &ApiPod) -> Result<Vec<String>> {
        let mut own = self.sandboxes_of(pod)?;
        own.sort_by_key(|sandbox| std::cmp::Reverse(sandbox.created));
        Ok(own.into_iter().map(|sandbox| sandbox.id).collect())
    }

    /// Wait until the kubelet has torn down what it had made for a pod.
    pub(crate) fn until_torn_down(&self, pod: &ApiPod) -> Result<()> {
        wait::seldom(READY_IN, &format!("the sandbox of {} is torn down", pod.name), || {
            self.sandboxes_of(pod).is_ok_and(|own| own.iter().all(|sandbox| !sandbox.ready))
        })
    }

    fn sandboxes_of(&self, pod: &ApiPod) -> Result<Vec<Sandbox>> {
        let list = self.containerd.wait(self.containerd.cri.sandboxes());
        let mut own: Vec<_> = list.context("cannot list sandboxes")?;
        own.retain(|sandbox| sandbox.pod.uid == pod.uid);
        Ok(own)
    }

    /// Fails if the kubelet has evicted anybody itself, or says that the node is short of memory.
    pub(crate) fn kubelet_evicts_nobody(&self) -> Result<()> {
        let list = self.api.get("/api/v1/events")?;
        let events = list.get("items").and_then(Value::as_array).context("no list of events")?;
        let text = |event: &Value, path: &str| {
            event.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let own = events.iter().filter(|event| {
            text(event, "/source/component") == "kubelet"
                && ["Evicted", "EvictionThresholdMet"].contains(&text(event, "/reason").as_str())
        });
        let own: Vec<_> = own.map(|event| text(event, "/message")).collect();
        ensure!(own.is_empty(), "the kubelet has evicted by itself: {own:?}");
        let is_short = holds(&self.node()?, "MemoryPressure");
        ensure!(!is_short, "the kubelet says that the node is short of memory");
        Ok(())
    }
}

/// Returns the directory that they are in.
fn keep_service_logs(test: &TestContext) -> Result<PathBuf> {
    let dir = runner::out_dir(test)?;
    for log in fs::read_dir(services::LOGS).context("cannot list logs")? {
        let log = log.context("cannot list logs")?;
        fs::copy(log.path(), dir.join(log.file_name())).context("cannot keep a log")?;
    }
    Ok(dir)
}

/// Whether a node's own word is that this condition holds.
fn holds(node: &Value, condition: &str) -> bool {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|all| {
        all.iter().any(|one| {
            let is = |key: &str, value: &str| {
                one.get(key).and_then(Value::as_str).is_some_and(|found| found == value)
            };
            is("type", condition) && is("status", "True")
        })
    })
}

/// What stands in the answer of a request that was refused, or nothing.
fn accepted(status: u16, what: &str, body: &Value) -> Result<()> {
    ensure!(
        (200..300).contains(&status),
        "{what}: {status} {}",
        body.get("message").and_then(Value::as_str).unwrap_or_default()
    );
    Ok(())
}
