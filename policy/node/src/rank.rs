//! The order in which workloads are ended for a signal, with the keys that made it.
//!
//! The kubelet's keys, the first victim first; a later key only decides between equals:
//! ```text
//! memory, disk   no statistics · over its request · lowest priority · most above its request
//! tasks          lowest priority · no statistics · most processes
//! ```
//! For swap, and for memory that counts as short only together with swap, what is swapped out counts as usage.
//! Between "priority" and "most", `preferences` puts what the owner says, and the attributed ranking puts growth.
//! The attributed ranking also puts candidates without statistics last: on a machine without a source of pods they are cgroups that have just gone.
//! Among equals, what was started again after ebb had evicted it comes first: it was chosen a moment ago.
//! Ties fall by identity, never by the order of a list.
use crate::{
    History, Limits, Millis, Quantity, Signal, Snapshot, Time,
    extensions::{fill::Evidence, growth::Finder},
    history::Growth,
    layout::layout,
    limits::{Options, Ranking},
    observe,
    plan::{RankKey, Ranked, SkipReason, Strength},
    request::{Requestable, request},
    signal::Resource,
    snapshot::{FsLayout, Preference, Workload, WorkloadKey},
    swap::Swapped,
    usage::{expected_free, usage},
    worth::least_of_threshold,
};
use alloc::{collections::BTreeMap, vec::Vec};
use core::cmp::Reverse;
use ebb_model::quantity::Format;

/// Growth below this many units a second decides nothing: bytes of memory, and processes.
const MIN_MEMORY_GROWTH: i64 = crate::extensions::attribution::MIN_GROWTH;
const MIN_PROCESS_GROWTH: i64 = 8;

/// A workload with everything that its place depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) workload: &'a Workload,
    found: bool,
    usage: u64,
    request: Quantity,
    exceeds: bool,
    priority: i32,
    preference: Preference,
    growth: Option<i64>,
    /// Growth in powers of two above the least that counts, so that equal leaks compare by size.
    growth_class: u32,
    /// What it has swapped out, where that counts.
    swapped: Option<u64>,
    /// Usage less what was asked for, in billionths.
    above: i128,
    /// What it added to the filesystem that is short, if it is one of those that fill it; with the time and its part of the loss.
    filled: Option<(u64, Millis, u8)>,
    /// It fills it where nobody looks.
    hides: bool,
    /// Nobody knows what it uses of the filesystem that is short.
    unknown: bool,
    /// The usage of somebody is unknown: who fills the filesystem decides.
    by_filling: bool,
}

/// What places a candidate among others: the first key decides first, and the least comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Keys {
    /// All keys that are small, in one number: most comparisons end here.
    class: u64,
    added: Reverse<Option<u64>>,
    most: Reverse<i128>,
    restarted: Reverse<Option<Time>>,
}

/// Keys that are small, put together to a number, the first key first.
#[derive(Clone, Copy, Debug, Default)]
struct Class(u64);

impl Class {
    /// Whoever it is true of comes first.
    fn first(self, is_it: bool) -> Class {
        self.last(!is_it)
    }

    /// Whoever it is true of comes last.
    fn last(self, is_it: bool) -> Class {
        Class(self.0 << 1 | u64::from(is_it))
    }

    /// The lowest priority comes first, then who is preferred.
    fn standing(self, priority: i32, preference: Preference) -> Class {
        let priority = u64::from(priority.abs_diff(i32::MIN));
        Class((self.0 << 32 | priority) << 2 | preference as u64)
    }

    /// The fastest comes first.
    fn growth(self, class: u32) -> Class {
        Class(self.0 << 8 | u64::from(0xff - class.min(0xff)))
    }
}

/// Puts workloads in order, the first victim first.
pub(crate) fn order<'a>(
    workloads: impl Iterator<Item = &'a Workload>,
    signal: Signal,
    layout: FsLayout,
    options: &Options,
    mut growth: Finder<'_>,
    evidence: Option<&Evidence<'_>>,
) -> Vec<Candidate<'a>> {
    let candidate = |workload: &'a Workload| {
        let growth = growth.find(workload);
        Candidate::new(workload, signal, layout, options, growth, evidence)
    };
    let mut candidates: Vec<Candidate<'a>> = workloads.map(candidate).collect();
    // Small things are compared and moved and not candidates, and who they are is only asked of equals.
    candidates.sort_by_cached_key(|candidate| {
        (candidate.compared(signal, options), &candidate.workload.key)
    });
    candidates
}

/// The order in which active workloads would be ended for a signal.
pub fn rank(
    snapshot: &Snapshot,
    limits: &Limits,
    history: &History,
    signal: Signal,
) -> Vec<Ranked> {
    let options = limits.options();
    let layout = layout(snapshot, history.layout).ok().flatten().unwrap_or(FsLayout::Single);
    let active: Vec<&Workload> =
        snapshot.workloads.iter().filter(|workload| !workload.is_finished()).collect();
    // Without a threshold that is met, what was measured at any time is as good as it gets.
    let met = history.first_observed.iter().filter(|met| met.threshold.signal == signal);
    let since = met.map(|met| met.since).min().unwrap_or_default();
    let evidence = Evidence::gather(snapshot, &active, signal, layout, since, options);
    let active = active.into_iter();
    let signal = ranked_by(snapshot, limits, signal);
    let growth = Finder::new(&history.growth);
    let ranking = order(active, signal, layout, options, growth, evidence.as_ref());
    let shown =
        |(place, candidate): (usize, &Candidate<'_>)| candidate.shown(place, signal, options);
    ranking.iter().enumerate().map(shown).collect()
}

/// The signal by which workloads are ranked when `signal` is short.
fn ranked_by(snapshot: &Snapshot, limits: &Limits, signal: Signal) -> Signal {
    let threshold = limits.thresholds().iter().find(|threshold| threshold.signal == signal);
    match threshold {
        Some(threshold) if observe::tells_swap(snapshot) => threshold.ranked_by(),
        _ => signal,
    }
}

/// Who would be ended for a signal when nobody is left to decide, in this order: everyone active but those who must never be, and those who would free nothing that matters.
pub fn last_resort(
    snapshot: &Snapshot,
    limits: &Limits,
    history: &History,
    signal: Signal,
) -> Vec<WorkloadKey> {
    let spared = spared(snapshot, limits, history, signal);
    let ranked = rank(snapshot, limits, history, signal).into_iter().map(|ranked| ranked.workload);
    ranked.filter(|key| !spared.contains_key(key)).collect()
}

/// Who is no last resort for a signal, wherever it ranks, and why: whoever must never be ended, and who would free nothing that matters.
pub fn spared<'a>(
    snapshot: &'a Snapshot,
    limits: &Limits,
    history: &History,
    signal: Signal,
) -> BTreeMap<&'a WorkloadKey, SkipReason> {
    let capacity = snapshot.signals.get(&signal).and_then(|seen| seen.capacity);
    let hard = limits.thresholds().iter().filter(|t| t.signal == signal);
    let hard = hard.filter(|t| t.strength() == Strength::Hard).map(|t| t.goal(capacity).ceil());
    let threshold = u64::try_from(hard.max().unwrap_or(0)).unwrap_or(0);
    let least = least_of_threshold(threshold, limits.options().min_freed_of_threshold);
    let layout = layout(snapshot, history.layout).ok().flatten().unwrap_or(FsLayout::Single);
    let (ranked_by, swapped) = (ranked_by(snapshot, limits, signal), Swapped::of(&snapshot.node));
    let spared = |workload: &'a Workload| {
        let gains_too_little = || {
            let frees = expected_free(workload, ranked_by, layout, swapped);
            let frees = frees.filter(|frees| *frees < least)?;
            Some(match usage(workload, ranked_by, layout) {
                Some(0) => SkipReason::NothingToGain,
                _ => SkipReason::FreesTooLittle { frees, least },
            })
        };
        Some((&workload.key, workload.never_ended().or_else(gains_too_little)?))
    };
    snapshot.workloads.iter().filter_map(spared).collect()
}

impl<'a> Candidate<'a> {
    fn new(
        workload: &'a Workload,
        signal: Signal,
        layout: FsLayout,
        options: &Options,
        growth: Option<&Growth>,
        evidence: Option<&Evidence<'_>>,
    ) -> Candidate<'a> {
        let resource = signal.resource();
        let standing = evidence.map(|evidence| evidence.standing(workload));
        let used = match standing {
            Some(standing) => standing.usage,
            None => usage(workload, signal, layout),
        };
        let asked = Requestable::of(resource).map(|kind| request(workload, kind));
        let request = asked.unwrap_or(Quantity::whole(0, Format::DecimalSi));
        let amount = Quantity::count(used.unwrap_or_default());
        let subtracted = match resource {
            Resource::Inodes if options.quirks.inodes_above_byte_request => {
                self::request(workload, Requestable::EphemeralStorage)
            }
            _ => request,
        };
        let growth = growth.and_then(|growth| rate_of(growth, resource));
        Candidate {
            workload,
            found: used.is_some(),
            usage: used.unwrap_or_default(),
            request,
            exceeds: amount > request,
            priority: workload.priority(),
            preference: if options.preferences { workload.preference } else { Preference::Neutral },
            growth,
            swapped: swapped_out(workload, signal),
            growth_class: growth_class(growth, resource),
            above: amount.minus(subtracted).nanos(),
            filled: standing.zip(evidence).and_then(|(standing, evidence)| {
                let added = standing.added?;
                let (over, percent) = evidence.share(added);
                Some((added, over, percent))
            }),
            hides: standing.is_some_and(|standing| standing.hides),
            unknown: standing.is_some() && used.is_none(),
            by_filling: evidence.is_some_and(|evidence| !evidence.is_complete()),
        }
    }

    /// The keys that place it among others.
    fn compared(&self, signal: Signal, options: &Options) -> Keys {
        let attributed = options.ranking == Ranking::Attributed;
        let (priority, preference) = (self.priority, self.preference);
        let growth = if attributed { self.growth_class } else { 0 };
        let added = self.filled.map(|(added, ..)| added);
        // Of what was not found nothing else is compared.
        let exceeds = self.found && self.exceeds;
        let above = if self.found { self.above } else { 0 };
        let (class, most) = if self.by_filling {
            // Whoever fills it comes first, and whoever nobody knows anything of last.
            let fills = self.fills();
            let class = Class::default().first(fills).last(!fills && self.unknown);
            let class = class.first(!fills && exceeds).standing(priority, preference);
            (class, if fills { 0 } else { above })
        } else if signal.resource() == Resource::Pids {
            let class = Class::default().standing(priority, preference);
            let processes = if self.found { self.usage.into() } else { 0 };
            (class.first(self.found == attributed).growth(growth), processes)
        } else {
            let class = Class::default().first(self.found == attributed).first(exceeds);
            (class.standing(priority, preference).growth(growth), above)
        };
        Keys {
            class: class.0,
            added: Reverse(added),
            most: Reverse(most),
            restarted: Reverse(self.workload.restarted),
        }
    }

    /// Whether it grows fast enough to count as a cause.
    pub(crate) fn grows(&self) -> bool {
        self.growth_class > 0
    }

    /// Whether it is known to use nothing of what is short.
    pub(crate) fn frees_nothing(&self) -> bool {
        self.found && self.usage == 0
    }

    /// What it is known to use of what is short; `None` when that is unknown.
    pub(crate) fn known_usage(&self) -> Option<u64> {
        self.found.then_some(self.usage)
    }

    /// What of the filesystem that is short comes back with it; `None` when that is unknown.
    ///
    /// Who fills it has more by now than was measured: at least what it added, and nobody knows how much if only its writing shows.
    pub(crate) fn frees_of_disk(&self) -> Option<u64> {
        let added = self.filled.map_or(0, |(added, ..)| added);
        self.known_usage().filter(|_| !self.hides).map(|usage| usage.max(added))
    }

    /// Whether it is one of those that fill the filesystem that is short.
    pub(crate) fn fills(&self) -> bool {
        self.filled.is_some()
    }

    /// The keys in the order in which they are compared.
    pub(crate) fn keys(&self, signal: Signal, options: &Options) -> Vec<RankKey> {
        let mut keys = Vec::with_capacity(7);
        let stats = RankKey::Stats { found: self.found };
        let pids = signal.resource() == Resource::Pids;
        let filled =
            self.filled.map(|(added, over, percent)| RankKey::Filled { added, over, percent });
        if self.by_filling {
            keys.extend(filled);
        }
        if !pids {
            keys.push(stats);
            if self.found {
                keys.push(RankKey::ExceedsRequest {
                    exceeds: self.exceeds,
                    usage: self.usage,
                    request: whole(self.request),
                });
            }
        }
        keys.push(RankKey::Priority { priority: self.priority });
        if options.preferences {
            keys.push(RankKey::Preference { preference: self.preference });
        }
        if pids {
            keys.push(stats);
        }
        if options.ranking == Ranking::Attributed
            && let Some(per_second) = self.growth
        {
            keys.push(RankKey::Growth { per_second });
        }
        if !self.by_filling {
            keys.extend(filled);
        }
        keys.extend(self.swapped.map(|bytes| RankKey::Swapped { bytes }));
        if self.found {
            keys.push(if pids {
                RankKey::Processes { count: self.usage }
            } else {
                RankKey::AboveRequest { above: clamp(self.above.div_euclid(1_000_000_000)) }
            });
        }
        keys.extend(self.workload.restarted.map(|at| RankKey::Restarted { at }));
        keys
    }

    /// The candidate in its place, as a plan shows it.
    pub(crate) fn shown(&self, place: usize, signal: Signal, options: &Options) -> Ranked {
        Ranked {
            place: u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1),
            workload: self.workload.key.clone(),
            signal: Some(signal),
            keys: self.keys(signal, options),
        }
    }
}

/// Growth in powers of two above the least that counts; 0 where it counts for nothing.
pub(crate) fn growth_class(growth: Option<i64>, resource: Resource) -> u32 {
    let least = if resource == Resource::Memory { MIN_MEMORY_GROWTH } else { MIN_PROCESS_GROWTH };
    let steps = growth.unwrap_or_default().max(0) / least;
    if steps == 0 { 0 } else { steps.ilog2() + 1 }
}

/// What a workload has swapped out, where it is ranked by that.
fn swapped_out(workload: &Workload, signal: Signal) -> Option<u64> {
    let counts = matches!(signal, Signal::SwapAvailable | Signal::MemoryWithSwapAvailable);
    workload.stats.as_ref().filter(|_| counts)?.memory?.swap
}

/// The rate of a resource whose growth is followed.
fn rate_of(growth: &Growth, resource: Resource) -> Option<i64> {
    match resource {
        Resource::Memory => growth.memory_rate,
        Resource::Pids => growth.process_rate,
        Resource::Swap | Resource::EphemeralStorage | Resource::Inodes => None,
    }
}

fn whole(quantity: Quantity) -> u64 {
    u64::try_from(quantity.ceil().max(0)).unwrap_or(u64::MAX)
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RawEviction, Time, snapshot::MemoryUsage, snapshot::Stats};
    use alloc::{string::ToString as _, vec};

    #[test]
    fn who_is_spared_for_freeing_too_little_is_not_said_to_use_nothing() {
        let workload = |name: &str, used: u64| {
            let memory = MemoryUsage { working_set: Some(used), ..MemoryUsage::default() };
            let stats = Stats { memory: Some(memory), ..Stats::default() };
            let key = WorkloadKey { name: name.to_string(), ..WorkloadKey::default() };
            Workload { key, stats: Some(stats), ..Workload::default() }
        };
        // What it uses is shared with others, and stays.
        let shares = Workload { shared_memory: Some(9 << 20), ..workload("shares", 9 << 20) };
        let mut node = Snapshot::at(Time(1000));
        node.workloads =
            vec![workload("idle", 0), workload("little", 7), workload("much", 9 << 20), shares];
        let options = Options { min_freed_of_threshold: 1, ..Options::kubelet() };
        let raw = RawEviction { options: Some(options), ..RawEviction::default() };
        let limits = Limits::new(&raw).unwrap();
        let spared = spared(&node, &limits, &History::default(), Signal::MemoryAvailable);
        let spared: Vec<_> =
            spared.into_iter().map(|(key, why)| (key.name.as_str(), why)).collect();
        // A hundredth of the default threshold of 100Mi.
        let too_little = |frees| SkipReason::FreesTooLittle { frees, least: 1 << 20 };
        let expected = [
            ("idle", SkipReason::NothingToGain),
            ("little", too_little(7)),
            ("shares", too_little(0)),
        ];
        assert_eq!(spared, expected);
    }
}
