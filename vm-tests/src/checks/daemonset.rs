//! ebb as users have it: its own image, the DaemonSet of `deploy/` with its own service account and rights, on a node with a whole control plane. What it evicts is made anew by its ReplicaSet, and does not come back before the pressure is over.
use super::kubelet::{containers, idle_pods};
use super::kubernetes::{condition_and_taint, evicts, is_about, killed_after, killed_in_time};
use crate::agent::{EBB, is, since};
use crate::init::SELF;
use crate::kube::{ApiPod, EbbPod, Kube, PodSpec};
use crate::registry::{Context as TestContext, Outcome};
use crate::{node, runner, wait};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Name of the Deployment that leaks.
const LEAK: &str = "leak";
/// MiB/s.
const RATE: &str = "60";
/// How often its ReplicaSet makes it anew.
const ROUNDS: usize = 2;
/// The API of the DaemonSet's agent, as its node sees it.
const API: &str = "/run/ebb-node/api.sock";
/// For what a step takes on a loaded host under TCG.
const PATIENCE: Duration = Duration::from_secs(240);

/// From `kubectl apply` of the observer to `kubectl delete` of the agent that took its place: the leak goes each time, nobody else, and nothing of ebb's stays on the Node.
pub(crate) fn deployed(test: &TestContext) -> Result<Outcome> {
    let kube = Kube::ensure(test)?;
    let mut ebb = None;
    let played = play(test, &kube, &mut ebb);
    kube.keep_logs(test)?;
    if let Some(pod) = &ebb {
        fs::copy(pod.log(), runner::out_dir(test)?.join("ebb.log")).context("cannot keep a log")?;
    }
    let removed = played.and_then(|()| removed(&kube));
    kube.remove_deployment(LEAK)?;
    kube.remove_ebb()?;
    kube.delete_all_pods()?;
    removed.map(|()| Outcome::Passed)
}

fn play(test: &TestContext, kube: &Kube, ebb: &mut Option<EbbPod>) -> Result<()> {
    let idle = idle_pods(kube)?;
    let before = containers(kube, &idle)?;
    let oom_kills = node::vmstat("oom_kill ")?;
    let observer = kube.deploy_ebb("observe")?;
    wait::seldom(PATIENCE, "an observer knows its pods", || {
        observer.records().iter().any(|record| is(record, "apiServer"))
    })?;
    fs::copy(observer.log(), runner::out_dir(test)?.join("observer.log"))
        .context("cannot keep a log")?;
    let began = Instant::now();
    let pod = ebb.insert(kube.deploy_ebb("enforce")?);
    for (event, what) in [
        ("started", "ebb has begun"),
        ("inventory", "the runtime's inventory is known"),
        ("apiServer", "the API server tells of pods"),
    ] {
        wait::seldom(PATIENCE, what, || pod.records().iter().any(|record| is(record, event)))?;
    }
    let memory = pod.metric("process_resident_memory_bytes")? / f64::from(1 << 20);
    runner::note(
        test,
        &format!(
            "from one overlay to the other, until the new agent knows its pods: {:.1?}; {memory:.1} MiB resident",
            began.elapsed()
        ),
    )?;
    answers_on_its_node()?;
    let command = &[SELF, "act-here", "hog", RATE];
    kube.deploy(&PodSpec { name: LEAK, command, ..PodSpec::default() })?;
    let mut killed = Vec::new();
    for round in 1..=ROUNDS {
        killed.push(leak(test, kube, pod, round)?);
    }
    killed_in_time(test, &killed)?;
    let records = pod.records();
    let others = records.iter().filter(|r| is(r, "evicted") && !evicts_the_leak(r));
    let others: Vec<_> = others.collect();
    ensure!(others.is_empty(), "somebody else was evicted: {others:?}");
    ensure!(containers(kube, &idle)? == before, "an idle pod was started again");
    ensure!(node::vmstat("oom_kill ")? == oom_kills, "the kernel killed somebody");
    ensure!(kube.restarts_of_ebb(pod)? == 0, "ebb itself was started again");
    kube.kubelet_evicts_nobody()?;
    let counted = pod.metric("ebb_evictions_total{method=\"kill\"}")?;
    let evicted = records.iter().filter(|r| is(r, "evicted")).count();
    ensure!(
        counted >= f64::from(u32::try_from(evicted)?),
        "{evicted} evictions, {counted} counted"
    );
    Ok(())
}

/// The agent's API, through the commands that an operator has on the node.
fn answers_on_its_node() -> Result<()> {
    let ask = |words: &[&str]| -> Result<String> {
        let asked = Command::new(EBB).args(words).args(["--api", API]).output();
        let Output { status, stdout, stderr } = asked.context("cannot start ebb")?;
        let told = String::from_utf8_lossy(&stderr);
        ensure!(status.success(), "ebb {}: {status}: {told}", words.join(" "));
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    };
    let status = ask(&["status"])?;
    ensure!(status.contains("enforcing"), "another agent answers: {status}");
    let plan = ask(&["plan"])?;
    ensure!(plan.contains("memory.available (hard): not met"), "another plan: {plan}");
    let ranked = ask(&["rank"])?;
    ensure!(ranked.starts_with("  1. default/idle-"), "another ranking: {ranked}");
    Ok(())
}

/// It leaks once more: what ebb has put on the Node by then goes with it.
fn removed(kube: &Kube) -> Result<()> {
    wait::seldom(PATIENCE, "the Node is under pressure again", || {
        kube.node().is_ok_and(|node| condition_and_taint(&node) == (Some(true), true))
    })?;
    kube.remove_ebb()?;
    let (_, has_taint) = condition_and_taint(&kube.node()?);
    ensure!(!has_taint, "ebb is gone, and its taint is there");
    Ok(())
}

/// The pod that there is of the Deployment leaks and goes; the next one lands after the pressure. Returns how many milliseconds after the crossing it was killed.
fn leak(test: &TestContext, kube: &Kube, ebb: &EbbPod, round: usize) -> Result<Option<f64>> {
    let leak = wait::seldom_some(PATIENCE, "the leak is bound to the node", || {
        let pods = kube.pods_of(LEAK).ok()?;
        pods.into_iter().find(|pod| matches!(kube.node_of(pod), Ok(Some(_))))
    })?;
    let mut evicted = None;
    wait::seldom(PATIENCE, "the leak is evicted", || {
        evicted = ebb.records().iter().find(|record| evicts(record, &leak)).cloned();
        evicted.is_some()
    })?;
    let evicted = evicted.context("it was evicted")?;
    kube.until_gone(&leak, PATIENCE)?;
    let gone = since(&evicted)?;
    wait::seldom(PATIENCE, "the API server was told", || told_of(ebb, &leak).is_some())?;
    let told = told_of(ebb, &leak).context("it was told")?;
    let refused = told.get("refused").and_then(Value::as_array);
    ensure!(refused.is_some_and(Vec::is_empty), "not all was taken: {told}");
    let events = kube.events(&leak, "Evicted")?.len();
    ensure!(events == 1, "{events} Events about one eviction");
    wait::seldom(PATIENCE, "the Node is under pressure", || {
        kube.node().is_ok_and(|node| condition_and_taint(&node) == (Some(true), true))
    })?;
    let next = wait::seldom_some(PATIENCE, "its ReplicaSet makes another", || {
        kube.pods_of(LEAK).ok()?.into_iter().find(|pod| pod.uid != leak.uid)
    })?;
    let landed = wait::seldom_some(PATIENCE, "the next one may land", || {
        let is_bound = kube.node_of(&next).ok()?.is_some();
        let node = kube.node().ok()?;
        let (_, has_taint) = condition_and_taint(&node);
        // The pod was looked at first: bound while the taint is there, it was bound before that was gone.
        (is_bound || !has_taint).then_some((is_bound, has_taint))
    })?;
    ensure!(landed != (true, true), "{} landed on a Node under pressure", next.name);
    let kept = since(&evicted)?;
    kube.until_torn_down(&leak)?;
    runner::note(
        test,
        &format!(
            "leak {round}: its object gone {gone:.1?} after the kill; the next one was kept away for {kept:.1?}"
        ),
    )?;
    killed_after(&evicted)
}

fn told_of(ebb: &EbbPod, pod: &ApiPod) -> Option<Value> {
    let mut records = ebb.records().into_iter();
    records.find(|record| is(record, "evictionTold") && is_about(record, pod))
}

fn evicts_the_leak(record: &Value) -> bool {
    let name = record.pointer("/workload/name").and_then(Value::as_str);
    name.is_some_and(|name| name.starts_with("default/leak-"))
}
