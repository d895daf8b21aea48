//! The kubelet's feature gates on which something here depends, and what they are where the configuration does not say.
use super::options::{Kubelet, RawCgroups};

/// A feature gate of the kubelet on which something here depends.
pub(super) struct Gate {
    name: &'static str,
    /// How far it is in a kubelet of 1.36 and of 1.37.
    stages: [Stage; 2],
}

/// How far a feature is; alpha ones are off unless said otherwise, beta ones on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
    Stable,
}

pub(super) const MEMORY_QOS: Gate = Gate { name: "MemoryQoS", stages: [Stage::Alpha, Stage::Beta] };
pub(super) const POD_LEVEL_RESOURCES: Gate =
    Gate { name: "PodLevelResources", stages: [Stage::Beta, Stage::Stable] };
pub(super) const QOS_RESERVED: Gate =
    Gate { name: "QOSReserved", stages: [Stage::Alpha, Stage::Alpha] };
pub(super) const CFS_PERIOD: Gate =
    Gate { name: "CustomCPUCFSQuotaPeriod", stages: [Stage::Alpha, Stage::Alpha] };
pub(super) const EXCLUSIVE_CPUS: Gate =
    Gate { name: "DisableCPUQuotaWithExclusiveCPUs", stages: [Stage::Beta, Stage::Beta] };

/// The feature gates that are understood: what else a kubelet knows changes nothing here.
pub const GATES: [&str; 7] = [
    "AllAlpha",
    "AllBeta",
    CFS_PERIOD.name,
    EXCLUSIVE_CPUS.name,
    MEMORY_QOS.name,
    POD_LEVEL_RESOURCES.name,
    QOS_RESERVED.name,
];

/// Whether a feature is on.
pub(super) fn gate(raw: &RawCgroups, gate: &Gate) -> bool {
    let [v36, v37] = gate.stages;
    let stage = match raw.own.kubelet {
        Kubelet::V1_36 => v36,
        Kubelet::V1_37 => v37,
    };
    let all = match stage {
        Stage::Alpha => raw.feature_gates.get("AllAlpha"),
        Stage::Beta => raw.feature_gates.get("AllBeta"),
        Stage::Stable => None,
    };
    let said = raw.feature_gates.get(gate.name).or(all);
    said.copied().unwrap_or(stage != Stage::Alpha)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use alloc::string::ToString;

    fn raw(gates: &[(&str, bool)], kubelet: Kubelet) -> RawCgroups {
        let mut raw = RawCgroups::default();
        raw.own.kubelet = kubelet;
        raw.feature_gates = gates.iter().map(|(name, on)| (name.to_string(), *on)).collect();
        raw
    }

    #[test]
    fn a_gate_is_what_is_said_else_what_is_said_of_its_stage_else_its_default() {
        let is_on = |gates: &[(&str, bool)], kubelet| gate(&raw(gates, kubelet), &MEMORY_QOS);
        let (v36, v37) = (Kubelet::V1_36, Kubelet::V1_37);
        assert!(!is_on(&[], v36) && is_on(&[], v37));
        assert!(is_on(&[("AllAlpha", true)], v36) && !is_on(&[("AllBeta", false)], v37));
        assert!(!is_on(&[("AllAlpha", true), ("MemoryQoS", false)], v36));
        assert!(gate(&raw(&[("AllBeta", false)], v37), &POD_LEVEL_RESOURCES), "it is stable");
    }
}
