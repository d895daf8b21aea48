//! The threads that do jobs: one for what must be quick, one for what the kernel may block.
//!
//! A write to `memory.reclaim` or `memory.high` can take as long as reclaim does, so it never stands before a kill.
//! The slow thread also lets go of what it has frozen when the time is over, whether or not the loop still runs.

use super::ladder::Rung;
use super::{Acted, Actor, Job, Step, Target};
use crate::clock::Boot;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// Jobs that may wait for a thread; a plan is small, so more than this means that it is stuck.
const WAITING_JOBS: usize = 64;

/// The way to hand over jobs.
#[derive(Clone, Debug)]
pub struct Jobs {
    quick: SyncSender<Job>,
    slow: SyncSender<Job>,
}

impl Jobs {
    /// Hands over a job; gives it back when its thread has not kept up or has died.
    ///
    /// # Errors
    /// The job, undone.
    pub fn give(&self, job: Job) -> Result<(), Job> {
        let thread = match job.step {
            Step::Kill | Step::Terminate => &self.quick,
            Step::Rung(_) => &self.slow,
        };
        thread.try_send(job).map_err(|e| match e {
            TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
        })
    }
}

/// Starts both threads; they end when the last [`Jobs`] is dropped.
///
/// # Errors
/// When no thread can be made.
pub fn start(quick: Actor, slow: Actor, results: Sender<Acted>) -> io::Result<Jobs> {
    let (quick_jobs, quick_inbox) = sync_channel(WAITING_JOBS);
    let (slow_jobs, slow_inbox) = sync_channel(WAITING_JOBS);
    let told = results.clone();
    std::thread::Builder::new()
        .name("ebb-act".into())
        .spawn(move || run_quick(quick, &quick_inbox, &told))?;
    std::thread::Builder::new()
        .name("ebb-ladder".into())
        .spawn(move || run_slow(slow, &slow_inbox, &results))?;
    Ok(Jobs { quick: quick_jobs, slow: slow_jobs })
}

fn run_quick(mut actor: Actor, inbox: &Receiver<Job>, results: &Sender<Acted>) {
    for job in inbox {
        if results.blocking_send(actor.perform(job)).is_err() {
            return;
        }
    }
}

fn run_slow(mut actor: Actor, inbox: &Receiver<Job>, results: &Sender<Acted>) {
    let mut frozen: Vec<(Boot, Target)> = Vec::new();
    loop {
        let next = frozen.iter().map(|(at, _)| at.since(Boot::now())).min();
        let job = match inbox.recv_timeout(next.unwrap_or(Duration::from_secs(3600))) {
            Ok(job) => Some(job),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                for (_, target) in frozen {
                    actor.perform(thaw(target));
                }
                return;
            }
        };
        if let Some(job) = job {
            let acted = actor.perform(job);
            if let (Step::Rung(Rung::Freeze { thaw_after_ms }), Ok(_)) =
                (acted.job.step, &acted.result)
            {
                let at = Boot::now().plus(Duration::from_millis(thaw_after_ms));
                frozen.push((at, acted.job.target.clone()));
            }
            // The loop may be gone already; what is frozen must be let go all the same.
            let _ = results.blocking_send(acted);
        }
        let now = Boot::now();
        let (due, rest) = frozen.into_iter().partition(|(at, _)| *at <= now);
        frozen = rest;
        for (_, target) in due {
            let _ = results.blocking_send(actor.perform(thaw(target)));
        }
    }
}

fn thaw(target: Target) -> Job {
    Job { number: 0, target, step: Step::Rung(Rung::Release), need: None }
}
