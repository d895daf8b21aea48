//! What users of a cluster have in it: ebb as `deploy/` has it, and a Deployment; and what a pod of ebb's says in its log.
use super::pods::{path, template};
use super::services::program;
use super::{ALL, ApiPod, Kube, PodSpec, services};
use crate::containerd::{SOON, ctr};
use crate::wait;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// What the host gave the guest (`matrix.toml`, `deploys`).
const IMAGE: &str = "/payload/ebb-image.tar";
const NAMESPACE: &str = "ebb-system";
/// Where its pod, on the node's network, serves its metrics.
const METRICS: &str = "127.0.0.1:9322";
const DAEMON_SET: &str = "/apis/apps/v1/namespaces/ebb-system/daemonsets/ebb-node";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// A controller, a scheduler and a kubelet one after the other, under TCG.
const RUNS_IN: Duration = Duration::from_secs(180);

/// ebb's pod on the node, as its DaemonSet made it.
#[derive(Debug, Clone)]
pub(crate) struct EbbPod {
    pub(crate) name: String,
    uid: String,
}

impl EbbPod {
    /// The log of its first run.
    pub(crate) fn log(&self) -> PathBuf {
        PathBuf::from(format!("/var/log/pods/{NAMESPACE}_{}_{}/ebb/0.log", self.name, self.uid))
    }

    /// One of its metrics, by name and labels, as a scraper gets it.
    pub(crate) fn metric(&self, name: &str) -> Result<f64> {
        let mut stream = TcpStream::connect(METRICS).context("cannot reach ebb")?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: ebb\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).context("cannot read ebb's metrics")?;
        let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = value.and_then(|value| value.parse().ok());
        value.with_context(|| format!("no {name} among the metrics of {}", self.name))
    }

    /// Every record so far, oldest first.
    pub(crate) fn records(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        // TIME STREAM TAG TEXT, where a text that is too long for a line is tagged as partial.
        let mut text = String::new();
        let mut records = Vec::new();
        for line in log.lines() {
            let mut words = line.splitn(4, ' ');
            let (Some("stdout"), Some(tag), Some(part)) =
                (words.nth(1), words.next(), words.next())
            else {
                continue;
            };
            text.push_str(part);
            if tag == "F" {
                records.extend(serde_json::from_str(&text));
                text.clear();
            }
        }
        records
    }
}

impl Kube {
    /// Import ebb's image, apply an overlay of `deploy/` and wait until its pod, and no other of ebb's, is ready by its probe.
    pub(crate) fn deploy_ebb(&self, overlay: &str) -> Result<EbbPod> {
        ctr(&["images", "import", IMAGE])?;
        kubectl(&["apply", "-f", &format!("/payload/{overlay}.yaml")])?;
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        wait::seldom_some(RUNS_IN, "ebb's pod is ready", || {
            let set = self.api.get(DAEMON_SET).ok()?;
            let number = |path| set.pointer(path).and_then(Value::as_u64);
            let is_seen = number("/status/observedGeneration") == number("/metadata/generation");
            let [new, ready] =
                ["/status/updatedNumberScheduled", "/status/numberReady"].map(number);
            let pods = self.api.get(&pods).ok()?;
            let [pod] = pods.get("items")?.as_array()?.as_slice() else { return None };
            let text = |path| pod.pointer(path).and_then(Value::as_str).map(str::to_owned);
            let ebb = EbbPod { name: text("/metadata/name")?, uid: text("/metadata/uid")? };
            (is_seen && (new, ready) == (Some(1), Some(1))).then_some(ebb)
        })
        .with_context(services::last_words)
    }

    /// How many times the kubelet has started ebb again.
    pub(crate) fn restarts_of_ebb(&self, pod: &EbbPod) -> Result<u64> {
        let object = self.api.get(&format!("/api/v1/namespaces/{NAMESPACE}/pods/{}", pod.name))?;
        let restarts = object.pointer("/status/containerStatuses/0/restartCount");
        restarts.and_then(Value::as_u64).context("a pod without a count of restarts")
    }

    /// Remove ebb as its documentation says, and wait until its pod is gone.
    pub(crate) fn remove_ebb(&self) -> Result<()> {
        if !self.api.has(DAEMON_SET)? {
            return Ok(());
        }
        kubectl(&[
            "-n",
            NAMESPACE,
            "delete",
            "daemonset",
            "ebb-node",
            "--cascade=foreground",
            "--wait",
        ])
        .map(drop)
    }

    /// Make a Deployment of one pod, bound by the scheduler and made anew whenever it is gone.
    pub(crate) fn deploy(&self, spec: &PodSpec<'_>) -> Result<()> {
        let labels = json!({"app": spec.name});
        let object = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": spec.name},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": template(spec)},
            },
        });
        self.api.create(DEPLOYMENTS, &object).map(drop)
    }

    /// Remove a Deployment with its pods; one that is not there is fine.
    pub(crate) fn remove_deployment(&self, name: &str) -> Result<()> {
        self.api.delete(&format!("{DEPLOYMENTS}/{name}"))?;
        wait::seldom(SOON, &format!("no pod of {name} is left"), || {
            let pods = self.pods_of(name).unwrap_or_default();
            // What its ReplicaSet has not been asked to give up yet would come again.
            let gone = pods.iter().all(|pod| self.delete(&pod.name).is_ok());
            gone && pods.is_empty()
        })
    }

    /// The pods of a Deployment that are there now.
    pub(crate) fn pods_of(&self, name: &str) -> Result<Vec<ApiPod>> {
        let list = self.api.get(&format!("{ALL}?labelSelector=app%3D{name}"))?;
        let items = list.get("items").and_then(Value::as_array).context("no list of pods")?;
        let text = |pod: &Value, path| pod.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let pods = items.iter().filter_map(|pod| {
            Some(ApiPod { name: text(pod, "/metadata/name")?, uid: text(pod, "/metadata/uid")? })
        });
        Ok(pods.collect())
    }

    /// Which node a pod is bound to, if it is to any.
    pub(crate) fn node_of(&self, pod: &ApiPod) -> Result<Option<String>> {
        let object = self.api.get(&path(&pod.name))?;
        Ok(object.pointer("/spec/nodeName").and_then(Value::as_str).map(str::to_owned))
    }
}

/// Run the cluster's own client, as whoever installs ebb does.
fn kubectl(words: &[&str]) -> Result<String> {
    let mut command = Command::new(program("kubectl"));
    command.env("HOME", services::DIR).arg("--kubeconfig").arg(services::KUBECONFIG).args(words);
    let out = command.output().context("cannot start kubectl")?;
    let errors = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "kubectl {words:?} failed: {}", errors.trim());
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
