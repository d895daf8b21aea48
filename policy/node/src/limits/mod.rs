//! The limits that a decision holds the node to: thresholds, grace periods, collectors' policies and ebb's options.
//!
//! [`raw`] is the text as written, `parse` turns it into checked types and reports every mistake at once (`also_below` thresholds on two signals, `memory_pressure` watched cgroups, `collectors` the garbage collectors' part, `contradictions` what can have no effect),
//! [`threshold`] is one threshold, [`options`] what ebb does beyond the kubelet.
use crate::Millis;
use alloc::vec::Vec;

mod also_below;
mod collectors;
mod contradictions;
pub mod duration;
pub mod error;
mod memory_pressure;
pub mod options;
mod parse;
mod percentage;
pub mod raw;
pub mod threshold;

pub use error::ConfigError;
pub use memory_pressure::MemoryPressure;
pub use options::{
    ActiveCache, AfterEviction, Forecast, ImageOrder, ImageReach, Ladder, Options, Quirks, Ranking,
    Victims,
};
pub use raw::{RawEviction, RawMemoryPressure};
pub use threshold::{AlsoBelow, Threshold, ThresholdValue};

/// Checked limits. They can only be made from a configuration without mistakes.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    thresholds: Vec<Threshold>,
    pressure_transition_period: Millis,
    max_pod_grace: i64,
    local_storage_isolation: bool,
    container_gc: ContainerGcPolicy,
    image_gc: ImageGcPolicy,
    memory_pressure: Vec<MemoryPressure>,
    options: Options,
    warnings: Vec<ConfigError>,
}

/// How many dead containers are kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerGcPolicy {
    /// Dead containers made more recently than this are kept.
    pub min_age: Millis,
    /// Dead containers kept per container; `None` means all.
    pub max_per_container: Option<u64>,
    /// Dead containers kept on the node; `None` means all.
    pub max_containers: Option<u64>,
}

/// When images are removed, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageGcPolicy {
    /// Removal starts when the filesystem is this full, percent.
    pub high_percent: u8,
    /// Removal stops when the filesystem is this full, percent.
    pub low_percent: u8,
    /// Images younger than this are kept.
    pub min_age: Millis,
    /// Images unused for longer than this go; `None` means never.
    pub max_age: Option<Millis>,
}

impl Limits {
    /// Checks a configuration. Every mistake is reported, each naming its key, its value and what would be right.
    pub fn new(raw: &RawEviction) -> Result<Limits, Vec<ConfigError>> {
        parse::limits(raw)
    }

    /// The thresholds, hard ones first, in the order of their signals; without those derived from the layout of the filesystems.
    pub fn thresholds(&self) -> &[Threshold] {
        &self.thresholds
    }

    /// How long a node condition stays after it was last observed.
    pub fn pressure_transition_period(&self) -> Millis {
        self.pressure_transition_period
    }

    /// The most seconds that a soft eviction lets a pod have; negative ends as one second.
    pub fn max_pod_grace(&self) -> i64 {
        self.max_pod_grace
    }

    /// Whether limits of local storage are enforced.
    pub fn local_storage_isolation(&self) -> bool {
        self.local_storage_isolation
    }

    /// How many dead containers are kept.
    pub fn container_gc(&self) -> ContainerGcPolicy {
        self.container_gc
    }

    /// Which images are kept.
    pub fn image_gc(&self) -> ImageGcPolicy {
        self.image_gc
    }

    /// The cgroups whose memory pressure is watched, ordered by their paths.
    pub fn memory_pressure(&self) -> &[MemoryPressure] {
        &self.memory_pressure
    }

    /// What ebb does beyond the kubelet.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What is allowed but probably not meant.
    pub fn warnings(&self) -> &[ConfigError] {
        &self.warnings
    }
}
