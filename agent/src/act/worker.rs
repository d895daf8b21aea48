//! The threads that do jobs: one for what must be quick, one for what the kernel may block.
//!
//! A write to `memory.reclaim` or `memory.high` can take as long as reclaim does, so it never stands before a kill.
//! The slow thread also lets go of what it has frozen when the time is over, whether or not the loop still runs.

use super::ladder::Rung;
use super::myself::run_first;
use super::ready::HELD_FOR;
use super::{Acted, Actor, Job, Step, Target};
use crate::clock::Boot;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokio::sync::mpsc::{Sender, error};

/// Jobs that may wait for a thread; a plan is small, so more than this means that it is stuck.
const WAITING_JOBS: usize = 64;

/// What the quick thread is told.
#[derive(Debug)]
enum Order {
    /// Take hold of this one: a job for it may follow.
    Hold(Target),
    Do(Job),
}

/// The way to hand over jobs.
#[derive(Clone, Debug)]
pub struct Jobs {
    quick: SyncSender<Order>,
    slow: SyncSender<Job>,
}

impl Jobs {
    /// Hands over a job; gives it back when its thread has not kept up or has died.
    ///
    /// # Errors
    /// The job, undone.
    pub fn give(&self, job: Job) -> Result<(), Job> {
        match job.step {
            Step::Rung(_) => self.slow.try_send(job).map_err(given_back),
            Step::Kill | Step::Terminate => {
                match self.quick.try_send(Order::Do(job)).map_err(given_back) {
                    Err(Order::Do(job)) => Err(job),
                    Err(Order::Hold(_)) | Ok(()) => Ok(()),
                }
            }
        }
    }

    /// Says that a job for `target` may come any moment; a thread that has not kept up is not told.
    pub fn hold_ready(&self, target: Target) {
        let _ = self.quick.try_send(Order::Hold(target));
    }
}

fn given_back<T>(error: TrySendError<T>) -> T {
    match error {
        TrySendError::Full(back) | TrySendError::Disconnected(back) => back,
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

fn run_quick(mut actor: Actor, inbox: &Receiver<Order>, results: &Sender<Acted>) {
    if let Err(error) = run_first() {
        tracing::warn!(%error, "kills wait for a processor like any other work (no SCHED_FIFO)");
    }
    loop {
        // A hold that no job came for is let go: it keeps descriptors of what may be gone by then.
        let order = if actor.ready.is_holding() {
            inbox.recv_timeout(HELD_FOR)
        } else {
            inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match order {
            Ok(Order::Hold(target)) => actor.hold_ready(&target),
            Ok(Order::Do(job)) => {
                if !tell(results, actor.perform(job), &mut actor) {
                    return;
                }
            }
            Err(RecvTimeoutError::Timeout) => actor.ready.release(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Tells of a kill before the memory is taken back, so that the record does not wait for the kernel; unless nobody takes the record in. Returns whether anybody will.
fn tell(results: &Sender<Acted>, acted: Acted, actor: &mut Actor) -> bool {
    let waiting = results.try_send(acted);
    actor.release_memory();
    match waiting {
        Ok(()) => true,
        Err(error::TrySendError::Closed(_)) => false,
        Err(error::TrySendError::Full(acted)) => results.blocking_send(acted).is_ok(),
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
