//! The reflex on this kernel: it ends the leak when ebb cannot, and nobody whom it should not.
use crate::actors::Actor;
use crate::agent::{Agent, Settings, is, name_of};
use crate::cgroup::Cgroup;
use crate::node;
use crate::observer::{self, Observer};
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::scene::{Scene, Workload};
use crate::wait;
use anyhow::{Context, Result, bail, ensure};
use ebb_probes::{ArmError, Armament, Gauge, Reflex, Shot, survey};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
/// Of each; `cargo xtask vm --repeat` makes more of them.
const ROUNDS: u32 = 4;
const THRESHOLD: u64 = 15;
/// MiB above the threshold at which the leak waits for its turn: near, as ebb sees it.
const RUN_UP: u64 = 40;
const LONG: Duration = Duration::from_secs(60);
/// What is said to be available where only the change matters.
const AVAILABLE: u64 = 1 << 40;
/// How far above the line it begins, and how much is then taken.
const ROOM: u64 = 48 << 20;
const TAKEN: usize = 128 << 20;
/// Falls by what processes take, and by nothing else.
const TAKEN_ALONE: Gauge =
    Gauge { free: 0, inactive_file: 0, active_file: 0, anon: -1, file: 0, slab_reclaimable: 0 };

/// The reflex, or why this kernel has none.
fn open() -> Result<std::result::Result<Reflex, String>> {
    match Reflex::open(&survey()) {
        Ok(reflex) => Ok(Ok(reflex)),
        Err(why) if survey().functions.contains("bpf_send_signal_task") => {
            bail!("this kernel has what the reflex takes, but: {why}")
        }
        Err(why) => Ok(Err(why)),
    }
}

/// A stopped ebb: what it named before is ended at the threshold, again and again, and nobody else.
pub(crate) fn stopped_agent(test: &TestContext) -> Result<Outcome> {
    rounds(test, |agent, hold| {
        let signal = if hold { Signal::SIGSTOP } else { Signal::SIGCONT };
        kill(agent.pid()?, signal).context("cannot stop or continue ebb")
    })
}

/// An ebb that gets no memory.
pub(crate) fn starved_agent(test: &TestContext) -> Result<Outcome> {
    rounds(test, |_, hold| {
        Cgroup::at("system.slice/ebb.service").write("memory.high", if hold { "0" } else { "max" })
    })
}

fn rounds(test: &TestContext, hold: impl Fn(&Agent, bool) -> Result<()>) -> Result<Outcome> {
    if let Err(why) = open()? {
        return Ok(Outcome::Skipped(why));
    }
    let mut scene = Scene::with_innocents(3, 50)?;
    let line = node::meminfo("MemTotal")? / 100 * THRESHOLD;
    let floor = ((line >> 20) + RUN_UP).to_string();
    let mut agent = Agent::start(
        test,
        &Settings {
            thresholds: &format!("evictionHard:\n  memory.available: \"{THRESHOLD}%\"\n"),
            own: "  reflex: enabled\n  reflexLease: 60s\n",
            arguments: &["--enforce"],
            ..Settings::default()
        },
    )?;
    let observer = Observer::start()?;
    let mut times = Vec::new();
    let mut by_reflex = 0;
    for round in 0..ROUNDS {
        let path = format!("work.slice/leak-{round}.service");
        let go = format!("/run/go-{round}");
        observer.begin()?;
        let began = observer::now()?;
        let mut leak = Workload::start(&path, &["gated", &floor, &go])?;
        agent
            .wait_for(SOON, "the leak is named to the kernel", |record| {
                is(record, "reflexArmed")
                    && name_of(record).is_some_and(|name| name.ends_with(&path))
            })
            .with_context(|| format!("in round {round}, {}", room(line)))?;
        hold(&agent, true)?;
        fs::write(&go, "").context("cannot let it leak")?;
        wait::until(SOON, "the leak is killed", || leak.actor.is_alive().is_ok_and(|alive| !alive))
            .with_context(|| format!("in round {round}, {}", agent.last_words()))?;
        hold(&agent, false)?;
        is_let_go(&agent).with_context(|| format!("in round {round}"))?;
        scene.assert_peace().with_context(|| format!("in round {round}"))?;
        let samples = observer.take_samples()?;
        let victim = leak.actor.pid()?;
        let killed = observer.next_kill(SOON).context("nobody sent a signal")?;
        let mut all = vec![killed.clone()];
        all.extend(std::iter::from_fn(|| observer.next_kill(Duration::ZERO)));
        let strangers: Vec<_> = all.iter().filter(|kill| kill.victim != victim).collect();
        ensure!(strangers.is_empty(), "others were sent signals: {strangers:?}");
        if let Some(crossed) = observer::fell_below(&samples, line, began) {
            times.push(killed.at.saturating_sub(crossed) / 1000);
        }
        wait::until(SOON, "the memory is back", || {
            node::meminfo("MemAvailable").is_ok_and(|now| now > line + (200 << 20))
        })?;
        // Seen to be gone, or found gone by whoever was to finish it.
        agent.wait_for(SOON, "ebb has finished it", |record| {
            (is(record, "terminated") || is(record, "notDone"))
                && name_of(record).is_some_and(|name| name.ends_with(&path))
        })?;
        by_reflex += u32::from(agent.records().iter().any(|record| {
            is(record, "reflexFired") && name_of(record).is_some_and(|name| name.ends_with(&path))
        }));
        leak.actor.wait()?;
    }
    agent.stop()?;
    times.sort_unstable();
    let shown: Vec<String> = times.iter().map(u64::to_string).collect();
    runner::note(
        test,
        &format!(
            "{by_reflex} of {ROUNDS} ended by the reflex; from crossing to SIGKILL in us: {}",
            shown.join(" ")
        ),
    )?;
    ensure!(by_reflex > 0, "the reflex never had to act");
    Ok(Outcome::Passed)
}

/// Waits until no thread of ebb sleeps in the kernel any more. Whoever was throttled over its `memory.high` sleeps on, for up to 2 s, after the limit was lifted, and needs memory then: a leak kept just above the threshold would be carried over it by ebb's own return.
fn is_let_go(agent: &Agent) -> Result<()> {
    let tasks = format!("/proc/{}/task", agent.pid()?);
    wait::until(SOON, "ebb is not throttled any more", || {
        fs::read_dir(&tasks).is_ok_and(|all| {
            all.flatten().all(|task| {
                let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                // Its name, in parentheses, may contain anything.
                stat.rsplit(')').next().is_none_or(|rest| !rest.trim_start().starts_with('D'))
            })
        })
    })
}

/// How far from the threshold the node is now, for the report of a failure.
fn room(line: u64) -> String {
    match node::meminfo("MemAvailable") {
        Ok(now) => format!("{} MiB available, threshold {} MiB", now >> 20, line >> 20),
        Err(error) => format!("{error:#}"),
    }
}

/// One shot's record names the reflex, whom it ended and what was left.
pub(crate) fn is_told(test: &TestContext) -> Result<Outcome> {
    if let Err(why) = open()? {
        return Ok(Outcome::Skipped(why));
    }
    let line = node::meminfo("MemTotal")? / 100 * THRESHOLD;
    let floor = ((line >> 20) + RUN_UP).to_string();
    let incidents = "/run/incidents";
    let mut agent = Agent::start(
        test,
        &Settings {
            thresholds: &format!("evictionHard:\n  memory.available: \"{THRESHOLD}%\"\n"),
            own: "  reflex: enabled\n  reflexLease: 60s\n",
            arguments: &["--enforce", "--incidents", incidents],
            ..Settings::default()
        },
    )?;
    let mut leak = Workload::start("work.slice/leak.service", &["gated", &floor, "/run/go-told"])?;
    agent
        .wait_for(SOON, "the leak is named", |record| {
            is(record, "reflexArmed")
                && name_of(record).is_some_and(|name| name.ends_with("/leak.service"))
        })
        .with_context(|| room(line))?;
    kill(agent.pid()?, Signal::SIGSTOP).context("cannot stop ebb")?;
    fs::write("/run/go-told", "").context("cannot let it leak")?;
    leak.actor.wait()?;
    kill(agent.pid()?, Signal::SIGCONT).context("cannot continue ebb")?;
    let told =
        agent.wait_for(SOON, "ebb tells of the reflex", |record| is(record, "reflexFired"))?;
    let killed = told.get("killed").and_then(Value::as_array).map(Vec::len);
    ensure!(killed == Some(1), "it tells of {killed:?} processes");
    agent.wait_for(SOON, "ebb has recovered", |record| is(record, "pressureRelieved"))?;
    agent.stop()?;
    let record = fs::read_dir(incidents)?.next().context("no incident is on record")??.path();
    let incident: Value = serde_json::from_str(&fs::read_to_string(record)?)?;
    let timeline = incident.get("timeline").and_then(Value::as_array);
    let what =
        |moment: &Value| moment.get("what").and_then(Value::as_str) == Some("killed by the reflex");
    ensure!(timeline.is_some_and(|all| all.iter().any(what)), "the incident does not say so");
    let decisions = incident.get("decisions").and_then(Value::as_array).map(Vec::len);
    ensure!(decisions > Some(0), "the incident has no decision to answer for");
    Ok(Outcome::Passed)
}

/// A victim that is named at a line which is not crossed yet.
struct Named {
    reflex: Reflex,
    victim: Workload,
    armament: Armament,
}

impl Named {
    fn start(reflex: Reflex) -> Result<Self> {
        Self::doing(reflex, &["idle", "4"])
    }

    fn doing(reflex: Reflex, what: &[&str]) -> Result<Self> {
        let victim = Workload::start("work.slice/victim.service", what)?;
        let armament = Armament {
            cgroup: victim.cgroup.id()?,
            processes: vec![identity(victim.actor.pid()?)?],
            gauge: TAKEN_ALONE,
            line: AVAILABLE - ROOM,
            unexplained: None,
            lease: LONG,
        };
        Ok(Self { reflex, victim, armament })
    }

    fn arm(&mut self) -> Result<usize, ArmError> {
        self.reflex.arm(&self.armament, || Ok(AVAILABLE))
    }
}

/// Cross the line.
fn cross() {
    drop(std::hint::black_box(vec![1_u8; TAKEN]));
}

fn shot(reflex: &mut Reflex) -> Result<Shot> {
    wait::until_some(SOON, "the reflex has fired", || reflex.shot().ok().flatten())
}

/// A process by id and start.
fn identity(pid: Pid) -> Result<(i32, u64)> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let fields = stat.rsplit_once(") ").context("an odd stat file")?.1;
    // The 22nd; the third is the first behind the name.
    let start = fields.split(' ').nth(19).context("a short stat file")?;
    Ok((pid.as_raw(), start.parse()?))
}

/// Named, crossed, ended: and with the lease over, or the name taken back, not.
pub(crate) fn leases(_: &TestContext) -> Result<Outcome> {
    let reflex = match open()? {
        Ok(reflex) => reflex,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let mut named = Named::start(reflex)?;
    let lease = Duration::from_millis(300);
    named.reflex.arm(&Armament { lease, ..named.armament.clone() }, || Ok(AVAILABLE))?;
    let over = boot()? + lease;
    wait::until(SOON, "the lease is over", || boot().is_ok_and(|now| now > over))?;
    cross();
    ensure!(named.reflex.shot()?.is_none() && named.victim.actor.is_alive()?, "the lease was over");
    named.arm()?;
    named.reflex.disarm()?;
    cross();
    ensure!(named.reflex.shot()?.is_none() && named.victim.actor.is_alive()?, "it was disarmed");
    named.arm()?;
    cross();
    let fired = shot(&mut named.reflex)?;
    ensure!(fired.killed == [named.victim.actor.pid()?.as_raw()], "it ended {fired:?}");
    named.victim.actor.wait()?;
    ensure!(matches!(named.arm(), Err(ArmError::Nobody)), "it named the dead");
    Ok(Outcome::Passed)
}

/// What somebody else takes is no reason to end who is named; what it takes itself is.
pub(crate) fn another_takes_it(_: &TestContext) -> Result<Outcome> {
    let reflex = match open()? {
        Ok(reflex) => reflex,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let mut named = Named::doing(reflex, &["late", "/run/go-taker"])?;
    named.armament.unexplained = Some(16 << 20);
    named.arm()?;
    let taken = std::hint::black_box(vec![1_u8; TAKEN]);
    ensure!(
        named.reflex.shot()?.is_none() && named.victim.actor.is_alive()?,
        "it ended who had taken nothing"
    );
    drop(taken);
    // Whoever waits for the file reads all of it.
    fs::write("/run/go-soon", (TAKEN >> 20).to_string()).context("cannot write how much")?;
    fs::rename("/run/go-soon", "/run/go-taker").context("cannot let it take memory")?;
    let fired = shot(&mut named.reflex)?;
    ensure!(fired.killed == [named.victim.actor.pid()?.as_raw()], "it ended {fired:?}");
    named.victim.actor.wait()?;
    Ok(Outcome::Passed)
}

/// What the kernel's own OOM killer must not touch, the reflex does not touch either, whenever that was said.
pub(crate) fn protection(_: &TestContext) -> Result<Outcome> {
    let reflex = match open()? {
        Ok(reflex) => reflex,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let mut named = Named::start(reflex)?;
    let path = format!("/proc/{}/oom_score_adj", named.victim.actor.pid()?);
    named.arm()?;
    fs::write(&path, "-1000").context("cannot protect the victim")?;
    cross();
    let fired = shot(&mut named.reflex)?;
    ensure!(fired.killed.is_empty() && !fired.doubted.is_empty(), "it ended {fired:?}");
    let refused = named.arm();
    ensure!(matches!(refused, Err(ArmError::Protected)), "it named the protected: {refused:?}");
    ensure!(named.victim.actor.is_alive()?, "it ended the protected");
    Ok(Outcome::Passed)
}

/// Another process has the number now, in the same cgroup: it is not the one that was meant.
pub(crate) fn recycled_pid(_: &TestContext) -> Result<Outcome> {
    let reflex = match open()? {
        Ok(reflex) => reflex,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let mut named = Named::start(reflex)?;
    let pid = named.victim.actor.pid()?;
    named.arm()?;
    named.victim.cgroup.kill()?;
    named.victim.actor.wait()?;
    let mut heir = heir_of(pid, &named.victim.cgroup)?;
    cross();
    let fired = shot(&mut named.reflex)?;
    ensure!(fired.killed.is_empty(), "it ended the heir: {fired:?}");
    ensure!(fired.doubted == [pid.as_raw()], "it had no doubt: {fired:?}");
    ensure!(heir.is_alive()?, "the heir is dead");
    Ok(Outcome::Passed)
}

/// A process that has the number `pid`, which nobody has now.
fn heir_of(pid: Pid, cgroup: &Cgroup) -> Result<Actor> {
    for _ in 0..200 {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid.as_raw() - 1).to_string())
            .context("cannot choose a pid")?;
        let actor = Actor::start(cgroup, &["idle", "4"])?;
        if actor.pid()? == pid {
            return Ok(actor);
        }
        cgroup.kill()?;
    }
    bail!("nobody got the number {pid}")
}

fn boot() -> Result<Duration> {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).context("cannot read the time since boot")?;
    Ok(now.into())
}
