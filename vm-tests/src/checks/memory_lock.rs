//! A workload whose memory cannot be taken back, because somebody holds the lock of it (`mmap_lock`) for as long as a filesystem in user space does not answer.
use crate::actors::{Actor, fuse};
use crate::agent::{Agent, is, is_by_watchdog, victims};
use crate::cgroup::Cgroup;
use crate::node;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::scene::{Scene, Workload};
use crate::wait;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
const THRESHOLDS: &str = "evictionHard:\n  memory.available: \"15%\"\n";
/// Where the filesystem is, seen by its server.
const MOUNTED: &str = "/run/mute";
/// As fast as it goes.
const LEAK: [&str; 2] = ["hog", "0"];

/// How often it is played, until ebb was not held up: where the guest stands still the watchdog acts, or another thread that kills takes over. A release that holds up either of them does so each time.
const PLAYS: usize = 3;

/// ebb's release of a victim's memory hangs: who leaks next is killed in time all the same, and nobody else, and neither the thread that kills nor the loop is held up. It is told, and is over with the filesystem.
pub(crate) fn hangs(test: &TestContext) -> Result<Outcome> {
    let mut held_up = Value::Null;
    for _ in 0..PLAYS {
        match play(test)? {
            None => return Ok(Outcome::Passed),
            Some(record) => held_up = record,
        }
        runner::note(test, &format!("held up: {held_up}"))?;
        Cgroup::clear_workloads()?;
    }
    bail!("ebb was held up {PLAYS} times, at last: {held_up}")
}

/// The victim has two processes. What the one with the lock holds comes back to nobody before the lock does, so it is the other that leaks.
///
/// Returns what tells that ebb was held up.
fn play(test: &TestContext) -> Result<Option<Value>> {
    let mut scene = Scene::with_innocents(3, 30)?;
    let mut server = Workload::start("work.slice/files.service", &["mute", MOUNTED])?;
    let mut agent = Agent::enforce(test, THRESHOLDS)?;
    let file = format!("/proc/{}/root{MOUNTED}/{}", server.actor.pid()?, fuse::FILE);
    let mut holder =
        Workload::start("work.slice/first.service", &["holds-its-memory-lock", &file])?;
    assert_lock_is_held(&mut holder.actor).context("the stage is not set")?;

    let mut first = Actor::start(&holder.cgroup, &LEAK)?;
    wait::until(SOON, "the first leak is gone", || first.is_alive().is_ok_and(|alive| !alive))?;
    let ebb = agent.pid()?;
    wait::until(SOON, "ebb waits for the victim's lock", || {
        !node::threads_stuck_in(ebb, "process_mrelease").is_empty()
    })?;
    let mut second = Workload::start("work.slice/second.service", &LEAK)?;
    wait::until(SOON, "the second leak is gone", || {
        second.actor.is_alive().is_ok_and(|alive| !alive)
    })?;
    scene.assert_peace()?;
    // For a moment another may wait for the second's own lock.
    wait::until(SOON, "one thread alone waits for the victim's lock", || {
        node::threads_stuck_in(ebb, "process_mrelease") == ["ebb-release"]
    })
    .with_context(|| format!("{:?} do", node::threads_stuck_in(ebb, "process_mrelease")))?;
    agent.wait_for(SOON, "ebb says that a release hangs", |record| {
        is(record, "degraded") && record.to_string().contains("1 of at most 4 calls")
    })?;
    ensure!(holder.actor.is_alive()?, "who holds the lock ended with its filesystem mute");

    ensure!(server.actor.is_alive()?, "the filesystem's server was killed");
    kill(server.actor.pid()?, Signal::SIGKILL).context("cannot kill the server")?;
    wait::until(SOON, "who held the lock is gone", || {
        holder.actor.is_alive().is_ok_and(|alive| !alive)
    })?;
    wait::until(SOON, "nothing hangs in ebb", || {
        node::threads_stuck_in(ebb, "process_mrelease").is_empty()
    })?;
    agent.until_recovered(SOON, |name| *name == second.cgroup.name())?;
    let records = agent.stop()?;
    let evictions = records.iter().filter(|record| is(record, "evicted"));
    let times: Vec<&Value> = evictions.filter_map(|record| record.get("afterMs")).collect();
    runner::note(test, &format!("killed {times:?} ms after the crossing"))?;
    let mut victims = victims(&records);
    victims.dedup();
    ensure!(victims == [holder.cgroup.name(), second.cgroup.name()], "ebb acted on {victims:?}");
    scene.assert_peace()?;
    let is_held_up = |record: &Value| {
        let hangs = |why: &Value| why.to_string().contains("hangs");
        is_by_watchdog(record) || record.get("why").is_some_and(hangs)
    };
    Ok(records.into_iter().find(is_held_up))
}

/// The kernel says that this process is mapping its file, and who wants to read its memory waits for the lock.
fn assert_lock_is_held(holder: &mut Actor) -> Result<()> {
    let pid = holder.pid()?;
    let maps = || {
        let is_over = !holder.is_alive()?;
        ensure!(!is_over, "who was to hold its lock has ended");
        Ok(!node::threads_stuck_in(pid, "fuse_file_mmap").is_empty())
    };
    wait_for(maps, "somebody maps the file")?;
    let mut reader = Command::new("busybox")
        .args(["cat", &format!("/proc/{pid}/cmdline")])
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start a reader")?;
    let reading = nix::unistd::Pid::from_raw(i32::try_from(reader.id())?);
    let waits = || {
        let ended = reader.try_wait().context("cannot look at a reader")?;
        ensure!(ended.is_none(), "its memory can be read");
        Ok(!node::threads_stuck_in(reading, "access_remote_vm").is_empty())
    };
    let waited = wait_for(waits, "who reads its memory waits for the lock");
    // It may have ended.
    let _ = reader.kill();
    reader.wait().context("cannot wait for a reader")?;
    waited
}

/// Look until it holds or cannot any more.
fn wait_for(mut holds: impl FnMut() -> Result<bool>, what: &str) -> Result<()> {
    let found = wait::until_some(SOON, what, || match holds() {
        Ok(false) => None,
        Ok(true) => Some(Ok(())),
        Err(error) => Some(Err(error)),
    });
    match found? {
        Ok(()) => Ok(()),
        Err(error) => bail!("{error:#}"),
    }
}
