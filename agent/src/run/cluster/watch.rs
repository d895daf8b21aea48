//! What the loop knows of the API server, and of what it is told.

use crate::act::Target;
use crate::clock::Boot;
use crate::cluster::{Budget, Cluster, Eviction, NodePods, Order, PodObject, is_a_name};
use crate::config::Contract;
use crate::pods::Described;
use crate::run::episode::SETTLES_WITHIN;
use crate::store::Memory;
use ebb_policy::Signal;
use ebb_policy::signal::NodeConditionType;
use ebb_policy::snapshot::{DisruptionBudget, WorkloadKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// While the API server has not taken a deletion, what the kubelet starts of the pod is killed for this long: with an API server that is away it is a candidate like any other, and ranks first.
const UNDELETED: Duration = Duration::from_secs(10);

/// A kubelet that was told of a deletion starts nothing of the pod any more; this long it may not have heard.
const DELETED: Duration = Duration::from_secs(60);

/// A pod's end may be seen this long before the loop takes in that it was killed.
const UNTOLD: Duration = Duration::from_secs(10);

/// What it says of pods is written down for the next run this often at most: each time waits for the disk.
const WRITTEN_EVERY: Duration = Duration::from_secs(10);

/// The loop's side of the API server.
#[derive(Debug)]
pub(in crate::run) struct ClusterWatch {
    pub(super) cluster: Cluster,
    pub(super) began: Boot,
    /// What the API server said last, to this run or an earlier one.
    pub(super) pods: NodePods,
    /// They may have changed since they were handed over for the next run.
    pub(super) are_new: bool,
    pub(super) handed_over: Boot,
    pub(super) budgets: BTreeMap<String, Arc<Budget>>,
    pub(super) is_up: bool,
    /// Decided, and not acted on yet.
    pub(super) waiting: BTreeMap<String, Eviction>,
    /// Left to the API server, which has not answered.
    pub(super) asked: BTreeMap<String, Asked>,
    pub(super) telling: BTreeMap<String, Telling>,
    /// Pods of which nothing runs any more, and since when: what ended before it was told of is not told as running.
    pub(super) ended: BTreeMap<String, Boot>,
    /// Pods that a budget spares, until when.
    pub(super) refused: BTreeMap<String, Boot>,
    /// Which conditions the Node is to have, as given last.
    pub(super) conditions: Vec<(NodeConditionType, bool)>,
    /// What was said to be wrong with pods.
    pub(super) problems: BTreeSet<String>,
    pub(super) has_node: Option<bool>,
}

/// An eviction that the API server was asked for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) key: WorkloadKey,
    pub(super) target: Target,
    pub(super) grace: Duration,
    pub(super) eviction: Eviction,
}

/// An eviction that the API server is told of.
#[derive(Debug)]
pub(super) struct Telling {
    pub(super) since: Boot,
    /// For want of what it was evicted.
    pub(super) signal: Option<Signal>,
    pub(super) deleted: Option<Boot>,
    /// Told as far as it can be, or lost: nothing more will be said of it.
    pub(super) is_told: bool,
}

impl Telling {
    pub(super) fn begin(signal: Option<Signal>) -> Self {
        Self { since: Boot::now(), signal, deleted: None, is_told: false }
    }

    /// Whether what the kubelet starts of the pod is killed as part of the eviction.
    pub(super) fn covers_restarts(&self, now: Boot) -> bool {
        match self.deleted {
            Some(deleted) => now.since(deleted) < DELETED,
            None => !self.is_told && now.since(self.since) < UNDELETED,
        }
    }
}

impl ClusterWatch {
    pub(in crate::run) fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            began: Boot::now(),
            pods: NodePods::new(),
            are_new: false,
            handed_over: Boot::now(),
            budgets: BTreeMap::new(),
            is_up: false,
            waiting: BTreeMap::new(),
            asked: BTreeMap::new(),
            telling: BTreeMap::new(),
            ended: BTreeMap::new(),
            refused: BTreeMap::new(),
            conditions: Vec::new(),
            problems: BTreeSet::new(),
            has_node: None,
        }
    }

    /// Takes in that nothing could happen for `lasted`, as seen at `now`: nor could anybody hear which pods may not be evicted.
    pub(in crate::run) fn note_standstill(&mut self, lasted: Duration, now: Boot) {
        self.began = self.began.without_standstill(lasted, now);
    }

    /// What the API server said last of the node's pods.
    pub(in crate::run) fn pods(&self) -> &NodePods {
        &self.pods
    }

    /// Hands over what has changed of that.
    pub(in crate::run) fn remember_in(&mut self, memory: &mut Memory) {
        let now = Boot::now();
        if self.are_new && now.since(self.handed_over) >= WRITTEN_EVERY {
            self.handed_over = now;
            self.are_new = !memory.note_pods(&self.pods);
        }
    }

    /// Notes that an eviction is about to be told of; returns whether nothing of the pod runs any more.
    pub(super) fn begin_telling(&mut self, uid: &str, signal: Option<Signal>) -> bool {
        let telling = Telling::begin(signal);
        let ended = self.ended.remove(uid);
        let is_dead = ended.is_some_and(|ended| telling.since.since(ended) < UNTOLD);
        self.waiting.remove(uid);
        self.telling.insert(uid.to_owned(), telling);
        is_dead
    }

    /// Nothing of a pod runs any more: the order for that, where its eviction is being told.
    pub(super) fn note_end(&mut self, uid: &str, now: Boot) -> Option<Order> {
        self.ended.retain(|_, ended| now.since(*ended) < UNTOLD);
        self.ended.insert(uid.to_owned(), now);
        self.telling.contains_key(uid).then(|| Order::Dead(uid.to_owned()))
    }

    /// The object of the pod that the kubelet runs under this UID and name, unless it only mirrors a static pod.
    ///
    /// A pod that is missing from the API server's list so far is taken at the runtime's word: the UID decides whether there is such an object.
    pub(super) fn object(&self, uid: &str, name: &str) -> Option<PodObject> {
        if let Some(pod) = self.pods.get(uid) {
            return (!pod.is_mirror).then(|| pod.object.clone());
        }
        let (namespace, name) = name.split_once('/')?;
        // They become parts of a path.
        if ![namespace, name, uid].into_iter().all(is_a_name) {
            return None;
        }
        Some(PodObject {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        })
    }

    /// Whether the API server is being told of an eviction for want of this: the record of the episode is to say how that ended.
    pub(in crate::run) fn is_telling_of(&self, signal: Signal, at: Boot) -> bool {
        let is_due = |telling: &Telling| {
            !telling.is_told
                && telling.signal.is_none_or(|of| of == signal)
                && at.since(telling.since) < SETTLES_WITHIN
        };
        self.telling.values().any(is_due)
    }

    pub(super) fn described_pods(&self, contract: &Contract) -> Described {
        let spared = |uid: &String, workload: &mut ebb_policy::snapshot::Workload| {
            if self.refused.contains_key(uid) {
                let name = "the API server".to_owned();
                workload.disruption_budget =
                    Some(DisruptionBudget { name, disruptions_allowed: 0 });
            }
        };
        let pods = self.pods.iter().map(|(uid, pod)| {
            let mut workload = pod.with_budgets(self.budgets.values(), contract);
            spared(uid, &mut workload);
            workload
        });
        // A pod that is missing here may be a static one that nobody mirrors, or newer than what was told: its kubelet knows what is deleted.
        Described { pods: pods.collect(), is_complete: false }
    }
}
