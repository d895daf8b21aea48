//! When the loop or the thread that kills is stuck while memory runs out, something must still act.
//!
//! The loop leaves two things where the watchdog's thread can see them: when it will be heard of next at the latest, and the ranking that the policy made last.
//! If the first is overdue and the node is below the hard threshold, the watchdog has the first of the ranking that may be killed killed, under the same checks.
//! A stuck loop also loses its real-time priority, where it has one.
//! The thread that kills leaves since when it is at its present order. If that is too long ago another thread takes over: its queue, and an [`Actor`] of its own.

use super::release::Releaser;
use super::seat::{Order, Seat, hung};
use super::standby::{Candidate, LOOK_EVERY, LastResort, Silence, Standby};
use super::{Acted, Actor, Job, NotDone, Refusal, Step, Target};
use crate::clock::Boot;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::thread::Thread;
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// A kill takes less than a millisecond, or half a second for each container where the kernel has no `cgroup.kill`. Who takes over meanwhile kills nobody twice over: a process dies once.
const KILL_PATIENCE: Duration = Duration::from_secs(1);

/// How long an exiting candidate is waited for, as the loop waits for those it has had killed.
const EXIT_PATIENCE: Duration = Duration::from_secs(3);

/// Starts the watchdog's thread, which lives as long as somebody takes results.
///
/// It kills nobody itself: it hands the work to a thread that does, and hands that thread's seat on when it hangs.
///
/// # Errors
/// When no thread can be made.
pub(super) fn guard(
    standby: Arc<Standby>,
    seat: Arc<Seat>,
    orders: SyncSender<Order>,
    releaser: Releaser,
    results: Sender<Acted>,
) -> io::Result<Thread> {
    let thread = crate::threads::spawn("ebb-watchdog", move || {
        let mut all_hang = false;
        let mut silence = Silence::default();
        while !results.is_closed() {
            let is_busy = seat.busy_for(Boot::now()).is_some() || releaser.is_busy();
            let rest = if is_busy { LOOK_EVERY } else { standby.rest(Boot::now()) };
            // Whoever hands over a job ends the rest early.
            std::thread::park_timeout(rest);
            let now = Boot::now();
            releaser.attend(now);
            if let Some(busy) = seat.busy_for(now).filter(|busy| *busy > KILL_PATIENCE) {
                // Before the next job can be told of. A full channel is no reason to wait: the loop that would read it is stuck.
                if let Some(job) = seat.take_job() {
                    let _ = results.try_send(hung(job, busy));
                }
                let is_taken_over = seat.hand_over();
                if is_taken_over {
                    tracing::error!(?busy, "the thread that kills hangs: another takes over");
                } else if !all_hang {
                    tracing::error!(
                        ?busy,
                        "every thread that kills hangs: nobody is killed until one comes back"
                    );
                }
                all_hang = !is_taken_over;
            } else {
                all_hang = false;
            }
            let word = standby.broken_word(now);
            let is_stuck = silence.is_too_long(word, now);
            let Some(word) = word.filter(|_| is_stuck) else { continue };
            standby.take_precedence_back();
            let Some(resort) = standby.last_resort() else { continue };
            // One at a time: what waits is no newer than this.
            if !seat.stands_in.swap(true, Ordering::AcqRel)
                && orders.try_send(Order::StandIn { word, resort }).is_err()
            {
                seat.stands_in.store(false, Ordering::Release);
            }
        }
    })?;
    Ok(thread.thread().clone())
}

/// What holds up who would be killed next in place of the loop.
#[derive(Debug, Default)]
pub(super) struct HeldUp {
    /// Who is exiting or was killed, and since when that is waited for.
    pub(super) awaited: BTreeMap<Target, Boot>,
    /// Who may have moved, as last told.
    told: Option<Target>,
}

/// Kills the first candidate that can be killed, in place of the loop; `None` when none could, or none need be.
///
/// A candidate that is exiting is as good as killed: nobody behind it goes for memory that is on its way back.
/// Nor does anybody go behind one that may have moved rather than ended.
pub(super) fn stand_in(
    resort: &LastResort,
    actor: &mut Actor,
    held_up: &mut HeldUp,
) -> Option<Acted> {
    if actor.check_need(&resort.need).is_err() {
        *held_up = HeldUp::default();
        return None;
    }
    let HeldUp { awaited, told } = held_up;
    let now = Boot::now();
    awaited.retain(|one, _| resort.candidates.iter().any(|candidate| candidate.target == *one));
    for (Candidate { target, may_move }, number) in resort.candidates.iter().zip(1..) {
        match awaited.get(target) {
            // It hangs: its memory is not on its way.
            Some(since) if now.since(*since) >= EXIT_PATIENCE => continue,
            _ => {}
        }
        let job = Job {
            number: u64::MAX / 2 + number,
            target: target.clone(),
            step: Step::Kill,
            need: Some(resort.need.clone()),
            decision: resort.decision,
        };
        let mut acted = actor.perform(job);
        match acted.result {
            Ok(_) => {
                tracing::error!(?target, "the loop is stuck and memory is out: the watchdog acted");
                awaited.entry(target.clone()).or_insert(now);
                acted.by_watchdog = true;
                return Some(acted);
            }
            Err(NotDone::Refused(Refusal::Exiting)) => {
                awaited.entry(target.clone()).or_insert(now);
                return None;
            }
            // The memory is still out, and may be held by the same processes in a cgroup that only the loop would find. The kernel's OOM killer goes by processes.
            Err(NotDone::Refused(Refusal::Gone)) if *may_move => {
                if told.replace(target.clone()).as_ref() != Some(target) {
                    tracing::error!(
                        ?target,
                        "the loop is stuck, and who was to be killed may have moved: nobody is killed in its place"
                    );
                }
                return None;
            }
            Err(_) => {}
        }
    }
    None
}
