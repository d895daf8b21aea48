//! What ebb takes for granted about a kernel, without ebb: when one of these fails, look no further.
use crate::actors::Actor;
use crate::cgroup::Cgroup;
use crate::node;
use crate::registry::{Context, Outcome};
use crate::wait;
use anyhow::{Result, ensure};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// cgroup v2 with the memory and pids controllers, pressure files, BTF, and memory to work with.
pub(crate) fn has_the_basics(_: &Context) -> Result<Outcome> {
    let cgroup = Cgroup::create("work.slice/basics")?;
    for file in
        ["memory.current", "memory.events", "memory.pressure", "pids.current", "cgroup.freeze"]
    {
        ensure!(cgroup.has(file), "a cgroup has no {file}");
    }
    let pressure = fs::read_to_string("/proc/pressure/memory")?;
    ensure!(pressure.contains("some avg10="), "odd pressure file: {pressure}");
    let btf = fs::read("/sys/kernel/btf/vmlinux")?;
    ensure!(btf.starts_with(&[0x9f, 0xeb]), "the kernel's BTF does not start with its magic");
    ensure!(Path::new("/proc/self/oom_score_adj").exists(), "no oom_score_adj");
    ensure!(node::meminfo("MemAvailable")? > 300 << 20, "too little memory to test with");
    Ok(Outcome::Passed)
}

/// One write ends a whole subtree.
pub(crate) fn cgroup_kill(_: &Context) -> Result<Outcome> {
    let top = Cgroup::create("work.slice/killed")?;
    if !top.has("cgroup.kill") {
        return Ok(Outcome::Skipped("no cgroup.kill".into()));
    }
    let below = Cgroup::create("work.slice/killed/below")?;
    let mut actors =
        vec![Actor::start(&below, &["idle", "1"])?, Actor::start(&below, &["idle", "1"])?];
    top.write("cgroup.kill", "1")?;
    for actor in &mut actors {
        actor.wait()?;
    }
    wait::until(Duration::from_secs(10), "the subtree is empty", || {
        top.processes().is_ok_and(|left| left.is_empty())
    })?;
    Ok(Outcome::Passed)
}

/// The kernel's OOM killer keeps to the cgroup whose limit was hit, and the files say so.
pub(crate) fn limited_oom(_: &Context) -> Result<Outcome> {
    let limited = Cgroup::create("work.slice/limited")?;
    limited.write("memory.max", &(32 << 20).to_string())?;
    let beside = Cgroup::create("work.slice/beside")?;
    let mut innocent = Actor::start(&beside, &["idle", "8"])?;
    let mut hog = Actor::start(&limited, &["hog", "0"])?;
    let status = hog.wait()?;
    ensure!(!status.success(), "the hog ended by itself: {status}");
    ensure!(limited.counter("memory.events", "oom_kill ")? == 1, "not counted as an OOM kill");
    ensure!(beside.counter("memory.events", "oom_kill ")? == 0, "counted in the wrong cgroup");
    ensure!(innocent.is_alive()?, "the innocent died");
    Ok(Outcome::Passed)
}
