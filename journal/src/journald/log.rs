//! Diagnostics of the program itself (`tracing`) as entries of the journal.
//!
//! They are sent from whichever thread has something to say, and do not wait for room: what finds none is dropped and counted.
//! Where there is no journal at all they are lines on standard error, which another thread writes.

use super::entry::{self, Origin};
use super::{Journal, Room};
use crate::diagnostics::Diagnostics;
use std::io::{self, Write};
use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

/// Makes an entry of each line that a subscriber writes.
#[derive(Clone, Debug)]
pub struct LogLines {
    journal: Journal,
    otherwise: Diagnostics,
}

impl LogLines {
    /// Lines go to `journal`, or where it cannot be had `otherwise`.
    #[must_use]
    pub fn new(journal: Journal, otherwise: Diagnostics) -> Self {
        Self { journal, otherwise }
    }
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LogLine { to: self, origin: Origin::default() }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> Self::Writer {
        LogLine { to: self, origin: Origin::of(about) }
    }
}

/// One line.
#[derive(Debug)]
pub struct LogLine<'a> {
    to: &'a LogLines,
    origin: Origin,
}

impl Write for LogLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let entry = entry::of_log(line, &self.origin);
        if self.to.journal.send(&entry, Room::OrDrop).is_err() {
            self.to.otherwise.put(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
