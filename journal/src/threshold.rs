//! What a threshold in force is.

use ebb_policy::limits::{MemoryPressure, Threshold};
use ebb_policy::plan::ThresholdStatus;

/// A threshold in force.
#[derive(Clone, Debug, PartialEq)]
pub enum InForce {
    /// As the node has it: percentages resolved.
    Resolved(ThresholdStatus),
    /// As it is configured: percentages are resolved when the node is next decided on.
    Configured(Threshold),
    /// A limit of the memory pressure of a cgroup.
    MemoryPressure(MemoryPressure),
}
