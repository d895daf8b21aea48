//! What should be done: a plan that is specific enough that acting on it needs no thought.
//!
//! [`action`] holds the actions and [`skipped`] what was skipped and why; [`ranking`] the order of the candidates with the keys that made it;
//! [`status`] thresholds, node conditions and events; this file puts them together.
use crate::{Millis, Quantity, Signal, Time, signal::Resource};
use alloc::{collections::BTreeMap, vec::Vec};

pub mod action;
mod memory_pressure;
pub mod ranking;
pub mod skipped;
pub mod status;

pub use action::{
    Action, EventType, Evict, EvictionCause, Freeze, OVERDUE_MESSAGE, OVERDUE_REASON, PodCondition,
    PodEvent, ReclaimMemory, Release, RemoveContainer, RemoveImage, RemoveLogDir, RemoveLogLink,
    RemoveReason, RemoveSandbox, Throttle, Warn,
};
pub use memory_pressure::{PressureGrounds, PressureState, PressureStatus};
pub use ranking::{LISTED, RankKey, Ranked};
pub(crate) use skipped::SubjectRef;
pub use skipped::{SkipReason, Skipped, Subject};
pub use status::{
    AdmissionAnswer, AlsoBelowStatus, NodeCondition, NodeEvent, Note, Strength, ThresholdState,
    ThresholdStatus,
};

/// What should be done, what was skipped, and why.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Plan {
    /// Version of this form; 1.
    pub schema_version: u32,
    /// The snapshot's time.
    pub decided_at: Time,
    /// The threshold that this pass handles, if any.
    pub handled: Option<Handled>,
    /// What to do, in this order.
    pub actions: Vec<Action>,
    /// What was skipped, and why.
    pub skipped: Vec<Skipped>,
    /// Candidates for the handled signal, or below a cgroup under memory pressure; the first victim first.
    pub ranking: Vec<Ranked>,
    /// Every threshold and where it stands.
    pub thresholds: Vec<ThresholdStatus>,
    /// Every cgroup whose memory pressure is watched and where it stands.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub memory_pressure: Vec<PressureStatus>,
    /// The three node conditions.
    pub conditions: Vec<NodeCondition>,
    /// Events about the node.
    pub events: Vec<NodeEvent>,
    /// Answers to pods that ask to be admitted.
    pub admissions: Vec<AdmissionAnswer>,
    /// Age of the observation behind each threshold that drove an eviction, milliseconds.
    pub stats_age: BTreeMap<Signal, Millis>,
    /// What else is worth knowing.
    pub notes: Vec<Note>,
    /// When the answer can change although nothing new is observed.
    pub wake_in: Option<Millis>,
}

impl Plan {
    /// Whom it evicts, in order.
    pub fn evictions(&self) -> impl Iterator<Item = &Evict> {
        self.actions.iter().filter_map(|action| match action {
            Action::Evict(evict) => Some(&**evict),
            _ => None,
        })
    }
}

/// The threshold that a pass handles.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Handled {
    /// Its signal.
    pub signal: Signal,
    /// The resource that is short.
    pub resource: Resource,
    /// Hard or soft.
    pub strength: Strength,
    /// The threshold as a quantity, percentages resolved.
    pub threshold: Quantity,
    /// What is left.
    pub available: u64,
    /// What must be freed: threshold and minimum reclaim less what is left.
    pub need: u64,
    /// How much of the need workloads that are terminating will free.
    pub terminating: u64,
    /// Time until the threshold is reached, when the pass acts on a forecast.
    pub forecast: Option<Millis>,
}
