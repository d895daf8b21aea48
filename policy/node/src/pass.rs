//! The eviction part of a decision, in the kubelet's order.
//!
//! ```text
//!  layout ─► observe ─► judge thresholds, set conditions
//!     ─► local storage limits: every violator ends, the rest waits for the next pass
//!     ─► the first acting threshold, memory before all else
//!     ─► node-level reclaim if there is any: the pass stops here and goes on with the next snapshot
//!     ─► rank ─► choose
//! ```
//! The kubelet looks again within one pass after node-level reclaim. A pure decision cannot look again, so the plan ends with the reclaim,
//! asks to be made again at once, and the history remembers which threshold it was about.
mod wait;

use crate::{
    History, Limits, Millis, Plan, Secs, Signal, Snapshot, Time,
    choose::{self, OnItsWay},
    evict::Shortage,
    extensions::{
        attribution,
        fill::{self, Evidence},
        forecast::{self, Approach},
        growth::{self, Finder},
    },
    gc,
    history::Reclaiming,
    ladder, layout,
    limits::{ImageReach, Options, Ranking, Threshold, Victims},
    local_storage,
    need::Need,
    observe,
    observe::Observations,
    plan::{EventType, Handled, LISTED, NodeEvent, Note, RemoveReason, Strength},
    pressure,
    rank::order,
    reclaim,
    snapshot::{FsLayout, Workload},
    swap::Swapped,
};
use alloc::{collections::BTreeSet, format, string::ToString, vec::Vec};
use wait::{DiskWait, Wait};

/// The time for which evictions are limited.
const MINUTE: Millis = Millis(60_000);

/// The eviction part of a pass.
pub(crate) struct Pass<'a, 'p> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) limits: &'a Limits,
    /// All workloads; in the order of who they are where growth is followed.
    pub(crate) all: &'p [&'a Workload],
    /// Those that have not ended, in the same order.
    pub(crate) active: &'p [&'a Workload],
    /// Those whose growth is known, once it has been measured; in the order in which that is kept.
    pub(crate) whose: Vec<&'a Workload>,
    /// What the last pass remembered.
    pub(crate) before: &'p History,
    /// What this one does; without growth until that has been measured.
    pub(crate) history: &'p mut History,
    pub(crate) plan: &'p mut Plan,
}

impl<'a> Pass<'a, '_> {
    /// Runs it; returns whether it ended with node-level reclaim.
    pub(crate) fn run(mut self) -> bool {
        let (snapshot, limits) = (self.snapshot, self.limits);
        let options = limits.options();
        let graceful = match self.waits() {
            Wait::Over => None,
            Wait::Lasts => {
                self.history.growth.clone_from(&self.before.growth);
                return false;
            }
            Wait::ForGrace(waiting) => Some(waiting),
        };
        let disk_wait = self.disk_wait();
        let layout = match layout::layout(snapshot, self.history.layout) {
            Ok(layout) => layout,
            Err(error) => {
                self.plan.notes.push(Note::LayoutUnknown { error: Some(error) });
                self.history.growth.clone_from(&self.before.growth);
                return false;
            }
        };
        let observations = observe::observe(snapshot, options, self.history, &mut self.plan.notes);
        let (tells_swap, passes) = (observe::tells_swap(snapshot), self.history.passes);
        let mut overridden = Vec::new();
        let all = pressure::in_force(limits, tells_swap, layout, passes, &mut overridden);
        self.explain_stall(&all, &observations);
        let followed = if follows_growth(options) { self.all } else { &[] };
        let before = &self.before.growth;
        self.whose = growth::follow(snapshot, followed, &observations, before, self.history);
        attribution::explain(&self.history.growth, &mut self.plan.notes);
        self.plan.notes.append(&mut overridden);
        let thresholds = self.judgeable(&all, layout, &observations);
        let continued = self.continued(&thresholds, &observations);
        self.history.layout = layout;
        self.history.passes = self.history.passes.saturating_add(1).min(2);
        let mut acting =
            pressure::judge(snapshot, limits, &thresholds, &observations, self.history, self.plan);
        if let Some(waiting) = graceful
            && !acting.first().is_some_and(choose::cuts_grace_short)
        {
            self.plan.notes.push(Note::WaitingForVictims { until: waiting.until });
            self.history.waiting = Some(waiting);
            return false;
        }
        if let Some((threshold, reclaiming)) = continued {
            let seen = reclaiming.observation;
            self.note_age(threshold.signal, seen.observed_at);
            self.evict_workloads(threshold, layout, (seen.available, seen.capacity), None);
            return false;
        }
        let is_in_turn = |threshold: &Threshold| match &disk_wait {
            Some(wait) if threshold.signal.is_disk() => self.cannot_wait(threshold, layout, wait),
            _ => true,
        };
        let in_turn: Vec<Threshold> = thresholds.iter().copied().filter(is_in_turn).collect();
        let acting_in_all = acting.len();
        acting.retain(|threshold| in_turn.contains(threshold));
        let held_back = disk_wait.as_ref().filter(|_| acting.len() < acting_in_all);
        if let Some(&DiskWait { until, .. }) = held_back {
            self.plan.notes.push(Note::WaitingForVictims { until });
        }
        if limits.local_storage_isolation()
            && disk_wait.is_none()
            && local_storage::enforce(snapshot, self.active, layout, options, self.plan)
        {
            return false;
        }
        let approach = forecast::nearest(&in_turn, &observations, self.history);
        self.report(approach.as_ref());
        if options.ladder.enabled {
            let is_short = acting.iter().any(choose::cuts_grace_short);
            let (ladder, nearest) = (&options.ladder, approach.as_ref());
            ladder::descend(snapshot, ladder, nearest, is_short, self.history, self.plan);
        }
        let Some(threshold) = acting.first().copied() else {
            if let Some(approach) = approach {
                self.act_early(approach, layout);
            }
            return false;
        };
        let Some(seen) = observations.get(&threshold.signal).copied() else { return false };
        self.announce(threshold.signal);
        let full_soon = self.full_soon(threshold.signal);
        if let Some(time_left) = full_soon {
            self.plan.notes.push(Note::FullSoon { signal: threshold.signal, time_left });
        }
        if full_soon.is_none() && self.reclaim(threshold, layout) {
            let reclaiming = Reclaiming {
                threshold: threshold.id(),
                since: snapshot.taken_at,
                observation: seen,
            };
            self.handle(
                &shortage(&threshold, seen.available, seen.capacity),
                &threshold,
                seen.capacity,
                0,
                None,
            );
            self.history.reclaiming = Some(reclaiming);
            self.plan.notes.push(Note::ReclaimFirst);
            return true;
        }
        for acting in &acting {
            let seen = observations.get(&acting.signal);
            self.note_age(acting.signal, seen.and_then(|seen| seen.observed_at));
        }
        self.evict_workloads(threshold, layout, (seen.available, seen.capacity), None);
        false
    }

    /// Notes how old the observation behind a threshold is that drives an eviction; with nobody to evict there is none to drive.
    fn note_age(&mut self, signal: Signal, observed_at: Option<Time>) {
        if let Some(at) = observed_at.filter(|_| !self.active.is_empty()) {
            self.plan.stats_age.insert(signal, self.snapshot.taken_at.since(at));
        }
    }

    /// Leaves out thresholds on disk while the layout is unknown, and says so if one could have mattered.
    fn judgeable(
        &mut self,
        thresholds: &[Threshold],
        layout: Option<FsLayout>,
        observations: &Observations,
    ) -> Vec<Threshold> {
        let on_disk = |threshold: &Threshold| threshold.signal.is_disk();
        if layout.is_none()
            && thresholds.iter().any(|t| on_disk(t) && observations.contains_key(&t.signal))
        {
            self.plan.notes.push(Note::LayoutUnknown { error: None });
        }
        thresholds.iter().filter(|t| layout.is_some() || !on_disk(t)).copied().collect()
    }

    /// The threshold of a pass that stopped for node-level reclaim, if that was not enough.
    fn continued(
        &mut self,
        thresholds: &[Threshold],
        observations: &Observations,
    ) -> Option<(Threshold, Reclaiming)> {
        let reclaiming = self.history.reclaiming.take()?;
        let any_met =
            thresholds.iter().any(|threshold| pressure::is_met(threshold, observations, true));
        if !any_met {
            self.plan.notes.push(Note::ReclaimSufficed);
            return None;
        }
        let threshold =
            thresholds.iter().find(|threshold| threshold.id() == reclaiming.threshold)?;
        Some((*threshold, reclaiming))
    }

    fn announce(&mut self, signal: Signal) {
        self.plan.events.push(NodeEvent {
            event_type: EventType::Warning,
            reason: "EvictionThresholdMet".to_string(),
            message: format!("Attempting to reclaim {}", signal.resource()),
        });
    }

    /// Plans node-level reclaim; false when there is none for the signal or nothing to remove.
    fn reclaim(&mut self, threshold: Threshold, layout: Option<FsLayout>) -> bool {
        let Some(layout) = layout else { return false };
        let (snapshot, limits) = (self.snapshot, self.limits);
        let reclaim = reclaim::for_signal(threshold.signal, layout, &limits.options().quirks);
        let before = self.plan.actions.len();
        let mut removed = BTreeSet::new();
        if reclaim.containers {
            removed = gc::containers::collect(snapshot, limits.container_gc(), true, self.plan);
        }
        if reclaim.images && !snapshot.images.is_empty() {
            let wanted = match limits.options().images_under_pressure {
                ImageReach::All => u64::MAX,
                ImageReach::ToLowThreshold => gc::images::wanted_under_pressure(
                    snapshot,
                    limits.image_gc(),
                    missing_bytes(snapshot, &threshold),
                    self.plan,
                ),
            };
            let images =
                gc::images::detect(snapshot, &removed, self.before, self.history, self.plan);
            let order = limits.options().image_order;
            let policy = limits.image_gc();
            images.free(wanted, policy, order, RemoveReason::NodePressure, self.plan);
        }
        self.plan.actions.len() > before
    }

    /// Ranks what is active and chooses victims.
    fn evict_workloads(
        &mut self,
        threshold: Threshold,
        layout: Option<FsLayout>,
        (available, capacity): (u64, Option<u64>),
        early: Option<&Approach>,
    ) {
        let options = self.limits.options();
        let shortage = shortage(&threshold, available, capacity);
        let layout = layout.unwrap_or(FsLayout::Single);
        let goal = threshold.goal(capacity).ceil();
        let fall = early.map_or(0, |approach| {
            u128::from(approach.fall) * u128::from(options.forecast.grace_period.0) / 1000
        });
        let goal = u128::try_from(goal).unwrap_or(0).saturating_add(fall);
        let need =
            u64::try_from(goal.saturating_sub(u128::from(available))).unwrap_or(u64::MAX).max(1);
        let grace = early.map(|approach| Secs((approach.time_left.0 / 1000).max(1)));
        let need = Need {
            snapshot: self.snapshot,
            limits: self.limits,
            layout,
            shortage,
            shown: Some((shortage.threshold, available)),
            need,
            goal: u64::try_from(threshold.goal(capacity).ceil().max(0)).unwrap_or(u64::MAX),
            capacity,
            grace,
            evidence: None,
            by_filling: false,
            time_left: self.time_left(threshold.signal),
            ranked_by: threshold.ranked_by(),
            swapped: Swapped::of(&self.snapshot.node),
        };
        let evidence = self.evidence(&threshold, layout);
        let evidence = evidence.as_ref();
        let is_late = |workload: &Workload| self.is_late(workload, evidence);
        let OnItsWay { all: dying, assumed } = choose::on_its_way(&need, is_late);
        self.handle(&shortage, &threshold, capacity, dying, early);
        if self.active.is_empty() {
            self.plan.notes.push(Note::NoActiveWorkloads);
            return;
        }
        let workloads = self.active.iter().copied();
        let ranked_by = need.ranked_by;
        let growth = Finder::of_this_pass(&self.history.growth, &self.whose);
        let ranking = order(workloads, ranked_by, layout, options, growth, evidence);
        let listed = ranking.iter().take(LISTED).enumerate();
        self.plan.ranking = listed.map(|(place, c)| c.shown(place, ranked_by, options)).collect();
        if ranking.len() > LISTED {
            let (candidates, listed) = (ranking.len() as u64, LISTED as u64);
            self.plan.notes.push(Note::MoreCandidates { candidates, listed });
        }
        if assumed > 0 {
            self.plan.notes.push(Note::DryRunFreed { freed: assumed, need: need.need });
        }
        if dying >= need.need {
            if assumed < need.need {
                self.plan.notes.push(Note::TerminatingCovers { expected: dying, need: need.need });
            }
            return;
        }
        let incomplete = evidence.filter(|evidence| !evidence.is_complete());
        let by_filling = incomplete.is_some_and(|evidence| evidence.has_culprit(self.active));
        let need = Need { evidence, by_filling, ..need };
        if let Some(Evidence { unknown, until, makes_do, .. }) = incomplete.filter(|_| !by_filling)
        {
            let (unknown, until) = (*unknown, *until);
            self.plan.notes.push(if *makes_do {
                Note::UsageNotMeasured { unknown }
            } else {
                Note::UsageAwaited { unknown, until }
            });
            if !makes_do {
                choose::spare(&need, &ranking, self.plan);
                return;
            }
        }
        let most = self.most_victims(&need, dying > assumed);
        let hastened = choose::choose(&need, &ranking, dying, most, self.plan);
        let chosen = self.plan.evictions().count() - hastened;
        let now = self.snapshot.taken_at;
        let evictions = &mut self.history.evictions;
        evictions.extend(core::iter::repeat_n(now, chosen));
        // Of more the limit is reached all the same.
        let most = self.limits.options().max_evictions_per_minute as usize;
        evictions.drain(..evictions.len().saturating_sub(most));
    }

    /// How many may be evicted in this pass, by the pass's own limit and by that of a minute.
    fn most_victims(&mut self, need: &Need<'_>, any_dying: bool) -> usize {
        let options = self.limits.options();
        // On a forecast one at a time: whether the next is needed shows when it has ended.
        let is_ahead = need.grace.is_some();
        let most = need.all_that_fill().unwrap_or(match options.victims {
            Victims::Enough if !is_ahead => options.max_victims as usize,
            Victims::One | Victims::Enough => 1,
        });
        let (now, per_minute) = (self.snapshot.taken_at, options.max_evictions_per_minute);
        self.history.evictions.retain(|at| now.since(*at) < MINUTE);
        if per_minute == 0 {
            return most;
        }
        let evictions = u32::try_from(self.history.evictions.len()).unwrap_or(u32::MAX);
        let left = per_minute.saturating_sub(evictions);
        if left > 0 {
            return most.min(left as usize);
        }
        self.plan.notes.push(Note::EvictionRate { evictions, per_minute });
        // The node must not run out because of a limit: the first goes, one after the other.
        usize::from(need.shortage.strength == Strength::Hard && !is_ahead && !any_dying)
    }

    /// Time until the filesystem behind a signal is full, where attribution is on and it is known.
    fn time_left(&self, signal: Signal) -> Option<Millis> {
        let attributes = self.limits.options().disk_attribution && signal.is_disk();
        attributes.then(|| fill::time_left(self.snapshot, signal)).flatten()
    }

    /// The same when it is too short to wait for anything but an eviction.
    fn full_soon(&self, signal: Signal) -> Option<Millis> {
        self.time_left(signal).filter(|left| *left < fill::EVICTION_TAKES)
    }

    fn handle(
        &mut self,
        shortage: &Shortage,
        threshold: &Threshold,
        capacity: Option<u64>,
        dying: u64,
        early: Option<&Approach>,
    ) {
        let goal = u128::try_from(threshold.goal(capacity).ceil()).unwrap_or(0);
        let need = goal.saturating_sub(u128::from(shortage.available));
        self.plan.handled = Some(Handled {
            signal: shortage.signal,
            resource: shortage.signal.resource(),
            strength: shortage.strength,
            threshold: shortage.threshold,
            available: shortage.available,
            need: u64::try_from(need).unwrap_or(u64::MAX),
            terminating: dying,
            forecast: early.map(|approach| approach.time_left),
        });
    }

    /// Reports an approach within the horizon.
    fn report(&mut self, approach: Option<&Approach>) {
        let forecast = self.limits.options().forecast;
        if let Some(approach) = approach
            && (forecast.enabled || self.limits.options().ladder.enabled)
            && approach.time_left <= forecast.horizon
        {
            self.plan.notes.push(Note::Forecast {
                signal: approach.threshold.signal,
                time_left: approach.time_left,
                error: approach.error,
            });
        }
    }

    /// Before a threshold is met: steps of the ladder, and a graceful end when no more time is left than that takes.
    fn act_early(&mut self, approach: Approach, layout: Option<FsLayout>) {
        let options = self.limits.options();
        if options.ladder.enabled {
            let signal = approach.threshold.ranked_by();
            let workloads = self.active.iter().copied();
            let fs = layout.unwrap_or(FsLayout::Single);
            let growth = Finder::of_this_pass(&self.history.growth, &self.whose);
            let ranking = order(workloads, signal, fs, options, growth, None);
            ladder::climb(
                self.snapshot,
                &options.ladder,
                &approach,
                &ranking,
                self.history,
                self.plan,
            );
        }
        let forecast = options.forecast;
        let is_due = approach.is_steady()
            && approach.leaves_time()
            && approach.time_left < forecast.grace_period;
        if forecast.enabled && is_due && !self.awaits_an_end() {
            let seen = (approach.available, approach.capacity);
            self.evict_workloads(approach.threshold, layout, seen, Some(&approach));
        }
    }

    /// Whether somebody was evicted who still counts as terminating: what falls falls because of that one, as far as anybody knows.
    fn awaits_an_end(&self) -> bool {
        let now = self.snapshot.taken_at;
        let mut ends = self.snapshot.workloads.iter().filter_map(|workload| workload.termination);
        ends.any(|ends| ends.counts_at(now))
    }

    /// Notes stall that no shortage explains: workloads at their own limits, or IO. Short is what is below one of `thresholds`.
    fn explain_stall(&mut self, thresholds: &[Threshold], observations: &Observations) {
        let mut limited: Vec<_> = self
            .active
            .iter()
            .filter(|workload| workload.local_limit.is_some_and(|limit| limit.at_limit))
            .map(|workload| workload.key.clone())
            .collect();
        limited.sort();
        let locals = limited.into_iter().map(|workload| Note::LocalPressure { workload });
        self.plan.notes.extend(locals);
        let Some(pressure) = self.snapshot.pressure else { return };
        let rose = |now: Option<u64>, before: Option<u64>| matches!((now, before), (Some(now), Some(before)) if now > before);
        let stalls = rose(pressure.memory_some_us, self.history.totals.memory_some_us)
            || rose(pressure.io_some_us, self.history.totals.io_some_us);
        let is_short = |threshold: &Threshold| pressure::is_met(threshold, observations, false);
        let short = thresholds.iter().any(is_short);
        if stalls && !short {
            self.plan.notes.push(Note::StallWithoutShortage);
        }
    }
}

/// Growth is only followed where it decides something.
pub(crate) fn follows_growth(options: &Options) -> bool {
    options.ranking == Ranking::Attributed
        || options.victims == Victims::Enough
        || options.forecast.enabled
}

fn shortage(threshold: &Threshold, available: u64, capacity: Option<u64>) -> Shortage {
    Shortage {
        signal: threshold.signal,
        strength: threshold.strength(),
        threshold: threshold.value.resolve(capacity),
        available,
    }
}

/// Bytes that are missing for `threshold` to be resolved; `None` when it does not count bytes of disk, or nothing was seen.
fn missing_bytes(snapshot: &Snapshot, threshold: &Threshold) -> Option<u64> {
    use Signal::{ContainerFsAvailable, ImageFsAvailable, NodeFsAvailable};
    let seen = snapshot.signals.get(&threshold.signal).filter(|_| {
        matches!(threshold.signal, NodeFsAvailable | ImageFsAvailable | ContainerFsAvailable)
    })?;
    let goal = u128::try_from(threshold.goal(seen.capacity).ceil()).unwrap_or(0);
    Some(u64::try_from(goal.saturating_sub(u128::from(seen.available))).unwrap_or(u64::MAX))
}
