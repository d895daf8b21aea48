//! The race that `cargo xtask bench` reports: the same hog against ebb and against each peer.
//!
//! One run: the hog rushes to a little above the threshold, then leaks at a fixed rate. The clock starts when
//! `MemAvailable` falls below the threshold; it is read when the hog is sent SIGKILL and when the memory is back.
//! A run in which an innocent dies, the kernel's OOM killer acts, or nobody kills in time counts as lost.
use super::peers::{self, Peer, THRESHOLD};
use crate::actors::Actor;
use crate::cgroup::Cgroup;
use crate::node;
use crate::observer::{self, Observer};
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::wait;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

const RUNS: u32 = 30;
/// MiB/s at which the hog leaks once it is near.
const RATE: u64 = 100;
/// MiB above the threshold at which the hog stops rushing.
const RUN_UP: u64 = 200;
const INNOCENTS: usize = 3;
/// From the end of the run-up: a peer that needs longer has lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// What one run came to, in microseconds since the crossing.
#[derive(Debug)]
enum Race {
    Won { kill: u64, back: u64, waited: u64 },
    Lost(String),
}

pub(crate) fn ebb(test: &TestContext) -> Result<Outcome> {
    race(test, peers::EBB)
}

pub(crate) fn earlyoom(test: &TestContext) -> Result<Outcome> {
    race(test, peers::EARLYOOM)
}

pub(crate) fn nohang(test: &TestContext) -> Result<Outcome> {
    race(test, peers::NOHANG)
}

pub(crate) fn oomd(test: &TestContext) -> Result<Outcome> {
    race(test, peers::OOMD)
}

fn race(test: &TestContext, peer: Peer) -> Result<Outcome> {
    let running = peer.start()?;
    let observer = Observer::start()?;
    let mut rows = String::new();
    for run in 0..=RUNS {
        let row = row(peer, &observer, run)?;
        // An emulator translates code when it first runs: the first run measures that, in the kernel and in the contender.
        if run > 0 {
            writeln!(rows, "{row}").context("cannot write to memory")?;
        }
        runner::note(test, &row)?;
    }
    let dir = runner::out_dir(test)?;
    fs::write(dir.join("runs"), &rows).context("cannot leave the runs")?;
    fs::write(dir.join("settings"), peer.settings).context("cannot leave the settings")?;
    fs::copy(peers::Running::log(), dir.join("log")).context("cannot leave the log")?;
    running.stop()?;
    Ok(Outcome::Passed)
}

/// One run as a line: `won`, the microseconds from the crossing to the kill and to the memory's return, and those that others waited for a processor at most; or `lost` and why.
pub(super) fn row(peer: Peer, observer: &Observer, run: u32) -> Result<String> {
    Ok(match one_run(peer, observer, run).with_context(|| format!("in run {run}"))? {
        Race::Won { kill, back, waited } => format!("won {kill} {back} {waited}"),
        Race::Lost(why) => format!("lost {why}"),
    })
}

fn one_run(peer: Peer, observer: &Observer, run: u32) -> Result<Race> {
    let line = node::meminfo("MemTotal")? / 100 * THRESHOLD;
    // A run that was lost early leaves its actors behind.
    Cgroup::at("work.slice").clear()?;
    peer.forget_the_last_run()?;
    let mut innocents = Vec::new();
    for n in 0..INNOCENTS {
        let cgroup = Cgroup::create(&format!("work.slice/innocent{n}-{run}"))?;
        match Actor::start(&cgroup, &["idle", "60"]) {
            Ok(actor) => innocents.push((actor, cgroup)),
            Err(_) => return Ok(Race::Lost("an innocent died".to_owned())),
        }
    }
    let nest = Cgroup::create(&format!("work.slice/hog-{run}"))?;
    let oom_kills = node::vmstat("oom_kill ")?;
    observer.begin()?;
    let near = (line >> 20) + RUN_UP;
    let began = observer::now()?;
    let hog = Actor::start(&nest, &["rush", &near.to_string(), &RATE.to_string()]);
    let Ok(mut hog) = hog else {
        return Ok(Race::Lost("killed before it was near the threshold".to_owned()));
    };
    let pid = hog.pid()?;
    let mut lost = None;
    let mut killed = None;
    let deadline = std::time::Instant::now() + PATIENCE;
    while killed.is_none() && std::time::Instant::now() < deadline {
        let Some(kill) = observer.next_kill(Duration::from_millis(100)) else { continue };
        if kill.victim == pid {
            let by_force = kill.signal == Signal::SIGKILL as i32;
            killed = by_force.then_some(kill.at);
        } else if innocents.iter().any(|(actor, _)| actor.pid().is_ok_and(|p| p == kill.victim)) {
            lost = Some(format!("{} killed an innocent", kill.sender));
        }
    }
    if killed.is_none() {
        // Left alone it would bring the guest to a standstill for minutes, until the kernel's OOM killer finds the time.
        nix::sys::signal::kill(pid, Signal::SIGKILL).ok();
    }
    let recovered = wait::until(Duration::from_secs(20), "the memory is back", || {
        node::meminfo("MemAvailable").is_ok_and(|now| now > line + (64 << 20))
    });
    for (actor, cgroup) in &mut innocents {
        if !actor.is_alive()? {
            lost.get_or_insert("an innocent died".to_owned());
        }
        cgroup.remove()?;
        actor.wait()?;
    }
    nest.remove()?;
    hog.wait()?;
    let samples = observer.take_samples()?;
    if node::vmstat("oom_kill ")? != oom_kills {
        lost.get_or_insert("the kernel's OOM killer was faster".to_owned());
    }
    if let Some(why) = lost {
        return Ok(Race::Lost(why));
    }
    let Some(killed) = killed else {
        return Ok(Race::Lost("nobody killed the hog".to_owned()));
    };
    recovered?;
    let Some(crossed) = observer::crossed_before(&samples, line, began, killed) else {
        return Ok(Race::Lost("killed before the threshold was crossed".to_owned()));
    };
    let back = observer::rose_to(&samples, line, killed).context("no sample after the kill")?;
    ensure!(back >= killed, "the memory was back before the kill");
    let waited = u64::try_from(observer.others_waited().as_micros())?;
    Ok(Race::Won { kill: (killed - crossed) / 1000, back: (back - crossed) / 1000, waited })
}
