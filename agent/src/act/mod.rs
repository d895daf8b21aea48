//! Changing the node, and nothing else: no choice is made here.
//!
//! A [`Job`] names one target by identity and the need that justifies it.
//! [`Actor::perform`] takes hold of the target, checks protection, checks that the need still exists, and only then acts; a dry run goes the same way with another hand.
//! Jobs run on threads of their own ([`start`]), so that the loop never waits for the kernel; results come back over a bounded channel.
//! Whether the memory came back is seen by the loop, which looks at the node anyway.

mod guard;
mod hurry;
mod kill;
mod ladder;
pub mod logs;
mod marks;
mod pidfd;
mod prepared;
mod release;
pub mod runtime;
mod seat;
mod self_protection;
mod standby;
mod victim;
mod watchdog;
mod worker;

pub use ebb_journal::{Job, Method, Mode, Need, NotDone, Payload, Refusal, Rung, Step, Target};
pub use kill::Ended;
pub use self_protection::protect;
pub use standby::{Candidate, LastResort, Standby};
pub use victim::members;
pub use worker::{Crew, Jobs, start};

use crate::clock::Boot;
use crate::sense::Roots;
use crate::sense::file::read_once;
use crate::sense::meminfo::Measure;
use crate::sense::node::NodeSensor;
use crate::sense::psi;
use kill::{DryRun, Enforce, Executor};
use marks::Marks;
use pidfd::PidFd;
use prepared::Prepared;
use std::io;
use std::path::Path;
use std::sync::Arc;
use victim::Victim;

/// What became of a job.
#[derive(Debug)]
pub struct Acted {
    /// The job.
    pub job: Job,
    /// When it was begun.
    pub begun: Boot,
    /// What was done, or why nothing.
    pub result: Result<Ended, NotDone>,
    /// It was the watchdog's doing, because the loop had stopped.
    pub by_watchdog: bool,
}

/// Does jobs.
pub struct Actor {
    roots: Roots,
    measure: Measure,
    node: NodeSensor,
    hand: Box<dyn Executor>,
    ready: Prepared,
    marks: Marks,
    /// Killed, and not handed on yet to have their memory taken back.
    dying: Vec<Arc<PidFd>>,
}

impl Actor {
    /// An actor for the node at `roots`, which judges need by `measure`.
    ///
    /// # Errors
    /// When the node's memory cannot be read at all.
    pub fn new(roots: &Roots, measure: Measure, mode: Mode) -> io::Result<Self> {
        let hand: Box<dyn Executor> = match mode {
            Mode::DryRun => Box::new(DryRun),
            Mode::Enforce => Box::new(Enforce::default()),
        };
        Ok(Self {
            roots: roots.clone(),
            measure,
            node: NodeSensor::open(roots)?,
            hand,
            ready: Prepared::default(),
            marks: Marks::default(),
            dying: Vec::new(),
        })
    }

    /// Keeps in `state` what has to be put back on cgroups that cannot carry a mark of it.
    #[must_use]
    pub fn with_state(mut self, state: &Path) -> Self {
        self.marks = Marks::within(state, &self.roots.proc);
        self
    }

    /// Undoes the steps that an earlier run left on the cgroup at `path`; returns whether there were any.
    ///
    /// # Errors
    /// What the kernel says when they cannot be undone.
    pub fn release_left_over(&self, id: u64, path: &Path) -> io::Result<bool> {
        if self.marks.get(id, path)?.is_none() {
            return Ok(false);
        }
        let target = Target::Cgroup { id, path: path.to_owned() };
        match Victim::hold_to_release(&target, &self.roots.proc) {
            Ok(victim) => self.hand.step(victim, Rung::Release, &self.marks).map(|_| true),
            // It is gone.
            Err(_) => Ok(false),
        }
    }

    /// Takes hold of `target` because a job for it may come any moment; nothing else is done to it.
    pub fn hold_ready(&mut self, target: &Target) {
        self.ready.hold(target, &self.roots);
    }

    /// Those killed last, whose memory can be taken back at once: the dying may wait for a processor, their memory need not.
    fn take_dying(&mut self) -> Vec<Arc<PidFd>> {
        std::mem::take(&mut self.dying)
    }

    /// Does one job: hold, check, act.
    pub fn perform(&mut self, job: Job) -> Acted {
        let begun = Boot::now();
        let result = self.try_perform(&job);
        Acted { job, begun, result, by_watchdog: false }
    }

    fn try_perform(&mut self, job: &Job) -> Result<Ended, NotDone> {
        let victim = match (job.step, self.ready.take(&job.target, &self.roots)) {
            (_, Some(victim)) => victim,
            (Step::Rung(Rung::Release), None) => {
                Victim::hold_to_release(&job.target, &self.roots.proc)?
            }
            (_, None) => Victim::hold(&job.target, &self.roots)?,
        };
        if let Some(need) = &job.need {
            self.check_need(need)?;
        }
        match job.step {
            Step::Kill => self.hand.kill(victim).map(|(ended, dying)| {
                self.dying = dying;
                ended
            }),
            Step::Terminate => self.hand.terminate(victim),
            Step::Rung(rung) => self.hand.step(victim, rung, &self.marks),
        }
        .map_err(|error| NotDone::failed(&error))
    }

    fn check_need(&mut self, need: &Need) -> Result<(), NotDone> {
        let unknown = |what: &str| NotDone::UnknownNeed { why: what.to_owned() };
        let (available, threshold) = match *need {
            Need::MemoryBelow { bytes } => {
                let memory =
                    self.node.read_memory().map_err(|error| NotDone::unknown_need(&error))?;
                let available = memory.available_by(self.measure);
                (available.ok_or_else(|| unknown("meminfo lacks what is measured"))?, bytes)
            }
            Need::SwapBelow { bytes } => {
                let memory =
                    self.node.read_memory().map_err(|error| NotDone::unknown_need(&error))?;
                (memory.swap_available().ok_or_else(|| unknown("no swap is told of"))?, bytes)
            }
            Need::MemoryWithSwapBelow { bytes } => {
                let memory =
                    self.node.read_memory().map_err(|error| NotDone::unknown_need(&error))?;
                let available = memory.with_swap_available(self.measure);
                (available.ok_or_else(|| unknown("meminfo lacks what is measured"))?, bytes)
            }
            Need::MemoryAndSwapBelow { bytes, swap } => {
                let memory =
                    self.node.read_memory().map_err(|error| NotDone::unknown_need(&error))?;
                match memory.swap_available() {
                    // What is short is not memory as long as swap has room.
                    Some(available) if available >= swap => (available, swap),
                    _ => {
                        let available = memory.available_by(self.measure);
                        (available.ok_or_else(|| unknown("meminfo lacks what is measured"))?, bytes)
                    }
                }
            }
            Need::PidsBelow { count } => {
                let reading = self.node.read().map_err(|error| NotDone::unknown_need(&error))?;
                (reading.pids_available().ok_or_else(|| unknown("no thread count"))?, count)
            }
            Need::MemoryPressureAbove { ref cgroup, limit } => {
                let path = psi::of_cgroup(&self.roots.cgroup, cgroup);
                let text = read_once(&path).map_err(|error| NotDone::unknown_need(&error))?;
                let full_avg10 = psi::full_avg10(&text);
                let full_avg10 = full_avg10.ok_or_else(|| unknown("no pressure is told of"))?;
                if full_avg10 > limit {
                    return Ok(());
                }
                return Err(NotDone::PressureGone { cgroup: cgroup.clone(), full_avg10, limit });
            }
        };
        if available < threshold {
            Ok(())
        } else {
            Err(NotDone::NotNeeded { available, threshold })
        }
    }
}

/// Ends at once what is left in a cgroup that belongs to nobody: held and checked as any victim is, without a need to justify it.
///
/// # Errors
/// It is gone, a process in it is protected, or what the kernel says.
pub fn kill_orphaned(target: &Target, roots: &Roots) -> Result<Ended, NotDone> {
    let ended = Enforce::default().kill(Victim::hold(target, roots)?);
    let (ended, _) = ended.map_err(|error| NotDone::failed(&error))?;
    Ok(ended)
}

#[cfg(test)]
mod tests;
