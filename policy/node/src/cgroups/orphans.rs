//! Pod cgroups that no pod belongs to any more: what is to become of each.
use super::names::PodTree;
use crate::snapshot::Qos;
use alloc::{collections::BTreeSet, string::String, vec::Vec};

/// A pod's cgroup that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodCgroup {
    /// Path below the cgroup mount.
    pub path: String,
    /// Whether some process lives in it.
    pub populated: bool,
    /// Whether volumes of the pod are still mounted; `None` when that cannot be told.
    pub volumes_mounted: Option<bool>,
}

/// What is to be done about an orphaned pod cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "camelCase")
)]
pub enum Action {
    /// What runs in it is killed and it is removed: nothing of the pod is left to wait for.
    Remove,
    /// Volumes are still mounted (or that is not known), and memory of a tmpfs would be charged to all pods together if it went: it only loses its CPU.
    ReduceCpu,
    /// Something runs in it, and it is not certain that no pod has it: nothing is done to it.
    Skip,
}

/// What is known of pods, and how far it can be relied on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// UIDs of all pods that some source names; never empty, because an empty source is not an empty world.
    pub uids: BTreeSet<String>,
    /// Why a cgroup in which something runs may belong to a pod although none of the UIDs is its own, such as a source that names no pod at all.
    pub doubt: Option<String>,
}

/// An orphaned pod cgroup, and what is to be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "camelCase")
)]
pub struct Orphan {
    /// Path below the cgroup mount.
    pub path: String,
    /// UID of the pod that it was made for.
    pub uid: String,
    /// Class of that pod.
    pub qos: Qos,
    /// Whether some process lives in it.
    pub populated: bool,
    /// What is to become of it.
    pub action: Action,
    /// Why it is skipped.
    #[cfg_attr(feature = "json", serde(default, skip_serializing_if = "Option::is_none"))]
    pub skipped: Option<String>,
}

/// Weight of an orphaned pod cgroup: the least.
pub const STARVED_WEIGHT: u64 = 1;

/// The orphaned ones among `cgroups`, by path. `known` are all pods; `None` means that not every source has reported, or that none names a pod, and then nothing is orphaned.
#[must_use]
pub fn orphans(tree: &PodTree, cgroups: &[PodCgroup], known: Option<&Known>) -> Vec<Orphan> {
    let Some(known) = known.filter(|known| !known.uids.is_empty()) else { return Vec::new() };
    let mut orphans: Vec<Orphan> = cgroups
        .iter()
        .filter_map(|PodCgroup { path, populated, volumes_mounted }| {
            let (uid, qos) = tree.parse_pod(path)?;
            if known.uids.contains(&uid) {
                return None;
            }
            let skipped = known.doubt.clone().filter(|_| *populated);
            let action = match volumes_mounted {
                _ if skipped.is_some() => Action::Skip,
                Some(false) => Action::Remove,
                Some(true) | None => Action::ReduceCpu,
            };
            Some(Orphan { path: path.clone(), uid, qos, populated: *populated, action, skipped })
        })
        .collect();
    orphans.sort_by(|a, b| a.path.cmp(&b.path));
    orphans
}

#[cfg(test)]
mod tests {
    use super::super::names::{CgroupName, Driver};
    use super::*;

    fn cgroup(path: &str, volumes_mounted: Option<bool>) -> PodCgroup {
        PodCgroup { path: path.into(), populated: true, volumes_mounted }
    }

    #[test]
    fn only_pods_that_nobody_knows_are_left_over() {
        let tree = PodTree::below(&CgroupName::root(), Driver::Cgroupfs).unwrap();
        let cgroups = [
            cgroup("/kubepods/burstable/podlive", Some(false)),
            cgroup("/kubepods/burstable/podgone", Some(false)),
            cgroup("/kubepods/podmounted", Some(true)),
            cgroup("/kubepods/podunknown", None),
            cgroup("/kubepods/burstable", Some(false)),
            cgroup("/system.slice/podx", Some(false)),
        ];
        let uids = BTreeSet::from([String::from("live")]);
        let known = Known { uids, doubt: None };
        let found = orphans(&tree, &cgroups, Some(&known));
        let fates: Vec<_> = found.iter().map(|o| (o.path.as_str(), o.action)).collect();
        let expected = [
            ("/kubepods/burstable/podgone", Action::Remove),
            ("/kubepods/podmounted", Action::ReduceCpu),
            ("/kubepods/podunknown", Action::ReduceCpu),
        ];
        assert_eq!(fates, expected);
        assert_eq!(orphans(&tree, &cgroups, None), [], "before every source has reported");
        let nobody = Known::default();
        assert_eq!(orphans(&tree, &cgroups, Some(&nobody)), [], "no source names a pod");
    }

    #[test]
    fn what_runs_is_skipped_while_a_source_is_in_doubt() {
        let tree = PodTree::below(&CgroupName::root(), Driver::Cgroupfs).unwrap();
        let empty = PodCgroup { populated: false, ..cgroup("/kubepods/podempty", Some(false)) };
        let cgroups = [
            empty,
            cgroup("/kubepods/podgone", Some(false)),
            cgroup("/kubepods/podmounted", Some(true)),
        ];
        let uids = BTreeSet::from([String::from("live")]);
        let known = Known { uids, doubt: Some(String::from("the runtime lists no pod")) };
        let found = orphans(&tree, &cgroups, Some(&known));
        let fates: Vec<_> = found.iter().map(|o| (o.action, o.skipped.as_deref())).collect();
        let skipped = (Action::Skip, Some("the runtime lists no pod"));
        assert_eq!(fates, [(Action::Remove, None), skipped, skipped]);
    }
}
