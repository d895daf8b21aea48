//! The sink for machines: one JSON object a line, which reads back as the same [`Entry`].

use crate::record::Record;
use crate::sink::{Entry, Sink};
use std::io::Write;

/// Writes entries as lines of JSON.
#[derive(Debug)]
pub struct Json<W>(W);

impl<W: Write> Json<W> {
    /// Lines go to `to`, each with one call of `write`.
    pub fn new(to: W) -> Self {
        Self(to)
    }
}

impl<W: Write> Sink for Json<W> {
    fn take(&mut self, entry: &Entry) {
        if let Err(error) = self.0.write_all(&line(entry)) {
            tracing::debug!(%error, "a record could not be written");
        }
    }
}

/// An entry as it is written, with the line break; empty when it has no JSON, as a path that is no text.
#[must_use]
pub fn line(entry: &Entry) -> Vec<u8> {
    let mut line = Vec::with_capacity(256);
    match serde_json::to_writer(&mut line, entry) {
        Ok(()) => line.push(b'\n'),
        Err(error) => {
            tracing::debug!(%error, "a record could not be written");
            line.clear();
        }
    }
    line
}

/// The word that JSON has for the kind of a record: its `event`.
#[must_use]
pub fn kind(record: &Record) -> String {
    let value = serde_json::to_value(record).unwrap_or_default();
    value.get("event").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
}
