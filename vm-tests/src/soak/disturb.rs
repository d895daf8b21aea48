//! What a soak does to the node besides leaking: each is something that happens on nodes, and none is a reason to evict anybody.
use super::script::Disturbance;
use super::{OWN, fields};
use crate::actors::Actor;
use crate::agent;
use crate::cgroup::Cgroup;
use crate::checks::interrupted::step_clock;
use crate::containerd::{Daemon, Site, Wanted};
use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;

/// What the wrong configuration has for a quantity.
pub(super) const MISTAKE: &str = "plenty";
/// How long the clock is wrong.
const WRONG: Duration = Duration::from_secs(2);
/// Cgroups that come and go in a flood: some more than a ring of 512 KiB has room for.
const CGROUPS: usize = 2000;

/// Do it, and undo it where it has to be; `number` makes names unique.
pub(super) fn cause(what: Disturbance, site: &Site, ebb: Pid, number: usize) -> Result<()> {
    match what {
        Disturbance::Churn => churn(site, number),
        Disturbance::Forks => exits(&format!("work.slice/forks-{number}.service"), "300", "8"),
        Disturbance::Flood => flood(ebb, number),
        Disturbance::Restart => {
            Daemon::running().context("no containerd")?.kill()?;
            Daemon::start().map(drop)
        }
        Disturbance::Clock(seconds) => {
            step_clock(seconds)?;
            std::thread::sleep(WRONG);
            step_clock(-seconds)
        }
        Disturbance::Reload => agent::reconfigure(ebb, &fields(number), &Site::section(OWN)),
        Disturbance::Refused => {
            let wrong = format!("evictionHard:\n  memory.available: {MISTAKE}\n");
            agent::reconfigure(ebb, &wrong, &Site::section(OWN))
        }
    }
}

/// A pod comes and goes. Where the runtime is killed meanwhile it may come no further than half; what is left is removed after the round.
fn churn(site: &Site, number: usize) -> Result<()> {
    let name = format!("churn-{number}");
    let script = "trap 'exit 0' TERM; while true; do sleep 1; done";
    if let Ok((pod, _)) = site.run(&Wanted { name: &name, script, ..Wanted::default() }) {
        // As above.
        let _ = site.containerd.remove_pod(&pod);
    }
    site.delete(&name)
}

/// Stopped, ebb takes nothing from the rings: what does not fit is lost, and it has to find out what happened.
fn flood(ebb: Pid, number: usize) -> Result<()> {
    kill(ebb, Signal::SIGSTOP).context("cannot stop ebb")?;
    let flooded = (|| {
        let parent = Cgroup::create("work.slice")?;
        for n in 0..CGROUPS {
            let path = parent.path().join(format!("flood-{number}-{n}"));
            std::fs::create_dir(&path).context("cannot make a cgroup")?;
            std::fs::remove_dir(&path).context("cannot remove a cgroup")?;
        }
        exits(&format!("work.slice/flood-{number}.service"), "300", "16")
    })();
    kill(ebb, Signal::SIGCONT).context("cannot continue ebb")?;
    flooded
}

/// So many processes that end at once.
fn exits(path: &str, count: &str, width: &str) -> Result<()> {
    let cgroup = Cgroup::create(path)?;
    let status = Actor::start(&cgroup, &["exits", count, width])?.wait()?;
    ensure!(status.success(), "the actor that forks ended with {status}");
    cgroup.remove()
}
