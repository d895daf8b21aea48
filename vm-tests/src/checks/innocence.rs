//! Pressure that is no reason to kill: a cgroup at its own limit, a busy disk, a full page cache.
use crate::agent::{Agent, is};
use crate::node;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::scene::{Scene, Workload};
use crate::wait;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
const THRESHOLDS: &str = "evictionHard:\n  memory.available: \"15%\"\n";

/// One cgroup thrashes and one is OOM-killed, both at limits of their own, with the node's memory free.
pub(crate) fn own_limit(test: &TestContext) -> Result<Outcome> {
    let mut scene = Scene::with_innocents(2, 30)?;
    let mut agent = Agent::enforce(test, THRESHOLDS)?;
    let limited = |name: &str, mib: u64| -> Result<crate::cgroup::Cgroup> {
        let cgroup = crate::cgroup::Cgroup::create(&format!("work.slice/{name}.service"))?;
        cgroup.write("memory.max", &(mib << 20).to_string())?;
        Ok(cgroup)
    };
    let thrasher = limited("thrasher", 24)?;
    limited("hog", 32)?;
    let mut thrash = Workload::start("work.slice/thrasher.service", &["cacher", "64"])?;
    let mut hog = Workload::start("work.slice/hog.service", &["hog", "50"])?;
    hog.actor.wait()?;
    wait::until(LIMIT, "it has thrashed", || {
        thrasher.counter("memory.stat", "workingset_refault_file ").is_ok_and(|n| n > 50_000)
    })?;
    let kill =
        agent.wait_for(LIMIT, "ebb has noticed the OOM kill", |record| is(record, "oomKill"))?;
    ensure!(kill["limit"]["path"] == "/work.slice/hog.service", "whose limit: {kill:#}");
    let time = |name: &str| kill[name].as_u64().unwrap_or_default();
    let (started, killed) = (time("startedAt"), time("killedAt"));
    ensure!(0 < started && started < killed && killed <= time("at"), "when: {kill:#}");
    ensure!(kill["oomScoreAdj"] == 0, "its score: {kill:#}");
    ensure!(thrash.actor.is_alive()?, "the thrasher was ended");
    nobody_was_touched(test, agent)?;
    scene.assert_innocents_live()?;
    Ok(Outcome::Passed)
}

/// Disk and memory stall high, memory free.
pub(crate) fn io_storm(test: &TestContext) -> Result<Outcome> {
    let mut scene = Scene::with_innocents(2, 30)?;
    let mut agent = Agent::enforce(test, THRESHOLDS)?;
    let limited = crate::cgroup::Cgroup::create("work.slice/reader.service")?;
    limited.write("memory.max", &(24 << 20).to_string())?;
    let mut busy = vec![
        Workload::start("work.slice/reader.service", &["cacher", "64"])?,
        Workload::start("work.slice/writer.service", &["syncer", "32"])?,
    ];
    let (io, memory) = (stall("io")?, stall("memory")?);
    wait::until(LIMIT, "the disk and the memory stall", || {
        stall("io").is_ok_and(|now| now > io + 1_000_000)
            && stall("memory").is_ok_and(|now| now > memory + 300_000)
    })?;
    runner::note(
        test,
        &format!(
            "stalled {} ms on the disk, {} ms on memory, {} MiB available",
            (stall("io")? - io) / 1000,
            (stall("memory")? - memory) / 1000,
            node::meminfo("MemAvailable")? >> 20
        ),
    )?;
    for workload in &mut busy {
        ensure!(workload.actor.is_alive()?, "{} was ended", workload.cgroup.name());
    }
    agent.records();
    nobody_was_touched(test, agent)?;
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

/// More page cache than memory: reclaim is enough, and it is the kernel's.
pub(crate) fn page_cache(test: &TestContext) -> Result<Outcome> {
    let mut scene = Scene::with_innocents(2, 30)?;
    let agent = Agent::enforce(test, THRESHOLDS)?;
    let total = node::meminfo("MemTotal")? >> 20;
    let mut flood =
        Workload::start("work.slice/flood.service", &["cacher", &(total * 5 / 4).to_string()])?;
    let before = node::vmstat("workingset_refault_file ")?;
    wait::until(LIMIT, "the flood has gone round", || {
        node::vmstat("workingset_refault_file ").is_ok_and(|now| now > before + 20_000)
    })?;
    ensure!(flood.actor.is_alive()?, "the flood was ended");
    nobody_was_touched(test, agent)?;
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

fn nobody_was_touched(test: &TestContext, agent: Agent) -> Result<()> {
    let asked = Instant::now();
    let records = agent.stop()?;
    runner::note(test, &format!("ebb ended {:?} after it was asked to", asked.elapsed()))?;
    let kinds = records.iter().filter_map(|record| record.get("event")?.as_str());
    runner::note(test, &kinds.collect::<Vec<_>>().join(" "))?;
    let acted = records.iter().find(|record| is(record, "evicted") || is(record, "decided"));
    ensure!(acted.is_none(), "ebb acted: {acted:?}");
    Ok(())
}

/// Microseconds in which some task of the node was stalled.
fn stall(what: &str) -> Result<u64> {
    let path = format!("/proc/pressure/{what}");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let total = text.lines().find_map(|line| line.strip_prefix("some ")?.split("total=").nth(1));
    total.with_context(|| format!("{path} has no total"))?.trim().parse().context("an odd total")
}
