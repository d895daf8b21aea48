//! Pod GC, case by case.
use crate::kinds::Kind;
use crate::session::Session;
use crate::world::{KEEP, Made, World, to, with};
use crate::{Alone, Case};
use anyhow::{Result, ensure};
use ebb_cluster_tests::collector::{Collector, Running, TERMINATED};
use serde_json::{Value, json};

pub(crate) const CASES: [Case; 7] = [
    ("above_the_threshold_the_oldest_terminated_pods_go", terminated),
    ("above_the_threshold_evicted_pods_go_first", evicted),
    ("pods_of_a_node_that_is_gone_go", orphaned),
    ("a_finalizer_keeps_a_pod_of_a_node_that_is_gone", orphaned_with_finalizer),
    ("a_succeeded_pod_of_a_node_that_is_gone_keeps_its_phase", orphaned_succeeded),
    ("a_terminating_pod_that_was_never_scheduled_is_failed", unscheduled),
    ("terminating_pods_go_from_a_node_that_is_out_of_service", out_of_service),
];

/// What is in the program of a kube-controller-manager that writes the phase and the condition DisruptionTarget.
const MARKS: &str = "DeletionByPodGC";
/// Of one that has evicted pods go first.
const EVICTED_FIRST: &str = "byEvictionAndCreationTimestamp";
/// Of one that knows this taint.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// What ebb does beyond kube-controller-manager, where its options say so.
pub(crate) const LIMITS: Alone = ("terminated_pods_go_by_the_limits_that_are_set", limits);

fn limits(session: &Session) -> Result<()> {
    session.stop()?;
    let [by_namespace, by_owner, by_reason, of_a_job] =
        [(); 4].map(|()| World::new(session, Collector::Ebb));
    let worlds = [by_namespace?, by_owner?, by_reason?, of_a_job?];
    let [by_namespace, by_owner, by_reason, of_a_job] = &worlds;
    let terminated = |world: &World, name: &str, owner: Option<Value>, status: &Value| {
        let made = world.make_from(Kind::Pod, name, Kind::Pod.body(), owner.as_slice(), &[])?;
        world.set_status(&made, status)
    };
    let (failed, evicted) =
        (json!({"phase": "Failed"}), json!({"phase": "Failed", "reason": "Evicted"}));
    for at in 1..=5 {
        terminated(by_namespace, &format!("p{at}"), None, &json!({"phase": "Succeeded"}))?;
    }
    let controlled = |owner: &Made| Some(with(to(owner), "controller", &json!(true)));
    let app = by_owner.make("app", &[])?;
    for at in 1..=3 {
        terminated(by_owner, &format!("p{at}"), controlled(&app), &failed)?;
    }
    terminated(by_owner, "z-alone", None, &failed)?;
    terminated(by_reason, "error", None, &failed)?;
    terminated(by_reason, "evicted", None, &evicted)?;
    let template =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}});
    let path = format!("/apis/batch/v1/namespaces/{}/jobs", of_a_job.namespace);
    let job = json!({"metadata": {"name": "job"}, "spec": {"template": template}});
    let job = of_a_job.api.create(&path, &job)?;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": job["metadata"]["uid"], "controller": true,
    });
    for at in 1..=2 {
        terminated(of_a_job, &format!("p{at}"), Some(job.clone()), &failed)?;
    }
    terminated(of_a_job, "evicted", Some(job), &evicted)?;
    let options = [
        "--terminated-pods-per-namespace=3",
        "--terminated-pods-per-owner=1",
        "--terminated-pod-age-by-reason=Evicted=3s",
        "--keep-failed-pods-of-jobs",
    ];
    let ebb = session.with_plane(|plane| Running::with(plane, &options))?;
    by_namespace.stays(&["p3", "p4", "p5"])?;
    by_owner.stays(&["app", "p3 of app", "z-alone"])?;
    by_reason.stays(&["error"])?;
    of_a_job.stays(&["evicted of job", "p1 of job", "p2 of job"])?;
    ebb.end()?;
    // By age all of them go, and it does not take an event: the time has come.
    let ebb = session.with_plane(|plane| Running::with(plane, &["--terminated-pod-age=10s"]))?;
    terminated(by_reason, "young", None, &failed)?;
    by_namespace.becomes(&[])?;
    by_owner.becomes(&["app"])?;
    by_reason.becomes(&[])?;
    of_a_job.becomes(&[])?;
    ebb.end()?;
    by_owner.api.delete(&format!("{path}/job"), &json!({"propagationPolicy": "Background"}))
}

fn pod(world: &World, name: &str, node: Option<&str>, finalizers: &[&str]) -> Result<Made> {
    let mut body = Kind::Pod.body();
    if let Some(node) = node {
        body["spec"]["nodeName"] = json!(node);
    }
    world.make_from(Kind::Pod, name, body, &[], finalizers)
}

/// A name for a node; nobody else's.
fn node_name(world: &World, name: &str) -> String {
    format!("{}-{name}", world.namespace)
}

fn node(world: &World, name: &str, is_ready: bool, taints: &Value) -> Result<String> {
    let name = node_name(world, name);
    world.api.create("/api/v1/nodes", &json!({"metadata": {"name": name}}))?;
    let status = if is_ready { "True" } else { "Unknown" };
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    world.api.merge(&format!("/api/v1/nodes/{name}/status"), &patch)?;
    // Last: tainted and not yet ready it would be out of service.
    let tainted = json!({"spec": {"taints": taints}});
    world.api.merge(&format!("/api/v1/nodes/{name}"), &tainted)?;
    Ok(name)
}

/// One more than may stay, and another one, the oldest first.
fn more_than_may_stay(world: &World, node: &str) -> Result<Vec<Made>> {
    (1..=TERMINATED + 2).map(|at| pod(world, &format!("p{at}"), Some(node), &[])).collect()
}

fn terminated(world: &World) -> Result<()> {
    let _alone = world.session.terminates_many();
    let node = node(world, "node", true, &json!([]))?;
    let pods = more_than_may_stay(world, &node)?;
    pod(world, "running", Some(&node), &[])?;
    for (pod, phase) in pods.iter().zip(["Succeeded", "Failed"].iter().cycle()) {
        world.set_status(pod, &json!({"phase": phase}))?;
    }
    world.stays(&["p3", "p4", "p5", "p6", "running"])
}

fn evicted(world: &World) -> Result<()> {
    let _alone = world.session.terminates_many();
    let node = node(world, "node", true, &json!([]))?;
    let pods = more_than_may_stay(world, &node)?;
    for pod in pods.iter().rev() {
        let is_last = pod.name == "p6";
        let reason = if is_last { "Evicted" } else { "Error" };
        world.set_status(pod, &json!({"phase": "Failed", "reason": reason}))?;
    }
    let is_first = world.does(EVICTED_FIRST)?;
    world.stays(if is_first { &["p2", "p3", "p4", "p5"] } else { &["p3", "p4", "p5", "p6"] })
}

/// A pod that runs on a node that is not there any more: it goes once the pod runs, or the pod may be gone before.
pub(crate) fn of_a_node_that_is_gone(
    world: &World,
    name: &str,
    finalizers: &[&str],
) -> Result<Made> {
    let node = node(world, "gone", true, &json!([]))?;
    let pod = pod(world, name, Some(&node), finalizers)?;
    world.set_status(&pod, &json!({"phase": "Running"}))?;
    let (status, answer) = world.api.ask("DELETE", &format!("/api/v1/nodes/{node}"), None)?;
    ensure!(status == 200, "{node} stays: {answer}");
    Ok(pod)
}

fn orphaned(world: &World) -> Result<()> {
    // They are Failed for a moment before they go.
    let _shared = world.session.terminates_one();
    let here = node(world, "here", true, &json!([]))?;
    pod(world, "here", Some(&here), &[])?;
    pod(world, "waiting", None, &[])?;
    of_a_node_that_is_gone(world, "orphan", &[])?;
    pod(world, "orphan-pending", Some(&node_name(world, "gone")), &[])?;
    world.stays(&["here", "waiting"])
}

fn orphaned_with_finalizer(world: &World) -> Result<()> {
    let _shared = world.session.terminates_one();
    let orphan = of_a_node_that_is_gone(world, "orphan", &[KEEP])?;
    world.stays(&["orphan with example.com/keep terminating"])?;
    let now = world.read(&orphan)?;
    let grace = &now["metadata"]["deletionGracePeriodSeconds"];
    ensure!(*grace == 0, "its grace is {grace}");
    if world.does(MARKS)? {
        is_marked(&now, "PodGC: node no longer exists")?;
    }
    world.set_finalizers(&orphan, &[])?;
    world.becomes(&[])
}

fn orphaned_succeeded(world: &World) -> Result<()> {
    let _shared = world.session.terminates_one();
    let orphan = pod(world, "orphan", Some(&node_name(world, "gone")), &[KEEP])?;
    world.set_status(&orphan, &json!({"phase": "Succeeded"}))?;
    world.stays(&["orphan with example.com/keep terminating"])?;
    let phase = &world.read(&orphan)?["status"]["phase"];
    ensure!(*phase == "Succeeded", "its phase is {phase}");
    Ok(())
}

fn unscheduled(world: &World) -> Result<()> {
    let _shared = world.session.terminates_one();
    let waiting = pod(world, "waiting", None, &[KEEP])?;
    world.delete_with(&waiting, &json!({}))?;
    world.stays(&["waiting with example.com/keep terminating"])?;
    if world.does(MARKS)? {
        world.until(&waiting, "it is Failed", |now| now["status"]["phase"] == "Failed")?;
    }
    world.set_finalizers(&waiting, &[])?;
    world.becomes(&[])
}

fn out_of_service(world: &World) -> Result<()> {
    // One of them is Failed for a moment before it goes.
    let _shared = world.session.terminates_one();
    let taint = |key| json!([{"key": key, "value": "nodeshutdown", "effect": "NoExecute"}]);
    let out = taint(OUT_OF_SERVICE);
    let other = taint("node.kubernetes.io/unreachable");
    for (name, is_ready, taints) in
        [("out", false, &out), ("ready", true, &out), ("not-out", false, &other)]
    {
        let node = node(world, name, is_ready, taints)?;
        let terminating = pod(world, name, Some(&node), &[])?;
        pod(world, &format!("{name}-runs"), Some(&node), &[])?;
        world.delete_with(&terminating, &json!({"gracePeriodSeconds": 300}))?;
    }
    let mut left =
        vec!["not-out terminating", "not-out-runs", "out-runs", "ready terminating", "ready-runs"];
    if !world.does(OUT_OF_SERVICE)? {
        left.insert(2, "out terminating");
        left.sort_unstable();
    }
    world.stays(&left)
}

/// Its phase is Failed, and the condition DisruptionTarget says why.
fn is_marked(pod: &Value, message: &str) -> Result<()> {
    let status = &pod["status"];
    ensure!(status["phase"] == "Failed", "its phase is {}", status["phase"]);
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let target = conditions.into_iter().find(|one| one["type"] == "DisruptionTarget");
    let said = target.map(|one| (&one["status"], &one["reason"], &one["message"]));
    let expected = (&json!("True"), &json!("DeletionByPodGC"), &json!(message));
    ensure!(said == Some(expected), "its condition DisruptionTarget is {said:?}");
    Ok(())
}
