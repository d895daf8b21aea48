//! How important a record is, in syslog(3)'s order.

use crate::record::{Outcome, Record};

/// Importance as syslog(3) has it; its number is that of syslog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Severity {
    /// The agent ends because something in it broke.
    Critical = 2,
    /// Something that was meant to happen did not.
    Error = 3,
    /// Somebody was evicted, or something is missing.
    Warning = 4,
    /// Normal, and worth knowing.
    Notice = 5,
    /// Normal.
    #[default]
    Info = 6,
    /// For who works on ebb.
    Debug = 7,
}

impl Severity {
    /// That of a record.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        match record {
            Record::KubeletThresholds(guard_band) if guard_band.is_fine() => Self::Info,
            Record::KubeletThresholds(_) => Self::Warning,
            Record::Panicked { .. } => Self::Critical,
            Record::Reloaded { accepted: false, .. }
            | Record::Terminated { outcome: Outcome::TimedOut, .. } => Self::Error,
            Record::ThresholdCrossed { .. }
            | Record::MemoryPressureAboveLimit { .. }
            | Record::Evicted(_)
            | Record::StepTaken(_)
            | Record::ReflexFired { .. }
            | Record::NotDone { .. }
            | Record::EvictionDeferred { .. }
            | Record::Warned { .. }
            | Record::OomKill { .. }
            | Record::Lost { .. }
            | Record::Dropped { .. }
            | Record::Runtime { up: false, .. }
            | Record::ApiServer { up: false, .. }
            | Record::EvictionRefused { .. }
            | Record::ApiClientRefused { .. }
            | Record::NotRemoved { .. }
            | Record::Degraded { .. } => Self::Warning,
            Record::Started { .. }
            | Record::Decided { .. }
            | Record::PressureRelieved { .. }
            | Record::MemoryPressureRelieved { .. }
            | Record::Reloaded { accepted: true, .. }
            | Record::Stopping { .. } => Self::Notice,
            Record::HookEnded { outcome, .. } if !outcome.is_fine() => Self::Warning,
            Record::ReflexArmed { .. }
            | Record::HookCalled { .. }
            | Record::HookEnded { .. }
            | Record::Terminated { outcome: Outcome::Exited, .. }
            | Record::LocalPressure { .. }
            | Record::Runtime { up: true, .. }
            | Record::ApiServer { up: true, .. }
            | Record::EvictionTold { .. }
            | Record::Inventory { .. }
            | Record::Collecting { .. }
            | Record::Removed { .. }
            | Record::Collected { .. }
            | Record::Cgroups { .. }
            | Record::OrphanedPodCgroups { .. } => Self::Info,
        }
    }
}
