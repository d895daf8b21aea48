//! Who acts: one of several, by a Lease. Pure: what was read and written goes in, what to do next comes out; time is an argument.
//!
//! The holder's clock is never read: a Lease has expired when this process has seen no change of it for as long as it lasts.
//! The holder counts from the moment at which it sent its last good renewal, and stops earlier than others may take over.

use ebb_kube::LeaseRecord;
use std::time::{Duration, Instant};

/// How long a Lease lasts without a renewal.
pub(crate) const LEASE: Duration = Duration::from_secs(15);
/// How long the holder acts after it sent its last good renewal.
pub(crate) const VALID: Duration = Duration::from_secs(10);
/// How often the holder renews.
pub(crate) const RENEW: Duration = Duration::from_secs(4);
/// How often the others look.
pub(crate) const LOOK: Duration = Duration::from_millis(800);

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write this record.
    Put(LeaseRecord),
    /// Look again after so long.
    Wait(Duration),
}

/// The Lease as this process knows it.
#[derive(Debug)]
pub(crate) struct Election {
    me: String,
    /// What was read last, and when it changed.
    seen: Option<(LeaseRecord, Instant)>,
    /// When the last good renewal was sent.
    renewed: Option<Instant>,
}

impl Election {
    pub(crate) fn new(me: String) -> Self {
        Self { me, seen: None, renewed: None }
    }

    /// What the Lease says now; `None` where there is none.
    pub(crate) fn read(&mut self, record: Option<LeaseRecord>, now: Instant) {
        match record {
            None => self.seen = None,
            Some(record) => {
                if self.seen.as_ref().is_none_or(|(old, _)| *old != record) {
                    self.seen = Some((record, now));
                }
            }
        }
        if self.holder() != Some(&self.me) {
            self.renewed = None;
        }
    }

    /// A write succeeded that was sent at `sent`.
    pub(crate) fn written(&mut self, record: LeaseRecord, sent: Instant) {
        self.renewed = (record.holder == self.me).then_some(sent);
        self.seen = Some((record, sent));
    }

    /// What to do now.
    pub(crate) fn next(&self, now: Instant) -> Step {
        let Some((record, changed)) = &self.seen else {
            return Step::Put(self.mine(&LeaseRecord::default()));
        };
        if record.holder == self.me {
            let mut renewed = self.mine(record);
            renewed.acquired.clone_from(&record.acquired);
            renewed.transitions = record.transitions;
            return Step::Put(renewed);
        }
        let expires = *changed + Duration::from_secs(record.seconds);
        if record.holder.is_empty() || now >= expires {
            Step::Put(self.mine(record))
        } else {
            Step::Wait(LOOK.min(expires - now))
        }
    }

    fn mine(&self, old: &LeaseRecord) -> LeaseRecord {
        LeaseRecord {
            holder: self.me.clone(),
            seconds: LEASE.as_secs(),
            renewed: String::new(),
            acquired: String::new(),
            transitions: old.transitions + u64::from(!old.version.is_empty()),
            version: old.version.clone(),
        }
    }

    /// The record that gives the Lease up; `None` where it is not held.
    pub(crate) fn release(&self) -> Option<LeaseRecord> {
        let (record, _) = self.seen.as_ref().filter(|(record, _)| record.holder == self.me)?;
        Some(LeaseRecord { holder: String::new(), seconds: 1, ..record.clone() })
    }

    /// Until when this process may act; `None`: it may not.
    pub(crate) fn acts_until(&self) -> Option<Instant> {
        self.renewed.map(|sent| sent + VALID)
    }

    /// Who holds the Lease.
    pub(crate) fn holder(&self) -> Option<&String> {
        self.seen.as_ref().map(|(record, _)| &record.holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(by: &str, version: &str) -> LeaseRecord {
        LeaseRecord {
            holder: by.into(),
            seconds: 15,
            renewed: version.into(),
            version: version.into(),
            ..LeaseRecord::default()
        }
    }

    #[test]
    fn the_first_one_creates_the_lease_and_acts_for_less_than_it_lasts() {
        let now = Instant::now();
        let mut election = Election::new("a".into());
        election.read(None, now);
        let Step::Put(record) = election.next(now) else { panic!("does not take it") };
        assert_eq!((record.holder.as_str(), record.version.as_str()), ("a", ""));
        assert_eq!(election.acts_until(), None);
        election.written(held("a", "1"), now);
        assert_eq!(election.acts_until(), Some(now + VALID));
        assert!(VALID < LEASE);
    }

    #[test]
    fn a_lease_of_another_is_taken_when_it_has_not_changed_for_as_long_as_it_lasts() {
        let start = Instant::now();
        let mut election = Election::new("b".into());
        election.read(Some(held("a", "1")), start);
        assert_eq!(election.next(start), Step::Wait(LOOK));
        election.read(Some(held("a", "2")), start + Duration::from_secs(10));
        let before = start + Duration::from_millis(24_900);
        election.read(Some(held("a", "2")), before);
        assert_eq!(election.next(before), Step::Wait(Duration::from_millis(100)));
        let Step::Put(record) = election.next(start + Duration::from_secs(25)) else {
            panic!("does not take it")
        };
        assert_eq!((record.holder.as_str(), record.transitions), ("b", 1));
        assert_eq!(record.version, "2");
    }

    #[test]
    fn a_released_lease_is_taken_at_once() {
        let now = Instant::now();
        let mut first = Election::new("a".into());
        first.written(held("a", "1"), now);
        let released = first.release().unwrap();
        assert_eq!(released.holder, "");
        let mut second = Election::new("b".into());
        second.read(Some(released), now);
        assert!(matches!(second.next(now), Step::Put(_)));
        assert_eq!(second.release(), None);
    }

    #[test]
    fn whoever_finds_another_holder_stops_acting() {
        let now = Instant::now();
        let mut election = Election::new("a".into());
        election.written(held("a", "1"), now);
        election.read(Some(held("b", "2")), now);
        assert_eq!(election.acts_until(), None);
        assert!(matches!(election.next(now), Step::Wait(_)));
    }

    #[test]
    fn a_paused_holder_does_not_act_when_it_wakes() {
        let now = Instant::now();
        let mut election = Election::new("a".into());
        election.written(held("a", "1"), now);
        let awake = now + Duration::from_secs(60);
        assert!(election.acts_until().is_some_and(|until| until <= awake));
    }
}
