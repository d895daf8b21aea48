//! A writer that never waits: lines and records are queued, and a thread of their own writes them.
//!
//! Standard output may be a pipe that nobody reads, and a disk may be full or slow; neither may hold up a decision.
//! The queue is bounded: what does not fit is dropped and counted.

pub use crate::handover::Progress;

use crate::handover::{Handover, Inbox, handover};
use crate::incident::{Incident, Incidents};
use std::io::{self, Write};
use std::thread::JoinHandle;
use std::time::Duration;

/// All that the writer's thread does, until every [`Queue`] is gone.
pub type Writing = Box<dyn FnOnce() + Send>;

/// The name of the thread that writes, for whoever starts it.
pub const WRITER: &str = "ebb-report";

/// What was still not written when whoever ends waited no longer.
#[derive(Debug, thiserror::Error)]
#[error("{0} records were not written: whoever reads them does not take them in")]
pub struct Unwritten(u64);

/// Items that may wait.
const WAITING: usize = 256;

#[derive(Debug)]
enum Item {
    Line(Vec<u8>),
    Incident(Box<Incident>),
}

/// The way into the queue; cheap to clone.
#[derive(Clone, Debug)]
pub struct Queue(Handover<Item>);

/// What was told of items that were dropped.
#[derive(Debug, Default)]
pub struct Dropped {
    told: u64,
}

impl Dropped {
    /// Has told how many items were dropped since that was last told, if any were; what `tell` puts into a queue that is still full does not count as told.
    pub fn tell(&mut self, queue: &Queue, tell: impl FnOnce(u64)) {
        let dropped = queue.dropped();
        if dropped == self.told {
            return;
        }
        tell(dropped - self.told);
        if queue.dropped() == dropped {
            self.told = dropped;
        }
    }
}

impl Queue {
    /// Has `spawn` start the thread that writes lines to `sink` and incidents to `incidents`.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn start(
        sink: impl Write + Send + 'static,
        incidents: Option<Incidents>,
        spawn: impl FnOnce(Writing) -> io::Result<JoinHandle<()>>,
    ) -> io::Result<Self> {
        let (items, inbox) = handover(WAITING);
        spawn(Box::new(move || write_out(&inbox, sink, incidents.as_ref())))?;
        Ok(Self(items))
    }

    /// Queues a record of an episode.
    pub fn store(&self, incident: Incident) {
        self.0.put(Item::Incident(Box::new(incident)));
    }

    /// How many items did not fit so far, or could not be written, which counts once something can be written again.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped()
    }

    /// Waits until what is queued now is written, but no longer than `patience`.
    ///
    /// # Errors
    /// How much is not.
    pub fn finish(&self, patience: Duration) -> Result<(), Unwritten> {
        let progress = self.0.progress();
        if progress.wait(patience) { Ok(()) } else { Err(Unwritten(progress.left())) }
    }

    /// How far the writing is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.0.progress()
    }
}

impl Write for Queue {
    /// Takes the whole buffer as one item, so callers write whole lines.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.put(Item::Line(line.to_vec()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_out(inbox: &Inbox<Item>, mut sink: impl Write, incidents: Option<&Incidents>) {
    let mut unwritten = 0;
    while let Some(item) = inbox.next() {
        match item {
            Item::Line(line) => match sink.write_all(&line).and_then(|()| sink.flush()) {
                // Before that nobody could be told.
                Ok(()) => inbox.drop_more(std::mem::take(&mut unwritten)),
                // A reader that has gone away, and a disk that is full, do not concern the agent.
                Err(_) => unwritten += 1,
            },
            Item::Incident(incident) => {
                let stored = incidents.map(|dir| dir.store(&incident));
                if let Some(Err(error)) = stored {
                    tracing::warn!(%error, "an incident record could not be stored");
                }
            }
        }
        inbox.has_done();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};

    fn spawn(writing: Writing) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new().spawn(writing)
    }

    /// A sink that is stuck until it is let go, as a full pipe is.
    struct Stuck(mpsc::Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            // The test ends by dropping the sender.
            let _ = self.0.recv();
            Ok(line.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_reader_holds_nobody_up_and_what_is_dropped_is_counted() {
        let (let_go, stuck) = mpsc::channel();
        let mut queue = Queue::start(Stuck(stuck), None, spawn).unwrap();
        for _ in 0..WAITING * 2 {
            queue.write_all(b"line\n").unwrap();
        }
        // The thread has taken at most one item out.
        assert!(queue.dropped() >= WAITING as u64 - 1);
        let unwritten = queue.finish(Duration::from_millis(1)).unwrap_err();
        assert!(unwritten.0 >= WAITING as u64, "nobody is waited for: {unwritten}");
        drop(let_go);
        queue.finish(Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn what_is_dropped_is_told_once_and_only_when_that_finds_room() {
        let (let_go, stuck) = mpsc::channel();
        let mut queue = Queue::start(Stuck(stuck), None, spawn).unwrap();
        while queue.dropped() < 10 {
            queue.write_all(b"line\n").unwrap();
        }
        let mut dropped = Dropped::default();
        let mut told = Vec::new();
        let mut tell = |dropped: &mut Dropped| {
            let mut line = queue.clone();
            dropped.tell(&queue, |records| {
                told.push(records);
                line.write_all(b"dropped\n").unwrap();
            });
        };
        tell(&mut dropped);
        tell(&mut dropped);
        // Room for one item, once the thread has taken it.
        let_go.send(()).unwrap();
        while dropped.told == 0 {
            tell(&mut dropped);
        }
        tell(&mut dropped);
        let last = told.pop().unwrap();
        assert!(told.is_sorted() && last > *told.last().unwrap(), "{told:?}, then {last}");
        assert_eq!(told.first(), Some(&10));
        drop(let_go);
        queue.finish(Duration::from_secs(60)).unwrap();
    }

    /// A file on a disk that is full until it is not.
    struct Disk(Arc<AtomicBool>);

    impl Write for Disk {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            match self.0.load(Ordering::SeqCst) {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => Ok(line.len()),
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_could_not_be_written_counts_as_dropped_once_something_can() {
        let is_full = Arc::new(AtomicBool::new(true));
        let mut queue = Queue::start(Disk(Arc::clone(&is_full)), None, spawn).unwrap();
        let mut write = || {
            queue.write_all(b"line\n").unwrap();
            assert!(queue.progress().wait(Duration::from_secs(60)));
            queue.dropped()
        };
        assert_eq!((write(), write()), (0, 0), "telling of it would fail, too, and for ever");
        is_full.store(false, Ordering::SeqCst);
        assert_eq!(write(), 2);
    }
}
