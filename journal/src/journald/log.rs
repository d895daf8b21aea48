//! Diagnostics of the program itself (`tracing`) as entries of the journal.
//!
//! They are sent from whichever thread has something to say, and do not wait for room: what finds none is dropped and counted.
//! Where there is no journal at all they are lines on standard error, which may wait for whoever reads them.

use super::entry::{self, Origin};
use super::{Journal, Room};
use std::io::{self, Write};
use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

/// Makes an entry of each line that a subscriber writes.
#[derive(Clone, Debug)]
pub struct LogLines(Journal);

impl LogLines {
    /// Lines go to `journal`; to standard error where it cannot be had.
    #[must_use]
    pub fn new(journal: Journal) -> Self {
        Self(journal)
    }
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LogLine { journal: &self.0, origin: Origin::default() }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> Self::Writer {
        LogLine { journal: &self.0, origin: Origin::of(about) }
    }
}

/// One line.
#[derive(Debug)]
pub struct LogLine<'a> {
    journal: &'a Journal,
    origin: Origin,
}

impl Write for LogLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.journal.send(&entry::of_log(line, &self.origin), Room::OrDrop).is_err() {
            io::stderr().write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
