//! Whether what belongs to a pod may be removed, by what is known of the pod.
use crate::{
    plan::RemoveReason,
    snapshot::{Snapshot, Workload},
};
use alloc::collections::BTreeMap;

/// Pods by UID.
pub(crate) struct Pods<'a> {
    by_uid: BTreeMap<&'a str, &'a Workload>,
    sources_ready: bool,
}

impl<'a> Pods<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot) -> Pods<'a> {
        let pods = snapshot.workloads.iter();
        Pods {
            by_uid: pods.filter_map(|pod| Some((pod.key.uid.as_deref()?, pod))).collect(),
            sources_ready: snapshot.sources_ready,
        }
    }

    /// Why everything of the pod may go: it is evicted, whether or not something of it still runs (unless it was evicted from outside); or it is deleted and nothing of it runs any more; or nobody knows it although all sources have reported.
    pub(crate) fn content_removable(&self, uid: &str) -> Option<RemoveReason> {
        match self.by_uid.get(uid) {
            None => self.sources_ready.then_some(RemoveReason::PodUnknown),
            Some(pod) if pod.evicted && (pod.is_finished() || !pod.evicted_from_outside) => {
                Some(RemoveReason::PodEvicted)
            }
            Some(pod) if pod.deleted && pod.is_finished() => Some(RemoveReason::PodDeleted),
            Some(_) => None,
        }
    }

    /// Why what runs the pod may go: as above, or it has merely ended and the node needs the room.
    pub(crate) fn runtime_removable(&self, uid: &str, need_room: bool) -> Option<RemoveReason> {
        self.content_removable(uid).or_else(|| {
            let finished = self.by_uid.get(uid).is_some_and(|pod| pod.is_finished());
            (need_room && finished).then_some(RemoveReason::PodTerminated)
        })
    }
}
