//! The hook before an eviction, in the loop: who is asked about, and for how long an eviction is put off.
//!
//! ```text
//!  soft eviction ─► asked about it before, in this need? ──yes─────────────────────────────────────────► evict
//!                     │ no                                                                                ▲
//!                     ▼                                                                                   │
//!                   a deadline since the need's first eviction was due? ──yes─────────────────────────────┤
//!                     │ no                                                                                │
//!                     ▼                                                                                   │
//!                   put off: call, or let the call that is under way end ─► the next pass decides afresh ─┘
//! ```
//! A need is a signal whose soft threshold is met, until somebody is evicted for it or it is met no more. In each, a workload is asked about once, and all calls together have one deadline: whoever keeps changing places with others puts nothing off for longer.
//! The call itself is made on a thread of its own (`crate::hook`). Nothing here holds up an eviction for a hard threshold, which is never put off.

use super::Agent;
use crate::act::Mode;
use crate::clock::Boot;
use crate::config::BeforeEviction;
use crate::hook::{Call, Caller, Ended, request};
use ebb_journal::{HookOutcome, Part, Record, ms};
use ebb_policy::plan::{Evict, Note, Strength, ThresholdState, ThresholdStatus};
use ebb_policy::snapshot::WorkloadKey;
use ebb_policy::{Plan, Signal};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// A thread comes back so soon after the deadline of its call, unless it hangs.
const COMES_BACK_WITHIN: Duration = Duration::from_millis(200);

/// A call that comes back so long after its deadline hangs, and that is told.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// What is known of calls.
#[derive(Debug)]
pub(super) struct Hooks {
    /// How ends of calls reach the loop.
    ends: Sender<Ended>,
    /// The thread that calls; `None` until a hook is configured.
    caller: Option<Caller>,
    calls: u64,
    /// The one that is under way.
    flight: Option<Flight>,
    needs: BTreeMap<Signal, Need>,
}

/// A call that is under way.
#[derive(Clone, Debug)]
struct Flight {
    number: u64,
    workload: WorkloadKey,
    signal: Signal,
    called: Boot,
    until: Boot,
    /// Its deadline has passed and was told; the thread has yet to come back.
    is_over: bool,
    /// That it does not come back was told.
    is_told_stuck: bool,
}

/// A need for which somebody is to be evicted.
#[derive(Clone, Debug)]
struct Need {
    /// Until when its evictions may be put off.
    until: Boot,
    asked: BTreeSet<WorkloadKey>,
}

/// What becomes of an eviction now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It is not put off, or no longer.
    Evict,
    /// The call that is under way is to end first.
    Wait,
    /// It is asked about, and waited for until then.
    Ask(Boot),
}

impl Hooks {
    /// Ends of calls go to `ends`; without a hook there is no thread.
    ///
    /// # Errors
    /// When no thread can be made.
    pub(super) fn new(ends: Sender<Ended>, is_wanted: bool) -> io::Result<Self> {
        let (caller, flight) = (None, None);
        let mut hooks = Self { ends, caller, calls: 0, flight, needs: BTreeMap::new() };
        hooks.configure(is_wanted)?;
        Ok(hooks)
    }

    /// Sees to it that there is a thread where one is wanted, and begins anew.
    ///
    /// # Errors
    /// When no thread can be made.
    fn configure(&mut self, is_wanted: bool) -> io::Result<()> {
        self.needs.clear();
        if is_wanted && self.caller.is_none() {
            self.caller = Some(Caller::start(self.ends.clone())?);
        }
        Ok(())
    }

    /// When the call that is under way is over, whatever comes of it.
    pub(super) fn due(&self) -> Option<Boot> {
        self.flight.as_ref().filter(|flight| !flight.is_over).map(|flight| flight.until)
    }

    /// Whether somebody is being asked because of `signal`.
    pub(super) fn is_asking_for(&self, signal: Signal) -> bool {
        self.flight.as_ref().is_some_and(|flight| !flight.is_over && flight.signal == signal)
    }

    /// What becomes of an eviction of `workload` for `signal` at `at`, with `deadline` for all that is asked in one need.
    fn turn(
        &mut self,
        workload: &WorkloadKey,
        signal: Signal,
        at: Boot,
        deadline: Duration,
    ) -> Turn {
        // Its deadline passed within this look. The next one, which is due now, ends it first, and decides by what is there then.
        if self.due().is_some_and(|due| due <= at) {
            return Turn::Wait;
        }
        let new = || Need { until: at.plus(deadline), asked: BTreeSet::new() };
        let need = self.needs.entry(signal).or_insert_with(new);
        if at >= need.until {
            return Turn::Evict;
        }
        match &self.flight {
            // Its thread hangs, and asks nobody.
            Some(flight) if at.since(flight.until) > COMES_BACK_WITHIN => Turn::Evict,
            Some(flight) if !flight.is_over && flight.workload == *workload => Turn::Wait,
            _ if need.asked.contains(workload) => Turn::Evict,
            Some(_) => Turn::Wait,
            None => Turn::Ask(need.until),
        }
    }

    /// Forgets the needs that `plan` finds to be over.
    fn settle(&mut self, plan: &Plan) {
        use ThresholdState::{Clear, Grace, Inert};
        let is_over = |signal: Signal| {
            let is_soft = |t: &&ThresholdStatus| t.signal == signal && t.strength == Strength::Soft;
            let mut soft = plan.thresholds.iter().filter(is_soft).peekable();
            // One that was not judged, as while the end of a victim is waited for, is as it was.
            soft.peek().is_some() && soft.all(|t| matches!(t.state, Clear | Grace | Inert))
        };
        self.needs.retain(|signal, _| !is_over(*signal));
    }
}

/// Whether an eviction of `plan` may be put off at all.
fn has_time(evict: &Evict, plan: &Plan) -> bool {
    // The filesystem is full before anything but an eviction could help.
    let is_full_soon = plan
        .notes
        .iter()
        .any(|note| matches!(note, Note::FullSoon { signal, .. } if Some(*signal) == evict.signal));
    evict.strength == Some(Strength::Soft) && evict.memory_pressure.is_none() && !is_full_soon
}

impl Agent {
    /// Whom of the evictions of `plan` nobody is to order yet, because the hook is asked about somebody first.
    pub(super) fn put_off(&mut self, plan: &Plan) -> Vec<WorkloadKey> {
        let now = Boot::now();
        self.hooks.settle(plan);
        let hook = self.policy.before_eviction.clone();
        let Some(hook) = hook.filter(|_| self.mode == Mode::Enforce) else { return Vec::new() };
        let (soft, others): (Vec<&Evict>, Vec<&Evict>) =
            plan.evictions().partition(|evict| has_time(evict, plan));
        let mut goes_any = !others.is_empty();
        let mut put_off = Vec::new();
        for evict in soft {
            let Some(signal) = evict.signal else { continue };
            let is_put_off = match self.hooks.turn(&evict.workload, signal, now, hook.deadline) {
                Turn::Evict => false,
                Turn::Wait => true,
                // Whether anybody else is needed shows once those have ended that go now.
                Turn::Ask(_) if goes_any => true,
                Turn::Ask(until) => self.call_hook(&hook, evict, signal, (now, until)),
            };
            if is_put_off {
                put_off.push(evict.workload.clone());
            } else {
                goes_any = true;
            }
        }
        put_off
    }

    /// Has the hook called; returns whether it is waited for.
    fn call_hook(
        &mut self,
        hook: &BeforeEviction,
        evict: &Evict,
        signal: Signal,
        (now, until): (Boot, Boot),
    ) -> bool {
        let has = until.since(now);
        // Who is not there any more is found out by the eviction.
        let Some(target) = self.state.target(&evict.workload) else { return false };
        let time = self.state.clock().time(now);
        let line = request(evict, &target, time, has);
        let (Some(caller), Some(line)) = (&self.hooks.caller, line) else { return false };
        let number = self.hooks.calls + 1;
        let call = Call { number, socket: hook.socket.clone(), line, until };
        if !caller.call(call) {
            return false;
        }
        self.hooks.calls = number;
        let workload = evict.workload.clone();
        if let Some(need) = self.hooks.needs.get_mut(&signal) {
            need.asked.insert(workload.clone());
        }
        let record =
            Record::HookCalled { workload: workload.clone(), signal, deadline_ms: ms(has) };
        self.note_moment(Some(&workload), &[signal], ("hook called", now), &workload.name);
        self.reporter.tell_at(now, record);
        self.hooks.flight = Some(Flight {
            number,
            workload,
            signal,
            called: now,
            until,
            is_over: false,
            is_told_stuck: false,
        });
        true
    }

    /// Takes in that somebody is evicted: the next need for the same signal asks anew.
    pub(super) fn met_need(&mut self, evict: &Evict) {
        // Who is not there any more gives nothing back.
        if let Some(signal) = evict.signal
            && self.state.target(&evict.workload).is_some()
        {
            self.hooks.needs.remove(&signal);
        }
    }

    /// Takes in how a call has ended; the next pass decides afresh.
    pub(super) fn on_hook(&mut self, ended: Ended) {
        let Ended { number, at, outcome, why } = ended;
        let is_it = |flight: &mut Flight| flight.number == number;
        let Some(flight) = self.hooks.flight.take_if(is_it) else { return };
        // What came of one whose deadline has passed is of no use to anybody.
        if !flight.is_over {
            self.hook_ended(&flight, at, outcome, why);
        }
    }

    /// Ends the wait for a call whose deadline has passed; returns whether one has.
    pub(super) fn end_overdue_hook(&mut self, at: Boot) -> bool {
        let Some(flight) = &mut self.hooks.flight else { return false };
        if flight.is_over || at < flight.until {
            return false;
        }
        flight.is_over = true;
        let flight = flight.clone();
        self.hook_ended(&flight, at, HookOutcome::TimedOut, None);
        true
    }

    fn hook_ended(&mut self, flight: &Flight, at: Boot, outcome: HookOutcome, why: Option<String>) {
        let Flight { workload, signal, called, .. } = flight;
        let detail = format!("{}: {outcome}", workload.name);
        self.note_moment(Some(workload), &[*signal], ("hook ended", at), &detail);
        self.reporter.tell_at(
            at,
            Record::HookEnded {
                workload: workload.clone(),
                signal: *signal,
                outcome,
                took_ms: ms(at.since(*called)),
                why,
            },
        );
        // By what is known of a filesystem now was decided already.
        if signal.is_disk() {
            self.disk_has_changed();
        }
    }

    /// Says once that a call does not come back, until it does.
    pub(super) fn look_for_a_stuck_hook(&mut self, at: Boot) {
        let Some(flight) = &mut self.hooks.flight else { return };
        if flight.is_told_stuck || at.since(flight.until) < STUCK_AFTER {
            return;
        }
        flight.is_told_stuck = true;
        let what = "the hook's socket cannot even be connected to (does its mount hang?): evictions do not wait for it";
        self.reporter.tell_degraded(Part::Hook, what);
    }

    /// Has the hook of another configuration asked from now on.
    pub(super) fn configure_hook(&mut self) {
        let is_wanted = self.policy.before_eviction.is_some() && self.mode == Mode::Enforce;
        if let Err(error) = self.hooks.configure(is_wanted) {
            let what = format!("no thread for the hook before evictions: {error}; it is not asked");
            self.reporter.tell_degraded(Part::Hook, what);
        }
    }
}

#[cfg(test)]
mod tests;
