//! What was set in motion: jobs handed to the workers, what became of them, and what is on its way out.

use super::Agent;
use crate::act::{self, Acted, Jobs, NotDone, Target};
use crate::clock::Boot;
use crate::state::{Cause, NodeState, Termination};
use ebb_journal::{Done, Outcome, Part, Record, ms};
use ebb_policy::snapshot::{ProtectedReason, WorkloadKey};
use ebb_policy::{Signal, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// The way to the threads that act, and what is under way there.
pub(super) struct Dispatcher {
    jobs: Jobs,
    /// Whom each job that is under way is about, by its number.
    names: BTreeMap<u64, WorkloadKey>,
    last_number: u64,
    /// What was told last of those threads.
    trouble: Option<String>,
    /// Kills of the watchdog that are known to the loop.
    stood_in: u64,
}

impl Dispatcher {
    pub(super) fn new(jobs: Jobs) -> Self {
        Self { jobs, names: BTreeMap::new(), last_number: 0, trouble: None, stood_in: 0 }
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.names.is_empty()
    }

    /// Has the victim of a decision that was made ahead held ready.
    pub(super) fn hold_ready(&self, victim: Target) {
        self.jobs.hold_ready(victim);
    }

    /// Whether the watchdog has killed somebody whom the loop has not heard of.
    pub(super) fn has_unheard_kill(&self) -> bool {
        self.jobs.stood_in() != self.stood_in
    }

    /// The same, once for each, so that a result that is lost stops nobody.
    pub(super) fn take_unheard_kill(&mut self) -> bool {
        let is_unheard = self.has_unheard_kill();
        self.stood_in = self.jobs.stood_in();
        is_unheard
    }

    /// Hands over a job about `who`.
    ///
    /// # Errors
    /// The job, where the threads have not kept up.
    fn give(&mut self, job: act::Job, who: Option<WorkloadKey>) -> Result<(), act::Job> {
        let number = job.number;
        self.jobs.give(job)?;
        self.names.extend(who.map(|who| (number, who)));
        Ok(())
    }
}

impl Agent {
    /// Hands a job to the worker; `decision` is the one that it carries out.
    pub(super) fn give(
        &mut self,
        target: Target,
        step: act::Step,
        need: Option<act::Need>,
        decision: Option<Time>,
    ) {
        self.dispatcher.last_number += 1;
        let number = self.dispatcher.last_number;
        let who = self.state.key_of(&target);
        let job = act::Job { number, target, step, need, decision };
        if let Err(job) = self.dispatcher.give(job, who) {
            self.state.terminations().fail(&job.target);
            left_alone(&mut self.state, &job.target);
            let why = NotDone::Behind.into();
            self.reporter.tell(Record::NotDone { job, workload: None, why });
        }
    }

    /// Says when something about the threads that act has changed for the worse.
    pub(super) fn tell_of_stuck_threads(&mut self) {
        let trouble = self.dispatcher.jobs.trouble();
        let told = std::mem::replace(&mut self.dispatcher.trouble, trouble.clone());
        if let Some(what) = trouble.filter(|what| told.as_ref() != Some(what)) {
            self.reporter.tell_degraded(Part::Actors, what);
        }
    }

    /// Says when workloads cannot be held open any more, and again when they are twice as many.
    pub(super) fn tell_of_descriptors(&mut self) {
        let not_held = self.state.not_held();
        if not_held == 0 || not_held < self.told.not_held.saturating_mul(2) {
            return;
        }
        self.told.not_held = not_held;
        let all = self.state.workload_count();
        let what = format!(
            "file descriptors have run out: {not_held} of {all} workloads are not held open but found anew for each reading, which takes longer; raise the hard limit (LimitNOFILE=)"
        );
        self.reporter.tell_degraded(Part::Descriptors, what);
    }

    /// Takes in what became of a job.
    pub(super) fn on_acted(&mut self, acted: &Acted) {
        let mut name = self.dispatcher.names.remove(&acted.job.number);
        if acted.by_watchdog {
            self.dispatcher.take_unheard_kill();
        }
        if acted.by_watchdog || name.is_none() {
            // The loop gave no such job, or heard of it when its thread hung: it has kept no name of it.
            name = self.state.key_of(&acted.job.target);
        }
        // For records: the cgroup of whom the watchdog has killed may be gone before that is taken in here.
        let told = name.clone().or_else(|| self.state.name_of(&acted.job.target));
        let workload = name.as_ref();
        let termination = self.state.terminations().get(&acted.job.target);
        let signal = termination.and_then(|termination| termination.signal);
        let signals: Vec<Signal> = termination.into_iter().flat_map(Termination::signals).collect();
        let who = told_as(&acted.job.target, told.as_ref());
        match &acted.result {
            Ok(ended) => {
                let what = match (ended.method, acted.by_watchdog) {
                    (act::Method::DryRun, _) => "would be evicted (dry run)",
                    (act::Method::Terminate, _) => "terminating",
                    (act::Method::Reclaim, _) => "reclaimed from",
                    (act::Method::Throttle, _) => "throttled",
                    (act::Method::Freeze, _) => "frozen",
                    (act::Method::Release, _) => "released",
                    (_, false) => "killed",
                    (_, true) => "killed by the watchdog",
                };
                let after_ms = self.note_moment(workload, &signals, (what, ended.at), &who);
                let is_eviction = !matches!(acted.job.step, act::Step::Rung(_));
                if is_eviction {
                    self.precedence.take(Boot::now());
                }
                if let (Target::Pod { uid, .. }, true, true) =
                    (&acted.job.target, is_eviction, ended.method != act::Method::DryRun)
                {
                    self.tell_cluster(uid, signal);
                }
                let mut assumes_freed = None;
                if ended.method == act::Method::DryRun {
                    self.state.terminations().only_pretended(&acted.job.target);
                    let would_be = self.state.terminations().get(&acted.job.target);
                    assumes_freed = would_be.and_then(|termination| termination.expected_free);
                } else if acted.by_watchdog {
                    let decision = acted.job.decision;
                    self.take_in_stand_in(workload, &acted.job.target, ended.at, decision);
                } else if acted.job.step == act::Step::Kill {
                    self.state.terminations().note_killed(&acted.job.target, ended.at);
                }
                let done = Done {
                    job: acted.job.clone(),
                    workload: told,
                    method: ended.method,
                    after_ms,
                    took_us: u64::try_from(ended.at.since(acted.begun).as_micros())
                        .unwrap_or(u64::MAX),
                    by_watchdog: acted.by_watchdog,
                    assumes_freed,
                };
                let record = match acted.job.step {
                    act::Step::Kill | act::Step::Terminate => Record::Evicted(done),
                    act::Step::Rung(_) => Record::StepTaken(done),
                };
                self.reporter.tell_at(ended.at, record);
            }
            Err(error) => {
                let target = &acted.job.target;
                // A kill that hangs may have come through, or come through yet.
                let is_on_its_way =
                    matches!(error, NotDone::Refused(act::Refusal::Exiting) | NotDone::Hung);
                let is_rung = matches!(acted.job.step, act::Step::Rung(_));
                // Of what was told to end before, and given time for it, that goes on.
                let mut goes_on = is_rung || is_on_its_way;
                match error {
                    // Nothing was on its way because of it.
                    _ if is_rung => {}
                    // It is on its way out, whoever ended it: it counts until its deadline, as any other does.
                    NotDone::Refused(act::Refusal::Exiting) | NotDone::Hung => {}
                    NotDone::Refused(act::Refusal::Protected { because, cgroup, .. }) => {
                        self.state.terminations().cancel(target);
                        self.state.protect(target, *because, *cgroup);
                        left_alone(&mut self.state, target);
                    }
                    NotDone::Refused(act::Refusal::Unreadable { .. }) => {
                        self.state.terminations().cancel(target);
                        self.state.protect(target, ProtectedReason::Unreadable, None);
                        left_alone(&mut self.state, target);
                    }
                    NotDone::Refused(act::Refusal::Gone) => {
                        if acted.job.step == act::Step::Kill {
                            self.state.terminations().found_none(target);
                        } else {
                            self.state.terminations().cancel(target);
                        }
                        let may_move = self.state.is_handed_over(target);
                        self.state.forget_removed(target);
                        // Who was not found there may come back: what is read next says so.
                        if let Some(key) = workload.filter(|_| !may_move) {
                            self.state.found_empty(key);
                        }
                    }
                    NotDone::NotNeeded { .. } | NotDone::PressureGone { .. } => {
                        if self.state.terminations().cancel(target) {
                            goes_on = true;
                        } else {
                            left_alone(&mut self.state, target);
                        }
                    }
                    // Not chosen again for a while: another may be, and the log does not fill with the same refusal.
                    NotDone::UnknownNeed { .. } => {
                        self.state.terminations().fail(target);
                        left_alone(&mut self.state, target);
                    }
                    NotDone::Failed { .. } | NotDone::Behind => {
                        self.state.terminations().fail(target)
                    }
                }
                if let (Some(key), false) = (workload, goes_on) {
                    // Nothing was done to it: the next decision is not to wait for its end.
                    self.decisions.history.forget_waiting(key);
                }
                let why = format!("{who}: {error}");
                self.note_moment(workload, &signals, ("not done", Boot::now()), &why);
                self.reporter.tell(Record::NotDone {
                    job: acted.job.clone(),
                    workload: told,
                    why: error.clone().into(),
                });
                if let (Target::Pod { uid, .. }, false) = (&acted.job.target, goes_on) {
                    self.forget_for_cluster(uid);
                }
                let is_spared = matches!(
                    error,
                    NotDone::Refused(
                        act::Refusal::Protected { .. } | act::Refusal::Unreadable { .. }
                    )
                );
                if let (Some(act::Need::MemoryPressureAbove { cgroup, .. }), true) =
                    (&acted.job.need, is_spared)
                {
                    self.take_back_pressure_eviction(cgroup);
                }
            }
        }
    }

    /// Notes whom the watchdog has killed for want of memory. Nobody decided on it here: what it gives back is on its way all the same, and its end is to be told.
    fn take_in_stand_in(
        &mut self,
        who: Option<&WorkloadKey>,
        target: &Target,
        killed: Boot,
        decision: Option<Time>,
    ) {
        if let Target::Pod { uid, .. } = target {
            self.state.note_evicted(uid);
        }
        if let (Some(key), None) = (who, self.state.terminations().get(target)) {
            let signal = Some(Signal::MemoryAvailable);
            let cause = Cause { signal, expected_free: None, decision };
            self.decisions.history.note_eviction(self.state.clock().time(killed));
            self.state.terminations().begin(key.clone(), target.clone(), Duration::ZERO, cause);
        }
        self.state.terminations().note_told(target);
    }

    /// Looks who has gone, who has not in time, and whose grace is over.
    pub(super) fn look_at_terminations(&mut self, at: Boot) {
        if !self.state.terminations().are_remembered() {
            return;
        }
        self.look_for_standstill();
        self.hold_unanswered_graces(at);
        for target in self.state.terminations().take_overdue(at) {
            let decision = self.state.terminations().decision_of(&target);
            self.give(target, act::Step::Kill, None, decision);
        }
        let proc = self.roots.proc.clone();
        let (gone, stuck) = self.state.terminations().look(&proc, at);
        for (terminations, outcome) in [(gone, Outcome::Exited), (stuck, Outcome::TimedOut)] {
            for termination in terminations {
                match (&termination.target, outcome) {
                    (Target::Pod { uid, .. }, Outcome::Exited) => {
                        self.tell_cluster_of_death(uid);
                        self.stop_sandboxes(uid);
                    }
                    (target, Outcome::Exited) => self.state.forget_removed(target),
                    (_, Outcome::TimedOut) => {}
                }
                let what = match outcome {
                    Outcome::Exited => "terminated",
                    Outcome::TimedOut => "termination timed out",
                };
                let signals: Vec<Signal> = termination.signals().collect();
                let key = &termination.key;
                self.note_moment(Some(key), &signals, (what, at), &key.name);
                let after_ms = ms(at.since(termination.chosen));
                let workload = termination.key.clone();
                let decision = termination.decision;
                let record = Record::Terminated { workload, outcome, after_ms, decision };
                self.reporter.tell_at(at, record);
            }
        }
    }
}

/// A pod to which nothing was done does not count as ended: what is dead of it is not to be collected, nor its sandbox stopped.
fn left_alone(state: &mut NodeState, target: &Target) {
    if let Target::Pod { uid, .. } = target {
        state.pods_mut().forget_evicted(uid);
    }
}

/// What a timeline calls a target: its workload, where that is known.
fn told_as(target: &Target, workload: Option<&WorkloadKey>) -> String {
    workload.map_or_else(|| target.to_string(), |key| key.name.clone())
}
