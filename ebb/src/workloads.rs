//! The workloads of one look as people are shown them: what each uses, how fast that grows, how long it waits for memory, and where it stands when memory runs short. Pure.
//!
//! ```text
//!  snapshot, growth ─┬─► figures ──────────────────────┐
//!                    └─► ranking, who is spared and why ─┴─► lines: candidates in their order, then the others
//! ```
//! `--api` tells clients of them, and `ebb top --replay` makes them of a recorded decision.

use super::rank::{is_dry_run_victim, untouchable, why};
use ebb_journal::text::rank_keys;
use ebb_policy::history::Growth;
use ebb_policy::plan::{RankKey, Ranked, SkipReason};
use ebb_policy::snapshot::{State, Workload, WorkloadKey, WorkloadKind};
use ebb_policy::{Millis, Snapshot, Time, decided_by};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How long a stall is told on while nothing new was counted.
const STALL_LASTS: Millis = Millis(10_000);

/// A workload as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) key: WorkloadKey,
    pub(super) kind: WorkloadKind,
    /// The path of its cgroup below the mount, with a slash before it.
    pub(super) cgroup: Option<String>,
    /// Bytes: the working set.
    pub(super) memory: Option<u64>,
    /// Bytes a second.
    pub(super) growth: Option<i64>,
    /// Microseconds a second that its tasks wait for memory.
    pub(super) stall: Option<u64>,
    pub(super) priority: Option<i32>,
    pub(super) standing: Standing,
    /// Its place among the candidates, from 1 on.
    pub(super) place: Option<u32>,
    /// Of a candidate the key that placed it before the next one; of another, why it is none.
    pub(super) reason: String,
    /// Every key that it was ranked by.
    pub(super) keys: String,
}

/// Where a workload stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// This decision evicts it.
    Victim,
    /// It may be evicted.
    Candidate,
    /// It is on its way out.
    Terminating,
    /// It would have been evicted, but for the dry run.
    DryRunVictim,
    /// It would free nothing that matters, or is spared for now.
    Spared,
    /// It is never evicted.
    Protected,
    /// Nothing of it runs any more.
    Finished,
    /// Whoever told of it did not say, or in words that are not known here.
    Unknown,
}

/// What a line is made of beside the workload.
pub(super) struct Known<'a> {
    /// How fast workloads grow, ordered by who they are.
    pub(super) growth: &'a [Growth],
    /// Everybody that was ranked, the first victim first.
    pub(super) ranking: &'a [Ranked],
    /// Why somebody that was ranked is not evicted, whatever is short; those who are merely not needed have no place here.
    pub(super) skipped: &'a BTreeMap<WorkloadKey, SkipReason>,
    /// Whom the decision evicts.
    pub(super) victims: &'a [WorkloadKey],
    /// The cgroups of pods by their UIDs.
    pub(super) pod_cgroups: &'a BTreeMap<String, String>,
}

/// The lines of a snapshot: candidates in their order, then the others, those with the most memory first.
pub(super) fn lines(snapshot: &Snapshot, known: &Known<'_>, stalls: &Stalls) -> Vec<Line> {
    let growth: BTreeMap<&WorkloadKey, &Growth> =
        known.growth.iter().map(|growth| (&*growth.workload, growth)).collect();
    let places = places(known);
    let line = |workload: &Workload| {
        let Workload { key, kind, priority, stats, .. } = workload;
        let growth = growth.get(key);
        let placed = places.get(key);
        let skipped = untouchable(workload).or_else(|| known.skipped.get(key).cloned());
        let standing = standing(workload, skipped.as_ref(), placed.is_some(), known);
        let is_placed = matches!(standing, Standing::Candidate | Standing::Victim);
        let placed = placed.filter(|_| is_placed);
        let is_cgroup = *kind == WorkloadKind::Cgroup;
        Line {
            key: key.clone(),
            kind: *kind,
            cgroup: match &key.uid {
                Some(uid) => known.pod_cgroups.get(uid).cloned(),
                None => is_cgroup.then(|| key.name.clone()),
            },
            memory: stats.as_ref().and_then(|stats| stats.memory?.working_set()),
            growth: growth.and_then(|growth| growth.memory_rate),
            stall: growth
                .and_then(|growth| u64::try_from(growth.stall_rate?.max(0)).ok())
                .or_else(|| stalls.of(key)),
            priority: *priority,
            standing,
            place: placed.map(|placed| placed.place),
            reason: match (standing, &skipped) {
                (Standing::Victim, _) => {
                    let why = placed.map(|placed| placed.reason.as_str()).unwrap_or_default();
                    format!("evicted: {why}")
                }
                (Standing::Finished, _) => "nothing of it runs".to_owned(),
                (_, Some(skipped)) => why(workload, skipped),
                _ => placed.map(|placed| placed.reason.clone()).unwrap_or_default(),
            },
            keys: places.get(key).map(|placed| placed.keys.clone()).unwrap_or_default(),
        }
    };
    let mut lines: Vec<Line> = snapshot.workloads.iter().map(line).collect();
    lines.sort_by(|a, b| {
        let order = |line: &Line| (line.place.is_none(), line.place, Reverse(line.memory));
        order(a).cmp(&order(b)).then_with(|| a.key.cmp(&b.key))
    });
    lines
}

/// Where one was ranked, and why.
struct Placed {
    place: u32,
    reason: String,
    keys: String,
}

/// The places of the candidates among themselves; who was ranked but is none is passed over.
fn places<'a>(known: &Known<'a>) -> BTreeMap<&'a WorkloadKey, Placed> {
    let is_candidate = |ranked: &&Ranked| !known.skipped.contains_key(&ranked.workload);
    let candidates: Vec<&Ranked> = known.ranking.iter().filter(is_candidate).collect();
    let nexts = candidates.iter().skip(1).map(|next| Some(*next)).chain([None]);
    let placed = |(place, (ranked, next)): (usize, (&&'a Ranked, Option<&'a Ranked>))| {
        let place = u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1);
        let ranked = *ranked;
        let reason = match next {
            Some(next) => before(ranked, next),
            None if place == 1 => "the only candidate".to_owned(),
            None => "last of the candidates".to_owned(),
        };
        (&ranked.workload, Placed { place, reason, keys: rank_keys(ranked) })
    };
    let mut places: BTreeMap<_, _> = candidates.iter().zip(nexts).enumerate().map(placed).collect();
    for ranked in known.ranking {
        let keys = || Placed { place: 0, reason: String::new(), keys: rank_keys(ranked) };
        places.entry(&ranked.workload).or_insert_with(keys);
    }
    places
}

/// The key that placed one before the next, in words.
fn before(ranked: &Ranked, next: &Ranked) -> String {
    let in_words = |key: &RankKey| {
        let alone = Ranked { keys: vec![*key], ..ranked.clone() };
        rank_keys(&alone)
    };
    match decided_by(ranked, next) {
        Some(key) => in_words(key),
        None => "equal to the next in every key".to_owned(),
    }
}

fn standing(
    workload: &Workload,
    skipped: Option<&SkipReason>,
    is_ranked: bool,
    known: &Known<'_>,
) -> Standing {
    if workload.is_finished() {
        return Standing::Finished;
    }
    if known.victims.contains(&workload.key) {
        return Standing::Victim;
    }
    match (skipped, workload.state) {
        (Some(SkipReason::Critical | SkipReason::Protected { .. }), _) => Standing::Protected,
        (Some(SkipReason::Terminating { .. }), _) if is_dry_run_victim(workload) => {
            Standing::DryRunVictim
        }
        (Some(SkipReason::Terminating { .. }), _) => Standing::Terminating,
        (Some(_), _) => Standing::Spared,
        (None, _) if is_ranked => Standing::Candidate,
        (None, State::Terminating { .. }) => Standing::Terminating,
        (None, State::Terminated { .. }) => Standing::Finished,
        (None, State::Active) => Standing::Unknown,
    }
}

/// How long workloads wait for memory, from the running totals of looks.
///
/// While the node is short, what changes slower than memory is not read again, and a snapshot does not say so: a total that stays as it was is no zero.
#[derive(Debug, Default)]
pub(super) struct Stalls(BTreeMap<WorkloadKey, Stall>);

/// What is known of one workload.
#[derive(Clone, Copy, Debug)]
struct Stall {
    /// When the total was first seen to be this.
    since: Time,
    total: u64,
    /// Microseconds a second up to then.
    rate: Option<u64>,
}

impl Stalls {
    /// Takes in another look; whoever is gone from it is forgotten.
    pub(super) fn observe(&mut self, snapshot: &Snapshot) {
        let before = std::mem::take(&mut self.0);
        for Workload { key, stats, .. } in &snapshot.workloads {
            let Some(stats) = stats else { continue };
            let total = stats.memory.and_then(|memory| memory.stall_us);
            let Some((at, total)) = stats.observed_at.zip(total) else { continue };
            let stall = before.get(key).map_or(Stall { since: at, total, rate: None }, |before| {
                let elapsed = at.since(before.since);
                match total.checked_sub(before.total) {
                    // It has begun again.
                    None => Stall { since: at, total, rate: None },
                    Some(0) => {
                        Stall { rate: before.rate.filter(|_| elapsed <= STALL_LASTS), ..*before }
                    }
                    Some(waited) => {
                        let rate = waited.saturating_mul(1000) / elapsed.0.max(1);
                        Stall { since: at, total, rate: Some(rate) }
                    }
                }
            });
            self.0.insert(key.clone(), stall);
        }
    }

    fn of(&self, key: &WorkloadKey) -> Option<u64> {
        self.0.get(key)?.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_policy::snapshot::{MemoryUsage, ProtectedReason, Stats, Termination};
    use ebb_policy::{Limits, Signal, rank};

    fn workload(name: &str, memory: Option<u64>) -> Workload {
        let usage = MemoryUsage { working_set: memory, ..MemoryUsage::default() };
        let stats = Stats { memory: Some(usage), ..Stats::default() };
        Workload {
            key: WorkloadKey { name: name.to_owned(), ..WorkloadKey::default() },
            kind: WorkloadKind::Cgroup,
            stats: memory.map(|_| stats),
            ..Workload::default()
        }
    }

    fn limits() -> Limits {
        ebb_agent::config::Config::standalone_default().limits
    }

    #[test]
    fn candidates_come_in_their_order_and_the_others_after_them_with_why() {
        let mut snapshot = Snapshot::at(Time(1000));
        let mut safe = workload("/safe", Some(900 << 20));
        safe.protected = Some(ProtectedReason::Configured);
        snapshot.workloads =
            vec![safe, workload("/small", Some(1 << 20)), workload("/large", Some(400 << 20))];
        let history = ebb_policy::History::default();
        let ranking = rank(&snapshot, &limits(), &history, Signal::MemoryAvailable);
        let small = snapshot.workloads[1].key.clone();
        let safe = snapshot.workloads[0].key.clone();
        let protected = SkipReason::Protected { reason: ProtectedReason::Configured };
        let mut skipped = BTreeMap::from([(safe, protected)]);
        let cgroups = BTreeMap::new();
        let shown = |skipped: &BTreeMap<_, _>, victims: &[WorkloadKey]| {
            let known =
                Known { growth: &[], ranking: &ranking, skipped, victims, pod_cgroups: &cgroups };
            let lines = lines(&snapshot, &known, &Stalls::default());
            let shown = lines.into_iter().map(|l| (l.key.name, l.place, l.standing, l.reason));
            shown.collect::<Vec<_>>()
        };
        let line = |name: &str, place, standing, why: &str| {
            (name.to_owned(), place, standing, why.to_owned())
        };
        let protected = line(
            "/safe",
            None,
            Standing::Protected,
            "protected: the configuration, or its unit, says so",
        );
        let expected = [
            line("/large", Some(1), Standing::Candidate, "+400.0 MiB to its request"),
            line("/small", Some(2), Standing::Candidate, "last of the candidates"),
            protected.clone(),
        ];
        assert_eq!(shown(&skipped, &[]), expected);
        let large = snapshot.workloads[2].key.clone();
        skipped.insert(small, SkipReason::NothingToGain);
        let expected = [
            line("/large", Some(1), Standing::Victim, "evicted: the only candidate"),
            protected,
            line("/small", None, Standing::Spared, "uses nothing of what is short"),
        ];
        assert_eq!(shown(&skipped, &[large]), expected);
    }

    /// The first line, where nothing beside the snapshot is known.
    fn line_of(snapshot: &Snapshot) -> Line {
        let known = Known {
            growth: &[],
            ranking: &[],
            skipped: &BTreeMap::new(),
            victims: &[],
            pod_cgroups: &BTreeMap::new(),
        };
        lines(snapshot, &known, &Stalls::default()).remove(0)
    }

    #[test]
    fn who_would_have_been_evicted_but_for_the_dry_run_is_not_said_to_be_on_its_way_out() {
        let mut snapshot = Snapshot::at(Time(1000));
        let mut victim = workload("/victim", Some(400 << 20));
        victim.termination = Some(Termination {
            since: Time(500),
            deadline: Time(9000),
            expected_free: Some(400 << 20),
            kill_at: None,
            restarted: false,
            dry_run: true,
        });
        snapshot.workloads = vec![victim];
        let shown = |snapshot: &Snapshot| {
            let line = line_of(snapshot);
            (line.standing, line.reason)
        };
        let (standing, why) = shown(&snapshot);
        assert_eq!(standing, Standing::DryRunVictim);
        assert_eq!(why, "dry run: would have been evicted");
        snapshot.workloads[0].termination.as_mut().unwrap().dry_run = false;
        let (standing, why) = shown(&snapshot);
        assert_eq!(standing, Standing::Terminating);
        assert_eq!(why, "terminating: what it frees is counted");
    }

    #[test]
    fn what_was_not_measured_is_unknown() {
        let mut snapshot = Snapshot::at(Time(1000));
        snapshot.workloads = vec![workload("/new", None)];
        let line = line_of(&snapshot);
        assert_eq!((line.memory, line.growth, line.stall, line.priority), (None, None, None, None));
        assert_eq!((line.place, line.standing), (None, Standing::Unknown));
    }

    #[test]
    fn a_stall_is_what_was_waited_for_between_two_looks() {
        let look = |at, stall_us| {
            let mut snapshot = Snapshot::at(Time(at));
            let mut one = workload("/one", Some(1));
            if let Some(stats) = &mut one.stats {
                stats.observed_at = Some(Time(at));
                stats.memory = Some(MemoryUsage { stall_us, ..MemoryUsage::default() });
            }
            snapshot.workloads = vec![one];
            snapshot
        };
        let key = look(0, None).workloads[0].key.clone();
        let mut stalls = Stalls::default();
        let mut after = |at, total| {
            stalls.observe(&look(at, total));
            stalls.of(&key)
        };
        assert_eq!(after(1000, Some(500)), None, "one total says nothing");
        assert_eq!(after(3000, Some(900_500)), Some(450_000));
        assert_eq!(after(9000, Some(900_500)), Some(450_000), "it may not have been read again");
        assert_eq!(after(14_000, Some(900_500)), None, "nobody knows whether it still waits");
        assert_eq!(after(23_000, Some(1_000_500)), Some(5000), "since it last rose");
        assert_eq!(after(24_000, Some(7)), None, "it has begun again");
        assert_eq!(after(25_000, None), None);
        assert_eq!(after(26_000, Some(9)), None);
    }
}
