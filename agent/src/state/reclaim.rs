//! Who reclaims memory below a cgroup: read when that cgroup is under memory pressure, and at no other time.

use super::NodeState;
use crate::pods::Owner;
use ebb_policy::snapshot::{PagesScanned, WorkloadKey};
use std::collections::BTreeMap;
use std::path::Path;

impl NodeState {
    /// Pages scanned of each workload in the cgroup `path` and below; a pod counts with all its containers that are there.
    #[must_use]
    pub fn pages_scanned_in(&self, path: &Path) -> Vec<PagesScanned> {
        let mut buffer = Vec::new();
        let mut scanned: BTreeMap<WorkloadKey, Option<u64>> = BTreeMap::new();
        for tracked in self.cgroups.values().filter(|tracked| tracked.path.starts_with(path)) {
            let key = match &tracked.owner {
                Some(Owner { uid, .. }) => self.pods.key_of(uid),
                None => Some(tracked.key.clone()),
            };
            let Some(key) = key else { continue };
            let pages = tracked.cgroup.read_pages_scanned(&mut buffer);
            let sum = scanned.entry(key).or_insert(Some(0));
            *sum = sum.zip(pages).map(|(sum, pages)| sum.saturating_add(pages));
        }
        scanned.into_iter().map(|(workload, pages)| PagesScanned { workload, pages }).collect()
    }
}
