//! What each program costs whoever runs into it, as the kernel measures it: all of them, under what makes them run.
//!
//! Under an emulated CPU a run takes many times what it takes on hardware; the rows can be held against each other, and those of the
//! programs that a host of one's own accepts against `cargo xtask bench host`.
use crate::actors::Actor;
use crate::cgroup::Cgroup;
use crate::probing::Probing;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use anyhow::{Context, Result, ensure};
use ebb_probes::{Cost, Meter, Options, share};
use nix::sys::signal::{Signal, kill};
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
/// Processes that are made and end.
const FORKS: &str = "10000";
/// Direct reclaims that are only played: each by itself, without what a real shortage does to the emulator's timing.
const RECLAIMS: usize = 5_000;
/// Cgroups that are made and removed.
const CGROUPS: usize = 100;
/// Refaults after which enough has been reclaimed and waited for.
const REFAULTS: u64 = 20_000;

pub(crate) fn costs(test: &TestContext) -> Result<Outcome> {
    let _meter = Meter::start().context("the kernel does not measure programs")?;
    let mut probing = Probing::start(&Options::default())?;
    // A cache that does not fit: reclaim by its own limit, refaults, waiting.
    let small = Cgroup::create("work.slice/thrash")?;
    small.write("memory.max", &(24 << 20).to_string())?;
    let cacher = Actor::start(&small, &["cacher", "48"])?;
    crate::wait::until(SOON, "it thrashes", || {
        small.counter("memory.stat", "workingset_refault_file ").is_ok_and(|n| n > REFAULTS)
    })?;
    kill(cacher.pid()?, Signal::SIGKILL).context("cannot end the thrasher")?;
    // Somebody over a limit, ended by the OOM killer.
    let limited = Cgroup::create("work.slice/limited")?;
    limited.write("memory.max", &(32 << 20).to_string())?;
    Actor::start(&limited, &["hog", "0"])?.wait()?;
    for n in 0..CGROUPS {
        Cgroup::create(&format!("work.slice/short-{n}"))?.remove()?;
    }
    let many = Cgroup::create("work.slice/forks")?;
    Actor::start(&many, &["exits", FORKS, "4"])?.wait()?;
    for _ in 0..RECLAIMS {
        probing.play_direct_reclaim()?;
    }
    let costs = probing.costs()?;
    probing.events.clear();
    let mut rows = String::new();
    for cost in &costs {
        let Cost { program, runs, .. } = cost;
        let each = cost.each().unwrap_or(0);
        writeln!(rows, "{program} {runs} {each}").context("cannot write to memory")?;
    }
    let share = share(&costs, 10_000, 1000);
    writeln!(rows, "share {share} 0").context("cannot write to memory")?;
    let dir = runner::out_dir(test)?;
    fs::write(dir.join("programs"), &rows).context("cannot leave the costs")?;
    runner::note(test, &rows.replace('\n', ", "))?;
    // The node is not short here, and cgroups of v2 are not renamed.
    let spared = ["kswapd_wake", "cgroup_renamed_to"];
    let idle = costs.iter().filter(|cost| cost.runs == 0).map(|cost| cost.program);
    let idle: Vec<_> = idle.filter(|name| !spared.contains(name)).collect();
    ensure!(idle.is_empty(), "nothing made these run: {idle:?}");
    Ok(Outcome::Passed)
}
