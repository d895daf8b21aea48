//! Steps below ending a workload, taken by the time that is left: warn, reclaim, throttle, freeze.
//!
//! ```text
//!  time left   ── warn ──── reclaim ──── throttle ──── freeze ──── threshold met: end it
//! ```
//! The steps are for the first candidate of the ranking. Each is taken once and remembered; what slows a workload down is undone as soon as the node is no longer heading for the threshold.
use crate::extensions::forecast::Approach;
use crate::{
    History, Millis, Time,
    history::{Step, StepKind},
    limits::Ladder,
    plan::{Action, Freeze, Plan, ReclaimMemory, Release, Throttle, Warn},
    rank::Candidate,
    snapshot::{MemoryUsage, Snapshot, Workload},
};
use alloc::format;

/// A step may be repeated after this long.
const REPEAT_AFTER: Millis = Millis(10_000);

/// Takes the steps that the time left calls for.
pub(crate) fn climb(
    snapshot: &Snapshot,
    ladder: &Ladder,
    approach: &Approach,
    ranking: &[Candidate<'_>],
    history: &mut History,
    plan: &mut Plan,
) {
    let candidate = ranking
        .iter()
        .map(|candidate| candidate.workload)
        .find(|workload| workload.may_be_ended() && !workload.is_terminating());
    let Some(workload) = candidate else { return };
    let memory = workload.stats.as_ref().and_then(|stats| stats.memory).unwrap_or_default();
    let left = approach.time_left;
    if left < ladder.warn && begin(history, workload, StepKind::Warned, None, snapshot.taken_at) {
        plan.actions.push(Action::Warn(Warn {
            workload: workload.key.clone(),
            signal: approach.threshold.signal,
            time_left: left,
            message: format!(
                "{} will fall below its threshold in {left}; this workload is the first to be ended then",
                approach.threshold.signal
            ),
        }));
    }
    if !approach.threshold.signal.is_memory() {
        return;
    }
    let reclaimable = reclaimable(&memory, snapshot.node.swap_free.unwrap_or_default() > 0);
    if left < ladder.reclaim
        && workload.can_reclaim
        && reclaimable > 0
        && begin(history, workload, StepKind::Reclaimed, None, snapshot.taken_at)
    {
        let fall = u128::from(approach.fall) * u128::from(ladder.reclaim.0) / 1000;
        let wanted = u64::try_from(fall).unwrap_or(u64::MAX);
        plan.actions.push(Action::ReclaimMemory(ReclaimMemory {
            workload: workload.key.clone(),
            bytes: reclaimable.min(wanted).max(1),
            deadline: ladder.reclaim_deadline,
        }));
    }
    let high_before = workload.local_limit.and_then(|limit| limit.high);
    if left < ladder.throttle
        && let Some(usage) = memory.usage
        && begin(history, workload, StepKind::Throttled, high_before, snapshot.taken_at)
    {
        let throttle = Throttle { workload: workload.key.clone(), high: usage };
        plan.actions.push(Action::Throttle(throttle));
    }
    if left < ladder.freeze
        && begin(history, workload, StepKind::Frozen, high_before, snapshot.taken_at)
    {
        let until = snapshot.taken_at.plus(ladder.max_freeze);
        plan.actions.push(Action::Freeze(Freeze { workload: workload.key.clone(), until }));
    }
}

/// Undoes what slows workloads down once the node is out of danger or their time is over, and forgets steps of what is gone.
pub(crate) fn descend(
    snapshot: &Snapshot,
    ladder: &Ladder,
    approach: Option<&Approach>,
    is_short: bool,
    history: &mut History,
    plan: &mut Plan,
) {
    let soon = Millis(ladder.throttle.max(ladder.freeze).0.saturating_mul(2));
    // What is met is approached no more, and nothing is less safe.
    let safe = !is_short && approach.is_none_or(|approach| approach.time_left > soon);
    let now = snapshot.taken_at;
    history.steps.retain(|step| {
        let exists = snapshot.workloads.iter().any(|workload| workload.key == step.workload);
        let age = now.since(step.since);
        let over = match step.kind {
            StepKind::Warned | StepKind::Reclaimed => age >= REPEAT_AFTER,
            StepKind::Throttled => safe,
            StepKind::Frozen => safe || age >= ladder.max_freeze,
        };
        if exists && over && matches!(step.kind, StepKind::Throttled | StepKind::Frozen) {
            let release = Release { workload: step.workload.clone(), high: step.high_before };
            plan.actions.push(Action::Release(release));
        }
        exists && !over
    });
}

/// Notes a step; false when it is in force already.
fn begin(
    history: &mut History,
    workload: &Workload,
    kind: StepKind,
    high_before: Option<u64>,
    now: Time,
) -> bool {
    let place = history
        .steps
        .binary_search_by(|step| step.workload.cmp(&workload.key).then(step.kind.cmp(&kind)));
    match place {
        Ok(_) => false,
        Err(place) => {
            let step = Step { workload: workload.key.clone(), kind, since: now, high_before };
            history.steps.insert(place, step);
            true
        }
    }
}

/// Bytes that reclaim could get back: page cache, and with swap anonymous memory too, without what the cgroup protects.
fn reclaimable(memory: &MemoryUsage, swap: bool) -> u64 {
    let cache = memory.file.unwrap_or_default().saturating_sub(memory.shmem.unwrap_or_default());
    let swappable = if swap {
        memory.anon.unwrap_or_default().saturating_add(memory.shmem.unwrap_or_default())
    } else {
        0
    };
    let protected = memory.low.max(memory.min).unwrap_or_default();
    let all = memory.usage.unwrap_or(u64::MAX).saturating_sub(protected);
    cache.saturating_add(swappable).min(all)
}
