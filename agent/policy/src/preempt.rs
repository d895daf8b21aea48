//! Making room for a critical pod that does not fit: the fewest pods of the lowest class.
//!
//! Guaranteed pods are only taken for what all others together cannot give, then burstable ones for what the best-effort ones cannot.
//! Within a class the pod comes first whose requests come nearest to what is missing; ties go to the smaller request.
use crate::{
    Quantity,
    evict::{self, Grounds},
    plan::{Action, EvictionCause, Plan},
    request::{Requestable, qos, request},
    snapshot::{Preemption, Qos, Snapshot, Workload},
    workload::is_critical,
};
use alloc::{boxed::Box, collections::BTreeMap, string::ToString, vec::Vec};

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

/// What is still missing, never zero or less.
type Missing = Vec<(Want, i128)>;

/// Chooses pods for the preemption that the snapshot asks for, if any; nobody when no set of pods would do.
pub(crate) fn preempt(snapshot: &Snapshot, active: &[&Workload], plan: &mut Plan) {
    let Some(wanted) = &snapshot.preemption else { return };
    if !is_critical(wanted.static_pod, wanted.mirror, wanted.priority) {
        return;
    }
    let missing = missing(wanted);
    let Some(first) = missing.first() else { return };
    let metric = first.0.name();
    let ends = |workload: &Workload| plan.evictions().any(|evict| evict.workload == workload.key);
    let staying: Vec<&Workload> =
        active.iter().copied().filter(|workload| !ends(workload)).collect();
    let Some(victims) = victims(wanted, &staying, &missing) else { return };
    for workload in victims {
        let grace = workload.termination_grace.map_or(DEFAULT_GRACE, |grace| grace.0);
        let grounds = Grounds {
            cause: EvictionCause::Preemption,
            grace: crate::Secs(grace),
            message: "Preempted in order to admit critical pod".to_string(),
            annotations: BTreeMap::new(),
            metric: metric.to_string(),
            threshold: None,
            expected_free: None,
            why: Vec::new(),
        };
        let end = evict::evict(workload, grounds, snapshot.taken_at);
        plan.actions.push(Action::Evict(Box::new(end)));
    }
}

fn missing(wanted: &Preemption) -> Missing {
    let amounts = Want::ALL.map(|want| {
        let amount = match want {
            Want::Cpu => wanted.missing.cpu.map_or(0, thousandths),
            Want::Memory => wanted.missing.memory.map_or(0, Quantity::ceil),
            Want::EphemeralStorage => wanted.missing.ephemeral_storage.map_or(0, Quantity::ceil),
            Want::Pods => i128::from(wanted.missing_pods),
        };
        (want, amount)
    });
    amounts.into_iter().filter(|(_, amount)| *amount > 0).collect()
}

fn victims<'a>(
    wanted: &Preemption,
    active: &[&'a Workload],
    missing: &Missing,
) -> Option<Vec<&'a Workload>> {
    let mut classes: [Vec<&Workload>; 3] = Default::default();
    for workload in active.iter().filter(|workload| is_preemptable(wanted, workload)) {
        let class = match qos(workload) {
            Qos::BestEffort => 0,
            Qos::Burstable => 1,
            Qos::Guaranteed => 2,
        };
        classes[class].push(*workload);
    }
    for class in &mut classes {
        class.sort_by(|a, b| a.key.cmp(&b.key));
    }
    let [best_effort, burstable, guaranteed] = &classes;
    let lower = || best_effort.iter().chain(burstable).copied();
    let guaranteed = nearest(guaranteed, without(missing, lower()))?;
    let rest = best_effort.iter().copied().chain(guaranteed.iter().copied());
    let burstable = nearest(burstable, without(missing, rest))?;
    let taken = burstable.iter().chain(&guaranteed).copied();
    let best_effort = nearest(best_effort, without(missing, taken))?;
    Some(best_effort.into_iter().chain(burstable).chain(guaranteed).collect())
}

/// Never a critical pod, one of equal or higher priority, or one that must not be ended.
fn is_preemptable(wanted: &Preemption, workload: &Workload) -> bool {
    let stronger =
        (wanted.static_pod || wanted.mirror) || wanted.priority.unwrap_or(0) > workload.priority();
    stronger && workload.may_be_ended() && workload.dying.is_none()
}

fn without<'a>(missing: &Missing, given: impl Iterator<Item = &'a Workload> + Clone) -> Missing {
    let left = missing.iter().map(|(want, amount)| {
        let back: i128 =
            given.clone().map(|workload| want.of(workload)).fold(0, i128::saturating_add);
        (*want, amount.saturating_sub(back))
    });
    left.filter(|(_, amount)| *amount > 0).collect()
}

/// Takes the pod that comes nearest to what is missing, until nothing is; `None` when the pods run out first.
fn nearest<'a>(pods: &[&'a Workload], mut missing: Missing) -> Option<Vec<&'a Workload>> {
    let mut pods = pods.to_vec();
    let mut taken = Vec::new();
    while !missing.is_empty() {
        let best = pods
            .iter()
            .enumerate()
            .min_by(|(_, a), (_, b)| {
                let sizes = |w: &Workload| (Want::Memory.of(w), Want::Cpu.of(w));
                distance(a, &missing)
                    .total_cmp(&distance(b, &missing))
                    .then_with(|| sizes(a).cmp(&sizes(b)))
                    .then_with(|| a.key.cmp(&b.key))
            })
            .map(|(index, _)| index)?;
        let pod = pods.swap_remove(best);
        missing = without(&missing, core::iter::once(pod));
        taken.push(pod);
    }
    Some(taken)
}

/// How far a pod's requests stay behind what is missing: the squares of the missing shares, summed.
fn distance(workload: &Workload, missing: &Missing) -> f64 {
    let shares = missing.iter().map(|(want, amount)| {
        let left = amount.saturating_sub(want.of(workload)).max(0);
        let share = left as f64 / *amount as f64;
        share * share
    });
    shares.sum()
}
