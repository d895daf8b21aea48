//! Cgroups: the kubelet's fields under their own names, and ebb's section `cgroups`, read and printed.
use super::eviction::text_map;
use super::options::{entries, length, word};
use super::section::Section;
use super::tree::{Node, Placed};
use ebb_policy::Millis;
use ebb_policy::cgroups::RawCgroups;
use ebb_policy::cgroups::cpu::Curve;
use ebb_policy::cgroups::options::{Kubelet, Options, OwnOptions};
use std::path::PathBuf;

/// What `ebb run` does about cgroups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupMode {
    /// Nothing.
    #[default]
    Off,
    /// Differences are reported.
    Audit,
    /// Differences are ended.
    Enforce,
}

const MODES: [(&str, CgroupMode); 3] =
    [("off", CgroupMode::Off), ("audit", CgroupMode::Audit), ("enforce", CgroupMode::Enforce)];

/// Who else writes to the cgroups of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beside {
    /// A kubelet and a runtime: what they write again and again is theirs.
    #[default]
    Kubelet,
    /// Nobody: the whole tree is ebb's.
    Nobody,
}

const BESIDES: [(&str, Beside); 2] = [("kubelet", Beside::Kubelet), ("nobody", Beside::Nobody)];

/// What `ebb run` does about pod cgroups that no pod belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrphanedPods {
    /// They are reported.
    #[default]
    Report,
    /// They are emptied and removed.
    Remove,
}

/// What `ebb run` does about removed cgroups of pods that still hold memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dying {
    /// They are reported.
    #[default]
    Report,
    /// The kernel is asked to take the memory back, from the nearest cgroup that is there.
    Reclaim,
}

const DYING: [(&str, Dying); 2] = [("report", Dying::Report), ("reclaim", Dying::Reclaim)];

const ORPHANED_PODS: [(&str, OrphanedPods); 2] =
    [("report", OrphanedPods::Report), ("remove", OrphanedPods::Remove)];

const KUBELETS: [(&str, Kubelet); 2] = [("1.36", Kubelet::V1_36), ("1.37", Kubelet::V1_37)];
const CURVES: [(&str, Curve); 2] = [("old", Curve::Old), ("new", Curve::New)];

/// The kubelet's own default.
const KUBELET_ROOT: &str = "/var/lib/kubelet";
/// How often the whole tree is looked at, whatever events there were.
const PERIOD: Millis = Millis(10_000);
/// How long a write may take before ebb goes on without it.
const WRITE_DEADLINE: Millis = Millis(2_000);

/// What the operator says about cgroups.
#[derive(Clone, Debug, PartialEq)]
pub struct Cgroups {
    /// What `ebb run` does.
    pub mode: CgroupMode,
    /// Who else writes.
    pub beside: Beside,
    /// Whether cgroups of pods that are missing are made.
    pub create: bool,
    /// What `ebb run` does about pod cgroups without a pod.
    pub orphaned_pods: OrphanedPods,
    /// What `ebb run` does about removed cgroups that still hold memory.
    pub dying: Dying,
    /// Manifests of the pods: a file or a directory; without them pods come from the container runtime alone.
    pub pod_manifests: Option<PathBuf>,
    /// The kubelet's directory, which tells of mounted volumes.
    pub kubelet_root: PathBuf,
    /// How often the whole tree is looked at, whatever events there were.
    pub period: Millis,
    /// How long a write may take before ebb goes on without it.
    pub write_deadline: Millis,
    /// The fields as written.
    pub raw: RawCgroups,
    /// The fields, checked.
    pub options: Options,
}

/// What stands under `ebb: { cgroups: … }`, and the kubelet's fields, before they are checked.
#[derive(Clone, Debug, Default)]
pub(super) struct CgroupsDraft {
    mode: CgroupMode,
    beside: Beside,
    create: bool,
    orphaned_pods: OrphanedPods,
    dying: Dying,
    pod_manifests: Option<PathBuf>,
    kubelet_root: Option<PathBuf>,
    period: Option<Millis>,
    write_deadline: Option<Millis>,
    pub(super) raw: RawCgroups,
}

impl CgroupsDraft {
    /// The kubelet's fields, and nothing of ebb's.
    pub(super) fn of(raw: RawCgroups) -> CgroupsDraft {
        CgroupsDraft { raw, ..CgroupsDraft::default() }
    }

    /// Reads ebb's section.
    pub(super) fn read_own(&mut self, mut section: Section<'_>) {
        self.mode = section.choice("mode", &MODES).unwrap_or_default();
        self.beside = section.choice("beside", &BESIDES).unwrap_or_default();
        self.create = section.flag("create").unwrap_or_default();
        self.orphaned_pods = section.choice("orphanedPods", &ORPHANED_PODS).unwrap_or_default();
        self.dying = section.choice("dying", &DYING).unwrap_or_default();
        self.pod_manifests = section.text("podManifests").map(PathBuf::from);
        self.kubelet_root = section.text("kubeletRoot").map(PathBuf::from);
        self.period = section.duration("period");
        self.write_deadline = section.duration("writeDeadline");
        let default = OwnOptions::default();
        self.raw.own = OwnOptions {
            kubelet: section.choice("kubelet", &KUBELETS).unwrap_or(default.kubelet),
            pod_curve: section.choice("podWeightCurve", &CURVES).unwrap_or(default.pod_curve),
            container_curve: section
                .choice("containerWeightCurve", &CURVES)
                .unwrap_or(default.container_curve),
        };
        section.finish();
    }

    /// Puts it together with the checked options.
    pub(super) fn finish(self, options: Options) -> Cgroups {
        let CgroupsDraft {
            mode,
            beside,
            create,
            orphaned_pods,
            dying,
            pod_manifests,
            kubelet_root,
            period,
            write_deadline,
            raw,
        } = self;
        Cgroups {
            mode,
            beside,
            create,
            orphaned_pods,
            dying,
            pod_manifests,
            kubelet_root: kubelet_root.unwrap_or_else(|| KUBELET_ROOT.into()),
            period: period.unwrap_or(PERIOD).max(Millis(100)),
            write_deadline: write_deadline.unwrap_or(WRITE_DEADLINE).max(Millis(10)),
            raw,
            options,
        }
    }
}

/// Reads the kubelet's fields; what stands in fields that eviction reads too is left to the caller.
pub(super) fn read(section: &mut Section<'_>) -> RawCgroups {
    let swap = section.section("memorySwap").map(|mut swap| {
        let behavior = swap.text("swapBehavior");
        swap.finish();
        behavior
    });
    RawCgroups {
        cgroup_driver: section.text("cgroupDriver"),
        cgroup_root: section.text("cgroupRoot").filter(|root| !root.is_empty()),
        cgroups_per_qos: section.flag("cgroupsPerQOS"),
        kube_reserved: section.text_map("kubeReserved"),
        system_reserved: section.text_map("systemReserved"),
        kube_reserved_cgroup: section.text("kubeReservedCgroup"),
        system_reserved_cgroup: section.text("systemReservedCgroup"),
        enforce_node_allocatable: None,
        qos_reserved: section.text_map("qosReserved"),
        pod_pids_limit: section.integer("podPidsLimit"),
        cpu_cfs_quota: section.flag("cpuCFSQuota"),
        cpu_cfs_quota_period: section.text("cpuCFSQuotaPeriod"),
        swap_behavior: swap.flatten(),
        feature_gates: section.flags("featureGates"),
        memory_throttling_factor: section.decimal("memoryThrottlingFactor"),
        memory_reservation_policy: section.text("memoryReservationPolicy"),
        single_process_oom_kill: section.flag("singleProcessOOMKill"),
        cpu_manager_policy: section.text("cpuManagerPolicy"),
        reserved_system_cpus: section.text("reservedSystemCPUs"),
        other_gates: false,
        eviction_hard_memory: None,
        own: OwnOptions::default(),
    }
}

/// Prints the kubelet's fields that are set, but those that eviction prints too.
pub(super) fn print(raw: &RawCgroups) -> Vec<(String, Node)> {
    let RawCgroups {
        cgroup_driver,
        cgroup_root,
        cgroups_per_qos,
        kube_reserved,
        system_reserved,
        kube_reserved_cgroup,
        system_reserved_cgroup,
        enforce_node_allocatable: _,
        qos_reserved,
        pod_pids_limit,
        cpu_cfs_quota,
        cpu_cfs_quota_period,
        swap_behavior,
        feature_gates,
        memory_throttling_factor,
        memory_reservation_policy,
        single_process_oom_kill,
        cpu_manager_policy,
        reserved_system_cpus,
        other_gates: _,
        eviction_hard_memory: _,
        own: _,
    } = raw;
    let text = |value: &Option<String>| value.clone().map(Node::Text);
    let gates = (!feature_gates.is_empty()).then(|| {
        let gate = |(name, on): (&String, &bool)| (name.clone(), Node::Bool(*on).into());
        Node::Map(feature_gates.iter().map(gate).collect())
    });
    let swap = text(swap_behavior).map(|word| Node::Map(entries([("swapBehavior", word)])));
    let fields = [
        ("cgroupDriver", text(cgroup_driver)),
        ("cgroupRoot", text(cgroup_root)),
        ("cgroupsPerQOS", cgroups_per_qos.map(Node::Bool)),
        ("kubeReserved", kube_reserved.as_ref().map(text_map)),
        ("systemReserved", system_reserved.as_ref().map(text_map)),
        ("kubeReservedCgroup", text(kube_reserved_cgroup)),
        ("systemReservedCgroup", text(system_reserved_cgroup)),
        ("qosReserved", qos_reserved.as_ref().map(text_map)),
        ("podPidsLimit", pod_pids_limit.map(Node::Integer)),
        ("cpuCFSQuota", cpu_cfs_quota.map(Node::Bool)),
        ("cpuCFSQuotaPeriod", text(cpu_cfs_quota_period)),
        ("memorySwap", swap),
        ("featureGates", gates),
        ("memoryThrottlingFactor", memory_throttling_factor.map(Node::Float)),
        ("memoryReservationPolicy", text(memory_reservation_policy)),
        ("singleProcessOOMKill", single_process_oom_kill.map(Node::Bool)),
        ("cpuManagerPolicy", text(cpu_manager_policy)),
        ("reservedSystemCPUs", text(reserved_system_cpus)),
    ];
    fields.into_iter().filter_map(|(key, node)| Some((key.to_owned(), node?))).collect()
}

/// Prints ebb's section in full.
pub(super) fn print_own(cgroups: &Cgroups) -> Vec<(String, Placed)> {
    let Cgroups {
        mode,
        beside,
        create,
        orphaned_pods,
        dying,
        pod_manifests,
        kubelet_root,
        period,
        write_deadline,
        raw,
        options: _,
    } = cgroups;
    let path = |path: &PathBuf| Node::Text(path.display().to_string());
    entries([
        ("mode", word(&MODES, *mode)),
        ("beside", word(&BESIDES, *beside)),
        ("create", Node::Bool(*create)),
        ("orphanedPods", word(&ORPHANED_PODS, *orphaned_pods)),
        ("dying", word(&DYING, *dying)),
        ("podManifests", pod_manifests.as_ref().map_or(Node::Null, path)),
        ("kubeletRoot", path(kubelet_root)),
        ("period", length(*period)),
        ("writeDeadline", length(*write_deadline)),
        ("kubelet", word(&KUBELETS, raw.own.kubelet)),
        ("podWeightCurve", word(&CURVES, raw.own.pod_curve)),
        ("containerWeightCurve", word(&CURVES, raw.own.container_curve)),
    ])
}
