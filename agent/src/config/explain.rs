//! What a configuration means in full: every setting in force, also those that no file shows because they were left out.

use super::{
    Config,
    source::tree,
    tree::{Node, Placed},
};
use ebb_policy::Millis;
use ebb_policy::cgroups::Driver;
use ebb_policy::cgroups::options::Reservation;
use ebb_policy::plan::Strength;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;

/// One setting in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Setting {
    /// Its key, as the file has it; ebb's own begin with `ebb.`.
    pub key: String,
    /// Its value, as it would be written.
    pub value: String,
    /// The file says so; otherwise it is the default, or follows from one.
    pub given: bool,
}

impl Config {
    /// Every setting in force on eviction and collection, and ebb's own; `file` is where the configuration came from.
    #[must_use]
    pub fn explain(&self, file: Option<&Path>) -> Vec<Setting> {
        let given = given(file);
        let setting = |key: &str, value: String| {
            let is_own = key.starts_with("ebb.");
            let section = key.split(if is_own { '[' } else { '.' }).next().unwrap_or(key);
            Setting { key: key.to_owned(), value, given: given.contains(section) }
        };
        let mut settings = self.thresholds(&given);
        settings.extend(self.kubelets().into_iter().map(|(key, value)| setting(key, value)));
        settings.extend(self.print_own().into_iter().map(|(key, place)| {
            let value = serde_json::to_string(&place).unwrap_or_default();
            setting(&format!("ebb.{key}"), value.trim_matches('"').to_owned())
        }));
        settings
    }

    fn thresholds(&self, given: &BTreeSet<String>) -> Vec<Setting> {
        let setting = |threshold: &ebb_policy::limits::Threshold| {
            let field = match threshold.list {
                Strength::Hard => "evictionHard",
                Strength::Soft => "evictionSoft",
            };
            let key = format!("{field}[{:?}]", threshold.signal.name());
            let grace = match threshold.grace {
                Millis(0) => String::new(),
                grace => format!(", after {grace}"),
            };
            let given = given.contains(&key);
            Setting { key, value: format!("{}{grace}", threshold.written()), given }
        };
        self.limits.thresholds().iter().map(setting).collect()
    }

    /// The kubelet's fields, with the kubelet's defaults where nothing was written.
    fn kubelets(&self) -> Vec<(&'static str, String)> {
        let (limits, raw) = (&self.limits, &self.eviction);
        let (dead, images) = (limits.container_gc(), limits.image_gc());
        let or_all = |count: Option<u64>| count.map_or("-1".to_owned(), |count| count.to_string());
        let enforced = raw.enforce_node_allocatable.clone();
        let enforced = enforced.unwrap_or_else(|| vec!["pods".to_owned()]);
        let cgroups = &self.cgroups.options;
        let amounts = |amounts: &ebb_model::amounts::Amounts| {
            let each = amounts.iter().map(|(name, amount)| format!("{name}: {amount}"));
            format!("{{{}}}", each.collect::<Vec<_>>().join(", "))
        };
        let (reservation, factor) = match &cgroups.memory_qos {
            None => (Reservation::None, None),
            Some(qos) => (qos.reservation, qos.throttling_factor),
        };
        vec![
            ("cgroupDriver", word(cgroups.driver == Driver::Systemd, "systemd", "cgroupfs")),
            ("cgroupRoot", cgroups.root.path(cgroups.driver)),
            ("cgroupsPerQOS", cgroups.per_qos.to_string()),
            ("kubeReserved", amounts(&cgroups.kube_reserved)),
            ("systemReserved", amounts(&cgroups.system_reserved)),
            ("cpuManagerPolicy", word(cgroups.all_cpus, "none", "static")),
            ("memorySwap.swapBehavior", word(cgroups.limited_swap, "LimitedSwap", "NoSwap")),
            ("featureGates.MemoryQoS", cgroups.memory_qos.is_some().to_string()),
            (
                "memoryReservationPolicy",
                word(reservation == Reservation::Tiered, "TieredReservation", "None"),
            ),
            (
                "memoryThrottlingFactor",
                factor.map_or("null".to_owned(), |factor| factor.to_string()),
            ),
            ("featureGates.PodLevelResources", cgroups.pod_level_resources.to_string()),
            ("singleProcessOOMKill", (!cgroups.oom_group).to_string()),
            ("enforceNodeAllocatable", format!("[{}]", enforced.join(", "))),
            (
                "mergeDefaultEvictionSettings",
                raw.merge_default_eviction_settings.unwrap_or(false).to_string(),
            ),
            ("evictionPressureTransitionPeriod", limits.pressure_transition_period().to_string()),
            ("evictionMaxPodGracePeriod", limits.max_pod_grace().to_string()),
            ("localStorageCapacityIsolation", limits.local_storage_isolation().to_string()),
            ("imageGCHighThresholdPercent", images.high_percent.to_string()),
            ("imageGCLowThresholdPercent", images.low_percent.to_string()),
            ("imageMinimumGCAge", images.min_age.to_string()),
            ("imageMaximumGCAge", images.max_age.unwrap_or(Millis(0)).to_string()),
            ("minimumContainerTTLDuration", dead.min_age.to_string()),
            ("maximumDeadContainersPerContainer", or_all(dead.max_per_container)),
            ("maximumDeadContainers", or_all(dead.max_containers)),
            ("podPidsLimit", or_all(cgroups.pod_pids_limit)),
            ("cpuCFSQuota", cgroups.cfs_quota.to_string()),
            ("cpuCFSQuotaPeriod", format!("{}us", cgroups.cfs_period_us)),
        ]
    }
}

fn word(is_first: bool, first: &str, second: &str) -> String {
    if is_first { first } else { second }.to_owned()
}

/// The keys that a file has, ebb's own as `ebb.KEY`, and those of its thresholds; none without a file.
fn given(file: Option<&Path>) -> BTreeSet<String> {
    let text = file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    let root = tree(&text).unwrap_or_else(|_| Node::Null.into());
    let keys = |place: &Placed| match &place.node {
        Node::Map(entries) => entries.clone(),
        _ => Vec::new(),
    };
    let mut given = BTreeSet::new();
    for (key, place) in keys(&root) {
        if key == "ebb" {
            given.extend(keys(&place).into_iter().map(|(own, _)| format!("ebb.{own}")));
        }
        if key.starts_with("eviction") {
            given.extend(keys(&place).into_iter().map(|(signal, _)| format!("{key}[{signal:?}]")));
        }
        given.insert(key);
    }
    given
}
