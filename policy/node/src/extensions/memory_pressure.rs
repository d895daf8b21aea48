//! Memory pressure of single cgroups, as systemd-oomd has it: a watched cgroup whose tasks all wait for memory loses the workload below it that reclaims most.
//!
//! ```text
//!  full avg10 above the limit for the duration, and so is the stall since the last reading
//!     ─► nobody below is on the way out, 15 s have passed since the last eviction
//!     ─► those below it by preference, then pages scanned a second ─► the first that may go, scans and holds a part worth mentioning
//! ```
//! The average alone would go on for seconds after its cause has ended, and cost another.
//! Without swap the kernel scans no anonymous memory: who scans most there may be whose program text a leak squeezes out, so that who holds little is left alone.
//! The node's own thresholds come first: while memory is short by one of them, or somebody goes in this pass, nothing is done here.
//! A rate is taken over the last five to ten seconds, about the time over which the kernel averages the pressure.
use crate::{
    History, Limits, Millis, Plan, Signal, Snapshot, StallShare, Time,
    evict::{self, Grounds},
    history::{Scan, Scans, WatchedCgroup},
    limits::{MemoryPressure, Options},
    plan::{
        Action, EvictionCause, LISTED, Note, PressureGrounds, PressureState, PressureStatus,
        RankKey, Ranked, SkipReason, Skipped, Subject,
    },
    snapshot::{CgroupPressure, FsLayout, Preference, State, Workload, WorkloadKey},
    swap::Swapped,
    usage,
};
use alloc::{boxed::Box, collections::BTreeMap, format, vec::Vec};
use core::cmp::Reverse;

/// Between two observations that count as without a break: the time over which the kernel averages.
const LONGEST_GAP: Millis = Millis(10_000);

/// How long the pressure takes to show what an eviction did; systemd-oomd waits as long.
const SETTLES_WITHIN: Millis = Millis(15_000);

/// Half of the time over which a rate is taken.
const HALF_WINDOW: Millis = Millis(5_000);

/// Who scans less than this part of what is scanned in the cgroup, or holds less than this part of its memory, percent, is not why it stalls.
const LEAST_PERCENT: u64 = 10;

/// The time for which evictions are limited.
const MINUTE: Millis = Millis(60_000);

/// Judges every watched cgroup, and evicts at most one workload.
pub(crate) fn enforce(
    snapshot: &Snapshot,
    limits: &Limits,
    active: &[&Workload],
    history: &mut History,
    plan: &mut Plan,
) {
    let before = core::mem::take(&mut history.memory_pressure);
    for rule in limits.memory_pressure() {
        let reading = snapshot.memory_pressure.iter().find(|seen| seen.cgroup == rule.cgroup);
        let is_it =
            |known: &&WatchedCgroup| known.cgroup == rule.cgroup && known.limit == rule.limit;
        let known = before.iter().find(is_it);
        let next = reading.and_then(|reading| observe(rule, reading, known, snapshot.taken_at));
        plan.memory_pressure.push(status(rule, reading, next.as_ref(), snapshot.taken_at));
        let kept = || known.filter(|known| is_settling(known, snapshot.taken_at)).cloned();
        history.memory_pressure.extend(next.or_else(kept));
    }
    let is_short = plan.handled.as_ref().is_some_and(|handled| handled.signal.is_memory());
    let is_evicted = plan.evictions().next().is_some();
    if is_evicted {
        settle(&mut history.memory_pressure, snapshot.taken_at);
    }
    if is_short || history.waiting.is_some() || is_evicted {
        return;
    }
    let met = plan.memory_pressure.iter().filter(|status| status.state == PressureState::Met);
    let met: Vec<PressureStatus> = met.cloned().collect();
    for status in met {
        let watched = history.memory_pressure.iter().position(|w| w.cgroup == status.cgroup);
        let reading = snapshot.memory_pressure.iter().find(|seen| seen.cgroup == status.cgroup);
        let (Some(watched), Some(reading)) = (watched, reading) else { continue };
        let pass = Pass { snapshot, reading, limits, active, status: &status };
        if pass.evict(&history.memory_pressure[watched], &history.evictions, plan) {
            settle(&mut history.memory_pressure, snapshot.taken_at);
            let watched = &mut history.memory_pressure[watched];
            watched.above_before = watched.above_since.replace(snapshot.taken_at);
            history.evictions.retain(|at| snapshot.taken_at.since(*at) < MINUTE);
            history.evictions.push(snapshot.taken_at);
            return;
        }
    }
}

/// Notes an eviction: its victim may be below several.
fn settle(watched: &mut [WatchedCgroup], now: Time) {
    for watched in watched {
        watched.evicted_at = Some(now);
        watched.above_before = None;
    }
}

/// Takes in a reading; `None` when it says nothing, or is too old.
fn observe(
    rule: &MemoryPressure,
    reading: &CgroupPressure,
    known: Option<&WatchedCgroup>,
    now: Time,
) -> Option<WatchedCgroup> {
    let full_avg10 = reading.full_avg10?;
    if now.since(reading.observed_at) > LONGEST_GAP {
        return None;
    }
    if let Some(known) = known.filter(|known| known.observed_at >= reading.observed_at) {
        return Some(known.clone());
    }
    let at = reading.observed_at;
    let without_a_break = known.filter(|known| at.since(known.observed_at) <= LONGEST_GAP);
    let since = without_a_break.and_then(|known| known.above_since).unwrap_or(at);
    let scans = without_a_break.map_or(&[][..], |known| &known.scans);
    let scans = reading.workloads.iter().filter_map(|scanned| {
        let scan = Scan { at, pages: scanned.pages? };
        let before = scans.iter().find(|scans| scans.workload == scanned.workload);
        let fresh =
            Scans { workload: scanned.workload.clone(), older: scan, newer: scan, rate: None };
        Some(before.and_then(|before| follow(before, scan)).unwrap_or(fresh))
    });
    let mut scans: Vec<Scans> = scans.collect();
    scans.sort_by(|a, b| a.workload.cmp(&b.workload));
    let own = reading.pages.map(|pages| {
        let scan = Scan { at, pages };
        let workload = WorkloadKey { name: rule.cgroup.clone(), ..WorkloadKey::default() };
        let before = without_a_break.and_then(|known| known.own.as_ref());
        let fresh = Scans { workload, older: scan, newer: scan, rate: None };
        before.and_then(|before| follow(before, scan)).unwrap_or(fresh)
    });
    let settling = known.filter(|known| is_settling(known, now));
    Some(WatchedCgroup {
        cgroup: rule.cgroup.clone(),
        limit: rule.limit,
        observed_at: at,
        full_total: reading.full_total,
        stall: without_a_break.and_then(|known| stall(known, at, reading.full_total?)),
        above_since: (full_avg10 > rule.limit).then_some(since),
        evicted_at: settling.and_then(|known| known.evicted_at),
        above_before: settling.and_then(|known| known.above_before),
        own,
        scans,
    })
}

/// The part of the time since the last observation in which all tasks waited.
fn stall(known: &WatchedCgroup, at: Time, total: u64) -> Option<StallShare> {
    let waited = total.checked_sub(known.full_total?)?;
    let over = at.since(known.observed_at).0.checked_mul(1000).filter(|over| *over > 0)?;
    let share = u128::from(waited) * 10_000 / u128::from(over);
    Some(StallShare(u32::try_from(share).unwrap_or(u32::MAX)))
}

/// Goes on with a rate; `None` when the total has begun again.
fn follow(before: &Scans, scan: Scan) -> Option<Scans> {
    let Scans { workload, older, newer, rate: _ } = before;
    let pages = scan.pages.checked_sub(older.pages)?;
    let over = scan.at.since(older.at).0;
    let rate = u128::from(pages) * 1000 / u128::from(over.max(1));
    let is_over = scan.at.since(newer.at) >= HALF_WINDOW;
    Some(Scans {
        workload: workload.clone(),
        older: if is_over { *newer } else { *older },
        newer: if is_over { scan } else { *newer },
        rate: (over > 0).then(|| u64::try_from(rate).unwrap_or(u64::MAX)),
    })
}

fn is_settling(watched: &WatchedCgroup, now: Time) -> bool {
    watched.evicted_at.is_some_and(|at| now.since(at) < SETTLES_WITHIN)
}

fn status(
    rule: &MemoryPressure,
    reading: Option<&CgroupPressure>,
    watched: Option<&WatchedCgroup>,
    now: Time,
) -> PressureStatus {
    let MemoryPressure { cgroup, limit, duration } = rule;
    let since = watched.and_then(|watched| watched.above_since);
    let state = match (watched, since) {
        (None, _) => PressureState::Unobserved,
        (Some(_), None) => PressureState::Clear,
        (Some(watched), Some(since)) if watched.observed_at.since(since) < *duration => {
            PressureState::Grace
        }
        (Some(watched), Some(_)) if is_settling(watched, now) => PressureState::Settling,
        (Some(watched), Some(_)) if watched.stall.is_none_or(|stall| stall <= *limit) => {
            PressureState::Easing
        }
        (Some(_), Some(_)) => PressureState::Met,
    };
    PressureStatus {
        cgroup: cgroup.clone(),
        state,
        limit: *limit,
        duration: *duration,
        full_avg10: watched.and(reading).and_then(|reading| reading.full_avg10),
        since,
    }
}

/// One cgroup whose pressure has lasted.
struct Pass<'a> {
    snapshot: &'a Snapshot,
    reading: &'a CgroupPressure,
    limits: &'a Limits,
    active: &'a [&'a Workload],
    status: &'a PressureStatus,
}

/// A workload below it.
struct Candidate<'a> {
    workload: &'a Workload,
    preference: Preference,
    /// Pages a second; `None` when unknown.
    rate: Option<u64>,
}

impl Pass<'_> {
    /// Evicts the first below the cgroup that may be evicted; returns whether there is one.
    fn evict(&self, watched: &WatchedCgroup, evictions: &[Time], plan: &mut Plan) -> bool {
        let cgroup = &self.status.cgroup;
        let rates = watched.scans.iter().map(|scans| (&scans.workload, scans.rate));
        let rates: BTreeMap<_, _> = rates.collect();
        if rates.values().all(Option::is_none) && !rates.is_empty() {
            // A rate takes two readings.
            return false;
        }
        let below = self.active.iter().filter(|workload| rates.contains_key(&workload.key));
        let mut below: Vec<&Workload> = below.copied().collect();
        below.sort_by(|a, b| a.key.cmp(&b.key));
        if let Some(terminating) = below.iter().find(|workload| self.is_terminating(workload)) {
            plan.notes.push(Note::PressureAwaitsTermination {
                cgroup: cgroup.clone(),
                workload: terminating.key.clone(),
                dry_run: terminating.termination.is_some_and(|dying| dying.dry_run),
            });
            return false;
        }
        // What is no workload scans too, and so did what is gone: evicting others for it would not help.
        let total = watched.own.as_ref().and_then(|own| own.rate);
        let options = self.limits.options();
        let candidate = |workload| Candidate::new(workload, &rates, options);
        let mut ranking: Vec<Candidate<'_>> = below.into_iter().map(candidate).collect();
        ranking.sort_by(|a, b| a.order().cmp(&b.order()).then(a.workload.key.cmp(&b.workload.key)));
        self.show(&ranking, total.unwrap_or_default(), plan);
        let per_minute = options.max_evictions_per_minute;
        let of_late = evictions.iter().filter(|at| self.snapshot.taken_at.since(**at) < MINUTE);
        let of_late = u32::try_from(of_late.count()).unwrap_or(u32::MAX);
        let is_limited = per_minute > 0 && of_late >= per_minute;
        let mut chosen = None;
        for candidate in &ranking {
            let reason = match self.refusal(candidate, total) {
                Some(reason) => reason,
                None if is_limited => SkipReason::EvictionRate,
                None if chosen.is_some() => SkipReason::NotNeeded,
                None => {
                    chosen = Some(candidate);
                    continue;
                }
            };
            let subject = Subject::Workload { workload: candidate.workload.key.clone() };
            plan.skipped.push(Skipped { subject, reason });
        }
        if is_limited {
            plan.notes.push(Note::EvictionRate { evictions: of_late, per_minute });
        } else if chosen.is_none() {
            plan.notes.push(Note::PressureWithoutCandidate { cgroup: cgroup.clone() });
        }
        let total = total.unwrap_or_default();
        let eviction = chosen.map(|candidate| self.eviction(candidate, total, options));
        let is_one = eviction.is_some();
        plan.actions.extend(eviction);
        is_one
    }

    /// Whether it is on its way out, by whomever.
    fn is_terminating(&self, workload: &Workload) -> bool {
        let now = self.snapshot.taken_at;
        let by_others = match workload.state {
            State::Terminating { deadline, .. } => deadline,
            _ => None,
        };
        workload.termination.is_some_and(|ends| ends.counts_at(now))
            || by_others.is_some_and(|deadline| now < deadline)
    }

    fn refusal(&self, candidate: &Candidate<'_>, total: Option<u64>) -> Option<SkipReason> {
        let workload = candidate.workload;
        if let Some(reason) = workload.never_ended() {
            return Some(reason);
        }
        if let Some(dying) = workload.termination {
            return Some(SkipReason::Terminating { until: dying.deadline });
        }
        let (Some(rate), Some(total)) = (candidate.rate, total) else {
            return Some(SkipReason::ReclaimUnknown);
        };
        if rate == 0 || percent_of(rate, total) < LEAST_PERCENT {
            return Some(SkipReason::ReclaimsTooLittle);
        }
        let usage = workload.stats.as_ref().and_then(|stats| stats.memory?.usage);
        match usage.zip(self.reading.usage) {
            None => return Some(SkipReason::ReclaimUnknown),
            Some((usage, all)) if percent_of(usage, all) < LEAST_PERCENT => {
                return Some(SkipReason::HoldsTooLittle);
            }
            Some(_) => {}
        }
        let budgets = self.limits.options().disruption_budgets;
        let budget = workload.disruption_budget.as_ref().filter(|_| budgets)?;
        (budget.disruptions_allowed == 0)
            .then(|| SkipReason::DisruptionBudget { budget: budget.name.clone() })
    }

    /// Lists the candidates, unless the pass has listed others already.
    fn show(&self, ranking: &[Candidate<'_>], total: u64, plan: &mut Plan) {
        if !plan.ranking.is_empty() {
            return;
        }
        let options = self.limits.options();
        let listed = ranking.iter().take(LISTED).zip(1..);
        plan.ranking = listed
            .map(|(candidate, place)| Ranked {
                place,
                workload: candidate.workload.key.clone(),
                signal: None,
                keys: candidate.keys(total, options),
            })
            .collect();
    }

    /// Bytes of memory that come back with a workload.
    fn expected_free(&self, workload: &Workload) -> Option<u64> {
        let swapped = Swapped::of(&self.snapshot.node);
        usage::expected_free(workload, Signal::MemoryAvailable, FsLayout::Single, swapped)
    }

    fn eviction(&self, candidate: &Candidate<'_>, total: u64, options: &Options) -> Action {
        let PressureStatus { cgroup, limit, duration, full_avg10, .. } = self.status;
        let full_avg10 = full_avg10.unwrap_or(*limit);
        let rate = candidate.rate.unwrap_or_default();
        let message = format!(
            "Memory pressure of cgroup {cgroup} was {full_avg10} (full avg10), above {limit} for {duration}; {rate} pages a second were scanned to reclaim memory from this workload, {} % of all below the cgroup. ",
            percent_of(rate, total)
        );
        let grounds = Grounds {
            cause: EvictionCause::MemoryPressure,
            grace: evict::IMMEDIATE,
            at_once: false,
            message,
            annotations: BTreeMap::new(),
            metric: "memoryPressure".into(),
            threshold: None,
            memory_pressure: Some(PressureGrounds {
                cgroup: cgroup.clone(),
                limit: *limit,
                full_avg10,
            }),
            expected_free: self.expected_free(candidate.workload),
            why: candidate.keys(total, options),
        };
        let now = self.snapshot.taken_at;
        Action::Evict(Box::new(evict::evict(candidate.workload, grounds, now)))
    }
}

impl<'a> Candidate<'a> {
    fn new(
        workload: &'a Workload,
        rates: &BTreeMap<&WorkloadKey, Option<u64>>,
        options: &Options,
    ) -> Candidate<'a> {
        Candidate {
            workload,
            preference: if options.preferences { workload.preference } else { Preference::Neutral },
            rate: rates.get(&workload.key).copied().flatten(),
        }
    }

    /// The preference, then whoever scans most, then whoever uses most.
    fn order(&self) -> (Preference, Reverse<Option<u64>>, Reverse<Option<u64>>) {
        let usage = self.workload.stats.as_ref().and_then(|stats| stats.memory?.usage);
        (self.preference, Reverse(self.rate), Reverse(usage))
    }

    fn keys(&self, total: u64, options: &Options) -> Vec<RankKey> {
        let preference = self.preference;
        let preference = options.preferences.then_some(RankKey::Preference { preference });
        let scanned = self.rate.map(|per_second| {
            let percent = u8::try_from(percent_of(per_second, total)).unwrap_or(100);
            RankKey::PagesScanned { per_second, percent }
        });
        preference.into_iter().chain(scanned).collect()
    }
}

fn percent_of(part: u64, total: u64) -> u64 {
    let percent = u128::from(part) * 100 / u128::from(total.max(1));
    u64::try_from(percent).unwrap_or(100).min(100)
}
