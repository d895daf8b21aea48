//! The order in which workloads are ended for a signal, with the keys that made it.
//!
//! The kubelet's keys, the first victim first; a later key only decides between equals:
//! ```text
//! memory, disk   no statistics · over its request · lowest priority · most above its request
//! tasks          lowest priority · no statistics · most processes
//! ```
//! Between "priority" and "most", `preferences` puts what the owner says, and the attributed ranking puts growth.
//! The attributed ranking also puts candidates without statistics last: on a machine without a source of pods they are cgroups that have just gone.
//! Ties fall by identity, never by the order of a list.
use crate::{
    History, Limits, Quantity, Signal, Snapshot,
    beyond::growth::Finder,
    history::Growth,
    layout::layout,
    limits::{Options, Ranking},
    plan::{RankKey, Ranked},
    quantity::Format,
    request::{Requestable, request},
    signal::Resource,
    snapshot::{FsLayout, Preference, Workload, WorkloadKey},
    usage::usage,
};
use alloc::{collections::BTreeSet, vec::Vec};
use core::cmp::{Ordering, Reverse};

/// Growth below this many units a second decides nothing: bytes of memory, and processes.
const MIN_MEMORY_GROWTH: i64 = crate::beyond::blame::MIN_GROWTH;
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
    /// Usage less what was asked for, in billionths.
    above: i128,
}

/// Puts workloads in order, the first victim first.
pub(crate) fn order<'a>(
    workloads: impl Iterator<Item = &'a Workload>,
    signal: Signal,
    layout: FsLayout,
    options: &Options,
    growth: &[Growth],
) -> Vec<Candidate<'a>> {
    let mut growth = Finder::new(growth);
    let candidate = |workload: &'a Workload| {
        let growth = growth.find(&workload.key);
        Candidate::new(workload, signal, layout, options, growth)
    };
    let mut candidates: Vec<Candidate<'a>> = workloads.map(candidate).collect();
    candidates.sort_unstable_by(|a, b| a.compare(b, signal, options));
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
    let active = snapshot.workloads.iter().filter(|workload| !workload.is_finished());
    let ranking = order(active, signal, layout, options, &history.growth);
    let shown =
        |(place, candidate): (usize, &Candidate<'_>)| candidate.shown(place, signal, options);
    ranking.iter().enumerate().map(shown).collect()
}

/// Who would be ended for a signal when nobody is left to decide, in this order: everyone active but those who must never be.
pub fn last_resort(
    snapshot: &Snapshot,
    limits: &Limits,
    history: &History,
    signal: Signal,
) -> Vec<WorkloadKey> {
    let spared: BTreeSet<&WorkloadKey> =
        snapshot.workloads.iter().filter(|w| !w.may_be_ended()).map(|w| &w.key).collect();
    let ranked = rank(snapshot, limits, history, signal).into_iter().map(|ranked| ranked.workload);
    ranked.filter(|key| !spared.contains(key)).collect()
}

impl<'a> Candidate<'a> {
    fn new(
        workload: &'a Workload,
        signal: Signal,
        layout: FsLayout,
        options: &Options,
        growth: Option<&Growth>,
    ) -> Candidate<'a> {
        let resource = signal.resource();
        let used = usage(workload, signal, layout);
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
        let least =
            if resource == Resource::Memory { MIN_MEMORY_GROWTH } else { MIN_PROCESS_GROWTH };
        let steps = growth.unwrap_or_default().max(0) / least;
        Candidate {
            workload,
            found: used.is_some(),
            usage: used.unwrap_or_default(),
            request,
            exceeds: amount > request,
            priority: workload.priority(),
            preference: if options.preferences { workload.preference } else { Preference::Neutral },
            growth,
            growth_class: if steps == 0 { 0 } else { steps.ilog2() + 1 },
            above: amount.minus(subtracted).nanos(),
        }
    }

    fn compare(&self, other: &Candidate<'_>, signal: Signal, options: &Options) -> Ordering {
        let attributed = options.ranking == Ranking::Attributed;
        let found =
            if attributed { other.found.cmp(&self.found) } else { self.found.cmp(&other.found) };
        let priority = self.priority.cmp(&other.priority);
        let preference = self.preference.cmp(&other.preference);
        let growth =
            if attributed { other.growth_class.cmp(&self.growth_class) } else { Ordering::Equal };
        let both = self.found && other.found;
        let order = if signal.resource() == Resource::Pids {
            let most =
                if both { Reverse(self.usage).cmp(&Reverse(other.usage)) } else { Ordering::Equal };
            priority.then(preference).then(found).then(growth).then(most)
        } else {
            let exceeds = if both { other.exceeds.cmp(&self.exceeds) } else { Ordering::Equal };
            let most = if both { other.above.cmp(&self.above) } else { Ordering::Equal };
            found.then(exceeds).then(priority).then(preference).then(growth).then(most)
        };
        order.then_with(|| self.workload.key.cmp(&other.workload.key))
    }

    /// Whether it grows fast enough to count as a cause.
    pub(crate) fn grows(&self) -> bool {
        self.growth_class > 0
    }

    /// Whether it is known to use nothing of what is short.
    pub(crate) fn frees_nothing(&self) -> bool {
        self.found && self.usage == 0
    }

    /// The keys in the order in which they are compared.
    pub(crate) fn keys(&self, signal: Signal, options: &Options) -> Vec<RankKey> {
        let mut keys = Vec::with_capacity(6);
        let stats = RankKey::Stats { found: self.found };
        let pids = signal.resource() == Resource::Pids;
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
        if self.found {
            keys.push(if pids {
                RankKey::Processes { count: self.usage }
            } else {
                RankKey::AboveRequest { above: clamp(self.above.div_euclid(1_000_000_000)) }
            });
        }
        keys
    }

    /// The candidate in its place, as a plan shows it.
    pub(crate) fn shown(&self, place: usize, signal: Signal, options: &Options) -> Ranked {
        Ranked {
            place: u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1),
            workload: self.workload.key.clone(),
            signal,
            keys: self.keys(signal, options),
        }
    }
}

/// The rate of a resource whose growth is followed.
fn rate_of(growth: &Growth, resource: Resource) -> Option<i64> {
    match resource {
        Resource::Memory => growth.memory_rate,
        Resource::Pids => growth.process_rate,
        Resource::EphemeralStorage | Resource::Inodes => None,
    }
}

fn whole(quantity: Quantity) -> u64 {
    u64::try_from(quantity.ceil().max(0)).unwrap_or(u64::MAX)
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}
