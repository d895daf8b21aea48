//! What is said of pods beside the runtime, by their manifests or by the API server, and which of it is about which pod that the runtime lists.

use crate::sense::manifests::Manifests;
use crate::sense::runtime::PodSeen;
use ebb_policy::snapshot::Workload;

/// Pods as they are described.
#[derive(Clone, Debug, Default)]
pub struct Described {
    /// What is said of each.
    pub pods: Vec<Workload>,
    /// Everything that tells of pods was read: a pod that has no description is deleted.
    pub is_complete: bool,
}

impl From<&Manifests> for Described {
    fn from(found: &Manifests) -> Self {
        let pods = found.all().into_iter().map(Workload::from).collect();
        Self { pods, is_complete: !found.is_incomplete }
    }
}

impl Described {
    /// What is said of `pod`: by UID, else by name.
    pub(super) fn of(&self, pod: &PodSeen) -> Option<&Workload> {
        let by_uid = |spec: &&Workload| has_uid_of(spec, pod) && !is_false_mirror(spec, pod);
        let by_name = |spec: &&Workload| spec.key.uid.is_none() && is_named(pod, &spec.key.name);
        self.pods.iter().find(by_uid).or_else(|| self.pods.iter().find(by_name))
    }
}

/// Whether a manifest of this `namespace/name` that says no UID is about `pod`. A kubelet runs a static pod under the name with its node's after a dash.
pub(super) fn is_named(pod: &PodSeen, name: &str) -> bool {
    let rest = pod.name.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || pod.is_static && rest.starts_with('-'))
}

/// Whether it calls itself the mirror of `pod`, which has none: anybody who can make a pod can write that, and this one is run for the API server.
pub(super) fn is_false_mirror(spec: &Workload, pod: &PodSeen) -> bool {
    spec.mirror && pod.is_of_api_server && has_uid_of(spec, pod)
}

fn has_uid_of(spec: &Workload, pod: &PodSeen) -> bool {
    spec.key.uid.as_deref() == Some(&pod.sandbox.pod_uid)
}
