//! Deciding ahead: while the hard threshold is about to be crossed, who would go is decided as if it had been, and held.
//!
//! At the crossing only what must be true then is checked: that the threshold is crossed, that the decision is young, that
//! the victim is who was decided on. What the pass of that look finds beyond it is decided as always, with the victim counted as dying.

use super::Agent;
use super::baseline::Baseline;
use super::watch::{Also, Watch};
use crate::clock::Boot;
use crate::state::{Depth, Extent};
use ebb_journal::incident::Decision;
use ebb_policy::plan::{Evict, Strength};
use ebb_policy::snapshot::{Observation, Task};
use ebb_policy::{History, Plan, Signal, decide};
use std::time::Duration;

/// How old a decision may be when it is acted on: no older than what any other decision is made on.
const YOUNG: Duration = Duration::from_millis(40);

/// Between two decisions ahead; after a long one, [`SHARE`] times as long as it took.
const AGAIN: Duration = Duration::from_millis(15);

/// The part of one core that deciding ahead may take is one in this many.
const SHARE: u32 = 5;

/// The same while memory falls by more than the victim takes of it.
const SHARE_WHILE_UNEXPLAINED: u32 = 2;

/// A decision for a crossing that has not happened.
#[derive(Debug)]
pub(super) struct HeldDecision {
    at: Boot,
    took: Duration,
    baseline: Baseline,
    /// `None` when nobody would be ended at once.
    decision: Option<Decision>,
}

impl HeldDecision {
    /// Whether it needs not be made again at `at`, with so much time left: it has just been made, or will be young at the crossing, and to make it again would delay the look that finds that.
    fn will_do(&self, at: Boot, left: Duration) -> bool {
        let age = at.since(self.at);
        age < AGAIN.max(self.took * SHARE) || age + left < YOUNG
    }

    /// Whether there is time for another one before the crossing, now that this one will not be acted on: others than its victim have taken what has gone since. At the crossing nobody would be chosen without it.
    fn may_be_replaced(&self, at: Boot, left: Duration) -> bool {
        left >= self.took && at.since(self.at) >= self.took * SHARE_WHILE_UNEXPLAINED
    }
}

impl Agent {
    /// Decides as if available memory had just crossed its hard threshold, if that is about to happen, and has the victim held.
    pub(super) fn decide_ahead(&mut self, at: Boot) {
        let ahead = self.watches.of(Signal::MemoryAvailable).and_then(hard_threshold_ahead);
        let is_quiet = !self.state.awaits_terminations() && !self.watches.is_any_in_episode();
        let Some((threshold, also, left)) = ahead.filter(|_| is_quiet) else {
            self.decisions.ahead = None;
            return;
        };
        if self.decisions.ahead.as_ref().is_some_and(|ahead| ahead.will_do(at, left))
            && !self.is_overtaken(at, left)
        {
            return;
        }
        self.decisions.ahead = None;
        if self.state.sample(at, Depth::Memory).is_err() || self.state.is_outdated(at) {
            return;
        }
        self.read_stall();
        self.count_now();
        // Disk and the runtime have no part in it, nor has a reclaim that is under way.
        let mut snapshot = self.state.snapshot_of(at, Extent::Quick);
        snapshot.tasks = Some(vec![Task::Eviction]);
        let Some(now) = snapshot.signals.get(&Signal::MemoryAvailable).copied() else { return };
        let available = threshold.saturating_sub(1);
        snapshot.signals.insert(Signal::MemoryAvailable, Observation { available, ..now });
        if let (Some(Also { signal, below }), Some(available)) =
            (also, also.and_then(|also| self.state.available(also.signal)))
        {
            let available = available.min(below.saturating_sub(1));
            let capacity = snapshot.node.swap_total;
            let seen = Observation { available, capacity, observed_at: now.observed_at };
            snapshot.signals.insert(signal, seen);
        }
        let history = History { reclaiming: None, ..self.decisions.history.clone() };
        let (plan, _) = decide(&snapshot, &self.policy.limits, &history);
        let victim = ended_at_once(&plan).and_then(|evict| self.state.target(&evict.workload));
        let decision =
            victim.is_some().then_some(Decision { config: None, snapshot, history, plan });
        let baseline = Baseline::now(&mut self.state, victim.as_ref());
        if let Some(victim) = victim {
            self.dispatcher.hold_ready(victim);
        }
        self.decisions.ahead =
            Some(HeldDecision { at, took: Boot::now().since(at), baseline, decision });
    }

    /// Whether the decision that is held is one for nobody by now, and can be made again in time.
    fn is_overtaken(&mut self, at: Boot, left: Duration) -> bool {
        let Some(ahead) =
            self.decisions.ahead.as_ref().filter(|ahead| ahead.may_be_replaced(at, left))
        else {
            return false;
        };
        // Most often nothing has gone, and nothing is read.
        if ahead.baseline.is_little(self.state.memory_available()) {
            return false;
        }
        let evict = ahead.decision.as_ref().and_then(|decision| ended_at_once(&decision.plan));
        let victim = evict.and_then(|evict| self.state.target(&evict.workload));
        !ahead.baseline.still_explains(&mut self.state, victim.as_ref())
    }

    /// Ends who was decided on ahead, now that a threshold on `signal` is seen to be crossed.
    pub(super) fn act_on_what_was_decided_ahead(&mut self, signal: Signal, at: Boot) {
        let Some(mut ahead) = self.decisions.ahead.take() else { return };
        let is_meant = signal == Signal::MemoryAvailable
            && self.watches.of(signal).is_some_and(Watch::was_below_hard);
        let Some(decision) = ahead.decision.take() else { return };
        // Whoever has been ended since, by the reflex too, is not in it.
        // Nor is whoever the watchdog has just killed, or where somebody has moved to: the pass of this look takes that in.
        let is_stale = at.since(ahead.at) > YOUNG
            || self.dispatcher.has_unheard_kill()
            || self.state.is_outdated(at);
        if !is_meant || is_stale || self.state.awaits_terminations() {
            return;
        }
        let Some(evict) = ended_at_once(&decision.plan) else { return };
        let victim = self.state.target(&evict.workload);
        if !ahead.baseline.still_explains(&mut self.state, victim.as_ref()) {
            return;
        }
        self.evict(evict, &decision.plan);
        self.decisions.history.note_eviction(self.state.clock().time(at));
        self.tell_of_evictions(&[evict], &decision.plan, ahead.at, "decided ahead");
        if let Some(episode) = self.watches.of_mut(signal).and_then(|w| w.episode.as_mut()) {
            episode.keep(|| decision);
        }
    }
}

/// The hard threshold that is watched, with its second condition and the time left, when it will be met any moment.
fn hard_threshold_ahead(watch: &Watch) -> Option<(u64, Option<Also>, Duration)> {
    let hard = watch.hard().filter(|_| watch.is_imminent())?;
    Some((hard, watch.also(), watch.time_left(hard)?))
}

/// The first to go, when that is by a hard threshold of memory.
fn ended_at_once(plan: &Plan) -> Option<&Evict> {
    let handled = plan.handled.as_ref()?;
    let first = plan.evictions().next()?;
    let is_hard = first.strength == Some(Strength::Hard);
    (handled.signal == Signal::MemoryAvailable && is_hard).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_made_again_when_it_would_be_old_at_the_crossing_and_not_right_before_it() {
        let ms = Duration::from_millis;
        let baseline = Baseline::default();
        let held = |took| HeldDecision { at: Boot(0), took: ms(took), baseline, decision: None };
        let will_do = |held: HeldDecision, age, left| held.will_do(Boot(0).plus(ms(age)), ms(left));
        assert!(will_do(held(1), 14, 100), "it has just been made");
        assert!(!will_do(held(1), 15, 100), "it would be old");
        assert!(will_do(held(1), 39, 0) && will_do(held(1), 20, 19), "it is young at the crossing");
        assert!(!will_do(held(1), 20, 20) && !will_do(held(1), 40, 0));
        assert!(will_do(held(10), 49, 100), "making it takes no more than its share");
        let replaced = |age, left| held(3).may_be_replaced(Boot(0).plus(ms(age)), ms(left));
        assert!(replaced(6, 3) && !replaced(5, 3) && !replaced(6, 2));
    }
}
