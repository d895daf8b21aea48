//! The API server's side: nodes and pods that are written into its store, and what it counts.
use anyhow::{Context, Result, ensure};
use ebb_cluster_tests::api::Api;
use ebb_cluster_tests::plane::{Plane, User};
use serde_json::{Value, json};
use std::ops::Range;

pub(crate) const NAMESPACE: &str = "fleet";

pub(crate) fn node_name(agent: usize) -> String {
    format!("node-{agent}")
}

pub(crate) fn pod_name(agent: usize, pod: usize) -> String {
    format!("pod-{agent}-{pod}")
}

pub(crate) fn pod_uid(agent: usize, pod: usize) -> String {
    format!("00000001-0000-4000-{:04x}-{agent:012x}", 0x8000 + pod)
}

/// Makes their namespace, and lets the agents' user do what `deploy/` lets it do.
pub(crate) fn prepare(plane: &Plane) -> Result<()> {
    let api = plane.api(User::Admin)?;
    api.create("/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACE}}))?;
    allow(&api)
}

/// Writes the nodes of these agents, and so many pods of each.
pub(crate) fn fill(
    plane: &Plane,
    agents: Range<usize>,
    pods: usize,
    annotation: usize,
) -> Result<()> {
    let nodes = agents.clone().map(|agent| {
        let name = node_name(agent);
        let uid = format!("00000002-0000-4000-8000-{agent:012x}");
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
        });
        (format!("/registry/minions/{name}"), node)
    });
    plane.store().put(nodes)?;
    let all = agents.flat_map(|agent| (0..pods).map(move |pod| (agent, pod)));
    plane.store().put(all.map(|(agent, number)| {
        let name = pod_name(agent, number);
        (format!("/registry/pods/{NAMESPACE}/{name}"), pod(agent, number, &name, annotation))
    }))
}

fn pod(agent: usize, number: usize, name: &str, annotation: usize) -> Value {
    let resources = json!({"requests": {"cpu": "100m", "memory": "128Mi"}});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": NAMESPACE, "name": name, "uid": pod_uid(agent, number),
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": name},
            // What kubectl and controllers leave on most pods.
            "annotations": {"example.com/configuration": "x".repeat(annotation)},
        },
        "spec": {
            "nodeName": node_name(agent), "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "main", "image": "none", "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File", "resources": resources,
            }],
        },
        "status": {"phase": "Running"},
    })
}

fn allow(api: &Api) -> Result<()> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let role = json!({
        "metadata": {"name": "fleet"},
        "rules": [
            rule("", &["pods", "nodes"], &["list", "watch"]),
            rule("policy", &["poddisruptionbudgets"], &["list", "watch"]),
            rule("", &["pods"], &["delete"]),
            rule("", &["pods/status", "nodes", "nodes/status"], &["get", "patch"]),
            rule("", &["pods/eviction", "events"], &["create"]),
        ],
    });
    let binding = json!({
        "metadata": {"name": "fleet"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "fleet"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": User::Agent.name()}],
    });
    api.create(&format!("{rbac}/clusterroles"), &role)?;
    api.create(&format!("{rbac}/clusterrolebindings"), &binding).map(drop)
}

/// One Event for each agent, and no pod that was evicted.
pub(crate) fn are_told(api: &Api, agents: usize) -> Result<()> {
    let list = api.get(&format!("/api/v1/namespaces/{NAMESPACE}/events"))?;
    let items = list["items"].as_array().context("a list without items")?;
    let events = items.iter().filter(|event| event["reason"] == "Evicted").count();
    ensure!(events == agents, "{agents} evictions are shown by {events} Events");
    for agent in 0..agents {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}", pod_name(agent, 0));
        let (code, _) = api.ask("GET", &path, None)?;
        ensure!(code == 404, "{path} is still there");
    }
    Ok(())
}

/// What agents ask for, as the API server names it.
const ASKED_FOR: [&str; 4] = ["pods", "nodes", "poddisruptionbudgets", "events"];

/// Among the labels of a watch.
const WATCH: &str = "verb=\"WATCH\"";

fn metrics(api: &Api) -> Result<String> {
    let (_, body) = api.ask("GET", "/metrics", None)?;
    body.as_str().map(str::to_owned).context("the API server shows no metrics")
}

/// Labels and value of each line of these metrics that is about something that agents ask for.
///
/// Its own clients speak to it too, through one address: only what agents ask for is of theirs.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is counted is whole and not negative"
)]
fn lines<'a>(text: &'a str, names: &'a [&str]) -> impl Iterator<Item = (&'a str, u64)> {
    let of_names = |line| names.iter().find_map(|name| str::strip_prefix(line, name));
    text.lines().filter_map(of_names).filter_map(|line| {
        let (labels, value) = line.strip_prefix('{')?.rsplit_once("} ")?;
        let is_of_agents =
            ASKED_FOR.iter().any(|of| labels.contains(&format!("resource=\"{of}\"")));
        let value = value.trim().parse::<f64>().ok()?;
        is_of_agents.then_some((labels, value as u64))
    })
}

/// The watches that are open now, by everybody.
pub(crate) fn watches(api: &Api) -> Result<u64> {
    let text = metrics(api)?;
    // The second since 1.23.
    let names = ["apiserver_longrunning_gauge", "apiserver_longrunning_requests"];
    ensure!(names.iter().any(|name| text.contains(name)), "the API server counts no watches");
    // The watch of one object counts as GET there; of these resources nothing else lasts but what has a subresource.
    let lines = lines(&text, &names);
    let is_watch = |labels: &str| labels.contains("subresource=\"\"");
    Ok(lines.filter(|(labels, _)| is_watch(labels)).map(|(_, value)| value).sum())
}

/// Requests so far, by everybody, without those that last as long as they are wanted.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) all: u64,
    /// Refused, to be asked again later.
    pub(crate) too_many: u64,
}

impl Counts {
    pub(crate) fn of(api: &Api) -> Result<Self> {
        let text = metrics(api)?;
        // What is turned away before it is looked at is counted apart.
        let names = ["apiserver_request_total", "apiserver_request_terminations_total"];
        let mut counts = Self { all: 0, too_many: 0 };
        for (labels, value) in lines(&text, &names) {
            if labels.contains(WATCH) {
                continue;
            }
            counts.all += value;
            if labels.contains("code=\"429\"") {
                counts.too_many += value;
            }
        }
        Ok(counts)
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        Self { all: self.all - before.all, too_many: self.too_many - before.too_many }
    }
}
