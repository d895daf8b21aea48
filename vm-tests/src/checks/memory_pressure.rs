//! A slice that stalls for memory because of one service in it: with the default configuration nobody goes, and with `memoryPressure` that service alone.
use crate::agent::{Agent, is, victims};
use crate::cgroup::Cgroup;
use crate::registry::{Context as TestContext, Outcome};
use crate::scene::{Scene, Workload};
use crate::{runner, wait};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(90);
/// Far below what is available: nothing here is a shortage of the node.
const THRESHOLDS: &str = "evictionHard:\n  memory.available: \"5%\"\n";
/// An emulated guest spends most of its time on the faults themselves, so the limit is lower than one would set.
const WATCHED: &str =
    "  memoryPressure:\n    - {cgroup: /work.slice/pressed.slice, limit: 10%, duration: 3s}\n";
/// MiB that the service uses, and how many bytes of it may stay in memory.
const USED: &str = "64";
const HIGH: &str = "25165824";
/// Microseconds of full stall for which nobody goes by default: much more than what is enough once the slice is watched.
const LASTING: u64 = 10_000_000;

/// The service is throttled by its own `memory.high` and swaps; its neighbour in the slice does nothing.
pub(crate) fn hog_in_a_slice(test: &TestContext) -> Result<Outcome> {
    super::swap::file_on_the_disk()?;
    let mut scene = Scene::with_innocents(2, 20)?;
    let slice = Cgroup::create("work.slice/pressed.slice")?;
    let mut idle = Workload::start("work.slice/pressed.slice/idle.service", &["idle", "40"])?;
    let mut hog = Workload::start("work.slice/pressed.slice/hog.service", &["thrash", USED])?;
    let mut agent = Agent::enforce(test, THRESHOLDS)?;
    hog.cgroup.write("memory.high", HIGH)?;
    let begun = full_us(&slice)?;
    wait::until(SOON * 2, "the slice has stalled for long", || {
        full_us(&slice).is_ok_and(|full| full - begun > LASTING)
    })?;
    let pressure = slice.read("memory.pressure")?;
    runner::note(test, &format!("pressure of the slice: {}", pressure.replace('\n', "; ")))?;
    ensure!(hog.actor.is_alive()?, "it went although nobody had asked for that");
    ensure!(agent.victims().is_empty(), "ebb acted on {:?}", agent.victims());
    agent.reconfigure(THRESHOLDS, WATCHED)?;
    wait::until(SOON, "the hog is gone", || hog.actor.is_alive().is_ok_and(|alive| !alive))?;
    let relieved = agent.wait_for(SOON, "the pressure is relieved", |record| {
        is(record, "memoryPressureRelieved")
    })?;
    runner::note(test, &format!("told: {relieved}"))?;
    ensure!(idle.actor.is_alive()?, "its neighbour died");
    scene.assert_peace()?;
    let has_none = |record: &&serde_json::Value| record.to_string().contains("pressure trigger of");
    let none = agent.records().iter().find(has_none).cloned();
    ensure!(none.is_none(), "the kernel grants no trigger: {none:?}");
    let victims = victims(&agent.stop()?);
    ensure!(victims.len() == 1 && victims[0].contains("hog"), "ebb acted on {victims:?}");
    Ok(Outcome::Passed)
}

/// Microseconds in which all tasks of the slice waited for memory.
fn full_us(slice: &Cgroup) -> Result<u64> {
    let text = slice.read("memory.pressure")?;
    let full = text.lines().find(|line| line.starts_with("full")).context("no full line")?;
    let total = full.split("total=").nth(1).context("no total")?;
    total.trim().parse().context("an odd total")
}
