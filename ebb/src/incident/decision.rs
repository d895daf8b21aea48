//! One decision as tables: what was short, who was ranked where and by which key, who was skipped, and what was measured of whom.

use crate::plan::{list, standing};
use ebb_journal::incident::Decision;
use ebb_journal::notes;
use ebb_journal::text::{amount, bytes, rank_keys, reason, skipped};
use ebb_policy::plan::{
    Evict, Handled, PressureState, PressureStatus, RankKey, Ranked, SkipReason, Skipped, Subject,
    ThresholdStatus,
};
use ebb_policy::snapshot::{Workload, WorkloadKey};
use ebb_policy::{Plan, Signal, Snapshot, decided_by};
use std::collections::{BTreeMap, BTreeSet};

/// A candidate in its place.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) ranked: &'a Ranked,
    /// What each key says, in the order in which they were compared.
    pub(super) keys: Vec<Key>,
    /// Why it is before the next one; `None` for the last one.
    pub(super) before_next: Option<String>,
    pub(super) is_victim: bool,
}

/// A key of a candidate.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) words: String,
    /// It placed the candidate before the next one.
    pub(super) decided: bool,
}

/// Those who were skipped for one reason.
#[derive(Debug)]
pub(super) struct Group<'a> {
    pub(super) reason: String,
    pub(super) members: Vec<&'a Skipped>,
}

/// What was measured of one workload.
#[derive(Debug)]
pub(super) struct Figures<'a> {
    pub(super) key: &'a WorkloadKey,
    /// Bytes of memory: the working set.
    pub(super) memory: Option<u64>,
    pub(super) swap: Option<u64>,
    /// Bytes a second; in a plan for task ids it is tasks.
    pub(super) growth: Option<i64>,
    /// Microseconds a second that its tasks wait for memory, summed over tasks.
    pub(super) stall: Option<i64>,
    pub(super) processes: Option<u64>,
    pub(super) is_victim: bool,
    pub(super) skipped: Option<String>,
}

/// The names of those whom a plan evicts.
pub(super) fn victims(plan: &Plan) -> Vec<&str> {
    plan.evictions().map(|evict| evict.workload.name.as_str()).collect()
}

/// Whom a plan evicts, in words.
pub(super) fn whom(plan: &Plan) -> String {
    let names = victims(plan);
    if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
}

/// The ranking, the first victim first.
pub(super) fn ranking(plan: &Plan) -> Vec<Place<'_>> {
    let victims: BTreeSet<&WorkloadKey> = plan.evictions().map(|evict| &evict.workload).collect();
    let nexts = plan.ranking.iter().skip(1).map(Some).chain([None]);
    let place = |(ranked, next): (_, Option<&Ranked>)| {
        let ranked: &Ranked = ranked;
        let decided = next.and_then(|next| decided_by(ranked, next));
        let key = |key| Key { words: in_words(ranked, key), decided: Some(key) == decided };
        Place {
            ranked,
            keys: ranked.keys.iter().map(key).collect(),
            before_next: next.map(|next| before(ranked, next, decided)),
            is_victim: victims.contains(&ranked.workload),
        }
    };
    plan.ranking.iter().zip(nexts).map(place).collect()
}

/// Why one is before the next.
fn before(ranked: &Ranked, next: &Ranked, decided: Option<&RankKey>) -> String {
    let Some(key) = decided else { return "equal in every key: by who it is".to_owned() };
    let own = in_words(ranked, key);
    let same = |other: &&RankKey| std::mem::discriminant(*other) == std::mem::discriminant(key);
    match next.keys.iter().find(same) {
        Some(other) => format!("{own}; the next: {}", in_words(next, other)),
        None => format!("{own}; the next: none"),
    }
}

/// What one key says.
fn in_words(ranked: &Ranked, key: &RankKey) -> String {
    rank_keys(&Ranked { keys: vec![*key], ..ranked.clone() })
}

/// Those who were skipped, by reason: what protects first, then what spares, and last those who were not needed.
pub(super) fn skips(plan: &Plan) -> Vec<Group<'_>> {
    let mut groups: BTreeMap<(u8, String), Vec<&Skipped>> = BTreeMap::new();
    for kept in &plan.skipped {
        let order = match kept.reason {
            SkipReason::Critical | SkipReason::Protected { .. } => 0,
            SkipReason::NotNeeded => 2,
            _ => 1,
        };
        groups.entry((order, reason(&kept.reason))).or_default().push(kept);
    }
    let group = |((_, reason), members)| Group { reason, members };
    groups.into_iter().map(group).collect()
}

/// What was skipped, by its name.
pub(super) fn subject(kept: &Skipped) -> String {
    // The line is the name and the reason.
    let line = skipped(kept);
    let name = line.strip_prefix("skipped ").unwrap_or(&line);
    let end = format!(": {}", reason(&kept.reason));
    name.strip_suffix(&end).unwrap_or(name).to_owned()
}

/// What was measured of each workload: victims first, then who holds most.
pub(super) fn figures(decision: &Decision) -> Vec<Figures<'_>> {
    let Decision { snapshot, history, plan, .. } = decision;
    let victims: BTreeSet<&WorkloadKey> = plan.evictions().map(|evict| &evict.workload).collect();
    let growth: BTreeMap<&WorkloadKey, _> =
        history.growth.iter().map(|growth| (&*growth.workload, growth)).collect();
    let ranked: BTreeMap<&WorkloadKey, &Ranked> =
        plan.ranking.iter().map(|ranked| (&ranked.workload, ranked)).collect();
    let skipped: BTreeMap<&WorkloadKey, String> = plan
        .skipped
        .iter()
        .filter_map(|kept| match &kept.subject {
            Subject::Workload { workload } => Some((workload, reason(&kept.reason))),
            _ => None,
        })
        .collect();
    let measured = |workload| {
        let Workload { key, stats, .. }: &Workload = workload;
        let memory = stats.as_ref().and_then(|stats| stats.memory);
        let seen = growth.get(key);
        let is_victim = victims.contains(key);
        Figures {
            key,
            memory: memory.and_then(|memory| memory.working_set()),
            swap: memory.and_then(|memory| memory.swap),
            growth: rate(ranked.get(key).copied()).or_else(|| seen.and_then(|of| of.memory_rate)),
            stall: seen.and_then(|of| of.stall_rate),
            processes: stats.as_ref().and_then(|stats| stats.process_count),
            is_victim,
            skipped: skipped.get(key).cloned().filter(|_| !is_victim),
        }
    };
    let mut all: Vec<Figures<'_>> = snapshot.workloads.iter().map(measured).collect();
    let order = |of: &Figures<'_>| (!of.is_victim, std::cmp::Reverse(of.memory));
    all.sort_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.key.cmp(b.key)));
    all
}

/// The growth of memory by which a candidate was placed.
fn rate(ranked: Option<&Ranked>) -> Option<i64> {
    let is_memory = |ranked: &&Ranked| ranked.signal != Some(Signal::PidAvailable);
    ranked.filter(is_memory)?.keys.iter().find_map(|key| match key {
        RankKey::Growth { per_second } => Some(*per_second),
        _ => None,
    })
}

/// What was short at a decision, in one sentence without a full stop.
pub(super) fn short(plan: &Plan) -> String {
    let Some(handled) = &plan.handled else {
        let pressure = plan.evictions().find_map(|evict| evict.memory_pressure.as_ref());
        return match pressure {
            Some(of) => format!(
                "memory pressure of {}: full avg10 {} > {}",
                of.cgroup, of.full_avg10, of.limit
            ),
            None => "no threshold was handled".to_owned(),
        };
    };
    let Handled { signal, strength, threshold, available, need, terminating, forecast, .. } =
        handled;
    let what = match forecast {
        Some(left) => format!("{signal} reaches {threshold} in {left}"),
        None => format!("{signal} {} < {threshold}", amount(*signal, *available)),
    };
    format!(
        "{what} ({}); {} to be freed, {} of it by terminating workloads",
        list(*strength),
        amount(*signal, *need),
        amount(*signal, *terminating)
    )
}

/// On what grounds somebody is evicted.
pub(super) fn grounds(evict: &Evict) -> String {
    let memory = evict.memory_pressure.as_ref().map(|_| Signal::MemoryAvailable);
    let free = evict.expected_free.zip(evict.signal.or(memory));
    let free = free.map_or("unknown".to_owned(), |(free, signal)| amount(signal, free));
    let message = evict.message.trim_end();
    format!("{message} Grace {} s; expected to free: {free}.", evict.grace.0)
}

/// When a decision was made: milliseconds since the crossing.
pub(super) fn after(crossed_at: u64, plan: &Plan) -> String {
    match plan.decided_at.0.checked_sub(crossed_at) {
        Some(after) => format!("{after} ms after the crossing"),
        None => format!("{} ms before the crossing", crossed_at - plan.decided_at.0),
    }
}

/// A threshold as cells: signal, kind, threshold, what is left, where it stands.
pub(super) fn threshold(status: &ThresholdStatus) -> [String; 5] {
    let ThresholdStatus { signal, strength, state, threshold, available, also_below, .. } = status;
    let also = also_below.as_ref().map(|also| format!(", while {} is short too", also.signal));
    [
        format!("{signal}{}", also.unwrap_or_default()),
        list(*strength).to_owned(),
        threshold.as_ref().map_or("unknown".to_owned(), ToString::to_string),
        available.map_or("unknown".to_owned(), |left| amount(*signal, left)),
        standing(*state).to_owned(),
    ]
}

/// A cgroup that is watched for memory pressure, as cells of the same table.
pub(super) fn pressure(status: &PressureStatus) -> [String; 5] {
    let PressureStatus { cgroup, state, limit, duration, full_avg10, .. } = status;
    [
        format!("memory pressure of {cgroup}"),
        format!("for {duration}"),
        format!("above {limit}"),
        full_avg10.map_or("unknown".to_owned(), |now| format!("full avg10 {now}")),
        match state {
            PressureState::Unobserved => "not observed",
            PressureState::Clear => "not above the limit",
            PressureState::Grace => "above the limit, not for long enough",
            PressureState::Settling => "above the limit, waits for what the last eviction did",
            PressureState::Easing => "above the limit on average, not since the last reading",
            PressureState::Met => "above the limit for long enough",
        }
        .to_owned(),
    ]
}

/// Facts about the node: what, and how much; unknown where the snapshot does not say.
pub(super) fn node(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let known = |value: Option<u64>| value.map_or("unknown".to_owned(), bytes);
    let counted = |value: Option<u64>| value.map_or("unknown".to_owned(), |n| n.to_string());
    let node = &snapshot.node;
    vec![
        ("node", node.name.clone().unwrap_or_else(|| "unknown".to_owned())),
        ("memory", known(node.memory_total)),
        ("MemAvailable", known(node.memory_kernel_available)),
        ("swap", known(node.swap_total)),
        ("free swap", known(node.swap_free)),
        ("tasks", counted(node.tasks)),
        ("workloads in the snapshot", snapshot.workloads.len().to_string()),
    ]
}

/// What else the plan says.
pub(super) fn remarks(plan: &Plan) -> Vec<String> {
    notes(plan).iter().map(ToString::to_string).collect()
}

/// A rate of memory.
pub(super) fn per_second(rate: i64) -> String {
    let sign = if rate < 0 { "-" } else { "+" };
    format!("{sign}{}/s", bytes(rate.unsigned_abs()))
}

/// How long tasks waited in each second.
pub(super) fn stalled(us: i64) -> String {
    format!("{:.1} ms/s", us as f64 / 1000.0)
}
