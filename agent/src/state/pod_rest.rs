//! Memory of a pod that is charged to none of its containers: what those that have ended left in tmpfs or shared memory is the pod's cgroup's from then on.
//!
//! The kubelet ranks a pod by its cgroup. To sum up its containers instead would let a pod fill a volume of medium `Memory`, have its container end, and be small.

use super::tracked::Tracked;
use crate::sense::cgroup::{Cgroup, Usage};
use crate::sense::tree::Tree;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;

/// By the pod's UID, as last read: it changes when a container ends, and not by the millisecond.
#[derive(Debug, Default)]
pub(super) struct PodRests(BTreeMap<Arc<str>, Usage>);

impl PodRests {
    /// What the pod `uid` has beside what its containers have.
    pub(super) fn of(&self, uid: &str) -> Option<&Usage> {
        self.0.get(uid)
    }

    /// Reads the cgroups of the pods to which `cgroups` belong, right after those were read.
    pub(super) fn read(
        &mut self,
        cgroups: &BTreeMap<u64, Tracked>,
        tree: &Tree,
        buffer: &mut Vec<u8>,
    ) {
        let mut pods: BTreeMap<&Arc<str>, (u64, Usage)> = BTreeMap::new();
        for (id, tracked) in cgroups {
            let Some(owner) = &tracked.owner else { continue };
            let Some(pod) = pod_above(*id, &owner.uid, tree) else { continue };
            let (_, parts) = pods.entry(&owner.uid).or_insert((pod, Usage::default()));
            *parts = memory_of(*parts, tracked.usage().unwrap_or_default(), u64::saturating_add);
        }
        self.0.clear();
        for (uid, (id, parts)) in pods {
            let Some(node) = tree.get(id) else { continue };
            let Ok(mut pod) = Cgroup::open(&tree.root().join(&node.path), id) else { continue };
            let mut whole = Usage::default();
            pod.read_memory(&mut whole, buffer);
            if whole.current.is_some() {
                let rest = memory_of(whole, parts, u64::saturating_sub);
                self.0.insert(Arc::clone(uid), rest);
            }
        }
    }
}

/// The cgroup of the pod `uid` above the cgroup `id`: where a runtime puts containers elsewhere there is none.
fn pod_above(id: u64, uid: &str, tree: &Tree) -> Option<u64> {
    let mut at = tree.get(id)?.parent;
    loop {
        let node = tree.get(at)?;
        if node.path.file_name().and_then(OsStr::to_str).is_some_and(|name| is_of(name, uid)) {
            return Some(at);
        }
        // The root is its own parent.
        if node.parent == at {
            return None;
        }
        at = node.parent;
    }
}

/// Whether `name` is that of the cgroup of the pod `uid`, by either of the kubelet's drivers.
fn is_of(name: &str, uid: &str) -> bool {
    let by_systemd = || {
        let (_, own) = name.strip_suffix(".slice")?.rsplit_once("-pod")?;
        Some(own.replace('_', "-") == uid)
    };
    name.strip_prefix("pod") == Some(uid) || by_systemd().unwrap_or(false)
}

/// Of two readings, each figure of memory put together; what only one of them tells stands as it is.
fn memory_of(one: Usage, other: Usage, put: impl Fn(u64, u64) -> u64) -> Usage {
    let put = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => Some(put(one, other)),
        (one, other) => one.or(other),
    };
    Usage {
        current: put(one.current, other.current),
        anon: put(one.anon, other.anon),
        file: put(one.file, other.file),
        active_file: put(one.active_file, other.active_file),
        inactive_file: put(one.inactive_file, other.inactive_file),
        shmem: put(one.shmem, other.shmem),
        kernel: put(one.kernel, other.kernel),
        ..Usage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_cgroup_is_known_by_its_uid_under_both_drivers() {
        let uid = "5a0b9c1e-1111-2222-3333-444455556666";
        let slice = "kubepods-burstable-pod5a0b9c1e_1111_2222_3333_444455556666.slice";
        for (name, expected) in [
            (format!("pod{uid}").as_str(), true),
            (slice, true),
            ("kubepods-pod5a0b9c1e_1111_2222_3333_444455556666.slice", true),
            ("kubepods-burstable.slice", false),
            ("pod", false),
            ("burstable", false),
        ] {
            assert_eq!(is_of(name, uid), expected, "{name}");
        }
    }
}
