//! Where each cgroup stands whose memory pressure is watched.
use crate::{Millis, StallShare, Time};
use alloc::string::String;

/// Where the memory pressure of a watched cgroup stands in this pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum PressureState {
    /// Nothing was observed of it, or nothing recent.
    Unobserved,
    /// Not above the limit.
    Clear,
    /// Above the limit, not for long enough.
    Grace,
    /// Above the limit for long enough, and what the last eviction did is waited for.
    Settling,
    /// Above the limit for long enough on average, and not, or not known to be, since the last reading.
    Easing,
    /// Above the limit for long enough, and since the last reading.
    Met,
}

/// The memory pressure of a watched cgroup and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct PressureStatus {
    /// The cgroup.
    pub cgroup: String,
    /// Where it stands.
    pub state: PressureState,
    /// The limit of `full avg10`, hundredths of a percent.
    pub limit: StallShare,
    /// For how long it must have been above the limit.
    pub duration: Millis,
    /// `full avg10` as observed.
    pub full_avg10: Option<StallShare>,
    /// Since when it is above the limit.
    pub since: Option<Time>,
}

/// The memory pressure for which a workload is evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct PressureGrounds {
    /// The cgroup under pressure: the workload is in it or below.
    pub cgroup: String,
    /// Its limit, hundredths of a percent.
    pub limit: StallShare,
    /// `full avg10` of the cgroup, hundredths of a percent.
    pub full_avg10: StallShare,
}
