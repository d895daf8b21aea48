//! Who is ended for the node's sake: the first in the ranking that may be, or as many as the need takes.
//!
//! What is dying already counts first. Candidates that may not be ended are kept, each with its reason;
//! so is everyone behind the last victim.
use crate::{
    Secs, Time,
    evict::{self, Grounds, Shortage},
    limits::{Limits, Ranking, Victims},
    message,
    plan::{Action, EvictionCause, KeepReason, Kept, LISTED, Note, Plan, Strength, Subject},
    rank::Candidate,
    signal::Resource,
    snapshot::{FsLayout, OwnerRef, Snapshot, State, Workload},
    usage::expected_free,
};
use alloc::{boxed::Box, collections::BTreeMap, format, string::String, vec::Vec};

/// What a pass needs to choose victims.
pub(crate) struct Need<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) limits: &'a Limits,
    pub(crate) layout: FsLayout,
    pub(crate) shortage: Shortage,
    /// Quantity and availability that messages name.
    pub(crate) shown: Option<(crate::Quantity, u64)>,
    /// Units that must come back.
    pub(crate) need: u64,
    /// Grace that overrides that of the threshold (acting on a forecast).
    pub(crate) grace: Option<Secs>,
}

/// Units on their way from workloads that are dying, and until when the first of them is counted.
pub(crate) fn on_its_way(need: &Need<'_>) -> (u64, Option<Time>) {
    let options = need.limits.options();
    if !options.count_dying {
        return (0, None);
    }
    let now = need.snapshot.taken_at;
    let mut sum: u64 = 0;
    let mut first: Option<Time> = None;
    for workload in &need.snapshot.workloads {
        let Some((until, free)) = dying(workload, need) else { continue };
        if until > now {
            sum = sum.saturating_add(free);
            first = Some(first.map_or(until, |first| first.min(until)));
        }
    }
    (sum, first)
}

/// Until when a dying workload is counted, and with how much. Ends that others ordered count only in the attributed ranking: the kubelet may choose such a pod again, to shorten its grace.
///
/// One that was ended here and of which nobody knows how much it gives back may give back enough: it counts for all that is needed, and its deadline is near. What others end may take as long as they like, and counts only when it is known.
fn dying(workload: &Workload, need: &Need<'_>) -> Option<(Time, u64)> {
    let signal = need.shortage.signal;
    if let Some(dying) = workload.dying {
        let free = match signal.resource() {
            Resource::Memory => dying.expected_free,
            Resource::Pids => expected_free(workload, signal, need.layout),
            // What it has there was measured seconds ago, and it may have written since.
            Resource::EphemeralStorage | Resource::Inodes => None,
        };
        return Some((dying.deadline, free.unwrap_or(need.need)));
    }
    match workload.state {
        State::Terminating { deadline: Some(deadline), .. }
            if need.limits.options().ranking == Ranking::Attributed =>
        {
            Some((deadline, expected_free(workload, signal, need.layout).unwrap_or_default()))
        }
        _ => None,
    }
}

/// Walks the ranking and fills the plan with evictions and with who was kept. Returns whether anyone was chosen.
pub(crate) fn choose(
    need: &Need<'_>,
    ranking: &[Candidate<'_>],
    dying: u64,
    plan: &mut Plan,
) -> bool {
    let mut chosen = Chosen::new(need, ranking, dying);
    // First without workloads whose owner already gives one; then, if that was not enough, with them.
    let rounds: &[bool] =
        if need.limits.options().spread_owners { &[true, false] } else { &[false] };
    for spread in rounds {
        chosen.walk(ranking, *spread);
    }
    let any = !chosen.actions.is_empty();
    if !any {
        plan.notes.push(Note::NothingToEvict);
    } else if need.limits.options().victims == Victims::Enough && chosen.freed < need.need {
        plan.notes.push(Note::NotEnough { wanted: need.need, expected: chosen.freed });
    }
    let Chosen { actions, kept, .. } = chosen;
    plan.actions.extend(actions);
    for (place, (candidate, kept)) in ranking.iter().zip(kept).enumerate() {
        let Some(reason) = kept else { continue };
        if place < LISTED || reason != KeepReason::NotNeeded {
            let subject = Subject::Workload { workload: candidate.workload.key.clone() };
            plan.kept.push(Kept { subject, reason });
        }
    }
    any
}

/// Victims so far, and why others are kept, in the places of the ranking.
struct Chosen<'a> {
    need: &'a Need<'a>,
    actions: Vec<Action>,
    kept: Vec<Option<KeepReason>>,
    owners: Vec<&'a OwnerRef>,
    /// Disruptions that each budget has left.
    budgets: BTreeMap<&'a str, u32>,
    freed: u64,
    /// Whether the first victim was growing.
    first_grows: Option<bool>,
    full: bool,
}

impl<'a> Chosen<'a> {
    fn new(need: &'a Need<'a>, ranking: &[Candidate<'a>], dying: u64) -> Chosen<'a> {
        let reason = |candidate: &Candidate<'_>| {
            Some(untouchable(candidate, need).unwrap_or(KeepReason::NotNeeded))
        };
        let kept = ranking.iter().map(reason).collect();
        Chosen {
            need,
            actions: Vec::new(),
            kept,
            owners: Vec::new(),
            budgets: BTreeMap::new(),
            freed: dying,
            first_grows: None,
            full: false,
        }
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

    fn refusal(&mut self, candidate: &Candidate<'a>, spread: bool) -> Option<KeepReason> {
        let workload = candidate.workload;
        let options = self.need.limits.options();
        if let Some(reason) = untouchable(candidate, self.need) {
            return Some(reason);
        }
        if options.disruption_budgets
            && let Some(budget) = &workload.disruption_budget
            && *self.budgets.entry(&budget.name).or_insert(budget.disruptions_allowed) == 0
        {
            return Some(KeepReason::DisruptionBudget { budget: budget.name.clone() });
        }
        if spread
            && let Some(owner) = &workload.owner
            && self.owners.contains(&owner)
        {
            let OwnerRef { kind, name, .. } = owner;
            return Some(KeepReason::OwnerSpared { owner: format!("{kind}/{name}") });
        }
        None
    }

    fn take(&mut self, candidate: &Candidate<'a>, place: usize) {
        let options = self.need.limits.options();
        let workload = candidate.workload;
        let free = expected_free(workload, self.need.shortage.signal, self.need.layout);
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
        let most = match options.victims {
            Victims::One => 1,
            Victims::Enough => options.max_victims as usize,
        };
        // After one whose size is unknown nobody can say how many more it takes.
        self.full = self.actions.len() >= most || self.freed >= self.need.need || free.is_none();
    }
}

/// Why a candidate is not ended in this pass, whoever else is.
fn untouchable(candidate: &Candidate<'_>, need: &Need<'_>) -> Option<KeepReason> {
    let workload = candidate.workload;
    if workload.is_critical() {
        return Some(KeepReason::Critical);
    }
    if let Some(reason) = workload.protected {
        return Some(KeepReason::Protected { reason });
    }
    if let Some(dying) = workload.dying {
        return Some(KeepReason::Dying { until: dying.deadline });
    }
    if let Some((until, _)) = dying(workload, need)
        && until > need.snapshot.taken_at
    {
        return Some(KeepReason::Dying { until });
    }
    let attributed = need.limits.options().ranking == Ranking::Attributed;
    (attributed && candidate.frees_nothing()).then_some(KeepReason::NothingToGain)
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
        message,
        annotations,
        metric: String::from(signal.name()),
        threshold: Some(need.shortage),
        expected_free: free,
        why: candidate.keys(signal, need.limits.options()),
    };
    evict::evict(workload, grounds, need.snapshot.taken_at)
}
