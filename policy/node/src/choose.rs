//! Who is ended for the node's sake: the first in the ranking that may be, or as many as the need takes.
//!
//! What is dying already counts first. Candidates that may not be ended are kept, each with its reason;
//! so is everyone behind the last victim, and whoever would free nothing that matters: see [`crate::worth`].
use crate::{
    Millis, Signal, Time,
    evict::{self, Grounds, Shortage},
    extensions::fill::{self},
    limits::{Ranking, Threshold, Victims},
    message,
    need::Need,
    plan::{Action, EvictionCause, LISTED, Note, Plan, SkipReason, Skipped, Strength, Subject},
    rank::Candidate,
    signal::Resource,
    snapshot::{OwnerRef, State, Workload},
    workload::counted_termination,
    worth::Worth,
};
use alloc::{boxed::Box, collections::BTreeMap, format, string::String, vec::Vec};

/// Units on their way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OnItsWay {
    /// From all workloads that are dying.
    pub(crate) all: u64,
    /// Of these, what would be on its way but for a dry run.
    pub(crate) assumed: u64,
}

/// Units on their way from workloads that are dying.
///
/// What comes back too late from one that has ended counts for nothing.
pub(crate) fn on_its_way(need: &Need<'_>, is_late: impl Fn(&Workload) -> bool) -> OnItsWay {
    let options = need.limits.options();
    let mut sum = OnItsWay::default();
    let now = need.snapshot.taken_at;
    for workload in &need.snapshot.workloads {
        let is_assumed = workload.termination.is_some_and(|dying| dying.dry_run);
        // What a dry run assumes is no matter of choice: else it would name one victim after the other.
        if !options.count_terminating && !is_assumed {
            continue;
        }
        if is_late(workload) {
            continue;
        }
        let Some((until, free)) = dying(workload, need) else { continue };
        if until > now {
            sum.all = sum.all.saturating_add(free);
            if is_assumed {
                sum.assumed = sum.assumed.saturating_add(free);
            }
        }
    }
    sum
}

/// Until when a dying workload is counted, and with how much. Ends that others ordered count only in the attributed ranking: the kubelet may choose such a pod again, to shorten its grace.
///
/// One that was ended here and of which nobody knows how much it gives back may give back enough: it counts for all that is needed, and its deadline is near. What others end may take as long as they like, and counts only when it is known.
fn dying(workload: &Workload, need: &Need<'_>) -> Option<(Time, u64)> {
    if is_hastened(workload, need) {
        return None;
    }
    let signal = need.shortage.signal;
    let expected_free = || need.expected_free(workload);
    if let Some(dying) = workload.termination {
        let free = match signal.resource() {
            Resource::Memory => dying.expected_free,
            // What was measured of it then is what was started since.
            _ if !dying.is_whole() => None,
            _ if dying.dry_run => expected_free(),
            Resource::Pids | Resource::Swap => expected_free(),
            // What it has there was measured seconds ago, and it may have written since.
            Resource::EphemeralStorage | Resource::Inodes => None,
        };
        return Some((dying.deadline, free.unwrap_or(need.need)));
    }
    match workload.state {
        State::Terminating { deadline: Some(deadline), .. }
            if need.limits.options().ranking == Ranking::Attributed =>
        {
            Some((deadline, expected_free().unwrap_or_default()))
        }
        _ => None,
    }
}

/// Whether a workload, or a part of it, was told to end by itself and has time for it beyond `until`.
pub(crate) fn has_time_beyond(workload: &Workload, until: Time) -> bool {
    let ends = workload.termination.filter(|ends| !ends.dry_run);
    ends.and_then(|ends| ends.kill_at).is_some_and(|at| at > until)
}

/// Whether a threshold that is met waits for nobody's grace.
pub(crate) fn cuts_grace_short(threshold: &Threshold) -> bool {
    threshold.list == Strength::Hard && runs_out_at_once(threshold.signal)
}

/// Whether what is short can be gone within a moment, and comes back with the end of who has it.
fn runs_out_at_once(signal: Signal) -> bool {
    matches!(signal.resource(), Resource::Memory | Resource::Swap | Resource::Pids)
}

/// Whether a workload that was given time to end by itself is killed instead: the node runs out meanwhile, and nobody else is to pay for its grace.
fn is_hastened(workload: &Workload, need: &Need<'_>) -> bool {
    let Shortage { signal, strength, .. } = need.shortage;
    // On a forecast there is time yet.
    let is_now = strength == Strength::Hard && need.grace.is_none() && runs_out_at_once(signal);
    let now = need.snapshot.taken_at;
    // Task ids are given the second that a hard threshold gives; memory waits for nobody.
    let until = match signal.resource() {
        Resource::Pids => now.plus(Millis::from_secs(evict::IMMEDIATE.0)),
        _ => now,
    };
    is_now && need.limits.options().count_terminating && has_time_beyond(workload, until)
}

/// Walks the ranking and fills the plan with at most `most` evictions and with who was kept. Returns how many of the evictions only cut a grace short that an earlier one gave.
pub(crate) fn choose(
    need: &Need<'_>,
    ranking: &[Candidate<'_>],
    dying: u64,
    most: usize,
    plan: &mut Plan,
) -> usize {
    // Both in one walk: of ten thousand workloads each walk reads all of them from memory again.
    let looked_at = ranking.iter().map(|candidate| {
        let kept = untouchable(candidate, need);
        let free = kept.is_none().then(|| frees(candidate, need));
        (kept, free)
    });
    let (kept, free): (Vec<_>, Vec<_>) = looked_at.unzip();
    let worth = Worth::of(need, dying, free.into_iter().flatten(), &mut plan.notes);
    let mut chosen = Chosen::new(need, kept, dying, worth, most);
    chosen.hasten(ranking);
    let hastened = chosen.actions.len();
    // First without workloads whose owner already gives one; then, if that was not enough, with them.
    let rounds: &[bool] =
        if need.limits.options().spread_owners { &[true, false] } else { &[false] };
    for spread in rounds {
        chosen.walk(ranking, *spread);
    }
    if chosen.actions.is_empty() && need.shortage.strength == Strength::Hard && need.grace.is_none()
    {
        // A node that runs out spares nobody for a budget: its kubelet asks none either. On a forecast it has not run out.
        chosen.obeys_budgets = false;
        chosen.walk(ranking, false);
    }
    if chosen.actions.is_empty() {
        plan.notes.push(Note::NoEvictionCandidates);
    } else if need.limits.options().victims == Victims::Enough && chosen.freed < need.need {
        plan.notes.push(Note::NotEnough { wanted: need.need, expected: chosen.freed });
    }
    let Chosen { actions, kept, .. } = chosen;
    plan.actions.extend(actions);
    for (place, (candidate, kept)) in ranking.iter().zip(kept).enumerate() {
        let Some(reason) = kept else { continue };
        if place < LISTED || reason != SkipReason::NotNeeded {
            let subject = Subject::Workload { workload: candidate.workload.key.clone() };
            plan.skipped.push(Skipped { subject, reason });
        }
    }
    hastened
}

/// Fills the plan with why nobody is evicted while the usage of candidates is waited for.
pub(crate) fn spare(need: &Need<'_>, ranking: &[Candidate<'_>], plan: &mut Plan) {
    for (place, candidate) in ranking.iter().enumerate() {
        let reason = untouchable(candidate, need).unwrap_or(SkipReason::NotNeeded);
        if place < LISTED || reason != SkipReason::NotNeeded {
            let subject = Subject::Workload { workload: candidate.workload.key.clone() };
            plan.skipped.push(Skipped { subject, reason });
        }
    }
}

/// Victims so far, and why others are kept, in the places of the ranking.
struct Chosen<'a> {
    need: &'a Need<'a>,
    actions: Vec<Action>,
    kept: Vec<Option<SkipReason>>,
    /// Who frees enough to be evicted for it.
    worth: Worth,
    /// At most this many victims.
    most: usize,
    owners: Vec<&'a OwnerRef>,
    /// Disruptions that each budget has left.
    budgets: BTreeMap<&'a str, u32>,
    obeys_budgets: bool,
    freed: u64,
    /// Whether the first victim was growing.
    first_grows: Option<bool>,
    full: bool,
}

impl<'a> Chosen<'a> {
    /// Nobody yet; those of whom `kept` says so stay in any case.
    fn new(
        need: &'a Need<'a>,
        mut kept: Vec<Option<SkipReason>>,
        dying: u64,
        worth: Worth,
        most: usize,
    ) -> Chosen<'a> {
        let rest = if most == 0 { SkipReason::EvictionRate } else { SkipReason::NotNeeded };
        for kept in &mut kept {
            kept.get_or_insert_with(|| rest.clone());
        }
        Chosen {
            need,
            actions: Vec::new(),
            kept,
            worth,
            most,
            owners: Vec::new(),
            budgets: BTreeMap::new(),
            obeys_budgets: need.limits.options().disruption_budgets,
            freed: dying,
            first_grows: None,
            full: most == 0,
        }
    }

    /// Takes those whose grace runs, before anybody else: they are evicted already, so that no limit or budget is asked again.
    fn hasten(&mut self, ranking: &[Candidate<'a>]) {
        for (place, candidate) in ranking.iter().enumerate() {
            if self.freed >= self.need.need {
                break;
            }
            if is_hastened(candidate.workload, self.need)
                && untouchable(candidate, self.need).is_none()
            {
                let free = frees(candidate, self.need);
                self.kept[place] = None;
                self.actions.push(Action::Evict(Box::new(evict(self.need, candidate, free))));
                self.freed = self.freed.saturating_add(free.unwrap_or(self.need.need));
            }
        }
        self.full |= self.freed >= self.need.need || self.actions.len() >= self.most;
    }

    fn walk(&mut self, ranking: &[Candidate<'a>], spread: bool) {
        for (place, candidate) in ranking.iter().enumerate() {
            if self.full {
                return;
            }
            if self.kept[place].is_none() {
                continue;
            }
            match self.refusal(candidate, spread) {
                Some(reason) => self.kept[place] = Some(reason),
                None => {
                    // From those that grow to those that do not is a step for the next pass, with fresh figures.
                    if self.first_grows == Some(true) && !candidate.grows() {
                        self.full = true;
                        return;
                    }
                    self.take(candidate, place);
                }
            }
        }
    }

    fn refusal(&mut self, candidate: &Candidate<'a>, spread: bool) -> Option<SkipReason> {
        let workload = candidate.workload;
        if let Some(reason) = untouchable(candidate, self.need) {
            return Some(reason);
        }
        if let Some(reason) = self.worth.refusal(frees(candidate, self.need)) {
            return Some(reason);
        }
        if self.obeys_budgets
            && let Some(budget) = &workload.disruption_budget
            && *self.budgets.entry(&budget.name).or_insert(budget.disruptions_allowed) == 0
        {
            return Some(SkipReason::DisruptionBudget { budget: budget.name.clone() });
        }
        if spread
            && let Some(owner) = &workload.owner
            && self.owners.contains(&owner)
        {
            let OwnerRef { kind, name, .. } = owner;
            return Some(SkipReason::OtherReplicaEvicted { owner: format!("{kind}/{name}") });
        }
        None
    }

    fn take(&mut self, candidate: &Candidate<'a>, place: usize) {
        let workload = candidate.workload;
        let free = frees(candidate, self.need);
        self.kept[place] = None;
        self.actions.push(Action::Evict(Box::new(evict(self.need, candidate, free))));
        self.owners.extend(&workload.owner);
        if let Some(budget) = &workload.disruption_budget
            && let Some(left) = self.budgets.get_mut(budget.name.as_str())
        {
            *left = left.saturating_sub(1);
        }
        self.first_grows.get_or_insert(candidate.grows());
        self.freed = self.freed.saturating_add(free.unwrap_or_default());
        // With no time left to see what one eviction does, everybody goes who fills the filesystem.
        if self.need.all_that_fill().is_some() {
            self.full = self.actions.len() >= self.most;
            return;
        }
        // After one whose size is unknown nobody can say how many more it takes.
        self.full =
            self.actions.len() >= self.most || self.freed >= self.need.need || free.is_none();
    }
}

/// Why a candidate is not ended in this pass, whoever else is.
fn untouchable(candidate: &Candidate<'_>, need: &Need<'_>) -> Option<SkipReason> {
    let workload = candidate.workload;
    if let Some(reason) = workload.never_ended() {
        return Some(reason);
    }
    let options = need.limits.options();
    if is_hastened(workload, need) {
        return nothing_to_gain(candidate, need);
    }
    if let Some(dying) = counted_termination(workload, options) {
        return dying
            .is_whole()
            .then_some(SkipReason::Terminating { until: dying.deadline })
            .or_else(|| nothing_to_gain(candidate, need));
    }
    if options.count_terminating
        && let Some((until, _)) = dying(workload, need)
        && until > need.snapshot.taken_at
    {
        return Some(SkipReason::Terminating { until });
    }
    nothing_to_gain(candidate, need)
}

fn nothing_to_gain(candidate: &Candidate<'_>, need: &Need<'_>) -> Option<SkipReason> {
    // A forecast is the work of who grows: before the threshold is met nobody else goes for it.
    if need.grace.is_some() && !candidate.grows() {
        return Some(SkipReason::NotGrowing);
    }
    if need.evidence.is_some() {
        return by_evidence(candidate, need);
    }
    if need.shortage.signal.resource() == Resource::Swap {
        match candidate.known_usage() {
            None => return Some(SkipReason::UsageUnknown),
            Some(0) => return Some(SkipReason::NothingToGain),
            Some(_) => {}
        }
    }
    let attributed = need.limits.options().ranking == Ranking::Attributed;
    (attributed && candidate.frees_nothing()).then_some(SkipReason::NothingToGain)
}

/// Why a candidate is not evicted by what is known of who uses and who fills the filesystem.
fn by_evidence(candidate: &Candidate<'_>, need: &Need<'_>) -> Option<SkipReason> {
    if candidate.fills() {
        return None;
    }
    match candidate.known_usage() {
        None => Some(SkipReason::UsageUnknown),
        Some(0) => Some(SkipReason::NothingToGain),
        Some(_) => need.by_filling.then_some(SkipReason::NotFilling),
    }
}

/// What evicting a candidate frees; `None` when that is unknown.
fn frees(candidate: &Candidate<'_>, need: &Need<'_>) -> Option<u64> {
    match need.evidence {
        Some(_) => candidate.frees_of_disk(),
        None => need.expected_free(candidate.workload),
    }
}

fn evict(need: &Need<'_>, candidate: &Candidate<'_>, free: Option<u64>) -> crate::plan::Evict {
    let workload = candidate.workload;
    let Shortage { signal, strength, .. } = need.shortage;
    let grace = need.grace.unwrap_or_else(|| match strength {
        Strength::Hard => evict::IMMEDIATE,
        Strength::Soft => evict::soft_grace(workload, need.limits),
    });
    let (message, annotations) = message::node_pressure(workload, signal.resource(), need.shown);
    let grounds = Grounds {
        cause: EvictionCause::NodePressure,
        grace,
        at_once: strength == Strength::Hard && fill::is_no_time_for_grace(need.time_left),
        message,
        annotations,
        metric: String::from(signal.name()),
        threshold: Some(need.shortage),
        memory_pressure: None,
        expected_free: free,
        why: candidate.keys(need.ranked_by, need.limits.options()),
    };
    evict::evict(workload, grounds, need.snapshot.taken_at)
}
