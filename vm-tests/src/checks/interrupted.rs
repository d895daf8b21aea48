//! Evictions that something comes between: a clock that is stepped, an agent that dies, a victim that cannot die, a node on which nobody may be evicted, a runtime that hangs, a configuration that hangs.
use crate::actors::fuse;
use crate::agent::{Agent, CONFIG, Settings, is, is_by_watchdog, is_calm, name_of, victims};
use crate::cgroup::Cgroup;
use crate::containerd::{Daemon, GATE, Site, Wanted, open_gate};
use crate::node;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::scene::{Scene, Workload};
use crate::wait;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime, clock_settime};
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(90);
const HOUR: i64 = 3600;
const SLEEPS: &str = "/sys/power/mem_sleep";
/// Of a soft threshold and of a victim, where the machine sleeps for as long.
const GRACE: Duration = Duration::from_secs(20);
/// Where a filesystem is that hangs, seen by its server.
const MOUNTED: &str = "/run/hangs";
/// MiB, of all who come after a victim that cannot end: each gives back more than a slow leak takes between two looks, and more than those behind it have.
const SECOND: u64 = 200;
const THIRD: u64 = 160;
/// Milliseconds for which a victim that did not end in time is not chosen again.
const ITS_MINUTE: f64 = 60_000.0;

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

/// A leak that is killed cannot end, because a filesystem does not answer one of its threads, and what it has taken stays taken: it is told that it did not end in time, and then who comes next goes for the same need. It is not chosen again within its minute, also where the node is short once more and it ranks first.
pub(crate) fn victim_hangs(test: &TestContext) -> Result<Outcome> {
    let total = node::meminfo("MemTotal")? >> 20;
    let line = total * 15 / 100;
    let mut scene = Scene::with_innocents(2, 20)?;
    let mut server = Workload::start("work.slice/files.service", &["mute", MOUNTED])?;
    let idle = |name: &str, mib: u64| {
        Workload::start(&format!("work.slice/{name}.service"), &["idle", &mib.to_string()])
    };
    let (mut second, mut third) = (idle("second", SECOND)?, idle("third", THIRD)?);
    // Until so much more is back it is the same need, whatever comes and goes at the threshold.
    let thresholds = format!(
        "evictionHard:\n  memory.available: {line}Mi\nevictionMinimumReclaim:\n  memory.available: 64Mi\n"
    );
    let mut agent = Agent::enforce(test, &thresholds)?;
    let file = format!("/proc/{}/root{MOUNTED}/{}", server.actor.pid()?, fuse::FILE);
    let words = ["hangs", &file, &(line + 60).to_string(), "30"];
    let mut hung = Workload::start("work.slice/hung.service", &words)?;
    let pid = hung.actor.pid()?;
    let name = hung.cgroup.name();
    let is_of = |record: &Value, event: &str, workload: &Workload| {
        is(record, event) && name_of(record) == Some(workload.cgroup.name())
    };

    agent.wait_for(SOON, "the leak is killed", |record| is_of(record, "evicted", &hung))?;
    // Until it is killed it waits for an answer or a signal, and from then on for an answer.
    wait::until(SOON, "the kernel does not let it end", || {
        !node::threads_stuck_in(pid, "request_wait_answer").is_empty()
    })?;
    // Its kill ended its growth where it was, at the threshold.
    let mut taken = Taken::nothing()?;
    taken.until_below(line)?;
    let timed_out = agent
        .wait_for(SOON, "it has not ended in time", |record| is_of(record, "terminated", &hung))?;
    ensure!(timed_out["outcome"] == "timedOut", "of who cannot end: {timed_out}");
    agent.wait_for(SOON, "the next is killed", |record| is_of(record, "evicted", &second))?;
    wait::until(SOON, "the next is gone", || second.actor.is_alive().is_ok_and(|alive| !alive))?;
    wait::until(SOON, "the node is no longer short", || is_calm(agent.records()))?;
    ensure!(hung.actor.is_alive()?, "who cannot end has ended");

    // Somebody who is no candidate takes what there is: no leak is ranked before the largest.
    taken.until_below(line)?;
    agent.wait_for(SOON, "the third is killed", |record| is_of(record, "evicted", &third))?;
    wait::until(SOON, "the third is gone", || third.actor.is_alive().is_ok_and(|alive| !alive))?;
    wait::until(SOON, "the node is not short any more", || is_calm(agent.records()))?;
    ensure!(hung.actor.is_alive()?, "who cannot end has ended");
    drop(taken);

    ensure!(server.actor.is_alive()?, "the filesystem's server was killed");
    kill(server.actor.pid()?, Signal::SIGKILL).context("cannot kill the server")?;
    wait::until(SOON, "it ends with its filesystem", || {
        hung.actor.is_alive().is_ok_and(|alive| !alive)
    })?;
    let records = agent.stop()?;
    let place = |event, workload| records.iter().position(|r| is_of(r, event, workload));
    let went = records.iter().find(|record| is_of(record, "evicted", &second));
    // What the watchdog does, another thread tells.
    if !went.is_some_and(is_by_watchdog) {
        let (stuck, next) = (place("terminated", &hung), place("evicted", &second));
        ensure!(stuck < next, "the next went before the first had had its time");
        let relieved = records.iter().position(|record| is(record, "pressureRelieved"));
        ensure!(next < relieved, "the next went for another need");
    }
    let time = |record: &Value, key: &str| record.get(key).and_then(Value::as_f64);
    let at = time(&timed_out, "at").context("a record without time")?;
    let chosen = at - time(&timed_out, "afterMs").context("no time since it was chosen")?;
    let chooses_it = |record: &&Value| {
        let evict = record.get("evict").and_then(Value::as_array);
        let is_chosen = |evict: &Value| name_of(evict).as_ref() == Some(&name);
        is(record, "decided") && evict.is_some_and(|evict| evict.iter().any(is_chosen))
    };
    let again = records.iter().skip_while(|record| **record != timed_out).find(chooses_it);
    let waited = again.and_then(|record| Some(time(record, "at")? - chosen));
    ensure!(waited.is_none_or(|ms| ms >= ITS_MINUTE), "chosen again after {waited:?} ms");
    let mut victims = victims(&records);
    // Again after its minute, on a machine that is slow.
    let mut seen = 0;
    victims.retain(|victim| {
        seen += usize::from(*victim == name);
        *victim != name || seen == 1
    });
    let names = [&hung, &second, &third].map(|workload| workload.cgroup.name());
    ensure!(victims == names, "ebb acted on {victims:?}");
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

/// The mount that has ebb's configuration answers nobody any more, not even who only looks whether the file has changed: that is told, and a leak is killed all the same, and nobody else. A configuration that then cannot be had leaves the one before in force.
pub(crate) fn configuration_hangs(test: &TestContext) -> Result<Outcome> {
    const HANG: &str = "/run/hang";
    // Of an earlier one.
    let _ = fs::remove_file(HANG);
    let mut scene = Scene::with_innocents(3, 30)?;
    let words = ["shows-until", MOUNTED, CONFIG, HANG];
    let mut server = Workload::start("work.slice/files.service", &words)?;
    let config = format!("/proc/{}/root{MOUNTED}/{}", server.actor.pid()?, fuse::FILE);
    let settings = Settings {
        thresholds: "evictionHard:\n  memory.available: \"15%\"\n",
        arguments: &["--enforce"],
        config: Some(&config),
        ..Settings::default()
    };
    let mut agent = Agent::start(test, &settings)?;
    fs::write(HANG, "").context("cannot have it hang")?;
    let went = leak_while_it_hangs(test, &mut agent);
    let serves = server.actor.is_alive()?;
    // Also of a test that failed: while it hangs, an ebb that waits for it cannot be killed.
    kill(server.actor.pid()?, Signal::SIGKILL).context("cannot kill the server")?;
    went?;
    ensure!(serves, "the mount's server was killed");
    // What was looked at has failed, which is a change, and the next look finds the same.
    let read = agent
        .wait_for(SOON, "the configuration is looked at again", |record| is(record, "reloaded"))?;
    ensure!(read["accepted"] == false, "a dead mount had a configuration: {read}");
    let mut leak = Workload::start("work.slice/leak-2.service", &["hog", "0"])?;
    wait::until(SOON, "the second is gone", || leak.actor.is_alive().is_ok_and(|alive| !alive))?;
    agent.until_recovered(SOON, |name| *name == leak.cgroup.name())?;
    let victims = victims(&agent.stop()?);
    ensure!(victims == ["/work.slice/leak.service", "/work.slice/leak-2.service"], "{victims:?}");
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

/// A leak comes once ebb has said that its configuration hangs, and goes; nothing of the configuration was read meanwhile.
fn leak_while_it_hangs(test: &TestContext, agent: &mut Agent) -> Result<()> {
    let is_told = |record: &Value| is(record, "degraded") && record["part"] == "configuration";
    let told = agent.wait_for(SOON, "ebb says that its configuration hangs", is_told)?;
    runner::note(test, &told.to_string())?;
    let mut leak = Workload::start("work.slice/leak.service", &["hog", "0"])?;
    wait::until(SOON, "the leak is gone", || leak.actor.is_alive().is_ok_and(|alive| !alive))?;
    agent.until_recovered(SOON, |name| *name == leak.cgroup.name())?;
    ensure!(agent.count("reloaded") == 0, "the configuration has answered");
    Ok(())
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

/// What a test takes of tmpfs, in its own cgroup, which is protected; it is given back with this.
struct Taken(fs::File);

impl Taken {
    const AT: &str = "/dev/shm/taken";

    fn nothing() -> Result<Self> {
        Ok(Self(fs::File::create(Self::AT).context("cannot create a file in tmpfs")?))
    }

    /// Takes so much that what is available now comes to lie 60 MiB below `line`: as much, whatever is given back meanwhile.
    fn until_below(&mut self, line: u64) -> Result<()> {
        let chunk = vec![1_u8; 1 << 20];
        for _ in 0..(mib_available()? + 60).saturating_sub(line) {
            self.0.write_all(&chunk).context("cannot take memory")?;
        }
        Ok(())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // With a test that failed the guest ends.
        let _ = fs::remove_file(Self::AT);
    }
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
