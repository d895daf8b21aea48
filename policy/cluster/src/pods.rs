//! The pod collector: which pods nobody will take away otherwise, and when to look again.
//!
//! ```text
//! terminated, more than the threshold ── evicted first, then oldest ─┐
//! terminating on a node out of service ─────────────────────────────┼─► deletions, each with its mark
//! bound to a node that is not there ── quarantine ── confirmed ─────┤
//! terminating and never scheduled ──────────────────────────────────┘
//! limits by namespace, owner, age and reason: only where they are set
//! ```
//!
//! The rules are kube-controller-manager's `pod-garbage-collector-controller`; watches, look-ups of nodes and requests are elsewhere.

use crate::object::{Kind, Time, Uid};
use crate::verdict::Preconditions;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

/// `status.phase`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not all containers have started.
    Pending,
    /// Bound, and a container runs or restarts.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, one of them badly.
    Failed,
    /// The node does not answer.
    Unknown,
}

/// A pod, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.creationTimestamp`.
    pub created: Time,
    /// When its last container ended; `None` where nobody said.
    pub ended: Option<Time>,
    /// `metadata.deletionTimestamp`.
    pub deleting_since: Option<Time>,
    /// `metadata.deletionGracePeriodSeconds`: 0 once a deletion is forced.
    pub grace_seconds: Option<u64>,
    /// The managing controller's kind and uid.
    pub controller: Option<(Kind, Uid)>,
    /// `spec.nodeName`; `None` before it is scheduled.
    pub node: Option<String>,
    /// `status.phase`.
    pub phase: Phase,
    /// `status.reason`; empty where there is none.
    pub reason: String,
    /// Whether the label `ebb.dev/hold: "true"` asks that it is left as it is.
    pub held: bool,
}

/// A node, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Whether its condition Ready is True.
    pub ready: bool,
    /// Whether it has the taint `node.kubernetes.io/out-of-service`.
    pub out_of_service: bool,
}

/// Limits on pods. Ages are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Terminated pods that may stay in the cluster; `None`: any number.
    pub terminated: Option<usize>,
    /// How long a node must be missing before it is looked up.
    pub quarantine: u64,
    /// Terminated pods that may stay in a namespace.
    pub per_namespace: Option<usize>,
    /// Terminated pods of one controller that may stay.
    pub per_controller: Option<usize>,
    /// How long a terminated pod may stay.
    pub age: Option<u64>,
    /// How long a terminated pod may stay, by its `status.reason`, as `Evicted`.
    pub age_by_reason: BTreeMap<String, u64>,
    /// Whether the limits by namespace, controller and age leave the failed pods of Jobs alone.
    pub keep_failed_of_jobs: bool,
    /// Namespaces in which nothing is touched.
    pub ignored_namespaces: BTreeSet<String>,
}

impl Default for Limits {
    /// What kube-controller-manager does: 12,500 terminated pods, a quarantine of 40 s, no further limit.
    fn default() -> Self {
        Self {
            terminated: Some(12_500),
            quarantine: 40_000,
            per_namespace: None,
            per_controller: None,
            age: None,
            age_by_reason: BTreeMap::new(),
            keep_failed_of_jobs: false,
            ignored_namespaces: BTreeSet::new(),
        }
    }
}

/// Why a pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// There are more terminated pods than the threshold.
    Terminated,
    /// Its node is out of service.
    OutOfService,
    /// Its node is no longer there.
    Orphaned,
    /// It was never scheduled, and is terminating.
    Unscheduled,
    /// There are more terminated pods in its namespace than the limit.
    Namespace,
    /// Its controller has more terminated pods than the limit.
    Controller,
    /// It was terminated longer ago than the limit.
    Age,
    /// It was terminated longer ago than the limit for its reason.
    AgeByReason,
}

/// What is written into a pod's status before it is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The phase becomes Failed, and this message is that of the condition DisruptionTarget=True, reason DeletionByPodGC; without one, only the phase is written.
    pub disruption_target: Option<&'static str>,
}

/// A pod to delete with grace 0.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deletion {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// What the requests are about. The patch of the status changes the version: the delete after it goes by the uid.
    pub preconditions: Preconditions,
    /// Why.
    pub reason: Reason,
    /// What is written before; `None` where the phase is terminal already.
    pub mark: Option<Mark>,
}

/// What is to be done now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Round {
    /// Pods to delete, each once, by the first reason that applies.
    pub deletions: Vec<Deletion>,
    /// Nodes to look up: their answers go to [`Collector::answer_node`].
    pub confirm: BTreeSet<String>,
    /// When the answer changes without any event; `None`: not by time alone.
    pub due: Option<Time>,
}

/// Limits, and since when nodes are missing.
#[derive(Debug, Clone)]
pub struct Collector {
    limits: Limits,
    missing: BTreeMap<String, Missing>,
}

#[derive(Debug, Clone, Copy)]
struct Missing {
    since: Time,
    /// When a live look-up last found that it is not there.
    confirmed: Option<Time>,
}

/// How long a look-up holds, in milliseconds: a node may come back under its name, and its pods be told of before it is.
const CONFIRMED_FOR: u64 = 10_000;

impl Collector {
    /// A collector that has seen nothing yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, missing: BTreeMap::new() }
    }

    /// What a live look-up of a node said: one that is there is in quarantine again, from `now` on.
    pub fn answer_node(&mut self, name: &str, is_there: bool, now: Time) {
        if let Some(missing) = self.missing.get_mut(name) {
            *missing = if is_there {
                Missing { since: now, confirmed: None }
            } else {
                Missing { confirmed: Some(now), ..*missing }
            };
        }
    }

    /// What is to be done now with these pods; both lists are complete, or nothing may be asked.
    pub fn collect(&mut self, pods: &[Pod], nodes: &BTreeMap<String, Node>, now: Time) -> Round {
        let mut round = Round::default();
        let mut chosen = BTreeSet::new();
        let untouched =
            |pod: &Pod| pod.held || self.limits.ignored_namespaces.contains(&pod.namespace);
        let mut pods: Vec<&Pod> = pods.iter().filter(|pod| !untouched(pod)).collect();
        // Evicted first, then oldest; the rest only makes the order a total one.
        pods.sort_by_key(|pod| {
            (!is_evicted(pod), pod.created, &pod.namespace, &pod.name, &pod.uid)
        });
        let dead: Vec<&Pod> = pods.iter().copied().filter(|pod| is_dead(pod)).collect();
        let mut choose = |pod: &Pod, reason| {
            if !is_forced(pod) && chosen.insert(pod.uid.clone()) {
                round.deletions.push(deletion(pod, reason));
            }
        };
        if let Some(threshold) = self.limits.terminated {
            let surplus = dead.len().saturating_sub(threshold);
            dead.iter().take(surplus).for_each(|pod| choose(pod, Reason::Terminated));
        }
        let on = |pod: &Pod| pod.node.as_ref().and_then(|name| nodes.get(name));
        let terminating = pods.iter().filter(|pod| pod.deleting_since.is_some());
        for pod in terminating.clone() {
            if on(pod).is_some_and(|node| !node.ready && node.out_of_service) {
                choose(pod, Reason::OutOfService);
            }
        }
        // Whom nothing but a finalizer keeps there is nothing left to be done with.
        let open = || pods.iter().copied().filter(|pod| !is_forced(pod));
        let wanted: BTreeSet<&String> = open().filter_map(|pod| pod.node.as_ref()).collect();
        self.missing.retain(|name, _| wanted.contains(name) && !nodes.contains_key(name));
        for name in wanted.into_iter().filter(|&name| !nodes.contains_key(name)) {
            let new = Missing { since: now, confirmed: None };
            let missing = *self.missing.entry(name.clone()).or_insert(new);
            let over = Time(missing.since.0.saturating_add(self.limits.quarantine));
            let until = missing.confirmed.map(|at| Time(at.0.saturating_add(CONFIRMED_FOR)));
            if let Some(until) = until.filter(|&until| now < until) {
                let bound = open().filter(|pod| pod.node.as_ref() == Some(name));
                bound.for_each(|pod| choose(pod, Reason::Orphaned));
                sooner(&mut round.due, until);
            } else if now >= over {
                round.confirm.insert(name.clone());
            } else {
                sooner(&mut round.due, over);
            }
        }
        for pod in terminating.filter(|pod| pod.node.is_none()) {
            choose(pod, Reason::Unscheduled);
        }
        self.by_limits(&dead, now, &mut round.due, &mut choose);
        round
    }

    /// The limits that are set beside the threshold.
    fn by_limits(
        &self,
        dead: &[&Pod],
        now: Time,
        due: &mut Option<Time>,
        choose: &mut impl FnMut(&Pod, Reason),
    ) {
        let is_failed_job = |pod: &Pod| {
            pod.phase == Phase::Failed
                && pod
                    .controller
                    .as_ref()
                    .is_some_and(|(k, _)| k.kind == "Job" && k.group == "batch")
        };
        let spared = |pod: &Pod| self.limits.keep_failed_of_jobs && is_failed_job(pod);
        let dead: Vec<&Pod> = dead.iter().copied().filter(|pod| !spared(pod)).collect();
        let mut aged = |reason, limit: &dyn Fn(&Pod) -> Option<u64>| {
            for pod in &dead {
                let Some(limit) = limit(pod) else { continue };
                let over = Time(pod.ended.unwrap_or(pod.created).0.saturating_add(limit));
                if now >= over {
                    choose(pod, reason);
                } else if !is_forced(pod) {
                    sooner(due, over);
                }
            }
        };
        aged(Reason::AgeByReason, &|pod| self.limits.age_by_reason.get(&pod.reason).copied());
        aged(Reason::Age, &|_| self.limits.age);
        let mut surplus = |limit: Option<usize>, reason, groups: Vec<Vec<&Pod>>| {
            let Some(limit) = limit else { return };
            for group in groups {
                let many = group.len().saturating_sub(limit);
                group.into_iter().take(many).for_each(|pod| choose(pod, reason));
            }
        };
        let by_namespace = grouped(&dead, |pod| Some(&pod.namespace));
        surplus(self.limits.per_namespace, Reason::Namespace, by_namespace);
        // Whoever makes a pod writes its owner: in another namespace it is nobody's word against those.
        let by_controller =
            grouped(&dead, |pod| pod.controller.as_ref().map(|(_, uid)| (&pod.namespace, uid)));
        surplus(self.limits.per_controller, Reason::Controller, by_controller);
    }
}

fn grouped<'a, K: Ord>(pods: &[&'a Pod], key: impl Fn(&'a Pod) -> Option<K>) -> Vec<Vec<&'a Pod>> {
    let mut groups: BTreeMap<K, Vec<&Pod>> = BTreeMap::new();
    for &pod in pods {
        if let Some(key) = key(pod) {
            groups.entry(key).or_default().push(pod);
        }
    }
    groups.into_values().collect()
}

fn sooner(due: &mut Option<Time>, at: Time) {
    *due = Some(due.map_or(at, |due| due.min(at)));
}

fn is_dead(pod: &Pod) -> bool {
    matches!(pod.phase, Phase::Succeeded | Phase::Failed)
}

fn is_evicted(pod: &Pod) -> bool {
    pod.reason == "Evicted"
}

/// Deleted with grace 0 already, and marked: only a finalizer keeps it.
fn is_forced(pod: &Pod) -> bool {
    pod.deleting_since.is_some() && pod.grace_seconds == Some(0) && is_dead(pod)
}

fn deletion(pod: &Pod, reason: Reason) -> Deletion {
    let message = (reason == Reason::Orphaned).then_some("PodGC: node no longer exists");
    let preconditions =
        Preconditions { uid: pod.uid.clone(), resource_version: pod.resource_version.clone() };
    Deletion {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        preconditions,
        reason,
        mark: (!is_dead(pod)).then_some(Mark { disruption_target: message }),
    }
}
