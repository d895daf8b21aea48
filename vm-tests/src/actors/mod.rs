//! Workloads. Each is a process that joins a cgroup, says `ready` on its standard output, and does one thing.
use crate::cgroup::Cgroup;
use crate::init::SELF;
use anyhow::{Context, Result, bail};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

pub(crate) mod fuse;
mod memory;
mod processes;
mod storage;

/// A running actor. Dropping it leaves it running: the runner empties its cgroup after the test.
#[derive(Debug)]
pub(crate) struct Actor {
    child: Child,
}

impl Actor {
    /// Start an actor inside a cgroup and wait until it is ready; `words` are its name and arguments.
    pub(crate) fn start(cgroup: &Cgroup, words: &[&str]) -> Result<Self> {
        Self::start_as(SELF, cgroup, words)
    }

    /// The same from a copy of this program at another place.
    pub(crate) fn start_as(program: &str, cgroup: &Cgroup, words: &[&str]) -> Result<Self> {
        let mut child = Command::new(program)
            .arg("act")
            .arg(cgroup.path())
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {words:?}"))?;
        let stdout = child.stdout.take().context("an actor without output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("cannot hear an actor")?;
        if line.trim() != "ready" {
            let status = child.wait().context("cannot wait for an actor")?;
            bail!("{words:?} ended before it was ready: {status}");
        }
        Ok(Self { child })
    }

    pub(crate) fn pid(&self) -> Result<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.child.id()).context("an impossible process id")?))
    }

    /// Whether it has not ended yet.
    pub(crate) fn is_alive(&mut self) -> Result<bool> {
        Ok(self.child.try_wait().context("cannot look at an actor")?.is_none())
    }

    pub(crate) fn wait(&mut self) -> Result<std::process::ExitStatus> {
        self.child.wait().context("cannot wait for an actor")
    }
}

/// Be an actor.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let [cgroup, rest @ ..] = words else { bail!("an actor needs a cgroup") };
    std::fs::write(format!("{cgroup}/cgroup.procs"), "0")
        .with_context(|| format!("cannot join {cgroup}"))?;
    // Runner and tests are exempt from the OOM killer; workloads are what it is for.
    std::fs::write("/proc/self/oom_score_adj", "0").context("cannot become killable")?;
    act(cgroup, rest)
}

fn act(cgroup: &str, words: &[&str]) -> Result<()> {
    match words {
        ["scored", score, rest @ ..] => {
            std::fs::write("/proc/self/oom_score_adj", score).context("cannot be scored")?;
            act(cgroup, rest)
        }
        ["bomb", most] => processes::bomb(cgroup, number(most)?),
        words => act_here(words),
    }
}

/// Be an actor where somebody else has put it: in a container.
pub(crate) fn act_here(words: &[&str]) -> Result<()> {
    match words {
        ["named", name, user, rest @ ..] => {
            processes::become_another(name, user.parse().context("an odd user id")?)?;
            act_here(rest)
        }
        ["idle", mib] => memory::idle(number(mib)?),
        ["hog", rate] => memory::hog(number(rate)?),
        ["rush", floor, rate] => memory::rush(number(floor)?, number(rate)?),
        ["gated", floor, go] => memory::gated(number(floor)?, go, 0),
        ["gated", floor, go, rate] => memory::gated(number(floor)?, go, number(rate)?),
        ["thrash", mib] => memory::thrash(number(mib)?),
        ["dier", floor] => memory::dier(number(floor)?),
        ["stubborn", rate] => memory::stubborn(number(rate)?),
        ["late", go] => memory::late(go),
        ["unmoved", floor] => memory::unmoved(number(floor)?),
        ["leaves", kib] => memory::leaves(usize::try_from(number(kib)?)?),
        ["leaderless", rate] => memory::leaderless(number(rate)?),
        ["shmer", rate] => memory::shmer(number(rate)?),
        ["shared", mib] => memory::shared(number(mib)?),
        ["cached", mib] => storage::cached(number(mib)?),
        ["cacher", mib] => storage::cacher(number(mib)?),
        ["mapper", mib] => storage::mapper(number(mib)?),
        ["syncer", mib] => storage::syncer(number(mib)?),
        ["mute", at] => fuse::mute(at),
        ["shows-until", at, of, hang] => fuse::shows_until(at, of, hang),
        ["hangs", file, floor, rate] => {
            fuse::hangs_with_what_it_took(file, number(floor)?, number(rate)?)
        }
        ["holds-its-memory-lock", file] => fuse::holds_its_memory_lock(file),
        ["spin"] => processes::spin(),
        ["exits", count, width] => processes::exits(number(count)?, number(width)?),
        _ => bail!("no actor {words:?}"),
    }
}

/// Tell the test that whatever was to be prepared is prepared.
fn ready() {
    println!("ready");
}

fn number(text: &str) -> Result<u64> {
    text.parse().with_context(|| format!("{text} is not a number"))
}
