//! A second, simple model of the kubelet's rules, written from what is known of the kubelet and not from the policy, and run beside it on random sequences of passes.
//!
//! ```text
//!  world ─► snapshot ─┬─► decide  ─► plan    ─┐
//!                     └─► Kubelet ─► outcome ─┴─► the same thresholds, conditions, victims, removals
//!     ▲                                       │
//!     └──── victims terminate, what was removed is gone ◄┘
//! ```
//! `EBB_SEED` runs the sequences of that seed again, `EBB_SEQUENCES` another number of them.
//! Where ebb differs on purpose the model does as ebb, and says so.
mod collect;
mod kubelet;
mod pods;
mod world;

use ebb_policy::limits::{Limits, Options, RawEviction};
use ebb_policy::plan::{Action, EvictionCause, Note, Plan, Strength, ThresholdState};
use ebb_policy::signal::NodeConditionType;
use ebb_policy::{History, decide};
use kubelet::{Kubelet, Outcome};
use std::collections::BTreeSet;
use std::env;
use world::{Random, Rules, World};

/// Passes in a sequence.
const PASSES: u64 = 12;

/// What a plan comes to, in the model's words.
fn outcome(plan: &Plan) -> Outcome {
    let mut outcome = Outcome::default();
    for status in &plan.thresholds {
        let state = match status.state {
            ThresholdState::Unobserved => "unobserved",
            ThresholdState::Clear => "clear",
            ThresholdState::Grace => "grace",
            ThresholdState::Stale => "stale",
            ThresholdState::Met => "met",
            ThresholdState::Inert => "inert",
        };
        let is_hard = status.strength == Strength::Hard;
        outcome.thresholds.push((status.signal, is_hard, state, status.by_minimum_reclaim));
    }
    outcome.thresholds.sort();
    for condition in &plan.conditions {
        let place = match condition.condition_type {
            NodeConditionType::DiskPressure => 0,
            NodeConditionType::MemoryPressure => 1,
            NodeConditionType::PidPressure => 2,
        };
        outcome.conditions[place] = condition.status;
    }
    outcome.handled = plan.handled.as_ref().map(|handled| handled.signal);
    outcome.reclaims = plan.notes.contains(&Note::ReclaimFirst);
    outcome.ages = plan.stats_age.iter().map(|(signal, age)| (*signal, age.0)).collect();
    for action in &plan.actions {
        let removed = match action {
            Action::Evict(evict) => {
                let cause = match evict.cause {
                    EvictionCause::NodePressure => "pressure",
                    EvictionCause::EmptyDirLimit => "emptyDir",
                    EvictionCause::PodStorageLimit => "pod",
                    EvictionCause::ContainerStorageLimit => "container",
                    EvictionCause::Preemption => "preemption",
                    EvictionCause::MemoryPressure => "memoryPressure",
                };
                outcome.evicted.push((evict.workload.name.clone(), cause, evict.grace.0));
                continue;
            }
            Action::RemoveContainer(container) => format!("container {}", container.id),
            Action::RemoveSandbox(sandbox) => format!("sandbox {}", sandbox.id),
            Action::RemoveImage(image) => format!("image {}", image.id),
            Action::RemoveLogDir(dir) => format!("logs {}", dir.path),
            other => panic!("the kubelet does no such thing: {other:?}"),
        };
        outcome.removed.insert(removed);
    }
    outcome
}

/// Only what differs, one field a paragraph.
fn differences(policy: &Outcome, model: &Outcome) -> String {
    let fields = |o: &Outcome| {
        let Outcome { thresholds, conditions, handled, evicted, reclaims, removed, ages } = o;
        [
            format!("thresholds {thresholds:?}"),
            format!("conditions {conditions:?}"),
            format!("handled {handled:?}"),
            format!("evicted {evicted:?}"),
            format!("reclaims {reclaims:?}"),
            format!("removed {removed:?}"),
            format!("ages {ages:?}"),
        ]
    };
    let pairs = fields(policy).into_iter().zip(fields(model));
    let differing = pairs.filter(|(policy, model)| policy != model);
    differing.map(|(policy, model)| format!("policy: {policy}\n model: {model}\n")).collect()
}

/// What a run of sequences has met, so that a generator gone blind is seen.
#[derive(Default)]
struct Met {
    kinds: BTreeSet<String>,
}

impl Met {
    fn note(&mut self, outcome: &Outcome) {
        self.kinds.extend(outcome.evicted.iter().map(|(_, cause, _)| (*cause).to_owned()));
        self.kinds.extend(outcome.thresholds.iter().map(|(_, _, state, _)| (*state).to_owned()));
        let kind = |removed: &String| removed.split(' ').next().unwrap_or_default().to_owned();
        self.kinds.extend(outcome.removed.iter().map(kind));
        if outcome.thresholds.iter().any(|(.., by_reclaim)| *by_reclaim) {
            self.kinds.insert("minimum reclaim".to_owned());
        }
        if outcome.reclaims {
            self.kinds.insert("reclaim".to_owned());
        }
    }
}

/// Runs a sequence of passes; says where policy and model differ.
fn sequence(seed: u64, met: &mut Met) -> Result<(), String> {
    let mut random = Random(seed);
    let rules = Rules::random(&mut random);
    // What is terminating counts with ebb: a difference, which is switched off here.
    let options = Options { count_terminating: false, ..Options::kubelet() };
    let raw = RawEviction { options: Some(options), ..rules.raw() };
    let limits = Limits::new(&raw).map_err(|errors| format!("{errors:?}"))?;
    let mut world = World::random(&mut random);
    let mut kubelet = Kubelet::default();
    let mut history = History::default();
    for pass in 1..=PASSES {
        let snapshot = world.step(&mut random, &rules);
        let (plan, next) = decide(&snapshot, &limits, &history);
        let expected = kubelet.pass(&snapshot, &rules);
        let decided = outcome(&plan);
        if decided != expected {
            return Err(format!(
                "pass {pass}:\n{}\nof {rules:#?}\nand {snapshot:#?}\nafter {history:#?}",
                differences(&decided, &expected)
            ));
        }
        met.note(&decided);
        history = next;
        let evicted: Vec<String> = decided.evicted.into_iter().map(|(name, ..)| name).collect();
        world.apply(&mut random, &evicted, &decided.removed);
    }
    Ok(())
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?}: not a whole number")))
}

/// A seed that is another one in every run.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0) >> 16
}

#[test]
fn a_thousand_random_sequences_are_decided_as_a_second_model_of_the_rules_decides_them() {
    let seed = number("EBB_SEED").unwrap_or_else(fresh_seed);
    let sequences = number("EBB_SEQUENCES").unwrap_or(1_000);
    println!("EBB_SEED={seed}, {sequences} sequences of {PASSES} passes");
    let mut met = Met::default();
    for n in 0..sequences {
        let own = seed.wrapping_add(n);
        if let Err(difference) = sequence(own, &mut met) {
            panic!(
                "EBB_SEED={own} EBB_SEQUENCES=1 shows it alone (sequence {n} of EBB_SEED={seed}):\n{difference}"
            );
        }
    }
    if sequences >= 1_000 {
        let all = [
            "clear",
            "container",
            "emptyDir",
            "grace",
            "image",
            "inert",
            "logs",
            "met",
            "minimum reclaim",
            "pod",
            "preemption",
            "pressure",
            "reclaim",
            "sandbox",
            "stale",
            "unobserved",
        ];
        for kind in all {
            assert!(met.kinds.contains(kind), "EBB_SEED={seed}: {kind} never came about");
        }
    }
}
