//! Making room for a critical pod that does not fit: the fewest pods of the lowest class.
//!
//! Guaranteed pods are only taken for what all others together cannot give, then burstable ones for what the best-effort ones cannot.
//! Within a class the pod comes first whose requests come nearest to what is missing; ties go to the smaller request.
//!
//! [`nearest`] finds that pod without comparing all of them again for each that is taken.
use crate::{
    Quantity,
    evict::{self, Grounds},
    limits::Options,
    plan::{Action, EvictionCause, Plan},
    request::{Requestable, qos, request},
    snapshot::{Preemption, Qos, Snapshot, Workload, WorkloadKey},
    workload::counted_termination,
};
use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet},
    string::ToString,
    vec::Vec,
};
use ebb_model::priority::is_critical;
use nearest::{Amounts, Given, Nearest, is_nothing, less};

mod nearest;

/// Grace of a pod that does not say how long it needs.
const DEFAULT_GRACE: u64 = 30;

/// What a pod takes up that can be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    Cpu,
    Memory,
    EphemeralStorage,
    Pods,
}

impl Want {
    const ALL: [Want; 4] = [Want::Cpu, Want::EphemeralStorage, Want::Memory, Want::Pods];

    fn name(self) -> &'static str {
        match self {
            Want::Cpu => "cpu",
            Want::Memory => "memory",
            Want::EphemeralStorage => "ephemeral-storage",
            Want::Pods => "pods",
        }
    }

    /// How much of it a pod gives back: thousandths of a CPU, bytes, or one pod.
    fn of(self, workload: &Workload) -> i128 {
        match self {
            Want::Cpu => thousandths(request(workload, Requestable::Cpu)),
            Want::Memory => request(workload, Requestable::Memory).ceil(),
            Want::EphemeralStorage => request(workload, Requestable::EphemeralStorage).ceil(),
            Want::Pods => 1,
        }
    }
}

fn thousandths(quantity: Quantity) -> i128 {
    quantity.nanos().div_euclid(1_000_000) + i128::from(quantity.nanos().rem_euclid(1_000_000) != 0)
}

/// A pod that may be taken, with what it gives back.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    workload: &'a Workload,
    given: Given,
}

/// Chooses pods for the preemption that the snapshot asks for, if any; nobody when no set of pods would do.
pub(crate) fn preempt(
    snapshot: &Snapshot,
    active: &[&Workload],
    options: &Options,
    plan: &mut Plan,
) {
    let Some(wanted) = &snapshot.preemption else { return };
    if !is_critical(wanted.static_pod, wanted.mirror, wanted.priority) {
        return;
    }
    let missing = missing(wanted);
    let short = Want::ALL.into_iter().zip(missing).find(|(_, amount)| *amount > 0);
    let Some((first, _)) = short else { return };
    let evicted: BTreeSet<&WorkloadKey> = plan.evictions().map(|evict| &evict.workload).collect();
    let may_go = |workload: &&&Workload| {
        !evicted.contains(&workload.key) && is_preemptable(wanted, workload, options)
    };
    let candidates = active.iter().filter(may_go).map(|workload| candidate(workload)).collect();
    let Some(victims) = victims(candidates, missing) else { return };
    for workload in victims {
        let grace = workload.termination_grace.map_or(DEFAULT_GRACE, |grace| grace.0);
        let grounds = Grounds {
            cause: EvictionCause::Preemption,
            grace: crate::Secs(grace),
            at_once: false,
            message: "Preempted in order to admit critical pod".to_string(),
            annotations: BTreeMap::new(),
            metric: first.name().to_string(),
            threshold: None,
            memory_pressure: None,
            expected_free: None,
            why: Vec::new(),
        };
        let end = evict::evict(workload, grounds, snapshot.taken_at);
        plan.actions.push(Action::Evict(Box::new(end)));
    }
}

/// What is missing of each [`Want`]; zero of what is not.
fn missing(wanted: &Preemption) -> Amounts {
    let amount = |want| match want {
        Want::Cpu => wanted.missing.cpu.map_or(0, thousandths),
        Want::Memory => wanted.missing.memory.map_or(0, Quantity::ceil),
        Want::EphemeralStorage => wanted.missing.ephemeral_storage.map_or(0, Quantity::ceil),
        Want::Pods => i128::from(wanted.missing_pods),
    };
    Want::ALL.map(|want| amount(want).max(0))
}

fn candidate(workload: &Workload) -> Candidate<'_> {
    let given = Given {
        amounts: Want::ALL.map(|want| want.of(workload)),
        size: (Want::Memory.of(workload), Want::Cpu.of(workload)),
    };
    Candidate { workload, given }
}

/// The pods to take, the lowest class first; `None` when all of them together are not enough.
fn victims(mut candidates: Vec<Candidate<'_>>, missing: Amounts) -> Option<Vec<&Workload>> {
    // Ties fall by identity.
    candidates.sort_by(|a, b| a.workload.key.cmp(&b.workload.key));
    let mut classes: [Vec<Candidate<'_>>; 3] = Default::default();
    for candidate in candidates {
        let class = match qos(candidate.workload) {
            Qos::BestEffort => 0,
            Qos::Burstable => 1,
            Qos::Guaranteed => 2,
        };
        classes[class].push(candidate);
    }
    let [best_effort, burstable, guaranteed] = &classes;
    let lower = without(without(missing, best_effort), burstable);
    let guaranteed = take(guaranteed, lower)?;
    let burstable = take(burstable, without(without(missing, best_effort), &guaranteed))?;
    let best_effort = take(best_effort, without(without(missing, &burstable), &guaranteed))?;
    let victims = best_effort.into_iter().chain(burstable).chain(guaranteed);
    Some(victims.map(|candidate| candidate.workload).collect())
}

/// The kubelet's rule: a critical pod takes one that is not critical, and any that has a priority below its own. Nobody takes what is protected here, or what is terminating and counted already.
fn is_preemptable(wanted: &Preemption, workload: &Workload, options: &Options) -> bool {
    let is_lower =
        matches!((wanted.priority, workload.priority), (Some(new), Some(old)) if new > old);
    (!workload.is_critical() || is_lower)
        && workload.protected.is_none()
        && !counted_termination(workload, options).is_some_and(|dying| dying.is_whole())
}

fn without(missing: Amounts, given: &[Candidate<'_>]) -> Amounts {
    given.iter().fold(missing, |left, candidate| less(left, candidate.given.amounts))
}

/// Takes the pod that comes nearest to what is missing, until nothing is; `None` when the pods run out first.
fn take<'a>(candidates: &[Candidate<'a>], mut missing: Amounts) -> Option<Vec<Candidate<'a>>> {
    let mut taken = Vec::new();
    if is_nothing(missing) {
        return Some(taken);
    }
    let mut nearest = Nearest::new(candidates.iter().map(|candidate| candidate.given), missing);
    while !is_nothing(missing) {
        let candidate = candidates.get(nearest.take(missing)?)?;
        missing = less(missing, candidate.given.amounts);
        taken.push(*candidate);
    }
    Some(taken)
}
