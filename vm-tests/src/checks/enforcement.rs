//! Cgroups brought to their plan on a real hierarchy: values written and read back, limits lowered under load, leftovers, systemd.
use crate::actors::Actor;
use crate::agent::{Agent, EBB, Settings, is};
use crate::cgroup::Cgroup;
use crate::node;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::scene::Workload;
use crate::wait;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) const CONFIG: &str = "/run/cgroups.yaml";
pub(crate) const PODS: &str = "/run/pods.json";
const SOON: Duration = Duration::from_secs(60);
/// The kubelet's fields under test; the machine has some 600 MiB.
const FIELDS: &str = "kubeReserved: {cpu: 100m, memory: 32Mi, pid: \"100\"}\nsystemReserved: {cpu: 100m, memory: 32Mi}\n\
    podPidsLimit: 500\nqosReserved: {memory: 20%}\nmemorySwap: {swapBehavior: LimitedSwap}\n\
    featureGates: {MemoryQoS: true, QOSReserved: true}\nmemoryReservationPolicy: TieredReservation\nevictionHard: {memory.available: 10Mi}\n";

/// A pod of one of three classes with two containers; `n` makes it unique.
pub(crate) fn pod(n: usize) -> Value {
    let resources = match n % 3 {
        0 => json!({"limits": {"cpu": "20m", "memory": "2Mi"}}),
        1 => {
            json!({"requests": {"cpu": "10m", "memory": "1Mi"}, "limits": {"cpu": "100m", "memory": "4Mi"}})
        }
        _ => json!({}),
    };
    let uid = uid(n);
    let container = |name: &str| json!({"name": name, "resources": resources});
    let status = |name: &str| json!({"name": name, "containerID": format!("containerd://{name}{n:063}"), "state": {"running": {}}});
    json!({
        "kind": "Pod",
        "metadata": {"name": format!("p{n}"), "namespace": "test", "uid": uid},
        "spec": {"containers": [container("a"), container("b")]},
        "status": {"phase": "Running", "containerStatuses": [status("a"), status("b")]},
    })
}

pub(crate) fn uid(n: usize) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

/// Makes the pods with these numbers known.
pub(crate) fn write_pods(numbers: impl Iterator<Item = usize>) -> Result<()> {
    let items: Vec<Value> = numbers.map(pod).collect();
    let text = json!({"kind": "List", "items": items}).to_string();
    // In one step, as a mounted ConfigMap changes: nobody reads half of it.
    let next = format!("{PODS}.next");
    fs::write(&next, text).context("cannot write the pods")?;
    fs::rename(&next, PODS).context("cannot put the pods in place")
}

/// Runs `ebb cgroups …` and reads its answer; the exit code says whether anything differs.
pub(crate) fn ebb(words: &[&str]) -> Result<(Value, bool)> {
    ebb_of(words, &["--pods", PODS])
}

/// The same with pods from `sources`.
pub(crate) fn ebb_of(words: &[&str], sources: &[&str]) -> Result<(Value, bool)> {
    let mut command = Command::new(EBB);
    command.arg("cgroups").args(words).args(["--config", CONFIG]).args(sources);
    let out = command.args(["--output", "json"]).output().context("cannot start ebb")?;
    let same = match out.status.code() {
        Some(0) => true,
        Some(4) => false,
        _ => {
            bail!("ebb cgroups {words:?}: {}: {}", out.status, String::from_utf8_lossy(&out.stderr))
        }
    };
    Ok((serde_json::from_slice(&out.stdout).context("ebb's answer is not JSON")?, same))
}

fn list<'v>(answer: &'v Value, field: &str) -> &'v [Value] {
    answer.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Everything that the plan says, by path and file, of the cgroups whose path is known.
pub(crate) fn planned() -> Result<BTreeMap<String, BTreeMap<String, String>>> {
    let (plan, _) = ebb(&["plan"])?;
    let mut by_path = BTreeMap::new();
    for cgroup in list(&plan, "cgroups") {
        let Some(path) = cgroup.get("path").and_then(Value::as_str) else { continue };
        let values = cgroup.get("values").and_then(Value::as_object).context("no values")?;
        let value = |value: &Value| value.get("value")?.as_str().map(str::to_owned);
        let files = values.iter().filter_map(|(file, v)| Some((file.clone(), value(v)?)));
        by_path.insert(path.to_owned(), files.collect());
    }
    Ok(by_path)
}

/// The cgroups of pods start as a fresh node's, and are left so.
fn fresh() -> Result<()> {
    let all = Cgroup::at("kubepods");
    all.clear()?;
    all.remove()?;
    Cgroup::node_tree()?;
    // As on a node where pods have run: classes hand their controllers down.
    for class in ["burstable", "besteffort"] {
        Cgroup::create(&format!("kubepods/{class}/first"))?.remove()?;
    }
    Ok(())
}

/// A test on a fresh tree.
pub(crate) fn on_fresh_tree(run: impl FnOnce() -> Result<Outcome>) -> Result<Outcome> {
    fresh()?;
    fs::write(CONFIG, FIELDS).context("cannot write the configuration")?;
    let outcome = run();
    fresh()?;
    outcome
}

pub(crate) fn make_containers(numbers: impl Iterator<Item = usize>) -> Result<()> {
    write_pods(numbers)?;
    for path in planned()?.keys() {
        Cgroup::create(path.trim_start_matches('/'))?;
    }
    Ok(())
}

/// Starts `ebb run` that enforces the whole tree.
pub(crate) fn reconciler(test: &TestContext, more: &str) -> Result<Agent> {
    let own = format!("  cgroups: {{mode: enforce, beside: nobody, podManifests: {PODS}{more}}}\n");
    let arguments = &["--enforce"];
    let settings = Settings { thresholds: FIELDS, own: &own, arguments, ..Settings::default() };
    let mut agent = Agent::start(test, &settings)?;
    agent.wait_for(SOON, "the tree was first looked at", |record| is(record, "cgroups"))?;
    Ok(agent)
}

/// Fifty pods: what ebb makes and writes is what it plans and what it then finds; doing it again changes nothing.
pub(crate) fn agreement(test: &TestContext) -> Result<Outcome> {
    on_fresh_tree(|| {
        write_pods(0..50)?;
        let (made, _) = ebb(&["enforce", "--alone", "--create"])?;
        let created = list(&made, "created").len();
        make_containers(0..50)?;
        let (first, clean) = ebb(&["enforce", "--alone"])?;
        ensure!(clean, "something is left: {first:#}");
        let (audit, same) = ebb(&["audit"])?;
        ensure!(same && list(&audit, "differences").is_empty(), "the audit differs: {audit:#}");
        let (again, clean) = ebb(&["enforce", "--alone"])?;
        ensure!(clean && list(&again, "written").is_empty(), "again it wrote {again:#}");
        let written = list(&first, "written").len() + list(&made, "written").len();
        let reads = audit.get("reads").cloned().unwrap_or_default();
        runner::note(
            test,
            &format!(
                "{created} cgroups made, {written} values written, {reads} files audited, 0 differences"
            ),
        )?;
        ensure!(created >= 50, "only {created} cgroups were made");
        Ok(Outcome::Passed)
    })
}

/// Allocatable memory shrinks below what pods use: page cache goes, what cannot go stays allowed, and nobody is killed.
pub(crate) fn lowered(test: &TestContext) -> Result<Outcome> {
    on_fresh_tree(|| {
        write_pods(0..1)?;
        let mut cache = Workload::start("kubepods/burstable/cache", &["cacher", "150"])?;
        let agent = reconciler(test, ", period: 500ms")?;
        let all = Cgroup::at("kubepods");
        let kills = || all.counter("memory.events", "oom_kill ");
        let total = node::meminfo("MemTotal")?;
        // Half of the cache has to go; then there is a workload whose memory cannot.
        let target = 75 << 20;
        ensure!(current(&all)? > target, "the cache is not large enough to matter");
        reserve(&agent, total - target)?;
        let limit = || number(&all, "memory.max");
        wait::until(SOON, "the limit is lowered to what is allocatable", || {
            limit().is_ok_and(|l| l <= target)
        })?;
        ensure!(cache.actor.is_alive()?, "the cache's owner was killed");
        let mut held = Workload::start("kubepods/burstable/held", &["idle", "48"])?;
        reserve(&agent, total - (24 << 20))?;
        wait::until(SOON, "the limit is as low as it can be", || {
            limit().is_ok_and(|l| l < target)
        })?;
        let (used, lowest) = (current(&all)?, limit()?);
        ensure!(held.actor.is_alive()? && cache.actor.is_alive()?, "a workload was killed");
        ensure!(kills()? == 0, "the OOM killer acted {} times", kills()?);
        runner::note(
            test,
            &format!(
                "limit lowered to {} MiB by reclaim; then {} MiB allowed while {} MiB are in use and 24 MiB are wanted; 0 OOM kills",
                target >> 20,
                lowest >> 20,
                used >> 20
            ),
        )?;
        agent.stop()?;
        Ok(Outcome::Passed)
    })
}

/// Milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Tells a running agent to set this much memory aside.
fn reserve(agent: &Agent, bytes: u64) -> Result<()> {
    let own = format!(
        "  cgroups: {{mode: enforce, beside: nobody, podManifests: {PODS}, period: 500ms}}\n"
    );
    agent.reconfigure(
        &format!(
            "kubeReserved: {{memory: \"{bytes}\"}}\nevictionHard: {{memory.available: 1Mi}}\n"
        ),
        &own,
    )
}

fn current(cgroup: &Cgroup) -> Result<u64> {
    number(cgroup, "memory.current")
}

fn number(cgroup: &Cgroup, file: &str) -> Result<u64> {
    let text = cgroup.read(file)?;
    Ok(if text.trim() == "max" {
        u64::MAX
    } else {
        text.trim().parse().context(file.to_owned())?
    })
}

/// Two hundred pods that nobody knows, each with a process that runs, go; those of ten known ones stay.
pub(crate) fn leftovers(test: &TestContext) -> Result<Outcome> {
    const LIVE: usize = 10;
    const LEFT: usize = 200;
    on_fresh_tree(|| {
        write_pods(0..LIVE)?;
        fs::write(CONFIG, format!("{FIELDS}ebb: {{cgroups: {{period: 200ms}}}}\n"))
            .context("cannot write the configuration")?;
        let start = |n: usize| -> Result<(Cgroup, Actor)> {
            let class = ["", "burstable/", "besteffort/"][n % 3];
            let pod = Cgroup::create(&format!("kubepods/{class}pod{}", uid(n)))?;
            let container = Cgroup::create(&format!("kubepods/{class}pod{}/c", uid(n)))?;
            Ok((pod, Actor::start(&container, &["idle", "0"])?))
        };
        let mut live: Vec<_> = (0..LIVE).map(start).collect::<Result<_>>()?;
        let left: Vec<_> = (1000..1000 + LEFT).map(start).collect::<Result<_>>()?;
        let (audit, _) = ebb(&["audit"])?;
        let found = list(&audit, "orphanedPods").len();
        ensure!(found == LEFT, "{found} leftovers were found");
        let began = Instant::now();
        // Two looks, as far apart as the configuration says; no runtime has these pods.
        let (done, _) = ebb(&["enforce", "--alone", "--remove-orphaned-pods"])?;
        let took = began.elapsed();
        let ended = list(&done, "cleanedUp").len();
        ensure!(ended == LEFT, "{ended} leftovers were dealt with: {}", done["errors"]);
        ensure!(left.iter().all(|(pod, _)| !pod.path().exists()), "a leftover is still there");
        for (pod, actor) in &mut live {
            ensure!(pod.path().exists() && actor.is_alive()?, "{} was touched", pod.name());
        }
        for (_, mut actor) in left {
            actor.wait()?;
        }
        runner::note(test, &format!("{LEFT} leftovers emptied and removed in {:.0} ms", ms(took)))?;
        Ok(Outcome::Passed)
    })
}

/// Under systemd, values go to units as properties and survive what makes systemd write them again.
pub(crate) fn systemd_driver(test: &TestContext) -> Result<Outcome> {
    let systemctl = |words: &[&str]| -> Result<()> {
        let status = Command::new("/usr/bin/systemctl").args(words).status();
        ensure!(status.context("cannot start systemctl")?.success(), "systemctl {words:?} failed");
        Ok(())
    };
    // No containers' scopes here: they are the runtime's to make.
    let fields = FIELDS.replace("evictionHard", "cgroupDriver: systemd\nevictionHard");
    fs::write(CONFIG, fields).context("cannot write the configuration")?;
    let pods: Vec<Value> = (0..6)
        .map(|n| {
            let mut pod = pod(n);
            pod["status"] = Value::Null;
            pod
        })
        .collect();
    fs::write(PODS, json!({"kind": "List", "items": pods}).to_string())
        .context("cannot write the pods")?;
    let same = |when: &str| -> Result<()> {
        let (audit, same) = ebb(&["audit"])?;
        ensure!(same, "{when} the audit differs: {:#}", audit["differences"]);
        Ok(())
    };
    let (made, clean) = ebb(&["enforce", "--alone", "--create"])?;
    ensure!(clean, "something is left: {made:#}");
    same("at first")?;
    systemctl(&["daemon-reload"])?;
    same("after systemd was reloaded")?;
    systemctl(&["set-property", "--runtime", "kubepods.slice", "TasksMax=77", "CPUWeight=33"])?;
    let (_, still_same) = ebb(&["audit"])?;
    ensure!(!still_same, "systemd's change is not seen");
    let (again, clean) = ebb(&["enforce", "--alone"])?;
    ensure!(clean, "something is left after systemd's change: {again:#}");
    systemctl(&["daemon-reload"])?;
    same("after a repair and a reload")?;
    let created = list(&made, "created").len();
    systemctl(&["stop", "kubepods.slice"])?;
    runner::note(
        test,
        &format!("{created} slices made over D-Bus, 0 differences through two reloads"),
    )?;
    ensure!(created == 9, "{created} slices were made");
    Ok(Outcome::Passed)
}
