//! What of ebb, or of what it relies on, is not as it should be.

use serde::{Deserialize, Serialize};

/// What of ebb, or of what it relies on, a record of trouble is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// The threads that kill, or that take memory back.
    Actors,
    /// The API server: what it tells, and what it is told.
    ApiServer,
    /// The reconciler of pods' cgroups.
    Cgroups,
    /// The configuration.
    Configuration,
    /// File descriptors.
    Descriptors,
    /// Filesystems that are watched.
    Filesystems,
    /// The hook before an eviction.
    Hook,
    /// Probes and metrics over HTTP.
    Http,
    /// Incident records.
    Incidents,
    /// The events of the kernel.
    KernelEvents,
    /// The API on the node's socket.
    LocalApi,
    /// The loop, which came late.
    Loop,
    /// Manifests of pods, or what pods ask of ebb.
    PodDescriptions,
    /// Memory pressure of cgroups that are watched for it.
    Pressure,
    /// The reflex in the kernel.
    Reflex,
    /// The container runtime.
    Runtime,
    /// Throttles and freezes that are undone.
    Steps,
    /// Which workloads there are.
    Workloads,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Actors,
        Self::ApiServer,
        Self::Cgroups,
        Self::Configuration,
        Self::Descriptors,
        Self::Filesystems,
        Self::Hook,
        Self::Http,
        Self::Incidents,
        Self::KernelEvents,
        Self::LocalApi,
        Self::Loop,
        Self::PodDescriptions,
        Self::Pressure,
        Self::Reflex,
        Self::Runtime,
        Self::Steps,
        Self::Workloads,
    ];

    /// The word that JSON and metrics have for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Actors => "actors",
            Self::ApiServer => "apiServer",
            Self::Cgroups => "cgroups",
            Self::Configuration => "configuration",
            Self::Descriptors => "descriptors",
            Self::Filesystems => "filesystems",
            Self::Hook => "hook",
            Self::Http => "http",
            Self::Incidents => "incidents",
            Self::KernelEvents => "kernelEvents",
            Self::LocalApi => "localApi",
            Self::Loop => "loop",
            Self::PodDescriptions => "podDescriptions",
            Self::Pressure => "pressure",
            Self::Reflex => "reflex",
            Self::Runtime => "runtime",
            Self::Steps => "steps",
            Self::Workloads => "workloads",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_metrics_have_one_word_for_each_part() {
        for part in Part::ALL {
            assert_eq!(serde_json::to_value(part).unwrap(), part.word());
        }
        let mut all = Part::ALL.to_vec();
        all.dedup();
        assert_eq!(all.len(), Part::ALL.len());
    }
}
