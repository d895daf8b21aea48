//! What never waits: records are queued, and threads of their own write lines and store incidents.
//!
//! Standard output may be a pipe that nobody reads, and a disk may be full or slow; neither may hold up a decision, nor one the other.
//! The queue is bounded: what does not fit is dropped and counted.

pub use crate::handover::{Progress, Writing};

use crate::handover::{Handover, Inbox, handover};
use crate::incident::{Incident, Incidents};
use crate::storing::{STORER, Storer, Storing};
use std::io::{self, Write};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The name of the thread that writes lines, for whoever starts it.
pub const WRITER: &str = "ebb-report";

/// What was still not written when whoever ends waited no longer.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.words())]
pub struct Unwritten {
    records: u64,
    incidents: u64,
}

/// Lines that may wait.
const WAITING: usize = 256;

/// The way into the queue; cheap to clone.
#[derive(Clone, Debug)]
pub struct Queue {
    lines: Handover<Vec<u8>>,
    /// `None` where nobody wants them.
    incidents: Option<Storer>,
}

/// What was told of lines that were dropped.
#[derive(Debug, Default)]
pub struct Dropped {
    told: u64,
}

impl Dropped {
    /// Has told how many lines were dropped since that was last told, if any were; what `tell` puts into a queue that is still full does not count as told.
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
    /// Has `spawn` start the thread that writes lines to `sink`, and the one that stores incidents in `incidents`, by their names.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn start(
        sink: impl Write + Send + 'static,
        incidents: Option<Incidents>,
        mut spawn: impl FnMut(&'static str, Writing) -> io::Result<JoinHandle<()>>,
    ) -> io::Result<Self> {
        let (lines, inbox) = handover(WAITING);
        spawn(WRITER, Box::new(move || write_out(&inbox, sink)))?;
        let incidents = incidents.map(|dir| {
            let mode = dir.mode();
            let store = move |incident: &Incident| dir.store(incident).map(drop);
            Storer::start(Box::new(store), mode, |storing| spawn(STORER, storing))
        });
        Ok(Self { lines, incidents: incidents.transpose()? })
    }

    /// Queues a record of an episode.
    pub fn store(&self, incident: Incident) {
        if let Some(storer) = &self.incidents {
            storer.store(incident);
        }
    }

    /// How storing these goes; `None` where that cannot be told now, or nobody wants them.
    #[must_use]
    pub fn storing(&self) -> Option<Storing> {
        self.incidents.as_ref()?.storing()
    }

    /// How many lines did not fit so far, or could not be written, which counts once something can be written again.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.lines.dropped()
    }

    /// Waits until what is queued now is written, and incidents are stored or lost, but no longer than `patience`: the process ends.
    ///
    /// # Errors
    /// How much is not.
    pub fn finish(&self, patience: Duration) -> Result<(), Unwritten> {
        let deadline = Instant::now() + patience;
        let lost = self.incidents.as_ref().map(Storer::lost);
        self.incidents.iter().for_each(Storer::last);
        let left = |progress: Progress| {
            progress.wait(deadline.saturating_duration_since(Instant::now()));
            progress.left()
        };
        let records = left(self.lines.progress());
        let incidents = self.incidents.as_ref().map(|storer| {
            // What says that the process ends is none.
            let waiting = left(storer.progress()).saturating_sub(1);
            waiting + storer.lost() - lost.unwrap_or_default()
        });
        let unwritten = Unwritten { records, incidents: incidents.unwrap_or_default() };
        if unwritten.is_nothing() { Ok(()) } else { Err(unwritten) }
    }

    /// How far the writing of lines is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.lines.progress()
    }
}

impl Write for Queue {
    /// Takes the whole buffer as one line, so callers write whole lines.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.lines.put(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Unwritten {
    fn is_nothing(&self) -> bool {
        let Self { records, incidents } = self;
        *records == 0 && *incidents == 0
    }

    fn words(&self) -> String {
        let all = [
            (self.records, "records were not written: whoever reads them does not take them in"),
            (self.incidents, "incident records were not stored"),
        ];
        let said = all.iter().filter(|(count, _)| *count > 0);
        said.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join("; ")
    }
}

fn write_out(inbox: &Inbox<Vec<u8>>, mut sink: impl Write) {
    let mut unwritten = 0;
    while let Some(line) = inbox.next() {
        match sink.write_all(&line).and_then(|()| sink.flush()) {
            // Before that nobody could be told.
            Ok(()) => inbox.drop_more(std::mem::take(&mut unwritten)),
            // A reader that has gone away, and a disk that is full, do not concern the agent.
            Err(_) => unwritten += 1,
        }
        inbox.has_done();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};

    fn spawn(_: &'static str, writing: Writing) -> io::Result<JoinHandle<()>> {
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
        assert!(unwritten.records >= WAITING as u64, "nobody is waited for: {unwritten}");
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
