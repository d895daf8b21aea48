//! Diagnostics of the program itself (`tracing`) as lines on standard error, which nobody waits for.
//!
//! ```text
//!  tracing, in any thread ─► line ─► (256 may wait) ─► thread ebb-log ─► standard error
//! ```
//! Whoever has something to say may be the loop or the thread that kills: a pipe that nobody reads, and a disk that is full, must hold up neither.
//! What finds no room, and what cannot be written, is counted and told before the next line that can be.
//! Until there is a thread, lines are written at once where there is room for them.

use crate::handover::{Handover, Inbox, Writing, handover};
use crate::stream::{Stream, write_within};
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

/// The name of the thread that writes, for whoever starts it.
pub const LOG_WRITER: &str = "ebb-log";

/// Lines that may wait.
const WAITING: usize = 256;

/// How long a line waits for room while there is no thread.
const PATIENCE: Duration = Duration::from_millis(100);

/// The way to standard error; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics(Arc<OnceLock<Handover<Vec<u8>>>>);

impl Diagnostics {
    /// Has `spawn` start the thread that writes; from here on nobody waits. It is started once.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn start(
        &self,
        spawn: impl FnOnce(Writing) -> io::Result<JoinHandle<()>>,
    ) -> io::Result<()> {
        self.start_to(Stream::new(io::stderr()), spawn)
    }

    fn start_to(
        &self,
        to: impl Write + Send + 'static,
        spawn: impl FnOnce(Writing) -> io::Result<JoinHandle<()>>,
    ) -> io::Result<()> {
        let (lines, inbox) = handover(WAITING);
        spawn(Box::new(move || write_out(&inbox, to)))?;
        // Whoever starts a second one has the first.
        let _ = self.0.set(lines);
        Ok(())
    }

    /// Waits until the lines of now are written, but no longer than `patience`; returns whether they are.
    pub fn flush(&self, patience: Duration) -> bool {
        self.0.get().is_none_or(|lines| lines.progress().wait(patience))
    }

    /// Takes a whole line.
    pub(crate) fn put(&self, line: &[u8]) {
        match self.0.get() {
            Some(lines) => lines.put(line.to_vec()),
            // Lost where there is no room, as everything is that is said of ebb's own to nobody.
            None => _ = write_within(io::stderr().as_fd(), line, PATIENCE),
        }
    }
}

impl<'a> MakeWriter<'a> for Diagnostics {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Line(self)
    }
}

/// One line.
#[derive(Debug)]
pub struct Line<'a>(&'a Diagnostics);

impl Write for Line<'_> {
    /// Takes the whole buffer as one line. It never fails: a subscriber that is told of a failure has nowhere else to say so.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_out(inbox: &Inbox<Vec<u8>>, mut to: impl Write) {
    let mut lost = 0;
    while let Some(line) = inbox.next() {
        lost += inbox.take_dropped();
        let told =
            format!("ebb: {lost} lines of diagnostics were lost: they could not be written\n");
        if lost > 0 && to.write_all(told.as_bytes()).is_ok() {
            lost = 0;
        }
        // A reader that has gone away, and a disk that is full, do not concern the agent.
        lost += u64::from(to.write_all(&line).is_err());
        inbox.has_done();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};

    /// What is written, each time only once it may be, and only if it is to succeed.
    struct Gate {
        may: Receiver<bool>,
        written: Arc<Mutex<String>>,
    }

    impl Write for Gate {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            if !self.may.recv().unwrap_or(true) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written.lock().unwrap().push_str(str::from_utf8(line).unwrap());
            Ok(line.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_reader_and_a_full_disk_hold_nobody_up_and_what_is_lost_is_told_once_it_can_be() {
        let (let_write, may) = channel();
        let written = Arc::<Mutex<String>>::default();
        let diagnostics = Diagnostics::default();
        let gate = Gate { may, written: Arc::clone(&written) };
        let spawn = |writing: Writing| std::thread::Builder::new().spawn(writing);
        diagnostics.start_to(gate, spawn).unwrap();
        let say = |line: &str| diagnostics.make_writer().write_all(line.as_bytes()).unwrap();
        let_write.send(false).unwrap();
        say("the disk is full\n");
        assert!(diagnostics.flush(Duration::from_secs(60)));
        // Nothing is written now, and nobody waits for that.
        (0..WAITING * 2).for_each(|_| say("flood\n"));
        assert!(!diagnostics.flush(Duration::from_millis(1)));
        drop(let_write);
        assert!(diagnostics.flush(Duration::from_secs(60)));
        let written = written.lock().unwrap();
        let told = written.lines().filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok());
        let told: u64 = told.sum();
        let came = written.lines().filter(|line| *line == "flood").count();
        assert_eq!(told + came as u64, 2 * WAITING as u64 + 1, "{written}");
        assert!(written.starts_with("ebb: "), "a loss is told before the next line: {written}");
    }
}
