//! The way of records from whoever reports them to the server: a queue that never waits, and counts what does not fit.

use crate::recent::Recent;
use crate::wire::{Record, Severity};
use ebb_journal::{Entry, Output, Severity as Importance, Sink, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Records that may wait for the server.
const WAITING: usize = 256;

/// Takes records in for the server. Each reporter has one of its own; none of them ever waits.
#[derive(Clone, Debug)]
pub struct RecordSink {
    entries: Sender<Entry>,
    dropped: Arc<AtomicU64>,
}

/// What the server gets.
#[derive(Debug)]
pub struct Records {
    entries: Receiver<Entry>,
    dropped: Arc<AtomicU64>,
    /// How many of the dropped have their numbers.
    counted: u64,
}

/// A sink of records, and its other end.
#[must_use]
pub fn records() -> (RecordSink, Records) {
    let (sender, entries) = channel(WAITING);
    let dropped = Arc::new(AtomicU64::new(0));
    let sink = RecordSink { entries: sender, dropped: Arc::clone(&dropped) };
    (sink, Records { entries, dropped, counted: 0 })
}

impl Sink for RecordSink {
    fn take(&mut self, entry: &Entry) {
        if self.entries.try_send(entry.clone()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Records {
    /// The next entry; `None` when nobody reports any more.
    pub(crate) async fn next(&mut self) -> Option<Entry> {
        self.entries.recv().await
    }

    /// The next entry, if one is there already.
    pub(crate) fn waiting(&mut self) -> Option<Entry> {
        self.entries.try_recv().ok()
    }

    /// Puts an entry where clients find it.
    pub(crate) fn keep(&mut self, entry: &Entry, recent: &mut Recent) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        recent.skip(dropped - self.counted);
        self.counted = dropped;
        recent.push(|seq| translated(seq, entry));
    }
}

/// A record as clients get it.
fn translated(seq: u64, entry: &Entry) -> Record {
    let line = |output: Output| {
        let line = output.line(entry);
        String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line)).into_owned()
    };
    Record {
        seq,
        at_ms: entry.at.0,
        kind: json::kind(&entry.record),
        severity: severity(Importance::of(&entry.record)).into(),
        text: line(Output::Text),
        json: line(Output::Json),
        incidents: entry.episodes.clone(),
    }
}

fn severity(of: Importance) -> Severity {
    match of {
        Importance::Critical => Severity::Critical,
        Importance::Error => Severity::Error,
        Importance::Warning => Severity::Warning,
        Importance::Notice => Severity::Notice,
        Importance::Info => Severity::Info,
        Importance::Debug => Severity::Debug,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recent::Next;
    use ebb_journal::Record as Told;
    use ebb_policy::Time;

    fn entry(records: u64) -> Entry {
        Entry::new(Time(3_723_004), Told::Dropped { records })
    }

    #[test]
    fn a_record_has_its_words_its_json_and_its_importance() {
        let record = translated(7, &entry(2));
        assert_eq!((record.seq, record.at_ms, record.kind.as_str()), (7, 3_723_004, "dropped"));
        assert_eq!(record.json, r#"{"at":3723004,"event":"dropped","records":2}"#);
        assert!(record.text.starts_with("01:02:03.004 ") && !record.text.ends_with('\n'));
        assert_eq!(record.severity(), Severity::Warning);
    }

    #[test]
    fn a_server_that_takes_nothing_holds_nobody_up_and_the_gap_has_its_numbers() {
        let (mut sink, mut records) = records();
        for n in 0..WAITING as u64 + 44 {
            sink.take(&entry(n));
        }
        let mut recent = Recent::default();
        while let Some(entry) = records.waiting() {
            records.keep(&entry, &mut recent);
        }
        // Those that were dropped are told before what comes next.
        sink.take(&entry(1000));
        let last = records.waiting().unwrap();
        records.keep(&last, &mut recent);
        assert_eq!(recent.newest(), WAITING as u64 + 45);
        let mut position = 0;
        let mut gaps = Vec::new();
        loop {
            position = match recent.after(position) {
                Next::Record(record) => record.seq,
                Next::Gap(gap) => {
                    gaps.push(gap);
                    gap.last.unwrap()
                }
                Next::Nothing => break,
            };
        }
        assert_eq!(position, recent.newest());
        let missing: u64 = gaps.iter().map(|gap| gap.last() - gap.first() + 1).sum();
        assert_eq!(missing, 44, "{gaps:?}");
    }
}
