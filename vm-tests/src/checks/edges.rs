//! The rest of a node's life: process bombs, victims that vanish, the commands beside `run`.
use crate::actors::Actor;
use crate::agent::{Agent, EBB, is, name_of, victims};
use crate::cgroup::Cgroup;
use crate::node;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::scene::{Scene, Workload};
use crate::wait;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// A file of the kernel that says what it said before when this is dropped.
struct Changed {
    path: &'static str,
    before: String,
}

impl Changed {
    fn to(path: &'static str, text: &str) -> Result<Self> {
        let before = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        fs::write(path, text).with_context(|| format!("cannot write {text} to {path}"))?;
        Ok(Self { path, before })
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        // The next test finds what could not be put back.
        let _ = fs::write(self.path, &self.before);
    }
}

/// A bomb of small processes takes the node's process ids, not its memory.
pub(crate) fn fork_bomb(test: &TestContext) -> Result<Outcome> {
    // Later tests of the guest need more.
    let _few = Changed::to("/proc/sys/kernel/pid_max", "2000")?;
    let mut scene = Scene::with_innocents(2, 10)?;
    let mut agent = Agent::enforce(test, "evictionHard:\n  pid.available: \"50%\"\n")?;
    let mut bomb = Workload::start("work.slice/bomb.service", &["bomb", "1500"])?;
    wait::until(Duration::from_secs(120), "the bomb is gone", || {
        bomb.cgroup.processes().is_ok_and(|left| left.is_empty())
    })?;
    bomb.actor.wait()?;
    agent.wait_for(SOON, "ebb has recovered", |record| is(record, "pressureRelieved"))?;
    let victims = victims(&agent.stop()?);
    ensure!(!victims.is_empty(), "ebb did not act");
    ensure!(victims.iter().all(|v| v.ends_with("bomb.service")), "ebb acted on {victims:?}");
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

/// The victim ends by itself as the threshold is crossed, and another workload takes its cgroup's name at once.
pub(crate) fn vanishing_victim(test: &TestContext) -> Result<Outcome> {
    const ROUNDS: usize = 8;
    const PATH: &str = "work.slice/here.service";
    let mut scene = Scene::with_innocents(2, 30)?;
    let mut agent = Agent::enforce(test, "evictionHard:\n  memory.available: \"30%\"\n")?;
    let line = (node::meminfo("MemTotal")? >> 20) * 30 / 100;
    for round in 0..ROUNDS {
        // Some rounds end just before the line, some just after: both sides of the race.
        let floor = line + 4 - u64::try_from(round)?;
        let mut dier = Workload::start(PATH, &["dier", &floor.to_string()])?;
        dier.actor.wait()?;
        dier.cgroup.remove()?;
        let mut heir = Workload::start(PATH, &["idle", "20"])?;
        wait::until(SOON, "the memory is back", || {
            node::meminfo("MemAvailable").is_ok_and(|now| now >> 20 > line + 50)
        })?;
        ensure!(heir.actor.is_alive()?, "the heir of the name was ended in round {round}");
        heir.cgroup.remove()?;
        heir.actor.wait()?;
    }
    agent.records();
    let records = agent.stop()?;
    let count = |event| records.iter().filter(|record| is(record, event)).count();
    runner::note(
        test,
        &format!(
            "{ROUNDS} rounds: {} crossed, {} acted, {} not done",
            count("thresholdCrossed"),
            count("evicted"),
            count("notDone")
        ),
    )?;
    let others = records.iter().filter(|r| is(r, "evicted")).filter_map(name_of);
    let others: Vec<String> = others.filter(|name| !name.ends_with("here.service")).collect();
    ensure!(others.is_empty(), "ebb acted on {others:?}");
    scene.assert_peace()?;
    Ok(Outcome::Passed)
}

/// `ebb check` says that this kernel is good for everything ebb does, and which hooks that is by.
pub(crate) fn check_command(test: &TestContext) -> Result<Outcome> {
    let out = Command::new(EBB).args(["check", "--output", "json"]).output();
    let out = out.context("cannot start ebb check")?;
    ensure!(out.status.success(), "ebb check ended with {}", out.status);
    fs::write(runner::out_dir(test)?.join("check.json"), &out.stdout)
        .context("cannot leave the answer")?;
    let answer: Value = serde_json::from_slice(&out.stdout).context("ebb check prints no JSON")?;
    let findings = answer.get("findings").and_then(Value::as_array).context("no findings")?;
    let poor: Vec<String> = findings
        .iter()
        .filter(|finding| finding.get("status").and_then(Value::as_str) != Some("live"))
        .filter_map(|finding| Some(format!("{}: {}", finding.get("what")?, finding.get("source")?)))
        .collect();
    runner::note(test, &format!("{} findings, less than live: {poor:?}", findings.len()))?;
    ensure!(findings.len() >= 8, "only {} findings", findings.len());
    let by_kill = Cgroup::create("work.slice/probe")?.has("cgroup.kill");
    let functions = ebb_probes::survey().functions;
    let lacks = |name| usize::from(!functions.contains(name));
    // Those without it have no timers and loops in programs either: there is no kernel between 5.17 and 6.1 here.
    let by_iterator_and_timer = 2 * lacks("bpf_iter_cgroup");
    let expected = usize::from(!by_kill) + by_iterator_and_timer + lacks("bpf_send_signal_task");
    ensure!(poor.len() == expected, "less than live: {poor:?}");
    Ok(Outcome::Passed)
}

/// `ebb events` shows a process's exit and an OOM kill while they happen.
pub(crate) fn events_command(_: &TestContext) -> Result<Outcome> {
    let mut events = Command::new(EBB)
        .args(["events", "--output", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start ebb events")?;
    let stdout = events.stdout.take().context("ebb events has no output")?;
    let limited = Cgroup::create("work.slice/limited")?;
    limited.write("memory.max", &(32 << 20).to_string())?;
    let id = limited.id()?;
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    // Until it is attached it sees nothing: offer it the same event until it does.
    let mut seen: Vec<Value> = Vec::new();
    let result = wait::until(SOON, "ebb events has shown an OOM kill and an exit", || {
        let hog = Actor::start(&limited, &["hog", "0"]);
        let _ = hog.and_then(|mut hog| hog.wait());
        seen.extend(lines.try_iter().filter_map(|line| serde_json::from_str(&line).ok()));
        let of = |kind: &str, key: &str| {
            seen.iter().any(|event: &Value| {
                event.get("kind").and_then(Value::as_str) == Some(kind)
                    && event.get(key).and_then(Value::as_u64) == Some(id)
            })
        };
        of("oom_kill", "victim_cgroup") && of("exit", "cgroup")
    });
    events.kill().context("cannot end ebb events")?;
    events.wait().context("cannot wait for ebb events")?;
    result.with_context(|| format!("{} events were shown: {:?}", seen.len(), seen.first()))?;
    Ok(Outcome::Passed)
}
