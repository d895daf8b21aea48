//! How fast workloads grow and signals fall: smoothed rates, kept for what still exists.
//!
//! A rate follows a change within a few seconds: each measurement counts with the share `elapsed / (elapsed + SMOOTHING)`.
//! The first one has nothing to be weighed against, so it waits until what changed is more than figures are off by, or for [`SMOOTHING`]:
//! the kernel brings `memory.stat` up to date in steps of up to 256 KiB a CPU, and a step that falls into 50 ms looks like a leak.
use crate::{
    History, Millis, Signal, Time,
    history::{Growth, Totals, Trend},
    observe::Observations,
    snapshot::{KernelCounts, MemoryUsage, ProtectedReason, Snapshot, Workload},
};
use alloc::{sync::Arc, vec::Vec};

/// Time in which an old rate loses half of its weight, roughly.
const SMOOTHING: u64 = 2_000;

/// Measurements closer together than this are too coarse to give a rate.
const LEAST_ELAPSED: u64 = 50;

/// A smaller change than this, in bytes or in processes, tells no first rate: within [`SMOOTHING`] it is less than the ranking counts as growth.
const LEAST_MEMORY_CHANGE: u64 = 2 << 20;
const LEAST_PROCESS_CHANGE: u64 = 16;

/// Brings trends, totals and the growth of the `followed` (in the order of who they are) up to the snapshot; what is gone is forgotten. Returns whose growth is known, in the order in which it is kept.
pub(crate) fn follow<'a>(
    snapshot: &Snapshot,
    followed: &[&'a Workload],
    observations: &Observations,
    before: &[Growth],
    history: &mut History,
) -> Vec<&'a Workload> {
    let whose;
    (history.growth, whose) = workloads(snapshot.taken_at, followed, before);
    let old = core::mem::take(&mut history.trends);
    for (signal, seen) in observations {
        if !matches!(signal, Signal::MemoryAvailable | Signal::PidAvailable) {
            continue;
        }
        let at = seen.observed_at.unwrap_or(snapshot.taken_at);
        history.trends.insert(*signal, trend(old.get(signal).copied(), at, seen.available));
    }
    history.totals = totals(snapshot);
    whose
}

/// The growth of each of these workloads that has statistics, and whose it is.
fn workloads<'a>(
    taken_at: Time,
    followed: &[&'a Workload],
    before: &[Growth],
) -> (Vec<Growth>, Vec<&'a Workload>) {
    let mut before = Finder::new(before);
    // Nearly all have statistics: the lists are made in one piece.
    let mut grown = Vec::with_capacity(followed.len());
    let mut whose: Vec<&Workload> = Vec::with_capacity(followed.len());
    for workload in followed {
        let growth = one(workload, taken_at, before.find(workload));
        let is_new = || whose.last().is_none_or(|last| last.key != workload.key);
        if let Some(growth) = growth.filter(|_| is_new()) {
            grown.push(growth);
            whose.push(workload);
        }
    }
    (grown, whose)
}

/// Finds the growth of workloads: at once when they are asked for in their order, else by search.
pub(crate) struct Finder<'a> {
    growth: &'a [Growth],
    /// The workloads whose growth this is, if it is that of the same snapshot: to compare names, which are all over the memory, takes far longer.
    whose: &'a [&'a Workload],
    next: usize,
}

impl<'a> Finder<'a> {
    pub(crate) fn new(growth: &'a [Growth]) -> Finder<'a> {
        Finder { growth, whose: &[], next: 0 }
    }

    /// For growth that was measured in this pass, with whose it is.
    pub(crate) fn of_this_pass(growth: &'a [Growth], whose: &'a [&'a Workload]) -> Finder<'a> {
        Finder { growth, whose, next: 0 }
    }

    pub(crate) fn find(&mut self, workload: &Workload) -> Option<&'a Growth> {
        let is_of = |growth: &&Growth| match self.whose.get(self.next) {
            Some(known) => core::ptr::eq(*known, workload),
            None => *growth.workload == workload.key,
        };
        let here = self.growth.get(self.next).filter(is_of);
        if here.is_some() {
            self.next += 1;
            return here;
        }
        let key = &workload.key;
        let place = self.growth.binary_search_by(|growth| (*growth.workload).cmp(key)).ok()?;
        self.next = place + 1;
        self.growth.get(place)
    }
}

fn one(workload: &Workload, taken_at: Time, before: Option<&Growth>) -> Option<Growth> {
    let stats = workload.stats.as_ref()?;
    let at = stats.observed_at.unwrap_or(taken_at);
    let memory = stats.memory.as_ref().and_then(own_memory);
    let processes = stats.process_count;
    let refaults = stats.memory.and_then(|memory| memory.refaults);
    // Who it is, is written down once, when it is first seen: of all this it takes the longest.
    let who =
        || before.map_or_else(|| workload.key.clone().into(), |known| Arc::clone(&known.workload));
    let fresh = |memory_rate, process_rate| Growth {
        workload: who(),
        at,
        memory,
        memory_rate,
        processes,
        process_rate,
        refaults,
        kernel_counts: stats.kernel_counts,
        stall_rate: None,
        reclaim_rate: None,
        own_reclaim_rate: None,
    };
    // How fast a victim grew says nothing of what is started in its place.
    let is_ending =
        workload.is_terminating() || workload.protected == Some(ProtectedReason::NothingRuns);
    let Some(before) = before.filter(|_| !is_ending) else { return Some(fresh(None, None)) };
    let elapsed = at.since(before.at);
    let is_too_soon =
        elapsed.0 < LEAST_ELAPSED || tells_nothing_yet(before, memory, processes, elapsed);
    let grown = if is_too_soon {
        before.clone()
    } else {
        let (bytes, count) = (LEAST_MEMORY_CHANGE, LEAST_PROCESS_CHANGE);
        fresh(
            rate(before.memory, memory, before.memory_rate, elapsed, bytes),
            rate(before.processes, processes, before.process_rate, elapsed, count),
        )
    };
    Some(count(grown, stats.kernel_counts, before))
}

/// Whether no rate is known, and the change since `before` is too little in too short a time to be one: then it is measured from there on.
fn tells_nothing_yet(
    before: &Growth,
    memory: Option<u64>,
    processes: Option<u64>,
    elapsed: Millis,
) -> bool {
    let is_little = |before: Option<u64>, now: Option<u64>, least: u64| match (before, now) {
        (Some(before), Some(now)) => before.abs_diff(now) < least,
        // What is known for the first time is measured from now on.
        (before, now) => before.is_some() || now.is_none(),
    };
    let has_no_rate = before.memory_rate.is_none() && before.process_rate.is_none();
    has_no_rate
        && elapsed.0 < SMOOTHING
        && is_little(before.memory, memory, LEAST_MEMORY_CHANGE)
        && is_little(before.processes, processes, LEAST_PROCESS_CHANGE)
}

/// Brings the rates of what is counted up to date, which is read at times of its own.
fn count(grown: Growth, kernel_counts: Option<KernelCounts>, before: &Growth) -> Growth {
    let Growth { stall_rate, reclaim_rate, own_reclaim_rate, .. } = *before;
    let grown = Growth { stall_rate, reclaim_rate, own_reclaim_rate, ..grown };
    let (Some(now), Some(then)) = (kernel_counts, before.kernel_counts) else {
        return Growth { kernel_counts: kernel_counts.or(before.kernel_counts), ..grown };
    };
    let elapsed = now.at.zip(then.at).map_or(Millis(0), |(now, then)| now.since(then));
    if elapsed.0 < LEAST_ELAPSED {
        return Growth { kernel_counts: Some(then), ..grown };
    }
    // A total that has begun again says nothing of the time between.
    let risen = |then, now, old| if then > now { old } else { rate(then, now, old, elapsed, 0) };
    // In thousandths, because a smoothed whole number of a few never comes down to none.
    let fine = |total: Option<u64>| total.map(|total| total.saturating_mul(1000));
    Growth {
        kernel_counts,
        stall_rate: risen(then.stall_us, now.stall_us, stall_rate),
        reclaim_rate: risen(fine(then.direct_reclaims), fine(now.direct_reclaims), reclaim_rate),
        own_reclaim_rate: risen(fine(then.own_reclaims), fine(now.own_reclaims), own_reclaim_rate),
        ..grown
    }
}

/// Memory that only grows because the workload takes it: without page cache where that can be told apart, and with what was swapped out of it, which the kernel decides.
fn own_memory(memory: &MemoryUsage) -> Option<u64> {
    let resident = match memory.anon {
        Some(anon) => anon.saturating_add(memory.shmem.unwrap_or_default()),
        None => memory.working_set()?,
    };
    Some(resident.saturating_add(memory.swap.unwrap_or_default()))
}

/// The smoothed rate in units a second; the old one when there is nothing to compare. A first change of less than `least` is weighed as if there had been none before.
fn rate(
    before: Option<u64>,
    now: Option<u64>,
    old: Option<i64>,
    elapsed: Millis,
    least: u64,
) -> Option<i64> {
    let (Some(before), Some(now)) = (before, now) else { return old };
    let sample = sample(before, now, elapsed);
    let is_little = before.abs_diff(now) < least && elapsed.0 < SMOOTHING;
    let old = old.or(is_little.then_some(0));
    Some(old.map_or(sample, |old| smooth(old, sample, elapsed)))
}

/// Units a second between two measurements.
fn sample(before: u64, now: u64, elapsed: Millis) -> i64 {
    let change = i128::from(now) - i128::from(before);
    clamp(change.saturating_mul(1000) / i128::from(elapsed.0.max(1)))
}

fn smooth(old: i64, sample: i64, elapsed: Millis) -> i64 {
    let (elapsed, whole) = (i128::from(elapsed.0), i128::from(elapsed.0) + i128::from(SMOOTHING));
    clamp(i128::from(old) + (i128::from(sample) - i128::from(old)) * elapsed / whole)
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

fn trend(old: Option<Trend>, at: Time, available: u64) -> Trend {
    let Some(old) = old else { return Trend { at, available, rate: None, deviation: None } };
    let elapsed = at.since(old.at);
    if elapsed.0 < LEAST_ELAPSED {
        return old;
    }
    let sample = sample(old.available, available, elapsed);
    let Some(rate) = old.rate else {
        return Trend { at, available, rate: Some(sample), deviation: None };
    };
    let off = i64::try_from(sample.abs_diff(rate)).unwrap_or(i64::MAX);
    let deviation = match old.deviation {
        None => off,
        Some(deviation) => smooth(i64::try_from(deviation).unwrap_or(i64::MAX), off, elapsed),
    };
    Trend {
        at,
        available,
        rate: Some(smooth(rate, sample, elapsed)),
        deviation: Some(deviation.unsigned_abs()),
    }
}

fn totals(snapshot: &Snapshot) -> Totals {
    let pressure = snapshot.pressure.unwrap_or_default();
    Totals {
        at: Some(snapshot.taken_at),
        refaults: snapshot.node.memory_root.and_then(|root| root.refaults),
        direct_reclaims: pressure.direct_reclaims,
        memory_some_us: pressure.memory_some_us,
        io_some_us: pressure.io_some_us,
    }
}
