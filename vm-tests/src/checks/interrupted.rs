//! Evictions that something comes between: a clock that is stepped, an agent that dies, a victim that cannot die, a node on which nobody may be evicted, a runtime that hangs.
use crate::agent::{Agent, is, is_by_watchdog, name_of, victims};
use crate::cgroup::Cgroup;
use crate::containerd::{Daemon, GATE, Site, Wanted, open_gate};
use crate::node;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::scene::{Scene, Workload};
use crate::wait;
use anyhow::{Context, Result, ensure};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime, clock_settime};
use serde_json::Value;
use std::fs;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(90);
const HOUR: i64 = 3600;
const SLEEPS: &str = "/sys/power/mem_sleep";
/// Of a soft threshold and of a victim, where the machine sleeps for as long.
const GRACE: Duration = Duration::from_secs(20);

/// A soft threshold with ten minutes of grace is met, and the clock is stepped an hour forth and two back: nobody is evicted for it, and leaks are as ever.
pub(crate) fn clock_steps(test: &TestContext) -> Result<Outcome> {
    let mut scene = Scene::with_innocents(2, 20)?;
    let soft = mib_available()?.saturating_sub(10);
    let thresholds = format!(
        "evictionHard:\n  memory.available: \"10%\"\nevictionSoft:\n  memory.available: {soft}Mi\nevictionSoftGracePeriod:\n  memory.available: 10m\n"
    );
    let mut holder = Workload::start("work.slice/holder.service", &["idle", "60"])?;
    let mut agent = Agent::enforce(test, &thresholds)?;
    agent
        .wait_for(SOON, "the soft threshold is crossed", |record| is(record, "thresholdCrossed"))?;
    let mut leaks = Vec::new();
    let mut outcome = Ok(());
    for (n, step) in [HOUR, -2 * HOUR].into_iter().enumerate() {
        step_clock(step)?;
        // From its decision on the leak it is known that ebb has looked since.
        let path = format!("work.slice/leak-{n}.service");
        let mut leak = Workload::start(&path, &["hog", "100"])?;
        let name = leak.cgroup.name();
        leaks.push(name.clone());
        outcome = wait::until(SOON, "the leak is gone", || {
            leak.actor.is_alive().is_ok_and(|alive| !alive)
        });
        outcome = outcome.and_then(|()| {
            agent.wait_for(SOON, "ebb has seen it go", |record| is_end_of(record, &name)).map(drop)
        });
        if outcome.is_err() {
            break;
        }
    }
    step_clock(HOUR)?;
    outcome?;
    let records = agent.stop()?;
    let victims = victims(&records);
    ensure!(victims == leaks, "ebb acted on {victims:?}");
    let acted = records.iter().filter(|record| is(record, "evicted"));
    // The watchdog may know of no crossing.
    let acted = acted.filter(|record| !is_by_watchdog(record) || after_ms(record).is_some());
    let times: Vec<Option<f64>> = acted.map(after_ms).collect();
    runner::note(test, &format!("killed {times:?} ms after the crossing"))?;
    // Minutes at most: a time that went by the wall clock is an hour off.
    let sane = |time: &Option<f64>| time.is_some_and(|ms| (0.0..600_000.0).contains(&ms));
    ensure!(times.iter().all(sane), "after the crossing: {times:?} ms");
    ensure!(holder.actor.is_alive()?, "who only met the soft threshold died");
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

/// What the machine sleeps through counts towards no grace: neither that of a soft threshold nor that of a victim who was asked to end.
pub(crate) fn suspended(test: &TestContext) -> Result<Outcome> {
    if node::release().starts_with("5.") {
        // Seen: after waking every access to it fails.
        return Ok(Outcome::Skipped("its driver loses QEMU's disk in deep sleep".into()));
    }
    if !fs::read_to_string(SLEEPS).is_ok_and(|known| known.contains("deep")) {
        return Ok(Outcome::Skipped(
            "this machine knows no deep sleep, from which its clock would wake it".into(),
        ));
    }
    let soft = mib_available()?.saturating_sub(10);
    let grace = GRACE.as_secs();
    let thresholds = format!(
        "evictionHard:\n  memory.available: \"10%\"\nevictionSoft:\n  memory.available: {soft}Mi\nevictionSoftGracePeriod:\n  memory.available: {grace}s\nevictionMaxPodGracePeriod: {grace}\n"
    );
    let mut scene = Scene::with_innocents(2, 0)?;
    let floor = (soft - 60).to_string();
    let mut victim = Workload::start("work.slice/unmoved.service", &["unmoved", &floor])?;
    let mut agent = Agent::enforce(test, &thresholds)?;
    let met =
        agent.wait_for(SOON, "the threshold is met", |record| is(record, "thresholdCrossed"))?;
    let slept_before = sleep_through(GRACE)?;
    let asked = agent.wait_for(SOON, "the victim is asked to end", is_asked)?;
    let slept_after = sleep_through(GRACE)?;
    wait::until(SOON, "the victim is gone", || victim.actor.is_alive().is_ok_and(|alive| !alive))?;
    let killed = agent.wait_for(SOON, "its kill is on record", |record| {
        is(record, "evicted") && !is_asked(record)
    })?;
    let waited = between(&met, &asked)?.saturating_sub(slept_before);
    let given = between(&asked, &killed)?.saturating_sub(slept_after);
    runner::note(test, &format!("asked after {waited:.1?} awake, killed {given:.1?} later"))?;
    let victims = victims(&agent.stop()?);
    ensure!(victims.iter().all(|name| *name == victim.cgroup.name()), "acted on {victims:?}");
    // A record may be made late, and a time that counted the sleep is next to nothing.
    let least = GRACE - Duration::from_secs(5);
    ensure!(waited >= least && given >= least, "asked after {waited:?}, killed {given:?} later");
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

/// How much later than the least of its sleep a machine is woken: the clock that wakes it runs while it is held up on its way to sleep.
const ON_THE_WAY: Duration = Duration::from_secs(15);

/// Has the machine sleep for that long at least; returns for how long it has.
fn sleep_through(time: Duration) -> Result<Duration> {
    let slept = || -> Result<Duration> {
        let [all, awake] = [ClockId::CLOCK_BOOTTIME, ClockId::CLOCK_MONOTONIC].map(clock_gettime);
        Ok(Duration::from(all?).saturating_sub(Duration::from(awake?)))
    };
    let before = slept()?;
    let alarm = format!("+{}", (time + ON_THE_WAY).as_secs());
    fs::write("/sys/class/rtc/rtc0/wakealarm", alarm).context("nothing would wake this guest")?;
    // Its clock wakes QEMU's machine from deep sleep alone.
    fs::write(SLEEPS, "deep").context("this guest knows no deep sleep")?;
    fs::write("/sys/power/state", "mem").context("this guest cannot sleep")?;
    let slept = slept()?.saturating_sub(before);
    ensure!(slept >= time, "it slept for {slept:?} only");
    Ok(slept)
}

/// From one record to a later one, by ebb's own clock, which goes on while the machine sleeps.
fn between(one: &Value, later: &Value) -> Result<Duration> {
    let at = |record: &Value| record.get("at").and_then(Value::as_u64).context("no time");
    Ok(Duration::from_millis(at(later)?.saturating_sub(at(one)?)))
}

/// Somebody was asked to end, and not killed.
fn is_asked(record: &Value) -> bool {
    is(record, "evicted") && record.get("method").and_then(Value::as_str) == Some("terminate")
}

/// ebb is killed after it has asked a workload to end that does not listen: the next ebb sees it through, and nobody else goes.
pub(crate) fn agent_dies(test: &TestContext) -> Result<Outcome> {
    let thresholds = |grace: u32| {
        format!(
            "evictionHard:\n  memory.available: \"2%\"\nevictionSoft:\n  memory.available: \"40%\"\nevictionSoftGracePeriod:\n  memory.available: 500ms\nevictionMaxPodGracePeriod: {grace}\n"
        )
    };
    let mut scene = Scene::with_innocents(2, 20)?;
    let floor = (node::meminfo("MemTotal")? >> 20) * 30 / 100;
    let words = ["unmoved", &floor.to_string()];
    let mut victim = Workload::start("work.slice/unmoved.service", &words)?;
    // Longer than the test lasts.
    let mut agent = Agent::enforce(test, &thresholds(3600))?;
    agent.wait_for(SOON, "it is asked to end", is_asked)?;
    let first = agent.victims();
    agent.kill()?;
    ensure!(victim.actor.is_alive()?, "it ended by being asked");
    let mut agent = Agent::enforce(test, &thresholds(1))?;
    wait::until(SOON, "it is gone", || victim.actor.is_alive().is_ok_and(|alive| !alive))?;
    agent.wait_for(SOON, "ebb has recovered", |record| is(record, "pressureRelieved"))?;
    let mut victims = victims(&agent.stop()?);
    victims.extend(first);
    ensure!(victims.iter().all(|name| *name == victim.cgroup.name()), "acted on {victims:?}");
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

/// Nobody may be evicted, and nobody is; it is said and not repeated. Who comes and may be is.
pub(crate) fn all_protected(test: &TestContext) -> Result<Outcome> {
    let start = |n| {
        let path = format!("work.slice/protected-{n}.service");
        Workload::start(&path, &["scored", "-1000", "idle", "30"])
    };
    let mut protected: Vec<Workload> = (0..3).map(start).collect::<Result<_>>()?;
    let mut scene = Scene::with_innocents(0, 0)?;
    let line = mib_available()? + 20;
    let thresholds = format!("evictionHard:\n  memory.available: {line}Mi\n");
    let mut agent = Agent::enforce(test, &thresholds)?;
    agent.wait_for(SOON, "ebb says that nobody may go", |record| is(record, "evictionDeferred"))?;
    // It is chosen while it grows.
    const GO: &str = "/tmp/other";
    fs::write(GO, "60").context("cannot write a size")?;
    let mut other = Workload::start("work.slice/other.service", &["late", GO])?;
    wait::until(SOON, "who may go is gone", || other.actor.is_alive().is_ok_and(|alive| !alive))?;
    agent.wait_for(SOON, "ebb has seen it go", |record| is(record, "terminated"))?;
    let records = agent.stop()?;
    let victims = victims(&records);
    let said = records.iter().filter(|record| is(record, "evictionDeferred")).count();
    runner::note(test, &format!("{said} times said that nobody may be evicted"))?;
    ensure!(victims == [other.cgroup.name()], "ebb acted on {victims:?}");
    ensure!(said <= 4, "it was said {said} times");
    for workload in &mut protected {
        ensure!(workload.actor.is_alive()?, "{} died", workload.cgroup.name());
    }
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

/// The runtime is stopped as a debugger would stop it: a pod that leaks is killed all the same, and nobody else.
pub(crate) fn hung_runtime(test: &TestContext) -> Result<Outcome> {
    let site = Site::new(true)?;
    let idle = "trap 'exit 0' TERM; while true; do sleep 1; done";
    let leak = format!(
        "until [ -e {GATE}/leak ]; do sleep 0.2; done; while true; do dd if=/dev/zero bs=64M count=1 | sleep 100000 & sleep 0.3; done"
    );
    let (_, calm) = site.run(&Wanted { name: "calm", script: idle, ..Wanted::default() })?;
    let (_, id) = site.run(&Wanted { name: "leak", script: &leak, ..Wanted::default() })?;
    let mut scene = Scene::with_innocents(0, 0)?;
    let mut agent = site.agent(test, "evictionHard:\n  memory.available: 25%\n", "")?;
    let daemon = Daemon::running().context("no containerd")?;
    daemon.freeze()?;
    let container = Cgroup::at("kubepods/burstable/poduid-leak").child(&id);
    let killed = open_gate("leak").and_then(|()| {
        wait::until(SOON, "the leak is killed", || {
            container.processes().is_ok_and(|left| left.is_empty())
        })
    });
    daemon.thaw()?;
    killed?;
    agent.until_recovered(SOON, |name| name == "default/leak")?;
    let victims = victims(&agent.stop()?);
    ensure!(victims == ["default/leak"], "ebb acted on {victims:?}");
    ensure!(site.runs(&calm)?, "the other pod was touched");
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

/// Whether a record tells that `name` is gone. That it took long to end is told before it, and whom the watchdog killed may have been gone before the loop heard of it: then that is all that is told.
fn is_end_of(record: &Value, name: &str) -> bool {
    let is_over = is(record, "terminated") && record["outcome"] == "exited"
        || is(record, "evicted") && is_by_watchdog(record);
    is_over && name_of(record).as_deref() == Some(name)
}

/// Milliseconds from the crossing.
fn after_ms(record: &Value) -> Option<f64> {
    record.get("afterMs")?.as_f64()
}

fn mib_available() -> Result<u64> {
    Ok(node::meminfo("MemAvailable")? >> 20)
}

/// Make the wall clock wrong by so many seconds more.
pub(crate) fn step_clock(seconds: i64) -> Result<()> {
    let clock = ClockId::CLOCK_REALTIME;
    let now = clock_gettime(clock).context("cannot read the clock")?;
    let then = TimeSpec::new(now.tv_sec() + seconds, now.tv_nsec());
    clock_settime(clock, then).context("cannot set the clock")
}
