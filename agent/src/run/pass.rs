//! One pass: the snapshot goes to policy, and the plan that comes back is set in motion.

use super::episode::Episode;
use super::status::RANKED;
use super::watch::{Watch, also, need};
use super::{Agent, LOCAL_EVERY};
use crate::act::{Candidate, LastResort, Mode, Need, Rung, Step, Target};
use crate::clock::Boot;
use crate::state::{Cause, Extent};
use ebb_journal::incident::Decision;
use ebb_journal::{InForce, PlanNote, Record, Worded};
use ebb_policy::plan::{
    Action, Evict, Note, PressureState, Strength, ThresholdState, ThresholdStatus,
};
use ebb_policy::snapshot::WorkloadKey;
use ebb_policy::{History, Plan, Signal, Snapshot, decide, last_resort};
use std::collections::BTreeSet;
use std::time::Duration;

/// Between two records of why nobody is evicted, where the reason has changed since.
const DEFERRALS_APART: Duration = Duration::from_millis(100);

/// Candidates shown with a plan.
const SHOWN: usize = 10;

impl Agent {
    /// Decides on what is known at `at`, and sets it in motion.
    pub(super) fn pass(&mut self, at: Boot) {
        self.look_for_standstill();
        self.stop_waiting_for_images(at);
        self.forget_refusals(at);
        self.stop_waiting_for_pods(at);
        self.read_stall();
        let mut extent = self.extent(at);
        let (mut snapshot, mut plan, mut next) = self.decide_on(at, extent);
        if extent == Extent::Everything && self.needs_fresh_images(&plan, at) {
            extent = Extent::Quick;
            (snapshot, plan, next) = self.decide_on(at, extent);
        }
        // Who was killed while this was decided is in it as if nothing had happened: whether anybody else has to go shows once that is taken in.
        if plan.evictions().next().is_some() && self.dispatcher.take_unheard_kill() {
            self.node.decide_at = Some(at);
            return;
        }
        self.has_decided(extent, at);
        self.state.forget_oom_kills();
        let put_off = self.put_off(&plan);
        next.put_off(&put_off, plan.decided_at, &self.decisions.history);
        let before = std::mem::replace(&mut self.decisions.history, next);
        self.take_thresholds(&plan, extent, at);
        if self.at_start.thresholds.is_empty() {
            let can_be_met = |status: &&ThresholdStatus| status.state != ThresholdState::Inert;
            let resolved = plan.thresholds.iter().filter(can_be_met).cloned();
            let pressures = self.policy.limits.memory_pressure().iter().cloned();
            let all = resolved.map(InForce::Resolved).chain(pressures.map(InForce::MemoryPressure));
            self.at_start.thresholds = all.map(Worded::from).collect();
        }
        let evictions: Vec<&Evict> =
            plan.evictions().filter(|evict| !put_off.contains(&evict.workload)).collect();
        let decided = Boot::now();
        for evict in &evictions {
            self.met_need(evict);
            self.evict(evict, &plan);
        }
        for action in &plan.actions {
            self.take_step(action, at);
        }
        self.tell_conditions(&plan, extent);
        self.node.decide_at = plan.wake_in.map(|wake| at.plus(Duration::from_millis(wake.0)));
        // From here on nothing is urgent any more: the worker has its jobs.
        // Where somebody has moved on whom nobody has found, the first in rank may be somebody beside them.
        let is_outdated = self.state.is_outdated(at);
        let resort = self.last_resort(&snapshot).filter(|_| !is_outdated);
        let first = resort.as_ref().and_then(|(resort, ranked)| Some((resort, ranked.first()?)));
        self.arm_reflex(first, || Decision {
            config: None,
            snapshot: snapshot.clone(),
            history: before.clone(),
            plan: plan.clone(),
        });
        let (resort, ranked) = resort.unzip();
        if !is_outdated {
            self.standby.leave(resort);
        }
        if let Some(kept) = &mut self.kept {
            kept.take_ranking(at, ranked);
        }
        self.remember();
        self.tell_of_local_pressure(&plan);
        if extent == Extent::Everything {
            self.ask_for_usage(&snapshot, &plan, at);
            self.collect(&plan, at);
        }
        if evictions.is_empty() {
            // That a hook is waited for was told when it was called.
            if put_off.is_empty() {
                self.tell_of_holding(&plan);
            }
            if let Some(kept) = &mut self.kept {
                kept.take_made_of(snapshot, before, extent);
            }
            return;
        }
        // The snapshot of an eviction goes to its episode. The next decision, which follows within milliseconds, is kept again.
        self.told.deferral = None;
        self.tell_of_evictions(&evictions, &plan, decided, "decided");
        if let Some(episode) = self.episode_of(&plan) {
            let plan = plan.clone();
            episode.keep(|| Decision { config: None, snapshot, history: before, plan });
        }
    }

    /// Finds out what thresholds are as the present configuration has them: one on disk may be a part of a filesystem, and is a number only once its size is known.
    pub(super) fn resolve_thresholds(&mut self, at: Boot) {
        let (_, plan, _) = self.decide_on(at, Extent::Everything);
        self.take_thresholds(&plan, Extent::Everything, at);
    }

    fn take_thresholds(&mut self, plan: &Plan, extent: Extent, at: Boot) {
        // A pass that waits for the end of its victims judges no threshold, and those there are stay what they are.
        if plan.thresholds.is_empty() && !self.policy.limits.thresholds().is_empty() {
            return;
        }
        if let Some(kept) = &mut self.kept {
            kept.take_thresholds(&plan.thresholds, extent);
        }
        // One that leaves disk out says nothing about thresholds on disk.
        let is_judged = |signal: Signal| extent == Extent::Everything || !signal.is_disk();
        if let Some(metrics) = self.reporter.metrics() {
            metrics.judge(self.state.clock().time(at), &plan.thresholds, is_judged);
        }
        self.watches.take_thresholds(plan, is_judged);
    }

    /// Decides on what is known at `at`; nothing of it is done or remembered yet.
    fn decide_on(&mut self, at: Boot, extent: Extent) -> (Snapshot, Plan, History) {
        let mut snapshot = self.state.snapshot_of(at, extent);
        snapshot.memory_pressure = self.pressures.readings(at);
        self.prepare(&mut snapshot, extent, at);
        // A reclaim that is under way is not gone on with on a snapshot that says nothing of disk.
        let reclaiming = match extent {
            Extent::Quick => self.decisions.history.reclaiming.take(),
            Extent::Everything => None,
        };
        let (plan, mut next) = decide(&snapshot, &self.policy.limits, &self.decisions.history);
        if extent == Extent::Quick {
            next.reclaiming = reclaiming;
            keep_what_was_left_out(&mut self.decisions.history, &mut next);
        }
        (snapshot, plan, next)
    }

    /// Says who goes and who was considered; `what` names the moment in the episode.
    pub(super) fn tell_of_evictions(
        &mut self,
        evictions: &[&Evict],
        plan: &Plan,
        decided: Boot,
        what: &'static str,
    ) {
        let mut episode = self.episode_of(plan);
        let after_ms = episode.as_ref().map(|e| e.after_ms(decided));
        if let Some(episode) = &mut episode {
            let names: Vec<_> = evictions.iter().map(|e| e.workload.name.as_str()).collect();
            episode.note(what, decided, Some(names.join(", ")));
        }
        let record = Record::Decided {
            decision: Some(plan.decided_at),
            after_ms,
            evict: evictions.iter().copied().cloned().collect(),
            ranking: plan.ranking.get(..SHOWN).unwrap_or(&plan.ranking).to_vec(),
            candidates: plan.ranking.len(),
            notes: ebb_journal::notes(plan),
        };
        self.reporter.tell_at(decided, record);
    }

    /// The episode that the evictions of `plan` belong to, if it is going on.
    fn episode_of(&mut self, plan: &Plan) -> Option<&mut Episode> {
        if let Some(pressed) = plan.evictions().find_map(|evict| evict.memory_pressure.as_ref()) {
            return self.pressures.episode_in(&pressed.cgroup);
        }
        self.watches.of_mut(plan.handled.as_ref()?.signal)?.episode.as_mut()
    }

    pub(super) fn evict(&mut self, evict: &Evict, plan: &Plan) {
        self.precedence.take(Boot::now());
        // What is held for the crossing was decided without this one.
        self.decisions.ahead = None;
        let Some(target) = self.state.target(&evict.workload) else {
            // It ended since the snapshot was taken, or the runtime has yet to say where it is: nobody is to wait for it.
            self.decisions.history.forget_waiting(&evict.workload);
            self.state.found_empty(&evict.workload);
            if let Some(episode) = self.episode_of(plan) {
                let why = format!("{}: nothing of it is found", evict.workload.name);
                episode.note("not done", Boot::now(), Some(why));
            }
            return;
        };
        let own = Duration::from_secs(evict.grace.0);
        let handled = plan.handled.as_ref().filter(|_| evict.memory_pressure.is_none());
        let is_ahead = handled.is_some_and(|handled| handled.forecast.is_some());
        // Below a soft threshold, and before a hard one is reached, there is time.
        let has_time = evict.strength == Some(Strength::Soft) || is_ahead;
        let grace = match (&target, evict.signal) {
            // Nor does a cgroup that only waits for memory: SIGTERM would have to wait with it.
            _ if evict.memory_pressure.is_some() => Duration::ZERO,
            _ if has_time => own,
            // Memory that has run out does not wait for anybody.
            (Target::Pod { .. }, Some(signal)) if signal.is_memory() => Duration::ZERO,
            (Target::Pod { .. }, _) => own,
            // A cgroup or a process has no hooks to run and nobody who gives it a second: below a hard threshold it goes at once.
            (Target::Cgroup { .. } | Target::Process { .. }, _) => Duration::ZERO,
        };
        let step = if grace.is_zero() { Step::Kill } else { Step::Terminate };
        let pressed = evict.memory_pressure.as_ref();
        pressed.into_iter().for_each(|pressed| self.pressures.chose(pressed, &evict.workload));
        let pressed = pressed.map(|pressed| Need::MemoryPressureAbove {
            cgroup: pressed.cgroup.clone(),
            limit: pressed.limit,
        });
        let short = handled.and_then(|handled| {
            // On a forecast the threshold is not reached yet: then the need is that nothing has come back since.
            let short = if is_ahead {
                handled.available.saturating_add(handled.available / 16)
            } else {
                handled.available.saturating_add(handled.need)
            };
            need(handled.signal, short, also(handled.signal, plan))
        });
        let need = pressed.or(short);
        let cause = Cause {
            signal: evict.signal,
            expected_free: evict.expected_free,
            decision: Some(plan.decided_at),
        };
        let cuts_grace_short =
            self.state.terminations().begin(evict.workload.clone(), target.clone(), grace, cause);
        if let Target::Pod { uid, .. } = &target {
            if self.mode == Mode::Enforce {
                self.state.note_evicted(uid);
                if cuts_grace_short {
                    self.take_back_question(uid);
                } else {
                    self.note_for_cluster(evict, uid, grace, plan.decided_at);
                }
                if has_time && self.evict_by_cluster(&evict.workload, &target, grace) {
                    return;
                }
            }
            // The runtime asks the containers to end, and knows how each wants to be asked. What is left at the deadline is killed without it.
            if step == Step::Terminate && self.stop_by_runtime(uid, grace) {
                self.tell_cluster(uid, evict.signal);
                return;
            }
        }
        self.give(target, step, need, Some(plan.decided_at));
    }

    /// Sets a step below ending a workload in motion; other actions are not for this.
    fn take_step(&mut self, action: &Action, at: Boot) {
        let (workload, rung) = match action {
            Action::Warn(warn) => {
                let (workload, message) = (warn.workload.clone(), warn.message.clone());
                self.reporter.tell(Record::Warned { workload, message });
                return;
            }
            Action::ReclaimMemory(reclaim) => {
                (&reclaim.workload, Rung::Reclaim { bytes: reclaim.bytes })
            }
            Action::Throttle(throttle) => {
                (&throttle.workload, Rung::Throttle { high: throttle.high })
            }
            Action::Freeze(freeze) => {
                let thaw_after_ms = freeze.until.since(self.state.clock().time(at)).0;
                (&freeze.workload, Rung::Freeze { thaw_after_ms })
            }
            Action::Release(release) => (&release.workload, Rung::Release),
            _ => return,
        };
        if let Some(target) = self.state.target(workload) {
            self.give(target, Step::Rung(rung), None, Some(self.state.clock().time(at)));
        }
    }

    /// The present ranking and its names, for whoever has to act when this loop does not; `None` when nobody may be ended.
    fn last_resort(&self, snapshot: &Snapshot) -> Option<(LastResort, Vec<WorkloadKey>)> {
        let signal = Signal::MemoryAvailable;
        let need = self.watches.of(signal).and_then(Watch::hard_need)?;
        let ranked =
            last_resort(snapshot, &self.policy.limits, &self.decisions.history, signal).into_iter();
        let candidate = |key: WorkloadKey| {
            let target = self.state.target(&key)?;
            let may_move = self.state.is_handed_over(&target);
            Some((key, Candidate { target, may_move }))
        };
        let (keys, candidates): (Vec<_>, Vec<_>) =
            ranked.filter_map(candidate).take(RANKED).unzip();
        let decision = Some(snapshot.taken_at);
        (!keys.is_empty()).then_some((LastResort { need, candidates, decision }, keys))
    }

    fn tell_of_local_pressure(&mut self, plan: &Plan) {
        let local: BTreeSet<WorkloadKey> = plan
            .notes
            .iter()
            .filter_map(|note| match note {
                Note::LocalPressure { workload } => Some(workload.clone()),
                _ => None,
            })
            .collect();
        // Its owner decides how often one of them changes.
        let now = Boot::now();
        if local == self.told.own_limits || now.since(self.told.own_limits_at) < LOCAL_EVERY {
            return;
        }
        let known = std::mem::take(&mut self.told.own_limits);
        if !local.is_subset(&known) {
            // And how many there are, with names of any length.
            let by_age = local.difference(&known).chain(local.intersection(&known));
            let workloads: Vec<_> = by_age.take(SHOWN).cloned().collect();
            let more = (local.len() - workloads.len()) as u64;
            self.reporter.tell(Record::LocalPressure { workloads, more });
            self.told.own_limits_at = now;
        }
        self.told.own_limits = local;
    }

    /// Tells once why nothing is ended although a threshold is met, and again when the reason changes.
    fn tell_of_holding(&mut self, plan: &Plan) {
        let is_pressed = plan.memory_pressure.iter().any(|p| p.state == PressureState::Met);
        if !is_pressed && !plan.thresholds.iter().any(|t| t.state == ThresholdState::Met) {
            return;
        }
        let why = plan.notes.iter().filter(|note| !kind(plan, note).is_empty());
        let kinds: Vec<String> = why.clone().map(|note| kind(plan, note).to_owned()).collect();
        if kinds.is_empty() || self.told.deferral.as_ref() == Some(&kinds) {
            return;
        }
        // Workloads that take and give memory change it with every look: one that lasts is told.
        let now = Boot::now();
        if self.told.deferral.is_some() && now.since(self.told.deferral_at) < DEFERRALS_APART {
            return;
        }
        self.told.deferral_at = now;
        let notes = why.map(|note| Worded::from(PlanNote::of(plan, note))).collect();
        self.reporter.tell(Record::EvictionDeferred {
            signal: plan.handled.as_ref().map(|h| h.signal),
            notes,
        });
        self.told.deferral = Some(kinds);
    }
}

/// What kind of reason for holding still a note is, without the figures that change from look to look; empty for a note that is none.
fn kind(plan: &Plan, note: &Note) -> &'static str {
    match note {
        Note::TerminatingCovers { .. } => "terminatingCovers",
        Note::NoActiveWorkloads => "noActiveWorkloads",
        Note::NoEvictionCandidates if ebb_journal::awaited(plan).is_some() => "awaitsPods",
        Note::NoEvictionCandidates => "noEvictionCandidates",
        Note::NotEnough { .. } => "notEnough",
        Note::DryRunFreed { .. } => "dryRunFreed",
        Note::CannotSuffice { .. } => "cannotSuffice",
        Note::ThresholdOutOfReach { .. } => "thresholdOutOfReach",
        Note::EvictionRate { .. } => "evictionRate",
        Note::ReclaimFirst => "reclaimFirst",
        Note::UsageAwaited { .. } => "usageAwaited",
        Note::UsageNotMeasured { .. } => "usageNotMeasured",
        Note::PressureAwaitsTermination { .. } => "pressureAwaitsTermination",
        Note::PressureWithoutCandidate { .. } => "pressureWithoutCandidate",
        _ => "",
    }
}

/// What is remembered of disk and images is kept over a decision that was made without them.
fn keep_what_was_left_out(before: &mut History, next: &mut History) {
    next.layout = before.layout;
    next.images = before.images.take();
    next.first_observed.retain(|met| !met.threshold.signal.is_disk());
    let kept = before.first_observed.iter().filter(|met| met.threshold.signal.is_disk());
    next.first_observed.extend(kept.cloned());
    next.first_observed.sort();
    next.met.retain(|met| !met.signal.is_disk());
    next.met.extend(before.met.iter().filter(|met| met.signal.is_disk()).cloned());
    next.met.sort();
    next.last_observations
        .extend(before.last_observations.iter().filter(|(signal, _)| signal.is_disk()));
    next.trends.extend(before.trends.iter().filter(|(signal, _)| signal.is_disk()));
}
