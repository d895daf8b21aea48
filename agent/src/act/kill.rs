//! Killing, terminating and slowing down what is held: two executors, one for real and one that only says what it would do.
//!
//! ```text
//!  cgroup ─ SIGKILL to those held ─┬─ cgroup.kill ─ SIGKILL to those without a first thread ─┐
//!                 │                └─ refused: freeze ─ SIGKILL to each ─ again ─────────────┼─► ended, and told ─► release
//!  process ─ SIGKILL ────────────────────────────────────────────────────────────────────────┘
//!                 └─► hurry
//! ```

use super::hurry::Hurry;
use super::ladder;
use super::marks::Marks;
use super::pidfd::PidFd;
use super::victim::{HeldCgroup, Victim, ended_is_fine};
use crate::clock::Boot;
use ebb_journal::{Method, Rung};
use nix::sys::signal::Signal;
use serde::Serialize;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long the loop of freezing and signalling may go on where the kernel has no `cgroup.kill`.
const SIGNAL_FOR: Duration = Duration::from_millis(500);

/// Pause between its rounds, in which the signalled die.
const BETWEEN_ROUNDS: Duration = Duration::from_micros(200);

/// How often it is looked for who outlives `cgroup.kill` before they are frozen.
const ROUNDS: usize = 8;

/// The end of a victim, as far as it can be told at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// What was done.
    pub method: Method,
    /// When the deciding write or signal had returned.
    pub at: Boot,
}

impl Ended {
    fn now(method: Method) -> Self {
        Self { method, at: Boot::now() }
    }
}

/// The one seam between deciding that a victim goes and its going.
pub(super) trait Executor: Send {
    /// Ends the victim now; what is returned beside it are those who are dying, whose memory is still to be taken back.
    fn kill(&self, victim: Victim) -> io::Result<(Ended, Vec<Arc<PidFd>>)>;
    /// Asks the victim to end.
    fn terminate(&self, victim: Victim) -> io::Result<Ended>;
    /// Takes a step below ending it, noted in `marks`.
    fn step(&self, victim: Victim, rung: Rung, marks: &Marks) -> io::Result<Ended>;
    /// Has those that are killed from here on end soon.
    fn hurry_with(&mut self, _: Hurry) {}
}

/// Acts.
#[derive(Debug, Default)]
pub(super) struct Enforce {
    /// Told of each process that was killed, as soon as it was.
    hurry: Option<Hurry>,
}

/// Does nothing, and says so.
#[derive(Debug)]
pub(super) struct DryRun;

impl Executor for DryRun {
    fn kill(&self, _: Victim) -> io::Result<(Ended, Vec<Arc<PidFd>>)> {
        Ok((Ended::now(Method::DryRun), Vec::new()))
    }

    fn terminate(&self, _: Victim) -> io::Result<Ended> {
        Ok(Ended::now(Method::DryRun))
    }

    fn step(&self, _: Victim, _: Rung, _: &Marks) -> io::Result<Ended> {
        Ok(Ended::now(Method::DryRun))
    }
}

impl Executor for Enforce {
    fn kill(&self, victim: Victim) -> io::Result<(Ended, Vec<Arc<PidFd>>)> {
        match victim {
            Victim::Process(process) => {
                process.signal(Signal::SIGKILL)?;
                self.hurry(vec![Arc::clone(&process)]);
                Ok((Ended::now(Method::Signal), vec![process]))
            }
            Victim::Cgroups(held) => {
                let mut method = Method::CgroupKill;
                let mut by_cgroup_kill = Vec::with_capacity(held.len());
                for cgroup in &held {
                    match self.kill_cgroup(cgroup)? {
                        Method::CgroupKill => by_cgroup_kill.push(cgroup),
                        other => method = other,
                    }
                }
                let ended = Ended::now(method);
                for cgroup in by_cgroup_kill {
                    // What was killed was killed: its memory is on its way.
                    if let Err(error) = kill_leaderless(cgroup) {
                        tracing::warn!(%error, "not known whether a process of the victim lives");
                    }
                }
                Ok((ended, held.into_iter().flat_map(|cgroup| cgroup.processes).collect()))
            }
        }
    }

    fn terminate(&self, victim: Victim) -> io::Result<Ended> {
        match victim {
            Victim::Process(process) => process.signal(Signal::SIGTERM)?,
            Victim::Cgroups(held) => {
                for cgroup in &held {
                    let until = Boot::now().plus(SIGNAL_FOR);
                    cgroup.signal(&cgroup.members()?.pids, Signal::SIGTERM, until).1?;
                }
            }
        }
        Ok(Ended::now(Method::Terminate))
    }

    fn step(&self, victim: Victim, rung: Rung, marks: &Marks) -> io::Result<Ended> {
        let Victim::Cgroups(held) = victim else {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "only a cgroup can be slowed down",
            ));
        };
        for cgroup in &held {
            ladder::take(cgroup, rung, marks)?;
        }
        let method = match rung {
            Rung::Reclaim { .. } => Method::Reclaim,
            Rung::Throttle { .. } => Method::Throttle,
            Rung::Freeze { .. } => Method::Freeze,
            Rung::Release => Method::Release,
        };
        Ok(Ended::now(method))
    }

    fn hurry_with(&mut self, hurry: Hurry) {
        self.hurry = Some(hurry);
    }
}

impl Enforce {
    /// Kills everything in one cgroup; where `cgroup.kill` did it, but whoever [`kill_leaderless`] sees to.
    fn kill_cgroup(&self, held: &HeldCgroup) -> io::Result<Method> {
        // Those that are held first: that takes no lock, while cgroup.kill waits for whoever is changing the tree.
        let (mut signalled, mut dying) = (Ok(()), Vec::with_capacity(held.processes.len()));
        for process in &held.processes {
            match process.signal(Signal::SIGKILL) {
                Ok(()) => dying.push(Arc::clone(process)),
                failed => signalled = signalled.and(ended_is_fine(failed)),
            }
        }
        // Before anything that may wait for their end.
        self.hurry(dying);
        if held.write("cgroup.kill", "1").is_err() {
            freeze_and_signal(held)?;
            return Ok(Method::FreezeAndSignal);
        }
        signalled.map(|()| Method::CgroupKill)
    }

    fn hurry(&self, dying: Vec<Arc<PidFd>>) {
        if let Some(hurry) = &self.hurry {
            hurry.give(dying);
        }
    }
}

/// Kills whom `cgroup.kill` leaves alive: it signals the first thread of each process, and where that has exited and others live on, its signal is lost.
///
/// Such a process may have made others meanwhile, with a first thread or without one. Each look that shows somebody new is
/// followed by signals to those without one, and then by `cgroup.kill`, after which none of those seen makes anybody; if
/// there is always somebody, they are frozen at last.
fn kill_leaderless(held: &HeldCgroup) -> io::Result<()> {
    let until = Boot::now().plus(SIGNAL_FOR);
    let mut seen: BTreeSet<i32> = held.checked.pids.iter().copied().collect();
    let mut signalled = BTreeSet::new();
    for _ in 0..ROUNDS {
        let members = held.members()?;
        let left: Vec<i32> =
            members.leaderless.into_iter().filter(|pid| !signalled.contains(pid)).collect();
        let before = seen.len();
        seen.extend(members.pids);
        if left.is_empty() && seen.len() == before {
            return Ok(());
        }
        let (now, result) = held.signal(&left, Signal::SIGKILL, until);
        result?;
        signalled.extend(now);
        held.write("cgroup.kill", "1")?;
        if Boot::now() > until {
            break;
        }
    }
    freeze_and_signal(held)
}

/// Ends a cgroup where `cgroup.kill` is missing (before Linux 5.14): frozen it cannot fork, so each round finds fewer processes.
///
/// A cgroup that cannot be frozen is signalled all the same; the rounds then race against its forks, with a deadline.
fn freeze_and_signal(held: &HeldCgroup) -> io::Result<()> {
    let frozen = held.write("cgroup.freeze", "1").is_ok();
    let until = Boot::now().plus(SIGNAL_FOR);
    let mut buffer = Vec::new();
    let mut result = Ok(());
    while held.cgroup.populated(&mut buffer) == Some(true) {
        // An error of one round is that of no other.
        result =
            held.members().and_then(|members| held.signal(&members.pids, Signal::SIGKILL, until).1);
        if Boot::now() > until {
            break;
        }
        // Not a yield: before every other thread, this one would leave the dying no processor.
        std::thread::sleep(BETWEEN_ROUNDS);
    }
    if frozen {
        // A frozen task still dies of SIGKILL; thawing is for the directory, should someone use it again.
        let _ = held.write("cgroup.freeze", "0");
    }
    result
}
