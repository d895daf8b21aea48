//! Steps below killing, by the running agent on a real kernel: the first candidate is slowed down and stopped while memory falls, and let go when it falls no more and when ebb ends.
use crate::actors::Actor;
use crate::agent::{Agent, Settings, is, name_of};
use crate::cgroup::Cgroup;
use crate::registry::{Context as TestContext, Outcome};
use crate::scene::{Scene, Workload};
use crate::wait;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const SOON: Duration = Duration::from_secs(60);
const THRESHOLDS: &str = "evictionHard:\n  memory.available: 400Mi\n";
/// Every step is due as soon as memory falls at [`RATE`]; a stop lasts for as long as the test.
const OWN: &str = "  memoryAvailable: memAvailable\n  ladder: {enabled: true, warn: 10m, reclaim: 9m, throttle: 8m, freeze: 7m, maxFreeze: 1h}\n";
/// MiB that the first candidate leaves: near the threshold, and a minute from it.
const FLOOR: &str = "490";
/// MiB a second by which something that is no candidate takes memory then.
const RATE: &str = "1";
/// What the candidate's own limit was before.
const HIGH: u64 = 4096 * MIB;

pub(crate) fn taken_and_undone(test: &TestContext) -> Result<Outcome> {
    let mut scene = Scene::with_innocents(2, 20)?;
    let arguments = &["--enforce"];
    let settings = Settings { thresholds: THRESHOLDS, arguments, own: OWN, ..Settings::default() };
    // Before ebb, which would stop it while it still takes its memory.
    let first = Workload::start("work.slice/first.service", &["unmoved", FLOOR])?;
    let first = first.cgroup;
    first.write("memory.high", &HIGH.to_string())?;
    let mut agent = Agent::start(test, &settings)?;
    // Pressure is relieved: it is as it was.
    let drain = Drain::start()?;
    steps(&first)?;
    drop(drain);
    wait::until(SOON, "it is let go when memory falls no more", || is_as_before(&first))?;
    // The record is written after what it tells.
    agent.wait_for(SOON, "that is told", |record| is_step(record, "release"))?;
    // ebb ends while the steps are in force.
    let drain = Drain::start()?;
    steps(&first)?;
    let records = agent.stop()?;
    ensure!(is_as_before(&first), "ebb left {:?}", state(&first));
    drop(drain);
    for step in ["throttle", "freeze", "release"] {
        let of = records.iter().filter(|record| is_step(record, step));
        let names: Vec<_> = of.map(name_of).collect();
        let all = names.iter().flatten().all(|name| name.ends_with("/first.service"));
        ensure!(!names.is_empty() && all, "{step} of {names:?}");
    }
    let killed = records.iter().any(|r| is_step(r, "cgroupKill") || is_step(r, "freezeAndSignal"));
    ensure!(!killed, "somebody was killed: {records:#?}");
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

/// Memory that falls, by nobody who could be evicted: the test's own cgroup is protected.
struct Drain(Actor);

impl Drain {
    fn start() -> Result<Self> {
        Actor::start(&Cgroup::at("test.scope"), &["hog", RATE]).map(Self)
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        // One that has ended already is what is wanted.
        let _ = self.0.pid().map(|pid| kill(pid, Signal::SIGKILL));
        let _ = self.0.wait();
    }
}

/// Waits until the kernel has it slowed down to less than before, and stopped.
fn steps(first: &Cgroup) -> Result<()> {
    wait::until(SOON, "it is slowed down and stopped", || {
        let slowed = first.read("memory.high").ok().and_then(|high| high.trim().parse().ok());
        let slowed = slowed.is_some_and(|high: u64| high < HIGH);
        slowed && first.counter("cgroup.events", "frozen").is_ok_and(|frozen| frozen == 1)
    })
    .with_context(|| format!("it is {:?}", state(first)))
}

fn is_as_before(first: &Cgroup) -> bool {
    state(first) == [HIGH.to_string(), "0".to_owned()]
}

fn state(first: &Cgroup) -> [String; 2] {
    ["memory.high", "cgroup.freeze"]
        .map(|file| first.read(file).unwrap_or_default().trim().to_owned())
}

fn is_step(record: &Value, step: &str) -> bool {
    is(record, "stepTaken") && record["method"] == step
}
