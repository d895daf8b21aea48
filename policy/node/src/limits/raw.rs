//! The limits as they are written: the kubelet's field names and syntax, nothing checked.
use super::Options;
use alloc::{collections::BTreeMap, string::String, vec::Vec};

/// The kubelet's fields on eviction and garbage collection, as written. An absent field has the kubelet's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct RawEviction {
    /// Thresholds that act at once, by signal.
    pub eviction_hard: Option<BTreeMap<String, String>>,
    /// Thresholds that act after a grace period, by signal.
    pub eviction_soft: Option<BTreeMap<String, String>>,
    /// The grace period of each soft threshold, by signal.
    pub eviction_soft_grace_period: Option<BTreeMap<String, String>>,
    /// What must be reclaimed beyond each threshold, by signal.
    pub eviction_minimum_reclaim: Option<BTreeMap<String, String>>,
    /// Keep the defaults of signals that `evictionHard` does not name.
    pub merge_default_eviction_settings: Option<bool>,
    /// How long a condition stays after it was last observed.
    pub eviction_pressure_transition_period: Option<String>,
    /// The most seconds that a soft eviction lets a pod have; a negative number ends as one second.
    pub eviction_max_pod_grace_period: Option<i64>,
    /// Which cgroups the kubelet holds to the node's allocatable resources.
    pub enforce_node_allocatable: Option<Vec<String>>,
    /// Whether limits of local storage are enforced.
    pub local_storage_capacity_isolation: Option<bool>,
    /// Image collection starts when the image filesystem is this full, percent.
    #[cfg_attr(feature = "json", serde(rename = "imageGCHighThresholdPercent"))]
    pub image_gc_high_threshold_percent: Option<i64>,
    /// Image collection stops when the image filesystem is this full, percent.
    #[cfg_attr(feature = "json", serde(rename = "imageGCLowThresholdPercent"))]
    pub image_gc_low_threshold_percent: Option<i64>,
    /// Images younger than this are kept.
    #[cfg_attr(feature = "json", serde(rename = "imageMinimumGCAge"))]
    pub image_minimum_gc_age: Option<String>,
    /// Images unused for longer than this go; zero means never.
    #[cfg_attr(feature = "json", serde(rename = "imageMaximumGCAge"))]
    pub image_maximum_gc_age: Option<String>,
    /// Dead containers made more recently than this are kept.
    #[cfg_attr(feature = "json", serde(rename = "minimumContainerTTLDuration"))]
    pub minimum_container_ttl_duration: Option<String>,
    /// Dead containers kept per container; negative means all.
    pub maximum_dead_containers_per_container: Option<i64>,
    /// Dead containers kept on the node; negative means all.
    pub maximum_dead_containers: Option<i64>,
    /// Thresholds on two signals: one on the first is met only while less than a value is left of the second too.
    #[cfg_attr(feature = "json", serde(skip_serializing_if = "Option::is_none"))]
    pub also_below: Option<BTreeMap<String, BTreeMap<String, String>>>,
    /// Cgroups whose memory pressure is watched; none by default.
    #[cfg_attr(feature = "json", serde(skip_serializing_if = "Vec::is_empty"))]
    pub memory_pressure: Vec<RawMemoryPressure>,
    /// What ebb does beyond the kubelet; absent means nothing.
    pub options: Option<Options>,
}

/// A cgroup whose memory pressure is watched, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct RawMemoryPressure {
    /// Its path from the root of the hierarchy, such as `/user.slice`.
    pub cgroup: Option<String>,
    /// `full avg10` of its `memory.pressure` above which somebody below it is evicted, a percentage; 60% by default.
    pub limit: Option<String>,
    /// For how long it must have been above the limit; 30 seconds by default.
    pub duration: Option<String>,
}
