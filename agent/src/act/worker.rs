//! The threads that do jobs: one for what must be quick, one for what the kernel may block.
//!
//! ```text
//!  loop ──Kill, Terminate──► queue ──► ebb-act, or who took over from it ──dying──► ebb-hurry, ebb-release
//!     └──Rung──────────────► queue ──► ebb-ladder
//! ```
//! A write to `memory.reclaim` or `memory.high` can take as long as reclaim does, so it never stands before a kill.
//! The slow thread also lets go of what it has frozen when the time is over, whether or not the loop still runs.
//! A quick thread that hangs all the same is taken over from by one that was started beside it: the watchdog sees to that.

use super::hurry::Hurry;
use super::prepared::HELD_FOR;
use super::release::Releaser;
use super::seat::{Order, Post, Seat, lock};
use super::standby::Standby;
use super::watchdog::{self, HeldUp};
use super::{Acted, Actor, Job, Step, Target};
use crate::clock::Boot;
use crate::threads::{Turn, run_first};
use ebb_journal::Rung;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokio::sync::mpsc::{Sender, error};

/// Jobs that may wait for a thread; a plan is small, so more than this means that it is stuck.
const WAITING_JOBS: usize = 64;

/// Results that may wait for the loop beside those in its channel; a loop that takes none gives no jobs either.
const WAITING_RESULTS: usize = 256;

/// Between two tries to tell the loop what found no room.
const TELL_AGAIN: Duration = Duration::from_millis(100);

/// Who does jobs.
pub struct Crew {
    /// Kills.
    pub quick: Actor,
    /// Take over from a thread that hangs while it kills, one after the other.
    pub spares: Vec<Actor>,
    /// Slows down and lets go.
    pub slow: Actor,
}

/// The way to hand over jobs.
#[derive(Clone)]
pub struct Jobs {
    quick: SyncSender<Order>,
    slow: SyncSender<Job>,
    watchdog: std::thread::Thread,
    releaser: Releaser,
    stood_in: Arc<AtomicU64>,
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs").finish_non_exhaustive()
    }
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
                    Err(Order::Hold(_) | Order::StandIn { .. }) => Ok(()),
                    Ok(()) => {
                        self.watchdog.unpark();
                        Ok(())
                    }
                }
            }
        }
    }

    /// Says that a job for `target` may come any moment; a thread that has not kept up is not told.
    pub fn hold_ready(&self, target: Target) {
        let _ = self.quick.try_send(Order::Hold(target));
    }

    /// How often somebody was killed in the loop's place, which is told as any other result is.
    #[must_use]
    pub fn stood_in(&self) -> u64 {
        self.stood_in.load(Ordering::Acquire)
    }

    /// What an operator should know of the threads, if anything; the same words for as long as nothing changes.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.releaser.trouble(Boot::now())
    }
}

fn given_back<T>(error: TrySendError<T>) -> T {
    match error {
        TrySendError::Full(back) | TrySendError::Disconnected(back) => back,
    }
}

/// Starts all threads, the watchdog among them; they end when the last [`Jobs`] is dropped, or nobody takes results any more.
///
/// # Errors
/// When no thread can be made.
pub fn start(crew: Crew, standby: Arc<Standby>, results: Sender<Acted>) -> io::Result<Jobs> {
    let (quick_jobs, quick_inbox) = sync_channel(WAITING_JOBS);
    let (slow_jobs, slow_inbox) = sync_channel(WAITING_JOBS);
    let releaser = Releaser::start()?;
    let hurry = Hurry::start(crew.quick.roots.proc.clone())?;
    let seat = Arc::new(Seat::new(quick_inbox));
    let actors = std::iter::once(crew.quick).chain(crew.spares);
    for mut actor in actors {
        actor.hand.hurry_with(hurry.clone());
        let killer = Killer {
            actor,
            seat: Arc::clone(&seat),
            standby: Arc::clone(&standby),
            releaser: releaser.clone(),
            results: results.clone(),
            untold: VecDeque::new(),
            held_up: HeldUp::default(),
        };
        let (take_over, told) = sync_channel(1);
        let own = take_over.clone();
        crate::threads::spawn("ebb-act", move || serve(killer, &told, &own))?;
        seat.spares().push_back(take_over);
    }
    seat.hand_over();
    let stood_in = Arc::clone(&seat.stood_in);
    let told = results.clone();
    crate::threads::spawn("ebb-ladder", move || run_slow(crew.slow, &slow_inbox, &told))?;
    let watchdog = watchdog::guard(standby, seat, quick_jobs.clone(), releaser.clone(), results)?;
    Ok(Jobs { quick: quick_jobs, slow: slow_jobs, watchdog, releaser, stood_in })
}

/// A thread that can kill.
struct Killer {
    actor: Actor,
    seat: Arc<Seat>,
    standby: Arc<Standby>,
    releaser: Releaser,
    results: Sender<Acted>,
    /// What the loop had no room for.
    untold: VecDeque<Acted>,
    /// What held up whom it was to kill in place of the loop.
    held_up: HeldUp,
}

/// Waits for the seat, has it until somebody takes over, and waits again.
fn serve(mut killer: Killer, told: &Receiver<Arc<Post>>, own: &SyncSender<Arc<Post>>) {
    if let Err(error) = run_first(Turn::Kill) {
        tracing::warn!(%error, "kills wait for a processor like any other work (no SCHED_FIFO)");
    }
    while let Ok(post) = told.recv() {
        if !killer.run(&post) {
            return;
        }
        killer.seat.spares().push_back(own.clone());
    }
}

impl Killer {
    /// Works off orders; true when somebody has taken over, false when nobody gives or hears any more.
    fn run(&mut self, post: &Post) -> bool {
        loop {
            let order = self.next_order();
            match order {
                Ok(Order::Hold(target)) => {
                    post.begin(None);
                    self.actor.hold_ready(&target);
                    post.end();
                }
                Ok(Order::Do(job)) => {
                    post.begin(Some(&job));
                    if job.need.is_some() {
                        self.releaser.wait();
                    }
                    let acted = self.actor.perform(job);
                    post.end();
                    self.tell(acted);
                }
                Ok(Order::StandIn { word, resort }) => {
                    post.begin(None);
                    // It may have come back while this waited: then whom it left is not whom it would choose.
                    let acted = self
                        .standby
                        .still_stands(word)
                        .then(|| watchdog::stand_in(&resort, &mut self.actor, &mut self.held_up));
                    let acted = acted.flatten();
                    post.end();
                    self.seat.stands_in.store(false, Ordering::Release);
                    if let Some(acted) = acted {
                        self.seat.stood_in.fetch_add(1, Ordering::AcqRel);
                        self.tell(acted);
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.actor.ready.release(),
                Err(RecvTimeoutError::Disconnected) => return false,
            }
            if !self.tell_the_rest() {
                return false;
            }
            if post.is_replaced() {
                self.actor.ready.release();
                return true;
            }
        }
    }

    fn next_order(&self) -> Result<Order, RecvTimeoutError> {
        let inbox = lock(&self.seat.inbox);
        // A hold that no job came for is let go: it keeps descriptors of what may be gone by then.
        if self.actor.ready.is_holding() {
            inbox.recv_timeout(HELD_FOR)
        } else if self.untold.is_empty() {
            inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            inbox.recv_timeout(TELL_AGAIN)
        }
    }

    /// Tells of a kill before the memory is taken back, so that the record does not wait for the kernel.
    fn tell(&mut self, acted: Acted) {
        if self.untold.len() < WAITING_RESULTS {
            self.untold.push_back(acted);
        }
        self.tell_the_rest();
        self.releaser.give(self.actor.take_dying());
    }

    /// Tells as much as the loop has room for, and waits for nothing; false when it is gone.
    fn tell_the_rest(&mut self) -> bool {
        while let Some(acted) = self.untold.pop_front() {
            match self.results.try_send(acted) {
                Ok(()) => {}
                Err(error::TrySendError::Full(acted)) => {
                    self.untold.push_front(acted);
                    return true;
                }
                Err(error::TrySendError::Closed(_)) => return false,
            }
        }
        true
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
    Job { number: 0, target, step: Step::Rung(Rung::Release), need: None, decision: None }
}

#[cfg(test)]
mod tests;
