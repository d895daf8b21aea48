//! The API server as the loop knows it: what it says of the node's pods, and what it is told of what ebb does.
//!
//! ```text
//!  API server ◄──► thread ebb-cluster (crate ebb-node-api) ── ClusterNews ─► loop
//!                                                          ◄──── Order ─────┘
//! ```
//! These are the values that both sides speak in. No kill waits for the thread: a pod is killed through its cgroup at the same time as the thread sets out to tell of it (decision 0032).
//! In a dry run no order is ever given.

mod eviction;
mod pod;

pub use eviction::{Eviction, Told};
pub use pod::{Budget, NodePod, NodePods, PodObject};

use crate::clock::Clock;
use ebb_policy::plan::NodeCondition;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;

/// Starts the thread for an API server; it is given the clock of the records and where news go.
///
/// It fails where there is no usable kubeconfig or service account, or no thread.
pub type Connect = Box<dyn FnOnce(Clock, Sender<ClusterNews>) -> anyhow::Result<Cluster>>;

/// What the loop asks for.
#[derive(Debug)]
pub enum Order {
    /// This pod was killed or is being terminated here: tell.
    Tell(Box<Eviction>),
    /// Evict this pod by the API server, as its budgets allow.
    Evict(Box<Eviction>),
    /// Nothing of the pod of this UID runs any more.
    Dead(String),
    /// The Node is to have these conditions, and the taints that follow from them.
    Conditions(Vec<NodeCondition>),
    /// ebb ends: take taints away, write what is still to be told to disk, and say when both are done.
    Stop(oneshot::Sender<()>),
}

/// What is told of objects that are followed.
#[derive(Debug)]
pub enum Update<T> {
    /// These are all, by UID.
    All(BTreeMap<String, Arc<T>>),
    /// They cannot be listed or watched, and why; what was told last is as old as it is.
    Broken(String),
}

/// What the thread tells the loop.
#[derive(Debug)]
pub enum ClusterNews {
    /// The pods that are bound to this node.
    Pods(Update<NodePod>),
    /// Disruption budgets of the cluster.
    Budgets(Update<Budget>),
    /// Whether the API server has a Node of this name.
    HasNode(bool),
    /// The API server has taken the deletion of the pod of this UID: its kubelet does not start it again.
    Deleted(String),
    /// An eviction is told, as far as it can be.
    Told(Box<Told>),
    /// A budget does not allow the eviction of the pod of this UID now.
    Refused {
        /// UID of the pod.
        uid: String,
        /// What was said.
        why: String,
        /// For how long it is not to be asked again.
        retry_after: Duration,
    },
    /// The pod of this UID could not be evicted by the API server for another reason than a budget.
    NotEvicted {
        /// UID of the pod.
        uid: String,
        /// What was said.
        why: String,
    },
    /// Something could not be had or done.
    Trouble(String),
}

/// Whether the API server could have an object of this name or UID: it becomes part of paths and selectors.
#[must_use]
pub fn is_a_name(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
    (1..=253).contains(&text.len()) && text.bytes().all(is_plain) && !text.starts_with(['-', '.'])
}

/// The loop's end.
#[derive(Clone, Debug)]
pub struct Cluster {
    orders: Sender<Order>,
    /// The thread that takes them, where it may be had go first.
    thread: Option<i32>,
}

impl Cluster {
    /// The end of a thread that takes these orders; it is to end when the last is dropped.
    #[must_use]
    pub fn new(orders: Sender<Order>) -> Self {
        Self { orders, thread: None }
    }

    /// The same, of a thread that gives its precedence back by itself once it has told of an eviction.
    #[must_use]
    pub fn of_thread(self, thread: i32) -> Self {
        Self { thread: Some(thread), ..self }
    }

    /// Gives an order without waiting; false when the thread has not kept up.
    ///
    /// That of an eviction has the thread go before whatever is not real-time: among those that are ending it would not even take the order for a second.
    #[must_use]
    pub fn give(&self, order: Order) -> bool {
        let is_urgent = matches!(order, Order::Tell(_));
        let is_given = self.orders.try_send(order).is_ok();
        if let Some(thread) = self.thread.filter(|_| is_urgent && is_given) {
            // Refused, it takes its turn; the loop has said so of itself.
            let _ = crate::threads::precede(thread, true);
        }
        is_given
    }
}

/// Pods by the UID by which their kubelet runs them, of what the API server lists by the UID of its objects.
///
/// Anybody who can make a pod can call it the mirror of a static pod. The UID of a static pod is that of no object, so what calls itself the mirror of a pod that is listed itself is left out: it would make that one a static pod, which is never evicted.
#[must_use]
pub fn by_pod(objects: BTreeMap<String, Arc<NodePod>>) -> NodePods {
    let own: BTreeSet<String> = objects.keys().cloned().collect();
    let is_true = |pod: &Arc<NodePod>, uid: &String| !(pod.is_mirror && own.contains(uid));
    let pods = objects.into_values();
    pods.filter_map(|pod| Some((pod.workload.key.uid.clone()?, pod)))
        .filter(|(uid, pod)| is_true(pod, uid))
        .collect()
}
