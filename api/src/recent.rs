//! The records of late, by their numbers: how many are kept is bounded, and what is not there is known.

use crate::wire::{Gap, GapReason, Record};
use std::collections::VecDeque;
use std::sync::Arc;

/// Records kept at most.
const RECORDS: usize = 1024;

/// Bytes of text and JSON kept at most; the newest record is kept whatever its size.
const BYTES: usize = 1 << 20;

/// What comes after a position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Next {
    /// This record.
    Record(Arc<Record>),
    /// Records that are not there.
    Gap(Gap),
    /// Nothing yet.
    Nothing,
}

/// The records of late.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    kept: VecDeque<Arc<Record>>,
    bytes: usize,
    /// The number that was given last.
    newest: u64,
}

impl Recent {
    /// Takes in a record, which `make` makes with its number.
    pub(crate) fn push(&mut self, make: impl FnOnce(u64) -> Record) {
        self.newest += 1;
        let record = make(self.newest);
        self.bytes += size(&record);
        self.kept.push_back(Arc::new(record));
        while self.kept.len() > RECORDS || self.bytes > BYTES && self.kept.len() > 1 {
            let Some(oldest) = self.kept.pop_front() else { return };
            self.bytes -= size(&oldest);
        }
    }

    /// Gives numbers to records that did not get here.
    pub(crate) fn skip(&mut self, dropped: u64) {
        self.newest += dropped;
    }

    /// The number of the oldest record that is kept.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.kept.front().map(|record| record.seq)
    }

    /// The number that was given last.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// What comes after the record with the number `position`.
    pub(crate) fn after(&self, position: u64) -> Next {
        let at = self.kept.partition_point(|record| record.seq <= position);
        let Some(record) = self.kept.get(at) else { return Next::Nothing };
        let first = position + 1;
        if record.seq == first {
            return Next::Record(Arc::clone(record));
        }
        // Of what is older than all that is kept, some may have been dropped; it is not known any more.
        let reason = if at == 0 { GapReason::Forgotten } else { GapReason::Dropped };
        let last = record.seq - 1;
        Next::Gap(Gap { reason: reason.into(), first: Some(first), last: Some(last) })
    }
}

fn size(record: &Record) -> usize {
    let incidents: usize = record.incidents.iter().map(String::len).sum();
    record.text.len() + record.json.len() + record.kind.len() + incidents
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seq: u64) -> Record {
        Record { seq, json: "{}".into(), ..Record::default() }
    }

    fn gap(reason: GapReason, first: u64, last: u64) -> Next {
        Next::Gap(Gap { reason: reason.into(), first: Some(first), last: Some(last) })
    }

    #[test]
    fn each_record_follows_the_one_before_it_and_after_the_last_there_is_nothing() {
        let mut recent = Recent::default();
        assert_eq!((recent.after(0), recent.oldest(), recent.newest()), (Next::Nothing, None, 0));
        (0..3).for_each(|_| recent.push(record));
        assert_eq!(recent.after(0), Next::Record(Arc::new(record(1))));
        assert_eq!(recent.after(2), Next::Record(Arc::new(record(3))));
        assert_eq!((recent.after(3), recent.after(9)), (Next::Nothing, Next::Nothing));
    }

    #[test]
    fn what_was_dropped_is_a_gap_between_those_that_came() {
        let mut recent = Recent::default();
        recent.push(record);
        recent.skip(5);
        assert_eq!(recent.after(1), Next::Nothing);
        recent.push(record);
        assert_eq!(recent.after(1), gap(GapReason::Dropped, 2, 6));
        assert_eq!(recent.after(6), Next::Record(Arc::new(record(7))));
    }

    #[test]
    fn what_is_kept_is_bounded_by_number_and_what_is_gone_is_told() {
        let mut recent = Recent::default();
        (0..RECORDS + 10).for_each(|_| recent.push(record));
        assert_eq!(recent.kept.len(), RECORDS);
        assert_eq!(recent.oldest(), Some(11));
        assert_eq!(recent.after(4), gap(GapReason::Forgotten, 5, 10));
        assert_eq!(recent.after(10), Next::Record(Arc::new(record(11))));
    }

    #[test]
    fn what_is_kept_is_bounded_by_size_and_the_newest_stays() {
        let mut recent = Recent::default();
        let large =
            |bytes: usize| move |seq| Record { seq, text: "x".repeat(bytes), ..Record::default() };
        (0..8).for_each(|_| recent.push(large(BYTES / 4)));
        assert_eq!((recent.oldest(), recent.kept.len()), (Some(5), 4));
        recent.push(large(BYTES * 2));
        assert_eq!((recent.oldest(), recent.newest()), (Some(9), 9));
        assert_eq!(recent.bytes, BYTES * 2);
    }
}
