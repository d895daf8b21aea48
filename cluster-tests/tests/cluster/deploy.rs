//! The manifests of `deploy/`, on a real API server: it takes them all with all that is in them, and the rights that they give are those that the agent needs, no more and no less.
use crate::Alone;
use crate::monitoring;
use crate::session::Session;
use anyhow::{Context, Result, ensure};
use ebb_cluster_tests::api::Api;
use ebb_cluster_tests::collector::Collector;
use ebb_cluster_tests::plane::User;
use ebb_cluster_tests::wait;
use ebb_kube::{
    About, Condition, Failure, NewEvent, NodeTaints, PodRef, PodStatus, Time, Update, follow,
};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;

pub(crate) const TESTS: [Alone; 3] = [
    ("an_api_server_takes_every_manifest_of_deploy", takes_all),
    ("an_overlay_is_applied_and_removed_by_what_the_page_has_typed", is_all_a_user_types),
    ("the_agent_has_the_rights_that_it_needs_and_no_others", gives_rights),
];

/// Where the built overlays are, a file for each.
const MANIFESTS: &str = "EBB_MANIFESTS";
/// A kubectl that reads them.
const KUBECTL: &str = "EBB_KUBECTL";
const PATIENCE: Duration = Duration::from_secs(180);
const NODE: &str = "rights";
const AGENT: &str = "system:serviceaccount:ebb-system:ebb-node";

/// What users apply.
const APPLIED: [&str; 6] =
    ["controller", "controller-alerts", "controller-enforce", "enforce", "node-alerts", "observe"];

fn manifests() -> Result<PathBuf> {
    let dir = std::env::var_os(MANIFESTS).with_context(|| format!("{MANIFESTS} is not set"))?;
    Ok(dir.into())
}

/// The names of what was built.
fn overlays() -> Result<BTreeSet<String>> {
    let dir = manifests()?;
    let entries = fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
    let names = entries.map(|entry| {
        let path = entry?.path();
        let name = path.file_stem().and_then(OsStr::to_str);
        name.map(str::to_owned).with_context(|| path.display().to_string())
    });
    names.collect()
}

/// Each document of an overlay.
fn overlay(name: &str) -> Result<Vec<Value>> {
    let file = manifests()?.join(name).with_extension("yaml");
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    serde_saphyr::from_multiple(&text).with_context(|| file.display().to_string())
}

/// Where objects of this kind are made.
fn place(object: &Value) -> Result<String> {
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
    Ok(format!("{root}{within}/{plural}"))
}

fn takes_all(session: &Session) -> Result<()> {
    session.stop()?;
    ensure!(overlays()? == APPLIED.map(str::to_owned).into(), "built are {:?}", overlays()?);
    let api = session.api()?;
    monitoring::define(&api)?;
    let lacks_policy_v1 = api.ask("GET", "/apis/policy/v1", None)?.0 == 404;
    with_namespace(&api, || {
        for name in APPLIED {
            for mut object in overlay(name)? {
                if lacks_policy_v1 && object["apiVersion"] == "policy/v1" {
                    // policy/v1 came with 1.21, and what a budget says is the same in both.
                    object["apiVersion"] = json!("policy/v1beta1");
                }
                is_taken(&api, &object).context(name)?;
            }
        }
        Ok(())
    })
}

/// What the page has a user type is typed, on a cluster that has nothing of ebb: both overlays say what the page shows, and what removes them leaves nothing.
fn is_all_a_user_types(session: &Session) -> Result<()> {
    // Somebody must end what is deleted in the foreground.
    session.run(Collector::Ebb)?;
    let api = session.api()?;
    remove_namespace(&api)?;
    let kubectl = Kubectl::new(session)?;
    kubectl.builds_an_overlay_of_ones_own()?;
    for overlay in ["observe", "enforce"] {
        let said =
            kubectl.typed(&format!("kubectl apply -k deploy/kustomize/overlays/{overlay}"))?;
        let is_shown = PAGE.contains(&format!("```\n{said}```\n"));
        ensure!(is_shown, "docs/kubernetes.md does not show what applying {overlay} says:\n{said}");
    }
    for removes in [
        "kubectl apply -k deploy/kustomize/overlays/observe",
        "kubectl delete clusterrole,clusterrolebinding ebb-node-enforce",
        "kubectl -n ebb-system delete daemonset ebb-node --cascade=foreground --wait",
        "kubectl delete clusterrole,clusterrolebinding -l app.kubernetes.io/name=ebb,app.kubernetes.io/component=node",
        "kubectl -n ebb-system delete serviceaccount,configmap -l app.kubernetes.io/name=ebb,app.kubernetes.io/component=node",
    ] {
        kubectl.typed(removes)?;
    }
    for object in overlay("enforce")? {
        let name = object["metadata"]["name"].as_str().context("an object without a name")?;
        let is_there = api.ask("GET", &format!("{}/{name}", place(&object)?), None)?.0 == 200;
        ensure!(is_there == (object["kind"] == "Namespace"), "{name}: {is_there}");
    }
    remove_namespace(&api)
}

const PAGE: &str = include_str!("../../../docs/kubernetes.md");

/// Where the repository is.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// kubectl as the page wants it.
struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

impl Kubectl {
    fn new(session: &Session) -> Result<Self> {
        let program = std::env::var_os(KUBECTL).with_context(|| format!("{KUBECTL} is not set"))?;
        let kubeconfig = session.with_plane(|plane| plane.kubeconfig(User::Admin))?;
        let home = session.with_plane(|plane| Ok(plane.dir().to_owned()))?;
        Ok(Self { program: program.into(), kubeconfig, home })
    }

    /// What a line of the page says when it is typed.
    fn typed(&self, line: &str) -> Result<String> {
        ensure!(PAGE.contains(line), "docs/kubernetes.md does not say {line:?}");
        self.run(Path::new(ROOT), line.strip_prefix("kubectl ").context("another program")?)
    }

    fn run(&self, dir: &Path, words: &str) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.current_dir(dir).env("KUBECONFIG", &self.kubeconfig).env("HOME", &self.home);
        let out = command.args(words.split_whitespace()).output().context("no kubectl")?;
        let errors = String::from_utf8_lossy(&out.stderr);
        ensure!(out.status.success() && errors.is_empty(), "{words}: {}: {errors}", out.status);
        Ok(String::from_utf8(out.stdout)?)
    }

    /// The one that the page shows: an image of another name, a configuration of one's own, some nodes, and a kubelet's file elsewhere.
    fn builds_an_overlay_of_ones_own(&self) -> Result<()> {
        let shown = PAGE.split("```yaml\n").find(|text| text.starts_with("# kustomization.yaml"));
        let shown = shown.and_then(|text| text.split("```").next());
        let dir = TempDir::new()?;
        fs::write(
            dir.path().join("ebb.yaml"),
            "ebb: { mode: kubernetes, forecast: { enabled: true } }",
        )?;
        fs::write(dir.path().join("kustomization.yaml"), shown.context("no overlay is shown")?)?;
        std::os::unix::fs::symlink(ROOT, dir.path().join("ebb"))?;
        let built = self.run(dir.path(), "kustomize .")?;
        let is_named = built.contains("image: registry.example.com/ebb:0.1.0\n");
        ensure!(is_named, "the image has another name:\n{built}");
        for own in [
            "forecast: { enabled: true }",
            "example.com/canary: \"true\"",
            "kubernetes.io/arch: amd64",
            "- --kubelet-config=/etc/kubernetes/kubelet/config.json",
            "mountPath: /etc/kubernetes/kubelet\n",
        ] {
            ensure!(built.contains(own), "{own} is missing:\n{built}");
        }
        Ok(())
    }
}

/// There is no controller of namespaces: what is in one stays, and the API server lets go of it.
fn remove_namespace(api: &Api) -> Result<()> {
    let path = "/api/v1/namespaces/ebb-system";
    api.ask("DELETE", path, None)?;
    let (status, mut namespace) = api.ask("GET", path, None)?;
    if status == 404 {
        return Ok(());
    }
    namespace["spec"]["finalizers"] = json!([]);
    api.ask("PUT", &format!("{path}/finalize"), Some(&namespace))?;
    ensure!(api.ask("GET", path, None)?.0 == 404, "the namespace ebb-system stays");
    Ok(())
}

/// In a dry run: whether the server takes the object, and all that is in it.
fn is_taken(api: &Api, object: &Value) -> Result<()> {
    let path = place(object)?;
    let taken = if object["kind"] == "Namespace" {
        // It is there, because others are to be in it.
        api.merge(&format!("{path}/ebb-system?dryRun=All"), object)?
    } else {
        api.create(&format!("{path}?dryRun=All"), object)?
    };
    // A field that it does not know it leaves out without a word.
    let lost = lost(object, &taken);
    ensure!(lost.is_empty(), "{path}: the server does not know {lost:?}");
    Ok(())
}

/// What was sent and is not as it was in what was taken, as JSON pointers.
fn lost(sent: &Value, taken: &Value) -> Vec<String> {
    let below = |key: &str, sent: &Value, taken: Option<&Value>| match taken {
        Some(taken) => lost(sent, taken).iter().map(|path| format!("/{key}{path}")).collect(),
        None => vec![format!("/{key}")],
    };
    match (sent, taken) {
        (Value::Object(fields), Value::Object(_)) => {
            fields.iter().flat_map(|(key, value)| below(key, value, taken.get(key))).collect()
        }
        (Value::Array(items), Value::Array(_)) => {
            let items = items.iter().enumerate();
            items.flat_map(|(n, item)| below(&n.to_string(), item, taken.get(n))).collect()
        }
        _ if sent == taken => Vec::new(),
        _ => vec![String::new()],
    }
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
            let path = place(&object)?;
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
        let client = ebb_kube::connect(Some(kubeconfig), None).await?.after_deadlines(5);
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
            client.set_node_conditions(NODE, &[condition], Time(0)).await,
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
