//! The kubelet's eviction manager, step by step and without a thought for speed.
use super::collect::{self, Images};
use super::pods::{self, Asked, is_active, is_critical};
use super::world::{Configured, Rules, Value};
use ebb_policy::snapshot::{FsLayout, Observation, Preemption, Qos, Snapshot, Task, Workload};
use ebb_policy::{Signal, Time};
use std::collections::{BTreeMap, BTreeSet};

/// What a pass should come to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// Signal, whether it acts at once, where it stands, and whether the minimum reclaim alone keeps it met.
    pub(super) thresholds: Vec<(Signal, bool, &'static str, bool)>,
    /// Disk, memory and PID pressure.
    pub(super) conditions: [bool; 3],
    pub(super) handled: Option<Signal>,
    /// Name, cause and seconds of grace, in order.
    pub(super) evicted: Vec<(String, &'static str, u64)>,
    /// Whether the pass stops for node-level reclaim.
    pub(super) reclaims: bool,
    pub(super) removed: BTreeSet<String>,
    /// Milliseconds.
    pub(super) ages: BTreeMap<Signal, u64>,
}

/// A threshold in force. It is the same one in the next pass when all of this is the same.
#[derive(Clone, Copy, Debug)]
struct Threshold {
    signal: Signal,
    value: Option<Value>,
    reclaim: Option<Value>,
    grace_ms: u64,
    is_soft_list: bool,
}

impl Threshold {
    fn of(configured: &Configured) -> Threshold {
        let Configured { signal, is_in_soft, value, grace_ms, reclaim } = *configured;
        Threshold { signal, value: Some(value), reclaim, grace_ms, is_soft_list: is_in_soft }
    }

    fn is_hard(&self) -> bool {
        self.grace_ms == 0
    }

    fn is_met(&self, seen: &Seen, with_reclaim: bool) -> bool {
        let extra = self.reclaim.filter(|_| with_reclaim).map_or(0, |v| amount(v, seen.capacity));
        self.value.is_some_and(|value| amount(value, seen.capacity) + extra > seen.available)
    }

    fn key(&self) -> (Signal, bool) {
        (self.signal, self.is_soft_list)
    }
}

/// 5 % is the single-precision 0.05 of the capacity, truncated.
fn amount(value: Value, capacity: u64) -> i128 {
    match value {
        Value::Amount(amount) => amount.into(),
        Value::Percent(percent) => {
            (capacity as f64 * f64::from(percent as f32 / 100.0)) as i64 as i128
        }
    }
}

#[derive(Clone, Copy)]
struct Seen {
    available: i128,
    capacity: u64,
    at: Option<Time>,
}

/// What it remembers.
#[derive(Default)]
pub(super) struct Kubelet {
    passes: u64,
    met: BTreeSet<(Signal, bool)>,
    first_observed: BTreeMap<(Signal, bool), u64>,
    condition_seen: [Option<u64>; 3],
    conditions: [bool; 3],
    last_seen: BTreeMap<Signal, Option<Time>>,
    /// The threshold for which the last pass stopped to reclaim, with its observation.
    reclaiming: Option<(Threshold, Option<Time>)>,
    waiting: Option<(Vec<String>, u64)>,
    /// Victims for want of disk, for whom ebb lets only thresholds on disk wait.
    waiting_for_disk: Option<(Vec<String>, u64)>,
    /// The signal that this pass evicts for.
    evicts_for: Option<Signal>,
    images: Images,
}

fn condition(signal: Signal) -> usize {
    match signal {
        Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable => 1,
        Signal::PidAvailable => 2,
        _ => 0,
    }
}

fn observe(snapshot: &Snapshot) -> BTreeMap<Signal, Seen> {
    let mut seen = BTreeMap::new();
    let node = &snapshot.node;
    if let (Some(total), Some(root)) = (node.memory_total, node.memory_root) {
        let used = root.anon.expect("every world has it") + root.file.expect("every world has it");
        let used = used.saturating_sub(root.inactive_file.unwrap_or(0));
        let available = i128::from(total) - i128::from(used);
        let at = node.memory_observed_at;
        seen.insert(Signal::MemoryAvailable, Seen { available, capacity: total, at });
    }
    if let Some(pods) = node.memory_kubepods
        && let Some(limit) = pods.limit
    {
        let usage =
            pods.usage.expect("every world has it").saturating_sub(pods.inactive_file.unwrap_or(0));
        let used = pods.working_set.unwrap_or(usage);
        let available = i128::from(limit) - i128::from(used);
        let at = node.memory_observed_at;
        seen.insert(Signal::AllocatableMemoryAvailable, Seen { available, capacity: limit, at });
    }
    for (signal, observation) in &snapshot.signals {
        let Observation { available, capacity, observed_at } = *observation;
        let capacity = capacity.expect("every world has it");
        seen.insert(*signal, Seen { available: available.into(), capacity, at: observed_at });
    }
    seen
}

impl Kubelet {
    fn thresholds(&self, rules: &Rules, layout: FsLayout) -> Vec<Threshold> {
        let containerfs = [Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree];
        let (own, others): (Vec<Threshold>, Vec<Threshold>) = rules
            .thresholds
            .iter()
            .map(Threshold::of)
            .partition(|t| containerfs.contains(&t.signal));
        let mut list = others.clone();
        if rules.enforces_pods {
            let memory =
                others.iter().filter(|t| t.signal == Signal::MemoryAvailable && t.is_hard());
            list.extend(
                memory.map(|t| Threshold { signal: Signal::AllocatableMemoryAvailable, ..*t }),
            );
        }
        let sources = match layout {
            FsLayout::DedicatedImageFs => [Signal::ImageFsAvailable, Signal::ImageFsInodesFree],
            _ => [Signal::NodeFsAvailable, Signal::NodeFsInodesFree],
        };
        for (signal, source) in containerfs.into_iter().zip(sources) {
            for hard in [true, false] {
                let from = others.iter().rfind(|t| t.signal == source && t.is_hard() == hard);
                let is_in_place = own.iter().any(|t| t.signal == signal && t.is_hard() == hard);
                if self.passes > 0 || is_in_place {
                    list.push(Threshold {
                        signal,
                        value: from.and_then(|t| t.value),
                        reclaim: from.and_then(|t| t.reclaim),
                        grace_ms: from.map_or(0, |t| t.grace_ms),
                        is_soft_list: !hard,
                    });
                }
            }
        }
        // The kubelet leaves the order open beyond memory; ebb takes what acts at once first, then by signal.
        list.sort_by_key(|t| (condition(t.signal) != 1, !t.is_hard(), t.signal, t.is_soft_list));
        list
    }

    pub(super) fn pass(&mut self, snapshot: &Snapshot, rules: &Rules) -> Outcome {
        let mut outcome = Outcome::default();
        let mut has_detected = false;
        let before = self.images.clone();
        self.evict(snapshot, rules, &mut outcome, &mut has_detected);
        outcome.conditions = self.conditions;
        let tasks = snapshot.tasks.clone().expect("every world has it");
        if !outcome.reclaims && tasks.contains(&Task::ContainerGc) {
            collect::containers(snapshot, rules, false, &mut outcome.removed);
        }
        if !outcome.reclaims && tasks.contains(&Task::ImageGc) && !snapshot.images.is_empty() {
            // The collector's look is its own: what the eviction manager has just seen in use may be free by now.
            self.images = before;
            let candidates = self.images.detect(snapshot, &outcome.removed);
            self.images.collect(snapshot, rules, candidates, &mut outcome.removed);
        } else if !has_detected {
            // ebb notes which images are in use in every pass, as the runtime lists them before what node-level reclaim removes is gone.
            let collected =
                if outcome.reclaims { BTreeSet::new() } else { outcome.removed.clone() };
            self.images.detect(snapshot, &collected);
        }
        if let Some(wanted) = &snapshot.preemption {
            preempt(snapshot, wanted, &mut outcome.evicted);
        }
        // Only what the eviction manager evicts is waited for; preempted pods are killed one by one.
        let own = outcome.evicted.iter().filter(|(_, cause, _)| *cause != "preemption");
        let own: Vec<String> = own.map(|(name, ..)| name.clone()).collect();
        if !own.is_empty() {
            let is_for_disk = self.evicts_for.is_some_and(|signal| condition(signal) == 0);
            let slot = if is_for_disk { &mut self.waiting_for_disk } else { &mut self.waiting };
            *slot = Some((own, snapshot.taken_at.0 + 30_000));
        }
        outcome
    }

    fn evict(
        &mut self,
        snapshot: &Snapshot,
        rules: &Rules,
        outcome: &mut Outcome,
        has_detected: &mut bool,
    ) {
        let now = snapshot.taken_at;
        let layout = snapshot.layout.expect("every world has it");
        let active: Vec<&Workload> = snapshot.workloads.iter().filter(|p| is_active(p)).collect();
        self.evicts_for = None;
        let is_waited_for = |waiting: &Option<(Vec<String>, u64)>| {
            waiting.as_ref().is_some_and(|(victims, until)| {
                now.0 < *until && active.iter().any(|pod| victims.contains(&pod.key.name))
            })
        };
        if is_waited_for(&self.waiting) {
            return;
        }
        self.waiting = None;
        let disk_waits = is_waited_for(&self.waiting_for_disk);
        if !disk_waits {
            self.waiting_for_disk = None;
        }
        let observations = observe(snapshot);
        let thresholds = self.thresholds(rules, layout);
        self.passes += 1;

        let mut first_observed = BTreeMap::new();
        let mut met = BTreeSet::new();
        let mut acting: Vec<Threshold> = Vec::new();
        for threshold in &thresholds {
            let key = threshold.key();
            let seen = observations.get(&threshold.signal);
            let mut by_reclaim = false;
            let state = match seen {
                _ if threshold.value.is_none() => "inert",
                None => "unobserved",
                Some(seen) => {
                    let is_below = threshold.is_met(seen, false);
                    by_reclaim =
                        !is_below && self.met.contains(&key) && threshold.is_met(seen, true);
                    if !is_below && !by_reclaim {
                        "clear"
                    } else {
                        let since = self.first_observed.get(&key).copied().unwrap_or(now.0);
                        first_observed.insert(key, since);
                        self.condition_seen[condition(threshold.signal)] = Some(now.0);
                        if now.0 - since < threshold.grace_ms {
                            "grace"
                        } else {
                            met.insert(key);
                            let last = self.last_seen.get(&threshold.signal).copied().flatten();
                            if seen.at.is_some_and(|at| last.is_some_and(|last| at <= last)) {
                                "stale"
                            } else {
                                acting.push(*threshold);
                                "met"
                            }
                        }
                    }
                }
            };
            outcome.thresholds.push((threshold.signal, threshold.is_hard(), state, by_reclaim));
        }
        outcome.thresholds.sort();
        self.first_observed = first_observed;
        self.met = met;
        self.last_seen = observations.iter().map(|(signal, seen)| (*signal, seen.at)).collect();
        self.conditions =
            self.condition_seen.map(|at| at.is_some_and(|at| now.0 - at < rules.transition_ms));

        // The second half of a pass that reclaimed: evict for the same threshold if any at all is still met.
        if let Some((threshold, at)) = self.reclaiming.take() {
            let is_met = |t: &Threshold| {
                observations.get(&t.signal).is_some_and(|seen| t.is_met(seen, true))
            };
            if thresholds.iter().any(is_met) {
                if let Some(at) = at.filter(|_| !active.is_empty()) {
                    outcome.ages.insert(threshold.signal, now.since(at).0);
                }
                self.evicts_for = Some(threshold.signal);
                rank_and_evict(threshold, &active, layout, rules, now, outcome);
                return;
            }
        }
        acting.retain(|threshold| !(disk_waits && condition(threshold.signal) == 0));
        if rules.limits_storage && !disk_waits {
            let mut violators: Vec<&&Workload> = active.iter().collect();
            violators.sort_by(|a, b| a.key.name.cmp(&b.key.name));
            for pod in violators {
                if let Some(cause) = pods::over_its_limit(pod, layout)
                    && !is_critical(pod.static_pod, pod.mirror, pod.priority)
                {
                    outcome.evicted.push((pod.key.name.clone(), cause, pods::grace(pod, 1, now)));
                }
            }
            if !outcome.evicted.is_empty() {
                return;
            }
        }
        let Some(threshold) = acting.first().copied() else { return };
        outcome.handled = Some(threshold.signal);
        let (containers, images) = reclaim_functions(threshold.signal, layout);
        if containers {
            collect::containers(snapshot, rules, true, &mut outcome.removed);
        }
        if images && !snapshot.images.is_empty() {
            *has_detected = true;
            let candidates = self.images.detect(snapshot, &outcome.removed);
            self.images.free(snapshot, rules, &candidates, u64::MAX, &mut outcome.removed);
        }
        if !outcome.removed.is_empty() {
            outcome.reclaims = true;
            self.reclaiming = Some((threshold, observations[&threshold.signal].at));
            return;
        }
        if !active.is_empty() {
            for acting in &acting {
                if let Some(at) = observations[&acting.signal].at {
                    outcome.ages.insert(acting.signal, now.since(at).0);
                }
            }
        }
        self.evicts_for = Some(threshold.signal);
        rank_and_evict(threshold, &active, layout, rules, now, outcome);
    }
}

/// Dead containers, unused images.
fn reclaim_functions(signal: Signal, layout: FsLayout) -> (bool, bool) {
    use Signal::{ImageFsAvailable, ImageFsInodesFree, NodeFsAvailable, NodeFsInodesFree};
    let is_node = matches!(signal, NodeFsAvailable | NodeFsInodesFree);
    let is_image = matches!(signal, ImageFsAvailable | ImageFsInodesFree);
    match layout {
        _ if condition(signal) != 0 => (false, false),
        FsLayout::Single => (true, true),
        FsLayout::DedicatedImageFs => (!is_node, !is_node),
        FsLayout::SplitImageFs => (!is_image, is_image),
    }
}

fn rank_and_evict(
    threshold: Threshold,
    active: &[&Workload],
    layout: FsLayout,
    rules: &Rules,
    now: Time,
    outcome: &mut Outcome,
) {
    outcome.handled = Some(threshold.signal);
    let mut ranked = active.to_vec();
    ranked.sort_by(|a, b| pods::first(a, b, threshold.signal, layout));
    let victim = ranked.iter().find(|p| !is_critical(p.static_pod, p.mirror, p.priority));
    if let Some(pod) = victim {
        let asked = if threshold.is_hard() {
            1
        } else {
            let most = rules.max_pod_grace;
            let grace = pod.termination_grace.map_or(most, |own| most.min(own.0.cast_signed()));
            u64::try_from(grace).unwrap_or(1)
        };
        let grace = pods::grace(pod, asked, now);
        outcome.evicted.push((pod.key.name.clone(), "pressure", grace));
    }
}

/// Room for a critical pod: tier by tier, whoever is nearest to what is still missing.
fn preempt(
    snapshot: &Snapshot,
    wanted: &Preemption,
    evicted: &mut Vec<(String, &'static str, u64)>,
) {
    if !is_critical(wanted.static_pod, wanted.mirror, wanted.priority) {
        return;
    }
    let milli = |nanos: i128| (nanos + 999_999).div_euclid(1_000_000);
    let whole = |nanos: i128| (nanos + 999_999_999).div_euclid(1_000_000_000);
    // CPU in thousandths, storage, memory, pods.
    let gives = |pod: &Workload| {
        [
            milli(pods::request(pod, Asked::Cpu)),
            whole(pods::request(pod, Asked::Storage)),
            whole(pods::request(pod, Asked::Memory)),
            1,
        ]
    };
    let nanos = |quantity: Option<ebb_policy::Quantity>| quantity.map_or(0, |q| q.nanos());
    let missing = [
        milli(nanos(wanted.missing.cpu)),
        whole(nanos(wanted.missing.ephemeral_storage)),
        whole(nanos(wanted.missing.memory)),
        i128::from(wanted.missing_pods),
    ];
    let mut tiers: [Vec<&Workload>; 3] = Default::default();
    for pod in snapshot.workloads.iter().filter(|pod| is_active(pod)) {
        let is_lower = match (wanted.priority, pod.priority) {
            (Some(new), Some(old)) => new > old,
            _ => false,
        };
        let may_go = !is_critical(pod.static_pod, pod.mirror, pod.priority) || is_lower;
        if may_go && evicted.iter().all(|(name, ..)| *name != pod.key.name) {
            let tier = match pod.qos.expect("every world has it") {
                Qos::BestEffort => 0,
                Qos::Burstable => 1,
                Qos::Guaranteed => 2,
            };
            tiers[tier].push(pod);
        }
    }
    let less = |mut missing: [i128; 4], pods: &[&Workload]| {
        for pod in pods {
            for (missing, gives) in missing.iter_mut().zip(gives(pod)) {
                *missing = (*missing - gives).max(0);
            }
        }
        missing
    };
    let choose = |tier: &[&Workload], missing: [i128; 4]| -> Option<Vec<Workload>> {
        let (mut left, mut missing, mut chosen) = (tier.to_vec(), missing, Vec::new());
        while missing.iter().any(|amount| *amount > 0) {
            let distance = |pod: &Workload| -> f64 {
                let shares = missing.iter().zip(gives(pod)).filter(|(m, _)| **m > 0);
                shares.map(|(m, g)| ((*m - g).max(0) as f64 / *m as f64).powi(2)).sum()
            };
            let size = |pod: &Workload| (gives(pod)[2], gives(pod)[0], pod.key.name.clone());
            left.sort_by(|a, b| {
                distance(a).total_cmp(&distance(b)).then_with(|| size(a).cmp(&size(b)))
            });
            if left.is_empty() {
                return None;
            }
            let pod = left.remove(0);
            missing = less(missing, &[pod]);
            chosen.push(pod.clone());
        }
        Some(chosen)
    };
    let [best_effort, burstable, guaranteed] = &tiers;
    let refs = |pods: &[Workload]| pods.iter().map(|p| p.key.name.clone()).collect::<Vec<_>>();
    let find = |names: &[String]| -> Vec<&Workload> {
        snapshot.workloads.iter().filter(|p| names.contains(&p.key.name)).collect()
    };
    let below = less(less(missing, best_effort), burstable);
    let Some(third) = choose(guaranteed, below) else { return };
    let with_third = less(missing, &find(&refs(&third)));
    let Some(second) = choose(burstable, less(with_third, best_effort)) else { return };
    let with_second = less(with_third, &find(&refs(&second)));
    let Some(first) = choose(best_effort, with_second) else { return };
    for pod in first.iter().chain(&second).chain(&third) {
        let asked = pod.termination_grace.map_or(30, |grace| grace.0);
        let grace = pods::grace(pod, asked, snapshot.taken_at);
        evicted.push((pod.key.name.clone(), "preemption", grace));
    }
}
