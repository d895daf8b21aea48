//! What a daemon costs while nothing happens: 500 cgroups with a sleeping process each, memory far from every threshold.
//!
//! Processor time, wake-ups and resident memory are the kernel's own figures for the process, over a minute that begins when it has settled.
use super::peers::{self, Peer, Running};
use crate::cgroup::Cgroup;
use crate::node;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CGROUPS: usize = 500;
/// From the start of a daemon until what it does at start is over.
const SETTLING: Duration = Duration::from_secs(15);
const WATCHED: Duration = Duration::from_secs(60);

pub(crate) fn ebb(test: &TestContext) -> Result<Outcome> {
    idle(test, peers::EBB)
}

pub(crate) fn earlyoom(test: &TestContext) -> Result<Outcome> {
    idle(test, peers::EARLYOOM)
}

pub(crate) fn nohang(test: &TestContext) -> Result<Outcome> {
    idle(test, peers::NOHANG)
}

/// What a process has used since it began.
#[derive(Debug)]
struct Used {
    at: Instant,
    /// On a processor, in nanoseconds.
    cpu: u64,
    /// Times that it gave up the processor by itself, which is once for each wake-up.
    waits: u64,
}

fn idle(test: &TestContext, peer: Peer) -> Result<Outcome> {
    let sleepers = (0..CGROUPS).map(sleeper).collect::<Result<Vec<_>>>()?;
    let running = peer.start()?;
    let pid = running.pid();
    // A measured stretch of time, not a condition to wait for.
    std::thread::sleep(SETTLING);
    let before = used(pid)?;
    std::thread::sleep(WATCHED);
    let after = used(pid)?;
    let resident = node::status(pid, "VmRSS:")?;
    let wall = (after.at - before.at).as_nanos();
    let row =
        format!("{wall} {} {} {resident}\n", after.cpu - before.cpu, after.waits - before.waits,);
    let dir = runner::out_dir(test)?;
    fs::write(dir.join("idle"), row).context("cannot leave the result")?;
    fs::copy(Running::log(), dir.join("log")).context("cannot leave the log")?;
    running.stop()?;
    for (cgroup, mut child) in sleepers {
        ensure!(
            child.try_wait().context("cannot look at a sleeper")?.is_none(),
            "{} has ended",
            cgroup.name()
        );
        cgroup.kill()?;
        child.wait().context("cannot wait for a sleeper")?;
    }
    Ok(Outcome::Passed)
}

fn sleeper(number: usize) -> Result<(Cgroup, Child)> {
    let cgroup = Cgroup::create(&format!("work.slice/sleeper-{number}.service"))?;
    let mut sleep = Command::new("busybox");
    let child = sleep.args(["sleep", "100000"]).stdin(Stdio::null()).spawn();
    let child = child.context("cannot start a sleeper")?;
    let pid = i32::try_from(child.id()).context("an impossible process id")?;
    cgroup.adopt(nix::unistd::Pid::from_raw(pid))?;
    Ok((cgroup, child))
}

/// Sums over all threads.
fn used(pid: u32) -> Result<Used> {
    let at = Instant::now();
    let (mut cpu, mut waits) = (0, 0);
    let tasks = format!("/proc/{pid}/task");
    for task in fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}"))? {
        let task = task.context("cannot read a thread")?.path();
        let read = |name: &str| {
            let path = task.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let schedstat = read("schedstat")?;
        let ran = schedstat.split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
        cpu += ran.context("an odd schedstat")?;
        waits += node::status_field(&read("status")?, "voluntary_ctxt_switches:")?;
    }
    Ok(Used { at, cpu, waits })
}
