//! What has gone wrong in other reclaimers, on real kernels: many pods at once, containers in containers, groups that die together, cgroups that are removed and still hold memory.
use crate::actors::Actor;
use crate::agent::{Agent, is, is_by_watchdog, is_calm, name_of, victims};
use crate::cgroup::Cgroup;
use crate::node;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::scene::{Scene, Workload};
use crate::wait;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(90);
const THRESHOLDS: &str = "evictionHard:\n  memory.available: \"15%\"\n";
/// Threads that start pods.
const STARTERS: usize = 8;

/// Two hundred pods start at once and nobody is evicted; the leak among them is, and nobody else.
pub(crate) fn boot(test: &TestContext) -> Result<Outcome> {
    const PODS: usize = 200;
    let mut agent = Agent::enforce(test, THRESHOLDS)?;
    let mut pods = start_pods(PODS, &["idle", "1"])?;
    let chosen = agent.victims();
    ensure!(chosen.is_empty(), "while pods started, ebb acted on {chosen:?}");
    evicts_a_leak(&mut agent)?;
    for pod in &mut pods {
        ensure!(pod.actor.is_alive()?, "{} died", pod.cgroup.name());
    }
    agent.stop()?;
    Ok(Outcome::Passed)
}

/// A hundred pods take at once a tenth more than there is: evicted are about as many as it takes, and the kernel kills nobody.
pub(crate) fn overcommitted(test: &TestContext) -> Result<Outcome> {
    const PODS: usize = 100;
    const GO: &str = "/tmp/all";
    let _ = fs::remove_file(GO);
    let mut scene = Scene::with_innocents(0, 0)?;
    let mut agent = Agent::enforce(test, THRESHOLDS)?;
    let line = (node::meminfo("MemTotal")? >> 20) * 15 / 100;
    // What each process takes by being there is not known before: the size is told by a file when all are there.
    let mut pods = start_pods(PODS, &["late", GO])?;
    let left = usize::try_from((node::meminfo("MemAvailable")? >> 20).saturating_sub(line))?;
    // A tenth too much, and up to a MiB a pod more for being whole MiB.
    let each = (left * 11 / 10).div_ceil(PODS);
    let needed = (each * PODS - left).div_ceil(each);
    fs::write("/tmp/next", each.to_string()).context("cannot write a size")?;
    fs::rename("/tmp/next", GO).context("cannot let pods grow")?;
    let full = u64::try_from(each)? << 20;
    wait::until(SOON, "every pod has what it wants, or is dead", || {
        pods.iter_mut().all(|pod| {
            let has = pod.cgroup.read("memory.current").ok().and_then(|t| t.trim().parse().ok());
            has.is_some_and(|has: u64| has >= full)
                || pod.actor.is_alive().is_ok_and(|alive| !alive)
        })
    })?;
    // What a pod had before it grew counts in its cgroup too: the last MiB, and with it the crossing, may be yet to come.
    wait::until(SOON, "the threshold was crossed, and the pressure is over", || {
        let records = agent.records();
        let is_short = |record: &Value| is(record, "thresholdCrossed") || is_by_watchdog(record);
        records.iter().any(is_short) && is_calm(records)
    })?;
    // It may be crossed once more while they are counted: both are counted when nobody acts any more.
    let acted = victims(&agent.stop()?).len();
    let mut alive = 0;
    for pod in &mut pods {
        alive += usize::from(pod.actor.is_alive()?);
    }
    let text = format!(
        "{PODS} pods of {each} MiB with {left} left: {needed} too many, {acted} evicted, {alive} live"
    );
    runner::note(test, &text)?;
    ensure!(acted > 0 && acted <= 2 * needed + 5 && alive >= PODS - acted, "{text}");
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

/// A container in a container leaks: it goes, and neither what holds it nor the like of it beside it.
pub(crate) fn nested(test: &TestContext) -> Result<Outcome> {
    let mut scene = Scene::with_innocents(2, 30)?;
    let inside = |pod: &str, words: &[&str]| -> Result<[Workload; 2]> {
        let container = format!("kubepods/burstable/pod{pod}/outer");
        let init = Workload::start(&format!("{container}/init"), &["idle", "10"])?;
        let inner = format!("{container}/docker/0123/system.slice/inner.service");
        Ok([init, Workload::start(&inner, words)?])
    };
    // As their runtime does it: the tree is the container's root's own.
    let mut calm = inside("calm", &["idle", "20"])?;
    let mut agent = Agent::enforce(test, THRESHOLDS)?;
    let mut leaking = inside("leaking", &["hog", "0"])?;
    leaking[1].actor.wait()?;
    agent.until_recovered(SOON, |name| *name == leaking[1].cgroup.name())?;
    let victims = victims(&agent.stop()?);
    ensure!(victims == [leaking[1].cgroup.name()], "ebb acted on {victims:?}");
    let [outer, _] = &mut leaking;
    for workload in calm.iter_mut().chain([outer]) {
        ensure!(workload.actor.is_alive()?, "{} died", workload.cgroup.name());
    }
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

/// Who is to die together does, by ebb's hand as by the kernel's, and who is not does not; what the kernel did at a cgroup's own limit is told and costs nobody else anything.
pub(crate) fn groups(test: &TestContext) -> Result<Outcome> {
    let mut scene = Scene::with_innocents(2, 30)?;
    let mut agent = Agent::enforce(test, THRESHOLDS)?;
    for together in [true, false] {
        let kind = if together { "grouped" } else { "single" };
        // At a limit of their own.
        let limited = Cgroup::create(&format!("work.slice/{kind}.service"))?;
        limited.write("memory.max", &(48 << 20).to_string())?;
        limited.write("memory.oom.group", if together { "1" } else { "0" })?;
        let mut other = Actor::start(&limited, &["idle", "4"])?;
        let mut hog = Actor::start(&limited, &["hog", "0"])?;
        hog.wait()?;
        let pid = hog.pid()?.as_raw();
        let of_hog = |record: &Value| {
            is(record, "oomKill") && record.get("pid").and_then(Value::as_i64) == Some(pid.into())
        };
        let told = agent.wait_for(SOON, "ebb tells of the kernel's kill", of_hog)?;
        let limit = told.get("limit").and_then(|limit| limit.get("path")).and_then(Value::as_str);
        ensure!(limit == Some(&limited.name()), "blamed: {told}");
        died_with(&mut other, together).with_context(|| format!("{kind}, by the kernel"))?;
        limited.remove()?;
        // For the node.
        let parent = Cgroup::create(&format!("work.slice/{kind}"))?;
        parent.write("memory.oom.group", if together { "1" } else { "0" })?;
        let path = |name: &str| format!("work.slice/{kind}/{name}");
        let mut other = Workload::start(&path("other"), &["idle", "10"])?;
        let mut hog = Workload::start(&path("hog"), &["hog", "0"])?;
        hog.actor.wait()?;
        died_with(&mut other.actor, together).with_context(|| format!("{kind}, by ebb"))?;
        let expected = if together { parent.name() } else { hog.cgroup.name() };
        agent.wait_for(SOON, "ebb has acted on it", |record| {
            is(record, "evicted") && name_of(record).as_ref() == Some(&expected)
        })?;
        parent.remove()?;
    }
    let victims = victims(&agent.stop()?);
    ensure!(victims.len() == 2, "ebb acted on {victims:?}");
    scene.assert_innocents_live()?;
    Ok(Outcome::Passed)
}

/// Who is in one group with somebody killed is dead, or lives.
fn died_with(other: &mut Actor, together: bool) -> Result<()> {
    if together {
        other.wait()?;
    }
    ensure!(other.is_alive()? != together, "who was with it lives: {}", !together);
    Ok(())
}

/// Hundreds of cgroups that are removed and still hold memory keep nobody from finding the leak.
pub(crate) fn removed_cgroups(test: &TestContext) -> Result<Outcome> {
    const REMOVED: usize = 300;
    let mut scene = Scene::with_innocents(2, 30)?;
    let mut agent = Agent::enforce(test, THRESHOLDS)?;
    for n in 0..REMOVED {
        let mut gone = Workload::start(&format!("work.slice/gone-{n}.service"), &["leaves", "64"])?;
        gone.actor.wait()?;
        gone.cgroup.remove()?;
    }
    let dying = Cgroup::at("").counter("cgroup.stat", "nr_dying_descendants")?;
    if dying < u64::try_from(REMOVED)? {
        agent.stop()?;
        return Ok(Outcome::Skipped(format!("only {dying} removed cgroups still hold memory")));
    }
    evicts_a_leak(&mut agent)?;
    agent.stop()?;
    runner::note(test, &format!("{dying} removed cgroups still held memory"))?;
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

/// The next leak is all that is evicted.
fn evicts_a_leak(agent: &mut Agent) -> Result<()> {
    let mut leak = Workload::start("work.slice/leak.service", &["hog", "100"])?;
    wait::until(SOON, "the leak is gone", || leak.actor.is_alive().is_ok_and(|alive| !alive))?;
    let leak = leak.cgroup.name();
    agent.until_recovered(SOON, |name| *name == leak)?;
    let victims = agent.victims();
    // Where the loop is held up among hundreds of pods that start, the watchdog kills it too, perhaps once more while it is exiting.
    ensure!(victims.first() == Some(&leak), "ebb acted on {victims:?}");
    ensure!(victims.iter().all(|victim| *victim == leak), "ebb acted on {victims:?}");
    Ok(())
}

/// Containers of `count` pods with such an actor each, as many at a time as the machine can start.
fn start_pods(count: usize, words: &[&str]) -> Result<Vec<Workload>> {
    let start = |starter: usize| -> Result<Vec<Workload>> {
        let own = (0..count).filter(|n| n % STARTERS == starter);
        let path = |n| format!("kubepods/burstable/podstorm-{n}/main");
        own.map(|n| Workload::start(&path(n), words)).collect()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..STARTERS).map(|starter| scope.spawn(move || start(starter))).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().ok().context("a starter panicked")??);
        }
        Ok(all)
    })
}
