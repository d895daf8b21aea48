//! Which of the kernel's OOM kills are told one by one. Whoever runs into a limit of its own all the time would otherwise push every other record out of the journal, and out of what clients of the API can still be told.
//!
//! Limits are told apart by who made them: a tree that was handed to somebody is one, however many cgroups with limits of their own are made in it.

use crate::clock::Boot;
use ebb_journal::{Entry, Record};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// So many in one [`Place`] are told one by one in a [`WINDOW`]; of the others the last one is, with how many there were.
const ONE_BY_ONE: u32 = 10;

/// The same in all places together, but for those that are not counted ([`Place::is_counted`]).
const TOGETHER: u32 = 64;

const WINDOW: Duration = Duration::from_secs(60);

/// Places that are told apart. Those beyond are taken together.
const PLACES: usize = 64;

/// Whose limit was hit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// That of the cgroup here, or of any in it if it was handed to somebody. Below the mount.
    Cgroup(PathBuf),
    /// Of the hierarchy of version 1.
    CgroupV1(u64),
    /// The node had no memory left.
    Node,
    /// Nobody knows.
    Unknown,
    /// Of all places beyond those that are told apart.
    Others,
}

impl Place {
    /// Whether whoever runs in a cgroup can make any number of such kills.
    fn is_counted(&self) -> bool {
        !matches!(self, Self::Node | Self::Unknown)
    }
}

/// Kills that are told one by one since a moment.
#[derive(Debug)]
struct Told {
    since: Boot,
    count: u32,
}

impl Told {
    fn begin(since: Boot) -> Self {
        Self { since, count: 0 }
    }

    fn is_over(&self, at: Boot) -> bool {
        at.since(self.since) >= WINDOW
    }
}

/// Kills in one place.
#[derive(Debug)]
struct Kills {
    told: Told,
    /// The last one that was not told.
    last: Option<Entry>,
    /// How many were not.
    not_told: u64,
}

impl Kills {
    fn begin(at: Boot) -> Self {
        Self { told: Told::begin(at), last: None, not_told: 0 }
    }

    /// What is still to be told.
    fn rest(self) -> Option<Entry> {
        let before = self.not_told.saturating_sub(1);
        self.last.map(|entry| after(entry, before))
    }
}

/// What was told of the kills of late.
#[derive(Debug, Default)]
pub(super) struct OomKillReports {
    by_place: BTreeMap<Place, Kills>,
    /// Of all places that are counted; `None` before the first.
    together: Option<Told>,
}

impl OomKillReports {
    /// Takes in a kill at `at`, with its record; returns what is to be told now.
    pub(super) fn observe(&mut self, mut place: Place, at: Boot, entry: Entry) -> Option<Entry> {
        let is_counted = place.is_counted();
        let is_known = self.by_place.contains_key(&place);
        if is_counted && !is_known && self.by_place.len() >= PLACES {
            place = Place::Others;
        }
        let kills = self.by_place.entry(place).or_insert_with(|| Kills::begin(at));
        let mut before = 0;
        if kills.told.is_over(at) {
            before = std::mem::replace(kills, Kills::begin(at)).not_told;
        }
        let together = self.together.get_or_insert_with(|| Told::begin(at));
        if together.is_over(at) {
            *together = Told::begin(at);
        }
        if kills.told.count < ONE_BY_ONE && (!is_counted || together.count < TOGETHER) {
            kills.told.count += 1;
            together.count += u32::from(is_counted);
            return Some(after(entry, before));
        }
        kills.last = Some(entry);
        kills.not_told += 1 + before;
        None
    }

    /// What is to be told at `now` of those that were not told one by one.
    pub(super) fn take_due(&mut self, now: Boot) -> Vec<Entry> {
        let over = self.by_place.extract_if(.., |_, kills| kills.told.is_over(now));
        over.filter_map(|(_, kills)| kills.rest()).collect()
    }

    /// The same of all, at the end of ebb.
    pub(super) fn take_all(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.by_place).into_values().filter_map(Kills::rest).collect()
    }
}

/// The record of a kill before which there were so many that were not told.
fn after(mut entry: Entry, before: u64) -> Entry {
    if let Record::OomKill { not_told, .. } = &mut entry.record {
        *not_told = before;
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_journal::OomConstraint;
    use ebb_policy::Time;

    fn kill(pid: u32) -> Entry {
        let record = Record::OomKill {
            comm: "hog".to_owned(),
            pid,
            cgroup: Some(7),
            path: None,
            limit: OomConstraint::Unknown,
            killed_at: 0,
            started_at: 0,
            oom_score_adj: 0,
            not_told: 0,
        };
        Entry::new(Time(0), record)
    }

    fn of(n: u32) -> Place {
        Place::Cgroup(n.to_string().into())
    }

    /// Who it was, and how many were not told before.
    fn told(entry: &Entry) -> (u32, u64) {
        let Record::OomKill { pid, not_told, .. } = entry.record else { unreachable!() };
        (pid, not_told)
    }

    fn second(n: u64) -> Boot {
        Boot(n * 1_000_000_000)
    }

    #[test]
    fn a_storm_in_one_place_is_told_together_and_hides_no_other() {
        let mut reports = OomKillReports::default();
        let storm = (0..1000).filter_map(|n| reports.observe(of(1), second(1), kill(n)));
        assert_eq!(storm.map(|entry| told(&entry)).last(), Some((ONE_BY_ONE - 1, 0)));
        for other in [of(2), Place::CgroupV1(1), Place::Node, Place::Unknown] {
            assert!(reports.observe(other.clone(), second(2), kill(5)).is_some(), "{other:?}");
        }
        assert!(reports.take_due(second(60)).is_empty());
        let rest: Vec<_> = reports.take_due(second(61)).iter().map(told).collect();
        // Each was told, alone or as one of many.
        assert_eq!(rest, [(999, u64::from(999 - ONE_BY_ONE))]);
        assert!(reports.take_due(second(600)).is_empty(), "the others were told");
        assert!(reports.by_place.is_empty());
    }

    #[test]
    fn what_was_not_told_is_with_the_next_one_or_at_the_end() {
        let mut reports = OomKillReports::default();
        let mut kills = |at| reports.observe(of(1), at, kill(7)).map(|entry| told(&entry).1);
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
        assert_eq!(end.iter().map(|entry| told(entry).1).collect::<Vec<_>>(), [1]);
        assert!(reports.take_all().is_empty());
    }

    /// In a minute all of them leave room for what else happens, among what clients can still be told and among what waits to be written.
    #[test]
    fn storms_in_any_number_of_places_are_few_records_and_none_is_forgotten() {
        let mut reports = OomKillReports::default();
        let mut all: Vec<Entry> = Vec::new();
        for n in 0..20_000 {
            all.extend(reports.observe(of(n % 2_000), second(1), kill(n)));
        }
        assert_eq!(u32::try_from(all.len()), Ok(TOGETHER));
        assert_eq!(reports.by_place.len(), PLACES + 1);
        all.extend(reports.take_due(second(61)));
        assert!(all.len() <= 150, "{}", all.len());
        assert_eq!(all.iter().map(|entry| 1 + told(entry).1).sum::<u64>(), 20_000);
    }

    #[test]
    fn storms_in_any_number_of_places_do_not_hide_that_the_node_had_no_memory_left() {
        let mut reports = OomKillReports::default();
        (0..20_000).for_each(|n| drop(reports.observe(of(n % 2_000), second(1), kill(n))));
        for place in [Place::Node, Place::Unknown] {
            assert!(reports.observe(place, second(2), kill(7)).is_some());
        }
    }

    /// It is counted again once the budget has room, and what it says came before includes earlier minutes.
    #[test]
    fn what_found_no_room_in_one_minute_is_not_forgotten_in_the_next() {
        let mut reports = OomKillReports::default();
        let mut kills = |place, at| reports.observe(place, second(at), kill(7));
        assert!(kills(of(0), 1).is_some());
        (0..TOGETHER).for_each(|n| drop(kills(of(n % 32), 30)));
        assert!(kills(of(0), 31).is_none());
        // Its own minute is over, and that of all others is not.
        (0..TOGETHER).for_each(|n| drop(kills(of(n % 32), 61)));
        (0..3).for_each(|_| drop(kills(of(0), 62)));
        let of_it = kills(of(0), 200).unwrap();
        assert!(told(&of_it).1 >= 3, "{of_it:?}");
    }
}
