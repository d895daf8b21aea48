//! What every sink of the journal takes, and the one shape that all of them have.

use crate::record::Record;
use ebb_policy::Time;
use serde::{Deserialize, Serialize};

/// A record with the time when it happened.
///
/// Its JSON is one object: `at`, and beside it what the record says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When it happened: milliseconds since the Unix epoch.
    pub at: Time,
    /// Names of the episodes of pressure that were going on, which are those of their incident files. No part of JSON.
    #[serde(skip)]
    pub episodes: Vec<String>,
    /// What happened.
    #[serde(flatten)]
    pub record: Record,
}

impl Entry {
    /// A record outside every episode.
    #[must_use]
    pub fn new(at: Time, record: Record) -> Self {
        Self { at, episodes: Vec::new(), record }
    }
}

/// A translation of records for one kind of reader. It knows nothing that the records do not say, and waits for nobody.
pub trait Sink {
    /// Takes in one entry. What cannot be written is dropped: a reader that has gone away must not stop a reclaimer.
    fn take(&mut self, entry: &Entry);
}
