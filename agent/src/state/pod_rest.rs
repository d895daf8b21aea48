//! Memory of a pod that is charged to none of its containers: what those that have ended left in tmpfs or shared memory is the pod's cgroup's from then on.
//!
//! The kubelet ranks a pod by its cgroup. To sum up its containers instead would let a pod fill a volume of medium `Memory`, have its container end, and be small.

use super::pod_usage::plus;
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
            *parts = memory_of(*parts, tracked.usage().unwrap_or_default(), plus);
        }
        self.0.clear();
        for (uid, (id, parts)) in pods {
            let Some(node) = tree.get(id) else { continue };
            let Ok(mut pod) = Cgroup::open(&tree.root().join(&node.path), id) else { continue };
            let mut whole = Usage::default();
            pod.read_memory(&mut whole, buffer);
            if whole.current.is_some() {
                let rest = memory_of(whole, parts, less);
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

/// Of two readings, each figure of memory put together.
fn memory_of(
    one: Usage,
    other: Usage,
    put: impl Fn(Option<u64>, Option<u64>) -> Option<u64>,
) -> Usage {
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

/// What the whole has beside its parts; unknown where the whole is.
fn less(whole: Option<u64>, parts: Option<u64>) -> Option<u64> {
    whole.map(|whole| whole.saturating_sub(parts.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part that is taken for the whole would count twice.
    #[test]
    fn what_is_not_known_of_the_whole_is_not_known_of_the_rest() {
        assert_eq!(less(Some(9), Some(4)), Some(5));
        assert_eq!((less(Some(9), None), less(None, Some(4))), (Some(9), None));
        assert_eq!(less(Some(4), Some(9)), Some(0), "they are not read at one moment");
    }

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
