//! What ebb did and why: typed records, made once, and what readers get of them.
//!
//! ```text
//!                                    ┌─► text      lines for people: the one place where a record gets its words
//!  agent ─► Record ─► Entry (at) ────┼─► json      one object a line; reads back
//!                                    ├─► journald  entries with fields, for systemd's journal
//!                                    ├─► metrics   counters and times, for scrapers
//!                                    └─► …         what other crates make of them, as `ebb-api`'s answers to local clients
//! ```
//! [`record`] is what there is to say, and [`sink`] the shape of whoever passes it on; each sink is a translation that knows nothing of its own.
//! [`queue`] keeps a slow reader from holding anybody up, and counts what it had to drop; [`diagnostics`] does so for what the program says of itself. [`incident`] is the file that is kept of an episode of pressure, and [`storing`] how it gets there.
//! Elsewhere: what happened is found out by the agent, which makes the records; nothing here reads or changes the node.

pub mod cgroups;
mod client;
pub mod diagnostics;
mod guard_band;
mod handover;
mod hook;
pub mod incident;
mod job;
pub mod journald;
pub mod json;
mod losses;
pub mod metrics;
mod note;
mod output;
mod part;
pub mod queue;
pub mod record;
mod refusal;
mod removal;
mod severity;
pub mod sink;
pub mod storing;
pub mod stream;
mod subject;
mod target;
pub mod text;
mod threshold;
mod worded;

pub use client::ClientRefusal;
pub use guard_band::{Band, GuardBand};
pub use hook::HookOutcome;
pub use job::{Job, Method, Mode, Need, Rung, Step};
pub use losses::{Loss, Losses};
pub use note::{PlanNote, awaited, notes};
pub use output::Output;
pub use part::Part;
pub use record::{Done, Moment, OomConstraint, Outcome, Record};
pub use refusal::{NotDone, Refusal};
pub use removal::Work;
pub use severity::Severity;
pub use sink::{Entry, Sink};
pub use target::{Payload, Target};
pub use threshold::InForce;
pub use worded::Worded;

use std::time::Duration;

/// A length of time as records show it: milliseconds, to the microsecond.
#[must_use]
pub fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests;
