//! The calls of a node's agent, on a real API server: what it takes, what it refuses and how, and that nothing of others is touched.
use crate::Alone;
use crate::session::Session;
use crate::world::items;
use anyhow::{Context, Result, ensure};
use ebb_cluster_tests::api::Api;
use ebb_cluster_tests::plane::User;
use ebb_kube::{
    About, Condition, Failure, NewEvent, NodeTaints, PodRef, PodStatus, Time, Update, follow,
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

pub(crate) const TESTS: [Alone; 4] = [
    ("an_evicted_pod_is_failed_then_deleted_and_has_one_event", evicts),
    ("a_pod_that_has_taken_anothers_name_is_not_touched", spares_the_next),
    ("a_budget_refuses_an_eviction_and_no_deletion", obeys_budgets),
    ("a_node_gets_conditions_and_taints_beside_those_of_others", tells_the_node),
];

const PATIENCE: Duration = Duration::from_secs(60);
const NODE: &str = "node-calls";

/// A pod that is bound to a node on which no kubelet is: what happens to it is what is asked for here.
fn pod(api: &Api, namespace: &str, name: &str) -> Result<PodRef> {
    let object = json!({
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": { "nodeName": NODE, "containers": [{ "name": "main", "image": "none" }] },
    });
    let made = api.create(&format!("/api/v1/namespaces/{namespace}/pods"), &object)?;
    let uid = made["metadata"]["uid"].as_str().context("no UID")?.to_owned();
    Ok(PodRef { namespace: namespace.to_owned(), name: name.to_owned(), uid })
}

fn path(pod: &PodRef) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name)
}

fn status() -> PodStatus {
    let phase = Some(("Failed".to_owned(), "Evicted".to_owned(), "low".to_owned()));
    let condition = Condition {
        of: "DisruptionTarget".to_owned(),
        status: true,
        reason: "EvictionByEbb".to_owned(),
        message: "low".to_owned(),
    };
    PodStatus { phase, condition: Some(condition) }
}

fn event(name: &str) -> NewEvent {
    NewEvent {
        name: name.to_owned(),
        of: "Warning",
        reason: "Evicted".to_owned(),
        message: "low".to_owned(),
        annotations: vec![("ebb.dev/decision".to_owned(), "d".to_owned())],
        at: Time(1_795_490_180_000),
        host: NODE.to_owned(),
    }
}

/// A client as the agent makes it, in an executor of its own.
fn with_client<T>(
    session: &Session,
    work: impl AsyncFnOnce(ebb_kube::Api) -> Result<T>,
) -> Result<T> {
    let file = session.with_plane(|plane| plane.kubeconfig(User::Admin))?;
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    executor.block_on(async {
        // As one that has waited in vain: a machine that stands still is no server that does not answer.
        work(ebb_kube::connect(Some(&file), None).await?.after_deadlines(5)).await
    })
}

fn evicts(session: &Session) -> Result<()> {
    session.stop()?;
    let api = session.api()?;
    let namespace = session.namespace(&api)?;
    let pod = pod(&api, &namespace, "leak")?;
    with_client(session, async |client| {
        client.set_pod_status(&pod, &status()).await?;
        let seen = api.get(&path(&pod))?;
        ensure!(
            seen["status"]["phase"] == "Failed" && seen["status"]["reason"] == "Evicted",
            "{seen}"
        );
        let conditions = seen["status"]["conditions"].as_array().context("no conditions")?;
        let target = conditions.iter().find(|c| c["type"] == "DisruptionTarget");
        ensure!(target.is_some_and(|c| c["reason"] == "EvictionByEbb"), "{conditions:?}");
        client.delete_pod(&pod, 1).await?;
        // What has ended needs no kubelet to agree.
        let (code, seen) = api.ask("GET", &path(&pod), None)?;
        ensure!(code == 404, "{seen}");
        for _ in 0..2 {
            client.write_event(About::Pod(&pod), &event("leak.1")).await?;
        }
        Ok(())
    })?;
    let events = api.get(&format!("/api/v1/namespaces/{namespace}/events"))?;
    let own: Vec<&Value> =
        items(&events).filter(|event| event["involvedObject"]["uid"] == pod.uid.as_str()).collect();
    ensure!(own.len() == 1, "told twice: {own:?}");
    ensure!(own[0]["metadata"]["annotations"]["ebb.dev/decision"] == "d", "{own:?}");
    Ok(())
}

fn spares_the_next(session: &Session) -> Result<()> {
    session.stop()?;
    let api = session.api()?;
    let namespace = session.namespace(&api)?;
    let first = pod(&api, &namespace, "web")?;
    api.delete(&path(&first), &json!({ "gracePeriodSeconds": 0 }))?;
    let gone = with_client(session, async |client| Ok(outcomes(&client, &first).await))?;
    ensure!(gone.iter().all(|failure| failure.is_gone(&first)), "of one that is gone: {gone:?}");
    let second = pod(&api, &namespace, "web")?;
    let before = api.get(&path(&second))?;
    let replaced = with_client(session, async |client| Ok(outcomes(&client, &first).await))?;
    ensure!(replaced.len() == 3, "something was done: {replaced:?}");
    ensure!(
        replaced.iter().all(|failure| failure.is_gone(&first)),
        "of one that another has replaced: {replaced:?}"
    );
    let after = api.get(&path(&second))?;
    ensure!(before == after, "it was changed from {before} to {after}");
    api.delete(&path(&second), &json!({ "gracePeriodSeconds": 0 }))
}

/// What the API server says to each call about a pod.
async fn outcomes(client: &ebb_kube::Api, pod: &PodRef) -> Vec<Failure> {
    let all = [
        client.set_pod_status(pod, &status()).await,
        client.delete_pod(pod, 1).await,
        client.evict_pod(pod, 1).await,
    ];
    all.into_iter().filter_map(Result::err).collect()
}

/// Without its controller nobody has counted what a budget allows: it allows nothing.
fn obeys_budgets(session: &Session) -> Result<()> {
    session.stop()?;
    let api = session.api()?;
    let namespace = session.namespace(&api)?;
    let pod = pod(&api, &namespace, "db")?;
    let has_v1 = api.get("/apis/policy/v1").is_ok();
    let version = if has_v1 { "v1" } else { "v1beta1" };
    let budget = json!({
        "apiVersion": format!("policy/{version}"), "kind": "PodDisruptionBudget",
        "metadata": { "name": "db" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "db" } } },
    });
    let budgets = format!("/apis/policy/{version}/namespaces/{namespace}/poddisruptionbudgets");
    api.create(&budgets, &budget)?;
    // A pod that never ran is not covered by any budget.
    with_client(session, async |client| {
        let running = PodStatus {
            phase: Some(("Running".to_owned(), String::new(), String::new())),
            condition: None,
        };
        client.set_pod_status(&pod, &running).await?;
        let refused = client.evict_pod(&pod, 30).await.err();
        ensure!(refused.as_ref().is_some_and(Failure::is_by_budget), "not refused: {refused:?}");
        let seen = api.get(&path(&pod))?;
        ensure!(seen["metadata"]["deletionTimestamp"].is_null(), "{seen}");
        client.delete_pod(&pod, 1).await?;
        Ok(())
    })?;
    api.delete(&path(&pod), &json!({ "gracePeriodSeconds": 0 }))
}

fn tells_the_node(session: &Session) -> Result<()> {
    session.stop()?;
    let api = session.api()?;
    let namespace = session.namespace(&api)?;
    let other = json!({ "key": "example.com/other", "effect": "NoExecute" });
    let object = json!({ "metadata": { "name": NODE }, "spec": { "taints": [other] } });
    api.create("/api/v1/nodes", &object)?;
    let own = "ebb.dev/memory-pressure";
    let condition = Condition {
        of: "EbbMemoryPressure".to_owned(),
        status: true,
        reason: "EbbHasMemoryPressure".to_owned(),
        message: "low".to_owned(),
    };
    let taints = |object: &Value| -> Vec<String> {
        let all = object["spec"]["taints"].as_array().cloned().unwrap_or_default();
        all.iter().filter_map(|taint| taint["key"].as_str().map(str::to_owned)).collect()
    };
    with_client(session, async |client| {
        for _ in 0..2 {
            client.set_node_conditions(NODE, std::slice::from_ref(&condition), Time(0)).await?;
            client.set_node_taints(NODE, &NodeTaints::default(), &[own], &[own]).await?;
        }
        let seen = api.get(&format!("/api/v1/nodes/{NODE}"))?;
        let keys = taints(&seen);
        ensure!(keys.contains(&"example.com/other".to_owned()), "{keys:?}");
        ensure!(keys.iter().filter(|key| *key == own).count() == 1, "{keys:?}");
        let conditions = seen["status"]["conditions"].as_array().context("no conditions")?;
        let is_there =
            conditions.iter().any(|c| c["type"] == "EbbMemoryPressure" && c["status"] == "True");
        ensure!(is_there, "{conditions:?}");
        // As it was seen it takes one call; as it was before that, it is read first.
        let calls = || client.requests().values().sum::<u64>();
        for (seen, wanted, expected) in
            [(&seen, vec![], 1), (&seen, vec![own], 2), (&seen, vec![], 3)]
        {
            let before = calls();
            client.set_node_taints(NODE, &NodeTaints::read(seen), &[own], &wanted).await?;
            let made = calls() - before;
            ensure!(made == expected, "{made} calls for {wanted:?}, not {expected}");
        }
        let keys = taints(&api.get(&format!("/api/v1/nodes/{NODE}"))?);
        ensure!(!keys.contains(&own.to_owned()), "{keys:?}");
        ensure!(keys.contains(&"example.com/other".to_owned()), "{keys:?}");
        follows(&api, client, &namespace).await
    })?;
    api.delete(&format!("/api/v1/nodes/{NODE}"), &json!({}))
}

/// Pods of the node come and go in what is followed; those of others never show.
async fn follows(api: &Api, client: ebb_kube::Api, namespace: &str) -> Result<()> {
    let (out, mut updates) = mpsc::channel(16);
    let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}");
    tokio::spawn(async move {
        let name = |object: &Value| object["metadata"]["name"].as_str().map(str::to_owned);
        follow(client, &["/apis/none/v1/nothing", &path], name, |update| update, out).await;
    });
    let own = pod(api, namespace, "followed")?;
    for is_there in [true, false] {
        loop {
            let update = timeout(PATIENCE, updates.recv()).await.context("nothing is told")?;
            let Some(Update::All(pods)) = update else { anyhow::bail!("it broke: {update:?}") };
            if pods.contains_key(&own.uid) == is_there {
                break;
            }
        }
        if is_there {
            api.delete(&self::path(&own), &json!({ "gracePeriodSeconds": 0 }))?;
        }
    }
    Ok(())
}
