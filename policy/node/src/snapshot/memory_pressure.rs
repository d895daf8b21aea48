//! Memory pressure of the cgroups that are watched for it, and who below them reclaims.
use super::WorkloadKey;
use crate::{StallShare, Time};
use alloc::{string::String, vec::Vec};

/// Memory pressure of one watched cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct CgroupPressure {
    /// Its path, as configured.
    pub cgroup: String,
    /// When all of this was read.
    pub observed_at: Time,
    /// `full avg10` of its `memory.pressure`: the part of the last ten seconds or so in which all its tasks that could have run waited for memory, in hundredths of a percent.
    #[cfg_attr(feature = "json", serde(default))]
    pub full_avg10: Option<StallShare>,
    /// `full total` of it: microseconds, a running total.
    #[cfg_attr(feature = "json", serde(default))]
    pub full_total: Option<u64>,
    /// `pgscan` of its `memory.stat`, everything below included, also what is gone: pages, a running total.
    #[cfg_attr(feature = "json", serde(default))]
    pub pages: Option<u64>,
    /// Its `memory.current`, bytes.
    #[cfg_attr(feature = "json", serde(default))]
    pub usage: Option<u64>,
    /// The workloads in it and below.
    #[cfg_attr(feature = "json", serde(default))]
    pub workloads: Vec<PagesScanned>,
}

/// How much memory the kernel has looked through to reclaim from one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct PagesScanned {
    /// Who.
    pub workload: WorkloadKey,
    /// `pgscan` of `memory.stat`: pages, a running total.
    #[cfg_attr(feature = "json", serde(default))]
    pub pages: Option<u64>,
}
