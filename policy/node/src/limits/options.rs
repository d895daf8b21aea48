//! What ebb does beyond the kubelet, each an option with a default.
//!
//! [`Options::kubelet`] is the kubelet exactly, but for `count_terminating`; [`Options::standalone`] is for machines without a source of pods.
use crate::{Millis, Quantity, Signal};
use alloc::collections::BTreeMap;

/// How candidates are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum Ranking {
    /// The kubelet's keys, exactly.
    Kubelet,
    /// The kubelet's classes (over its request, priority); within a class the preference, then growth, then usage above the request. Candidates without statistics come last.
    Attributed,
}

/// How many victims a pass may choose for the node's pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum Victims {
    /// One, as the kubelet does.
    One,
    /// As many as are needed to cover the need, never more.
    Enough,
}

/// What happens while victims are still terminating.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum AfterEviction {
    /// Nothing for at most 30 seconds, as the kubelet has it.
    Wait,
    /// The next pass runs as soon as the node changes; what terminating victims will free counts towards the need.
    Continue,
}

/// How page cache in use is counted for `memory.available`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum ActiveCache {
    /// As used, as the kubelet does.
    Used,
    /// As available, unless it has been refaulting since the last pass.
    ReclaimableUnlessRefaulting,
}

/// Which unused images are removed when the node is short of disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum ImageReach {
    /// All of them, as the kubelet does.
    All,
    /// The least recently used ones until the low threshold is reached.
    ToLowThreshold,
}

/// In which order unused images are removed to free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase")
)]
pub enum ImageOrder {
    /// The least recently used first, each counted with its full size, as the kubelet does.
    LeastRecentlyUsed,
    /// The set that frees what is needed with the least to pull again, by the layers that images share; the least recently used first among equals.
    LeastToPullAgain,
}

/// Places where the kubelet's behaviour surprises; each can be put right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct Quirks {
    /// Rank by inodes used less the *bytes* of local storage requested, as the kubelet does.
    pub inodes_above_byte_request: bool,
    /// With a dedicated image filesystem, leave the writable layer out of a container's limit of local storage, as the kubelet does.
    pub writable_layer_unlimited_on_image_fs: bool,
    /// With a dedicated image filesystem, reclaim nothing on the node for `nodefs`, as the kubelet does.
    pub no_reclaim_for_node_fs: bool,
    /// Apply derived `containerfs` thresholds only from the second pass on, as the kubelet does.
    pub container_fs_from_second_pass: bool,
    /// Delete an image that was never used as soon as the maximum age applies at all, as the kubelet does.
    pub never_used_image_is_old: bool,
}

impl Default for Quirks {
    fn default() -> Quirks {
        Quirks {
            inodes_above_byte_request: true,
            writable_layer_unlimited_on_image_fs: true,
            no_reclaim_for_node_fs: true,
            container_fs_from_second_pass: true,
            never_used_image_is_old: true,
        }
    }
}

/// Acting on a forecast: before a hard threshold of memory or task ids is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct Forecast {
    /// Whether to act on forecasts.
    pub enabled: bool,
    /// Longest grace period of an eviction on a forecast; a forecast shorter than this starts one.
    pub grace_period: Millis,
    /// Forecasts further off than this are not reported.
    pub horizon: Millis,
}

impl Default for Forecast {
    fn default() -> Forecast {
        Forecast { enabled: false, grace_period: Millis(10_000), horizon: Millis(300_000) }
    }
}

/// Steps before eviction, each taken while the forecast leaves more time than stated. A step of zero is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields, default)
)]
pub struct Ladder {
    /// Whether to take steps at all.
    pub enabled: bool,
    /// Warn when less time than this is left.
    pub warn: Millis,
    /// Ask the kernel to reclaim when less time than this is left.
    pub reclaim: Millis,
    /// Throttle when less time than this is left.
    pub throttle: Millis,
    /// Freeze when less time than this is left.
    pub freeze: Millis,
    /// How long a write to `memory.reclaim` may take.
    pub reclaim_deadline: Millis,
    /// How long a workload may stay frozen.
    pub max_freeze: Millis,
}

impl Default for Ladder {
    fn default() -> Ladder {
        Ladder {
            enabled: false,
            warn: Millis(60_000),
            reclaim: Millis(30_000),
            throttle: Millis(15_000),
            freeze: Millis(0),
            reclaim_deadline: Millis(2_000),
            max_freeze: Millis(5_000),
        }
    }
}

/// What ebb does beyond the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct Options {
    /// How candidates are ranked.
    pub ranking: Ranking,
    /// How many victims a pass may choose.
    pub victims: Victims,
    /// At most this many victims in a pass, whatever the need.
    pub max_victims: u32,
    /// At most this many evictions a minute for the node's sake. Beyond them a soft threshold evicts nobody, and a hard one only the first candidate at a time. Zero means no limit.
    pub max_evictions_per_minute: u32,
    /// Candidates that would free less than this percentage of the threshold are skipped: they are not why the node is short. The kubelet evicts whoever is first in its ranking, which is this option at zero.
    pub min_freed_of_threshold: u32,
    /// When all candidates together cannot free what is needed: those that would free less than this percentage of it are skipped, and for a threshold above the capacity nobody is evicted. Zero, as in the kubelet, evicts all the same.
    pub min_freed_of_need: u32,
    /// What happens while victims are still terminating.
    pub after_eviction: AfterEviction,
    /// Count what ebb has already told to terminate towards the need, and do not evict it again. The kubelet counts nothing; here it is the default in every mode, because somebody else terminates what ebb evicts.
    pub count_terminating: bool,
    /// Honour `prefer` and `avoid`, of the configuration and of annotations. On beside an API server (`--kubernetes`), where the file does not say.
    pub preferences: bool,
    /// Do not evict two replicas of one owner in a pass while there is another candidate. On beside an API server (`--kubernetes`), where the file does not say.
    pub spread_owners: bool,
    /// Skip workloads whose disruption budget allows no disruption; below a hard threshold as long as there is another choice. On beside an API server (`--kubernetes`), where the file does not say.
    pub disruption_budgets: bool,
    /// Below a threshold on disk, evict the workload that fills the filesystem, and none whose usage has not been measured since the threshold was crossed.
    #[cfg_attr(feature = "json", serde(default))]
    pub disk_attribution: bool,
    /// How page cache in use is counted.
    pub active_cache: ActiveCache,
    /// Which unused images are removed when the node is short of disk.
    pub images_under_pressure: ImageReach,
    /// In which order unused images are removed to free space.
    pub image_order: ImageOrder,
    /// Acting before a threshold is met.
    pub forecast: Forecast,
    /// Steps before eviction.
    pub ladder: Ladder,
    /// Upper bounds of thresholds given as percentages.
    pub percentage_at_most: BTreeMap<Signal, Quantity>,
    /// Longest time between two passes while a threshold is met, or there are pods.
    pub monitoring_period: Millis,
    /// Collect dead containers, sandboxes and logs every so often; zero means never.
    #[cfg_attr(feature = "json", serde(rename = "containerGCPeriod"))]
    pub container_gc_period: Millis,
    /// Collect images every so often; zero means never.
    #[cfg_attr(feature = "json", serde(rename = "imageGCPeriod"))]
    pub image_gc_period: Millis,
    /// Places where the kubelet's behaviour surprises.
    pub quirks: Quirks,
}

impl Options {
    /// How long before a hard threshold of memory or task ids is met something may be done about it: on a forecast, or by a step before eviction. Zero when neither is enabled.
    #[must_use]
    pub fn foresight(&self) -> Millis {
        let Forecast { enabled: forecasts, grace_period, .. } = self.forecast;
        let Ladder { enabled: steps, warn, reclaim, throttle, freeze, .. } = self.ladder;
        let longest = |of: &[Millis]| of.iter().copied().max().unwrap_or(Millis(0));
        let forecast = if forecasts { grace_period } else { Millis(0) };
        let ladder = if steps { longest(&[warn, reclaim, throttle, freeze]) } else { Millis(0) };
        forecast.max(ladder)
    }

    /// The kubelet, exactly, but for `count_terminating`.
    pub fn kubelet() -> Options {
        Options {
            ranking: Ranking::Kubelet,
            victims: Victims::One,
            max_victims: 16,
            max_evictions_per_minute: 60,
            min_freed_of_threshold: 0,
            min_freed_of_need: 0,
            after_eviction: AfterEviction::Wait,
            count_terminating: true,
            preferences: false,
            spread_owners: false,
            disruption_budgets: false,
            disk_attribution: false,
            active_cache: ActiveCache::Used,
            images_under_pressure: ImageReach::All,
            image_order: ImageOrder::LeastRecentlyUsed,
            forecast: Forecast::default(),
            ladder: Ladder::default(),
            percentage_at_most: BTreeMap::new(),
            monitoring_period: Millis(10_000),
            container_gc_period: Millis(60_000),
            image_gc_period: Millis(300_000),
            quirks: Quirks::default(),
        }
    }

    /// Beside a kubelet: what it does, but nobody is evicted for nothing, or for what has not been measured since the threshold was crossed.
    pub fn beside_kubelet() -> Options {
        Options {
            min_freed_of_threshold: 1,
            min_freed_of_need: 10,
            disk_attribution: true,
            ..Options::kubelet()
        }
    }

    /// For machines without a source of pods: cgroups and processes are the workloads.
    pub fn standalone() -> Options {
        Options {
            ranking: Ranking::Attributed,
            victims: Victims::Enough,
            after_eviction: AfterEviction::Continue,
            preferences: true,
            min_freed_of_threshold: 1,
            min_freed_of_need: 10,
            disk_attribution: true,
            image_order: ImageOrder::LeastToPullAgain,
            container_gc_period: Millis(0),
            image_gc_period: Millis(0),
            ..Options::kubelet()
        }
    }
}
