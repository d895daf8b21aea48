//! The pods and nodes that watches show, and what the pod collector says of them.

use crate::record::Named;
use ebb_kube::Seen;
use ebb_policy_cluster::pods::{Collector as Rules, Deletion, Limits, Node, Pod, Reason};
use ebb_policy_cluster::{Preconditions, Resource, Time, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Between two rounds: a thousand changes are one.
const BETWEEN: Duration = Duration::from_millis(100);

/// All pods and nodes.
pub(crate) struct Pods {
    pub(crate) rules: Rules,
    pub(crate) pods: Vec<Pod>,
    at: BTreeMap<Uid, usize>,
    pub(crate) nodes: BTreeMap<String, (Uid, Node)>,
    /// Whether something has changed since the last round.
    pub(crate) is_due: bool,
    pub(crate) last: Option<Instant>,
    /// When the answer changes by time alone.
    pub(crate) due: Option<Instant>,
    /// What the last round would delete: who has left it since it was queued stays.
    pub(crate) wanted: BTreeSet<Uid>,
    /// Pods that are queued, and the version for which a request was answered.
    pub(crate) queued: BTreeSet<Uid>,
    pub(crate) sent: BTreeMap<Uid, String>,
    /// Nodes that are looked up, or are not to be before then.
    pub(crate) asked: BTreeMap<String, Option<Instant>>,
    began: (Instant, Time),
}

impl Pods {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            rules: Rules::new(limits),
            pods: Vec::new(),
            at: BTreeMap::new(),
            nodes: BTreeMap::new(),
            is_due: false,
            last: None,
            due: None,
            wanted: BTreeSet::new(),
            queued: BTreeSet::new(),
            sent: BTreeMap::new(),
            asked: BTreeMap::new(),
            began: (Instant::now(), crate::leader::wall()),
        }
    }

    /// The wall's time at the start and what has passed since: a clock that is set must not end a quarantine.
    pub(crate) fn time(&self, now: Instant) -> Time {
        let passed = now.duration_since(self.began.0).as_millis();
        Time(self.began.1.0 + u64::try_from(passed).unwrap_or_default())
    }

    pub(crate) fn applied(&mut self, seen: &Seen) {
        if let Some(node) = seen.node {
            let new = (seen.object.uid.clone(), node);
            let old = self.nodes.insert(seen.object.name.clone(), new);
            self.is_due |= old.is_none_or(|(_, old)| old != node);
        }
        let Some(pod) = &seen.pod else { return };
        let pod = (**pod).clone();
        self.is_due = true;
        if let Some(&at) = self.at.get(&pod.uid) {
            self.pods[at] = pod;
        } else {
            self.at.insert(pod.uid.clone(), self.pods.len());
            self.pods.push(pod);
        }
    }

    pub(crate) fn gone(&mut self, uid: &Uid) {
        let Some(at) = self.at.remove(uid) else { return };
        self.pods.swap_remove(at);
        if let Some(moved) = self.pods.get(at) {
            self.at.insert(moved.uid.clone(), at);
        }
        self.sent.remove(uid);
        self.is_due = true;
    }

    pub(crate) fn node_gone(&mut self, name: &str) {
        self.nodes.remove(name);
        self.is_due = true;
    }

    /// A new list of pods or nodes has these and no others.
    pub(crate) fn listed(&mut self, of: &Resource, uids: &BTreeSet<Uid>) {
        if *of == core("Pod") {
            let gone: Vec<Uid> =
                self.at.keys().filter(|uid| !uids.contains(uid)).cloned().collect();
            gone.iter().for_each(|uid| self.gone(uid));
        } else if *of == core("Node") {
            self.nodes.retain(|_, (uid, _)| uids.contains(uid));
            self.is_due = true;
        }
    }

    /// Nothing is queued any more.
    pub(crate) fn begin(&mut self) {
        self.wanted.clear();
        self.queued.clear();
        self.asked.clear();
        self.is_due = true;
    }

    /// A queued pod's turn has come.
    pub(crate) fn taken(&mut self, uid: &Uid) {
        self.queued.remove(uid);
    }

    /// Whether a pod whose turn has come still goes. One that has changed since is judged anew first; one that is marked is as good as gone for whoever made it.
    pub(crate) fn still_goes(&self, deletion: &Deletion, is_marked: bool) -> bool {
        let on = &deletion.preconditions;
        let Some(pod) = self.at.get(&on.uid).map(|&at| &self.pods[at]) else { return false };
        if is_marked {
            return true;
        }
        let node = pod.node.as_ref().and_then(|name| self.nodes.get(name)).map(|(_, node)| node);
        let is_of_its_node = match deletion.reason {
            Reason::Orphaned => node.is_none(),
            Reason::OutOfService => node.is_some_and(|node| !node.ready && node.out_of_service),
            _ => true,
        };
        let is_judged = pod.resource_version == on.resource_version;
        self.wanted.contains(&on.uid) && is_of_its_node && is_judged
    }

    /// A request for this version was answered: nothing more is sent before the watch shows another.
    pub(crate) fn sent(&mut self, on: &Preconditions) {
        if self.at.contains_key(&on.uid) {
            self.sent.insert(on.uid.clone(), on.resource_version.clone());
        }
    }

    pub(crate) fn answered(&mut self, name: &str, is_there: bool) {
        let now = self.time(Instant::now());
        self.asked.remove(name);
        self.rules.answer_node(name, is_there, now);
        self.is_due = true;
    }

    pub(crate) fn unanswered(&mut self, name: &str, until: Instant) {
        self.asked.insert(name.to_owned(), Some(until));
        self.is_due = true;
    }

    /// The pod and why it goes; `None` where it is gone.
    pub(crate) fn describe(&self, deletion: &Deletion) -> Option<(Named, String)> {
        let pod = &self.pods[*self.at.get(&deletion.preconditions.uid)?];
        let named = Named {
            kind: "Pod".to_owned(),
            group: String::new(),
            namespace: Some(pod.namespace.clone()),
            name: pod.name.clone(),
            uid: pod.uid.to_string(),
        };
        let node = pod.node.as_deref().unwrap_or_default();
        let why = match deletion.reason {
            Reason::Terminated => "there are more terminated pods than the threshold".to_owned(),
            Reason::OutOfService => format!("it is terminating and node {node} is out of service"),
            Reason::Orphaned => format!("node {node} no longer exists"),
            Reason::Unscheduled => "it is terminating and was never scheduled".to_owned(),
            Reason::Namespace => "its namespace has more terminated pods than its limit".to_owned(),
            Reason::Controller => {
                "its controller has more terminated pods than its limit".to_owned()
            }
            Reason::Age => "it was terminated longer ago than the limit".to_owned(),
            Reason::AgeByReason => {
                let reason = &pod.reason;
                format!(
                    "its reason is {reason}, and it was terminated longer ago than the limit for it"
                )
            }
        };
        Some((named, why))
    }

    /// When the next round is due, by time alone or because something has changed.
    pub(crate) fn wake_at(&self, now: Instant) -> Option<Instant> {
        let changed = self.is_due.then(|| self.last.map_or(now, |last| last + BETWEEN));
        let asked = self.asked.values().flatten().min().copied();
        [changed, self.due, asked].into_iter().flatten().min()
    }
}

/// A kind of the core group.
pub(crate) fn core(kind: &str) -> Resource {
    Resource { group: String::new(), kind: kind.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_policy_cluster::pods::{Mark, Phase};

    fn pod(version: &str) -> Pod {
        Pod {
            uid: Uid::new("u"),
            namespace: "n".into(),
            name: "p".into(),
            resource_version: version.into(),
            created: Time(0),
            ended: None,
            deleting_since: None,
            grace_seconds: None,
            controller: None,
            node: Some("gone".into()),
            phase: Phase::Running,
            reason: String::new(),
            held: false,
        }
    }

    fn deletion(reason: Reason) -> Deletion {
        Deletion {
            namespace: "n".into(),
            name: "p".into(),
            preconditions: Preconditions { uid: Uid::new("u"), resource_version: "1".into() },
            reason,
            mark: Some(Mark { disruption_target: None }),
        }
    }

    /// A pod that a round wants to delete.
    fn wanted(version: &str) -> Pods {
        let mut pods = Pods::new(Limits::default());
        pods.at.insert(Uid::new("u"), 0);
        pods.pods.push(pod(version));
        pods.wanted.insert(Uid::new("u"));
        pods
    }

    #[test]
    fn a_pod_whose_turn_has_come_goes_if_nothing_has_changed() {
        assert!(wanted("1").still_goes(&deletion(Reason::Orphaned), false));
    }

    #[test]
    fn a_pod_that_has_changed_is_judged_anew_unless_it_is_marked() {
        let pods = wanted("2");
        assert!(!pods.still_goes(&deletion(Reason::Orphaned), false));
        assert!(pods.still_goes(&deletion(Reason::Orphaned), true));
    }

    #[test]
    fn a_pod_stays_whose_node_came_back_while_it_was_queued() {
        let mut pods = wanted("1");
        let node = Node { ready: true, out_of_service: false };
        pods.nodes.insert("gone".into(), (Uid::new("node"), node));
        assert!(!pods.still_goes(&deletion(Reason::Orphaned), false));
        assert!(!pods.still_goes(&deletion(Reason::OutOfService), false));
    }

    #[test]
    fn a_pod_stays_that_the_last_round_no_longer_wants_to_delete_and_one_that_is_gone() {
        let mut pods = wanted("1");
        pods.wanted.clear();
        assert!(!pods.still_goes(&deletion(Reason::Terminated), false));
        pods.gone(&Uid::new("u"));
        assert!(!pods.still_goes(&deletion(Reason::Terminated), true));
    }
}
