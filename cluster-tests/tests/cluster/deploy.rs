//! The manifests of `deploy/`, on a real API server: it takes them all, and the rights that they give are those that the agent needs, no more and no less.
use crate::Alone;
use crate::session::Session;
use anyhow::{Context, Result, ensure};
use ebb_cluster_tests::api::Api;
use ebb_cluster_tests::plane::User;
use ebb_cluster_tests::wait;
use ebb_kube::{
    About, Condition, Failure, NewEvent, NodeTaints, PodRef, PodStatus, Time, Update, follow,
};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

pub(crate) const TESTS: [Alone; 2] = [
    ("an_api_server_takes_every_manifest_of_deploy", takes_all),
    ("the_agent_has_the_rights_that_it_needs_and_no_others", gives_rights),
];

/// Where the built overlays are, a file for each.
const MANIFESTS: &str = "EBB_MANIFESTS";
const PATIENCE: Duration = Duration::from_secs(30);
const NODE: &str = "rights";
const AGENT: &str = "system:serviceaccount:ebb-system:ebb-node";

/// Each document of an overlay.
fn overlay(name: &str) -> Result<Vec<Value>> {
    let dir = std::env::var_os(MANIFESTS).with_context(|| format!("{MANIFESTS} is not set"))?;
    let file = PathBuf::from(dir).join(name).with_extension("yaml");
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    serde_saphyr::from_multiple(&text).with_context(|| file.display().to_string())
}

/// Where objects of this kind are made, and whether an API server without more than its own kinds may lack them.
fn place(object: &Value) -> Result<(String, bool)> {
    let text = |path| object.pointer(path).and_then(Value::as_str);
    let (version, kind) = (text("/apiVersion"), text("/kind"));
    let (version, kind) = (version.context("no apiVersion")?, kind.context("no kind")?);
    let root =
        if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let plural = kind.to_lowercase() + "s";
    let is_of_the_cluster = matches!(kind, "Namespace" | "ClusterRole" | "ClusterRoleBinding");
    let namespace = text("/metadata/namespace");
    ensure!(is_of_the_cluster || namespace == Some("ebb-system"), "{kind} in {namespace:?}");
    let within = namespace.map(|n| format!("/namespaces/{n}")).unwrap_or_default();
    // policy/v1 came with 1.21.
    let may_lack = version.starts_with("monitoring.coreos.com/") || version == "policy/v1";
    Ok((format!("{root}{within}/{plural}"), may_lack))
}

fn takes_all(session: &Session) -> Result<()> {
    session.stop()?;
    let api = session.api()?;
    with_namespace(&api, || {
        for name in ["observe", "enforce", "controller", "controller-enforce"] {
            for object in overlay(name)? {
                if object["kind"] == "Namespace" {
                    continue;
                }
                let (path, may_lack) = place(&object)?;
                let (code, said) = api.ask("POST", &format!("{path}?dryRun=All"), Some(&object))?;
                let is_taken = (200..300).contains(&code) || code == 404 && may_lack;
                ensure!(is_taken, "{name}: {path}: {code} {said}");
            }
        }
        Ok(())
    })
}

fn with_namespace(api: &Api, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let namespace = json!({ "metadata": { "name": "ebb-system" } });
    // Both tests have it, and it is not waited for until it is gone.
    api.ask("POST", "/api/v1/namespaces", Some(&namespace))?;
    work()
}

/// What the agent reads, by group, resource and verb as RBAC has them.
const READS: [(&str, &str, &str); 6] = [
    ("", "nodes", "list"),
    ("", "nodes", "watch"),
    ("", "pods", "list"),
    ("", "pods", "watch"),
    ("policy", "poddisruptionbudgets", "list"),
    ("policy", "poddisruptionbudgets", "watch"),
];

/// What a change of the Node's taints reads first.
const READ_TO_WRITE: (&str, &str, &str) = ("", "nodes", "get");

/// The agent's calls that change something, each with the right that it needs.
const WRITES: [(&str, &str); 6] = [
    ("pods/status", "patch"),
    ("pods/eviction", "create"),
    ("pods", "delete"),
    ("events", "create"),
    ("nodes/status", "patch"),
    ("nodes", "patch"),
];

fn gives_rights(session: &Session) -> Result<()> {
    session.stop()?;
    let api = session.api()?;
    let namespace = session.namespace(&api)?;
    api.create("/api/v1/nodes", &json!({ "metadata": { "name": NODE } }))?;
    let kubeconfig = kubeconfig(session)?;
    let result = with_namespace(&api, || {
        apply_rights(&api, "observe")?;
        ensure!(rights("observe", "ebb-node-observe")? == READS.into_iter().collect(), "observing");
        let writes = WRITES.map(|(resource, verb)| ("", resource, verb));
        let wanted: BTreeSet<_> = writes.into_iter().chain([READ_TO_WRITE]).collect();
        ensure!(rights("enforce", "ebb-node-enforce")? == wanted, "enforcing");
        let all = WRITES.map(|(resource, _)| resource);
        is_refused(&api, &kubeconfig, &namespace, &all).context("observing")?;
        apply_rights(&api, "enforce")?;
        is_refused(&api, &kubeconfig, &namespace, &[]).context("enforcing")?;
        each_is_needed(&api, &kubeconfig, &namespace)
    });
    for kind in ["clusterroles", "clusterrolebindings"] {
        for name in ["ebb-node-observe", "ebb-node-enforce"] {
            api.ask("DELETE", &format!("/apis/rbac.authorization.k8s.io/v1/{kind}/{name}"), None)?;
        }
    }
    api.delete(&format!("/api/v1/nodes/{NODE}"), &json!({}))?;
    result
}

/// Every right that a role of an overlay gives.
fn rights(
    overlay: &str,
    role: &str,
) -> Result<BTreeSet<(&'static str, &'static str, &'static str)>> {
    let objects = self::overlay(overlay)?;
    let is_role =
        |object: &&Value| object["kind"] == "ClusterRole" && object["metadata"]["name"] == role;
    let role = objects.iter().find(is_role).with_context(|| format!("no ClusterRole {role}"))?;
    let texts = |rule: &Value, key: &str| -> Vec<&'static str> {
        let list = rule[key].as_array().cloned().unwrap_or_default();
        // A few words for as long as the test runs.
        list.iter().map(|text| &*text.as_str().unwrap_or("?").to_owned().leak()).collect()
    };
    let mut all = BTreeSet::new();
    for rule in role["rules"].as_array().context("a role without rules")? {
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                all.extend(texts(rule, "verbs").into_iter().map(|verb| (group, resource, verb)));
            }
        }
    }
    Ok(all)
}

/// Takes each right of the enforcing role away in turn: what is refused then is what it is for.
fn each_is_needed(api: &Api, kubeconfig: &Path, namespace: &str) -> Result<()> {
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/ebb-node-enforce";
    let role = api.get(path)?;
    let rules = role["rules"].as_array().context("a role without rules")?.clone();
    for (n, rule) in rules.iter().enumerate() {
        let resource = rule["resources"][0].as_str().context("a rule without resources")?;
        let verbs = rule["verbs"].as_array().context("a rule without verbs")?;
        for (place, verb) in verbs.iter().enumerate() {
            let mut rest = rules.clone();
            let mut others = verbs.clone();
            others.remove(place);
            if others.is_empty() {
                rest.remove(n);
            } else {
                rest[n]["verbs"] = json!(others);
            }
            api.merge(path, &json!({ "rules": rest }))?;
            let refused = is_refused(api, kubeconfig, namespace, &[resource]);
            refused.with_context(|| format!("without {verb} on {resource}"))?;
        }
    }
    api.merge(path, &json!({ "rules": rules })).map(drop)
}

fn apply_rights(api: &Api, name: &str) -> Result<()> {
    for object in overlay(name)? {
        let kind = object["kind"].as_str().unwrap_or_default();
        if matches!(kind, "ClusterRole" | "ClusterRoleBinding") {
            let (path, _) = place(&object)?;
            let (code, said) = api.ask("POST", &path, Some(&object))?;
            ensure!((200..300).contains(&code) || code == 409, "{name}: {path}: {code} {said}");
        }
    }
    Ok(())
}

/// A kubeconfig by which the administrator asks as the agent's service account.
fn kubeconfig(session: &Session) -> Result<PathBuf> {
    let own = session.with_plane(|plane| plane.kubeconfig(User::Admin))?;
    let text = fs::read_to_string(&own)?;
    let mut config: Value = serde_saphyr::from_str(&text)?;
    config["users"][0]["user"]["as"] = json!(AGENT);
    let file = own.with_file_name("kubeconfig-as-the-agent");
    fs::write(&file, config.to_string())?;
    Ok(file)
}

/// Waits until just these calls are refused: the API server hears of a change of rights by a watch of its own.
fn is_refused(api: &Api, kubeconfig: &Path, namespace: &str, wanted: &[&str]) -> Result<()> {
    let last = RefCell::new(Vec::new());
    let what =
        || format!("only {wanted:?} is refused to the agent; refused was {:?}", last.borrow());
    wait::until_some(PATIENCE, what, || {
        *last.borrow_mut() = refused(api, kubeconfig, namespace)?;
        Ok((*last.borrow() == wanted).then_some(()))
    })
}

/// The resources of the calls that are refused to the agent; reading must work.
fn refused(api: &Api, kubeconfig: &Path, namespace: &str) -> Result<Vec<&'static str>> {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    executor.block_on(async {
        let client = ebb_kube::connect(Some(kubeconfig), None).await?;
        for path in [
            "/api/v1/pods?fieldSelector=spec.nodeName%3Drights",
            "/api/v1/nodes?fieldSelector=metadata.name%3Drights",
        ] {
            reads(&client, &[path]).await?;
        }
        let budgets =
            ["/apis/policy/v1/poddisruptionbudgets", "/apis/policy/v1beta1/poddisruptionbudgets"];
        reads(&client, &budgets).await?;
        let first = pod(api, namespace)?;
        let second = pod(api, namespace)?;
        let condition = Condition {
            of: "EbbMemoryPressure".to_owned(),
            status: true,
            reason: "EbbHasMemoryPressure".to_owned(),
            message: "low".to_owned(),
        };
        let status = PodStatus { phase: None, condition: Some(condition.clone()) };
        let event = NewEvent {
            name: format!("{}.1", first.name),
            of: "Warning",
            reason: "Evicted".to_owned(),
            message: "low".to_owned(),
            annotations: Vec::new(),
            at: Time(1_795_490_180_000),
            host: NODE.to_owned(),
        };
        let (own, unseen) = (["ebb.dev/memory-pressure"], NodeTaints::default());
        let tainted = async {
            client.set_node_taints(NODE, &unseen, &own, &own).await?;
            client.set_node_taints(NODE, &unseen, &own, &[]).await
        };
        let outcomes = [
            client.set_pod_status(&first, &status).await,
            client.evict_pod(&second, 1).await,
            client.delete_pod(&first, 1).await,
            client.write_event(About::Pod(&first), &event).await,
            client.set_node_conditions(NODE, &[condition]).await,
            tainted.await,
        ];
        for pod in [&first, &second] {
            let path = format!("/api/v1/namespaces/{namespace}/pods/{}", pod.name);
            api.ask("DELETE", &path, Some(&json!({ "gracePeriodSeconds": 0 })))?;
        }
        let mut refused = Vec::new();
        for ((resource, verb), outcome) in WRITES.iter().zip(outcomes) {
            match outcome.as_ref().map_err(Failure::code) {
                Ok(()) => {}
                Err(Some(403)) => refused.push(*resource),
                Err(_) => anyhow::bail!("{verb} {resource}: {outcome:?}"),
            }
        }
        Ok(refused)
    })
}

async fn reads(client: &ebb_kube::Api, paths: &[&str]) -> Result<()> {
    let (out, mut updates) = mpsc::channel(4);
    // RBAC is told to the API server by a watch of its own: right after a change it may not know.
    let following = follow(client.clone(), paths, |_: &Value| (), |update| update, out);
    let told = async {
        while let Some(update) = updates.recv().await {
            if let Update::All(_) = update {
                return Ok(());
            }
        }
        anyhow::bail!("nothing is told of {paths:?}")
    };
    tokio::select! {
        () = following => anyhow::bail!("following {paths:?} has ended"),
        told = timeout(PATIENCE, told) => told.with_context(|| format!("{paths:?} cannot be read"))?,
    }
}

fn pod(api: &Api, namespace: &str) -> Result<PodRef> {
    let object = json!({
        "metadata": { "generateName": "pod-" },
        "spec": { "nodeName": NODE, "containers": [{ "name": "main", "image": "none" }] },
    });
    let made = api.create(&format!("/api/v1/namespaces/{namespace}/pods"), &object)?;
    let text = |path| made.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let (name, uid) = (text("/metadata/name"), text("/metadata/uid"));
    Ok(PodRef {
        namespace: namespace.to_owned(),
        name: name.context("no name")?,
        uid: uid.context("no UID")?,
    })
}
