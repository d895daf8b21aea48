//! Which of the kernel's OOM kills are told one by one. Whoever runs into a limit of its own all the time would otherwise push every other record out of the journal, and out of what clients of the API can still be told.

use crate::clock::Boot;
use ebb_journal::{OomConstraint, Record};
use std::collections::BTreeMap;
use std::time::Duration;

/// So many at one limit are told one by one in a [`WINDOW`]; of the others the last one is, with how many there were.
const ONE_BY_ONE: u32 = 10;

const WINDOW: Duration = Duration::from_secs(60);

/// Limits that are told apart. Whoever was handed a tree can make any number: those beyond are taken together.
const LIMITS: usize = 256;

/// Kills at one limit since a moment.
#[derive(Debug)]
struct Kills {
    since: Boot,
    told: u32,
    /// The last one that was not told, and when it was.
    last: Option<(Boot, Record)>,
    /// How many were not.
    not_told: u64,
}

impl Kills {
    fn begin(at: Boot) -> Self {
        Self { since: at, told: 0, last: None, not_told: 0 }
    }

    /// What is still to be told.
    fn rest(self) -> Option<(Boot, Record)> {
        let before = self.not_told.saturating_sub(1);
        self.last.map(|(at, record)| (at, after(record, before)))
    }
}

/// What was told of the kills of late.
#[derive(Debug, Default)]
pub(super) struct OomKillReports {
    /// By the cgroup whose limit was hit.
    by_limit: BTreeMap<Key, Kills>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Cgroup(u64),
    /// The node had no memory left.
    Node,
    /// Of all limits beyond those that are told apart.
    Others,
}

impl OomKillReports {
    /// Takes in a kill at `at`, with its record; returns what is to be told now.
    pub(super) fn observe(&mut self, at: Boot, record: Record) -> Option<Record> {
        let mut key = key_of(&record);
        if !self.by_limit.contains_key(&key) && self.by_limit.len() >= LIMITS {
            key = Key::Others;
        }
        let kills = self.by_limit.entry(key).or_insert_with(|| Kills::begin(at));
        let mut before = 0;
        if at.since(kills.since) >= WINDOW {
            before = std::mem::replace(kills, Kills::begin(at)).not_told;
        }
        if kills.told < ONE_BY_ONE {
            kills.told += 1;
            return Some(after(record, before));
        }
        kills.last = Some((at, record));
        kills.not_told += 1;
        None
    }

    /// What is to be told at `now` of those that were not told one by one, with when each was.
    pub(super) fn take_due(&mut self, now: Boot) -> Vec<(Boot, Record)> {
        let is_over = |_: &Key, kills: &mut Kills| now.since(kills.since) >= WINDOW;
        let over = self.by_limit.extract_if(.., is_over);
        over.filter_map(|(_, kills)| kills.rest()).collect()
    }

    /// The same of all, at the end of ebb.
    pub(super) fn take_all(&mut self) -> Vec<(Boot, Record)> {
        std::mem::take(&mut self.by_limit).into_values().filter_map(Kills::rest).collect()
    }
}

/// At whose limit it was; where that is not known, where the victim was.
fn key_of(record: &Record) -> Key {
    let Record::OomKill { limit, cgroup, .. } = record else { return Key::Others };
    match limit {
        OomConstraint::Cgroup { id, .. } | OomConstraint::CgroupV1 { id } => Key::Cgroup(*id),
        OomConstraint::Node => Key::Node,
        OomConstraint::Unknown => cgroup.map_or(Key::Others, Key::Cgroup),
    }
}

/// The record of a kill before which there were so many that were not told.
fn after(mut record: Record, before: u64) -> Record {
    if let Record::OomKill { not_told, .. } = &mut record {
        *not_told = before;
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kill(limit: OomConstraint, pid: u32) -> Record {
        Record::OomKill {
            comm: "hog".to_owned(),
            pid,
            cgroup: Some(7),
            path: None,
            limit,
            killed_at: 0,
            started_at: 0,
            oom_score_adj: 0,
            not_told: 0,
        }
    }

    fn of(id: u64) -> OomConstraint {
        OomConstraint::Cgroup { id, path: None }
    }

    /// Who it was, and how many were not told before.
    fn told(record: &Record) -> (u32, u64) {
        let Record::OomKill { pid, not_told, .. } = record else { unreachable!() };
        (*pid, *not_told)
    }

    fn second(n: u64) -> Boot {
        Boot(n * 1_000_000_000)
    }

    #[test]
    fn a_storm_at_one_limit_is_told_together_and_hides_no_other() {
        let mut reports = OomKillReports::default();
        let storm = (0..1000).filter_map(|n| reports.observe(second(1), kill(of(1), n)));
        assert_eq!(storm.map(|record| told(&record)).last(), Some((ONE_BY_ONE - 1, 0)));
        assert!(reports.observe(second(2), kill(of(2), 5)).is_some());
        assert!(reports.observe(second(2), kill(OomConstraint::Node, 6)).is_some());
        assert!(reports.take_due(second(60)).is_empty());
        let rest = reports.take_due(second(61));
        let rest: Vec<_> = rest.iter().map(|(at, record)| (*at, told(record))).collect();
        assert_eq!(rest, [(second(1), (999, 989))]);
        // Each was told, alone or as one of many.
        assert_eq!(u64::from(ONE_BY_ONE) + 1 + rest[0].1.1, 1000);
        assert!(reports.take_due(second(600)).is_empty(), "the others were told");
        assert!(reports.by_limit.is_empty());
    }

    #[test]
    fn what_was_not_told_is_with_the_next_one_or_at_the_end() {
        let mut reports = OomKillReports::default();
        let mut kills = |at| {
            let told_now = reports.observe(at, kill(of(1), 7));
            told_now.map(|record| told(&record).1)
        };
        for _ in 0..ONE_BY_ONE {
            assert_eq!(kills(second(1)), Some(0));
        }
        assert_eq!((kills(second(2)), kills(second(3))), (None, None));
        assert_eq!(kills(second(90)), Some(2));
        for _ in 1..ONE_BY_ONE {
            kills(second(91));
        }
        assert_eq!((kills(second(92)), kills(second(93))), (None, None));
        let end = reports.take_all();
        assert_eq!(
            end.iter().map(|(at, record)| (*at, told(record).1)).collect::<Vec<_>>(),
            [(second(93), 1)]
        );
        assert!(reports.take_all().is_empty());
    }

    #[test]
    fn any_number_of_limits_costs_no_more_than_some() {
        let mut reports = OomKillReports::default();
        let told = (0..100_000).filter(|n| reports.observe(second(1), kill(of(*n), 7)).is_some());
        let one_by_one = usize::try_from(ONE_BY_ONE).unwrap();
        assert_eq!(told.count(), LIMITS + one_by_one);
        assert_eq!(reports.by_limit.len(), LIMITS + 1);
        assert_eq!(reports.take_due(second(61)).len(), 1);
    }
}
