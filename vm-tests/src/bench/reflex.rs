//! The reflex beside the path through user space: from the crossing of the hard threshold to SIGKILL, by the same agent with and without it, while it is well and while it is starved.
//!
//! A leak waits a little above the threshold until everything is as the condition has it, and then takes memory at a fixed rate.
//! Where ebb is so late that the kernel's OOM killer acts, its moment counts: ebb would have taken longer still.
use crate::agent::{Agent, Settings, is, name_of};
use crate::cgroup::Cgroup;
use crate::node;
use crate::observer::{self, Observer};
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::scene::Workload;
use crate::wait;
use anyhow::{Context, Result, ensure};
use ebb_probes::{Reflex, survey};
use nix::sys::signal::Signal;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
/// Rounds in a row of which the crossing may fall between two samples that are too far apart: an emulated sampler is late now and then. They are played again.
const UNSEEN: u32 = 3;
const THRESHOLD: u64 = 15;
/// MiB above the threshold at which the leak waits: near, as ebb sees it.
const RUN_UP: u64 = 40;
/// MiB/s.
const RATE: &str = "100";
/// Until ebb has seen that the leak waits.
const SETTLING: Duration = Duration::from_secs(1);

/// How ebb fares while the leak grows: a name, a file of its cgroup, what it says then and what it says otherwise; and how many rounds are played, after one that is not counted. Where both are fast the worst of a dozen says little.
const CONDITIONS: [(&str, &str, &str, &str, u32); 3] = [
    ("idle", "memory.high", "max", "max", 50),
    ("without-memory", "memory.high", "0", "max", 12),
    ("without-processor", "cpu.max", "1000 100000", "max 100000", 12),
];

pub(crate) fn beside_user_space(test: &TestContext) -> Result<Outcome> {
    if let Err(why) = Reflex::open(&survey()) {
        return Ok(Outcome::Skipped(why));
    }
    let observer = Observer::start()?;
    let mut rows = String::new();
    for (condition, file, held, free, rounds) in CONDITIONS {
        for (way, option) in [("user-space", "disabled"), ("reflex", "enabled")] {
            let own = format!("  reflex: {option}\n  reflexLease: 10s\n");
            let thresholds = format!("evictionHard:\n  memory.available: \"{THRESHOLD}%\"\n");
            let arguments = &["--enforce"];
            let settings =
                Settings { thresholds: &thresholds, own: &own, arguments, ..Settings::default() };
            let mut agent = Agent::start(test, &settings)?;
            let ebb = Cgroup::at("system.slice/ebb.service");
            let hold = |on: bool| ebb.write(file, if on { held } else { free });
            for round in 0..=rounds {
                let mut measured = None;
                for again in 0..=UNSEEN {
                    let name = format!("{condition}-{way}-{round}-{again}");
                    measured = one(&observer, &mut agent, &name, way == "reflex", hold)
                        .with_context(|| format!("in round {round} of {way} {condition}"))?;
                    if measured.is_some() {
                        break;
                    }
                    runner::note(test, &format!("{condition} {way} not seen to cross"))?;
                }
                let (micros, by) = measured.context("no crossing could be seen")?;
                runner::note(test, &format!("{condition} {way} {micros} us by {by}"))?;
                // An emulator translates code when it first runs.
                if round > 0 {
                    writeln!(rows, "{condition} {way} {micros} {by}").context("cannot write")?;
                }
            }
            agent.stop()?;
        }
    }
    let dir = runner::out_dir(test)?;
    fs::write(dir.join("shots"), rows).context("cannot leave the times")?;
    Ok(Outcome::Passed)
}

/// One leak: microseconds from the crossing to SIGKILL, and whose signal it was; `None` when nobody looked at the moment of the crossing.
fn one(
    observer: &Observer,
    agent: &mut Agent,
    name: &str,
    is_named: bool,
    hold: impl Fn(bool) -> Result<()>,
) -> Result<Option<(u64, String)>> {
    let line = node::meminfo("MemTotal")? / 100 * THRESHOLD;
    let oom_kills = node::vmstat("oom_kill ")?;
    let floor = ((line >> 20) + RUN_UP).to_string();
    let (path, go) = (format!("work.slice/{name}.service"), format!("/run/go-{name}"));
    let mut leak = Workload::start(&path, &["gated", &floor, &go, RATE])?;
    let is_about =
        |record: &serde_json::Value| name_of(record).is_some_and(|name| name.ends_with(&path));
    if is_named {
        agent.wait_for(SOON, "the leak is named", |r| is(r, "reflexArmed") && is_about(r))?;
    }
    std::thread::sleep(SETTLING);
    hold(true)?;
    observer.begin()?;
    let began = observer::now()?;
    fs::write(&go, "").context("cannot let it leak")?;
    let pid = leak.actor.pid()?;
    let killed = loop {
        let kill = observer.next_kill(SOON).context("nobody ended the leak")?;
        ensure!(kill.victim == pid, "{} ended another: {kill:?}", kill.sender);
        if kill.signal == Signal::SIGKILL as i32 {
            break kill;
        }
    };
    hold(false)?;
    leak.actor.wait()?;
    wait::until(SOON, "the memory is back", || {
        node::meminfo("MemAvailable").is_ok_and(|now| now > line + (200 << 20))
    })?;
    let samples = observer.take_samples()?;
    let Some(crossed) = observer::crossed_before(&samples, line, began, killed.at) else {
        return Ok(None);
    };
    let was_oom = node::vmstat("oom_kill ")? != oom_kills;
    let by = if was_oom { "oom".to_owned() } else { killed.sender };
    Ok(Some((killed.at.saturating_sub(crossed) / 1000, by)))
}
