//! The API server in the loop: what its news changes, and what it is told of evictions and of the node.
//!
//! ```text
//!  decided ─► waiting ─── acted on ─► Order::Tell ─► telling ── Deleted, gone ─► forgotten
//!                │                                      │
//!                └─ not done: forgotten                 └─ what its kubelet starts meanwhile is killed as part of it
//!  soft ────► asked ─► Order::Evict ─► Deleted · Refused (a budget) · NotEvicted (the runtime is asked instead)
//! ```

mod watch;

use super::Agent;
use crate::act::{Mode, Step, Target};
use crate::clock::Boot;
use crate::cluster::{ClusterNews, Eviction, NodePods, Order, Told, Update, by_pod};
use crate::state::{Cause, Depth, Extent};
use ebb_journal::{Part, Record};
use ebb_policy::plan::Evict;
use ebb_policy::signal::NodeConditionType;
use ebb_policy::snapshot::WorkloadKey;
use ebb_policy::{Plan, Signal, Time};
use std::collections::BTreeSet;
use std::time::Duration;
pub(super) use watch::ClusterWatch;
use watch::{Asked, Telling};

/// After a start nobody is evicted whom the API server has yet to describe: for so long at most, for it may be away.
const FIRST_LIST: Duration = Duration::from_secs(5);

/// How long the end waits until the Node's taints are taken away and what is still to be told is on disk.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl Agent {
    /// Takes in what the API server has to say.
    pub(super) fn on_cluster(&mut self, news: ClusterNews) {
        let Some(cluster) = &mut self.cluster else { return };
        match news {
            ClusterNews::Pods(Update::All(pods)) => {
                cluster.pods = by_pod(pods);
                cluster.are_new = true;
                let (pods, now) = (&cluster.pods, Boot::now());
                cluster.telling.retain(|uid, telling| {
                    !telling.is_told || pods.contains_key(uid) && telling.covers_restarts(now)
                });
                if !std::mem::replace(&mut cluster.is_up, true) {
                    let what = format!("{} pods of this node", cluster.pods.len());
                    self.reporter.tell(Record::ApiServer { up: true, what });
                }
                self.tell_of_problems();
                if self.state.pods_mut().await_descriptions(false) {
                    // Whom nobody had described was left out of the last decision.
                    self.node.decide_at = Some(Boot::now());
                }
                self.take_pods_over();
            }
            ClusterNews::Pods(Update::Broken(why)) => {
                cluster.is_up = false;
                let what = format!("pods of this node: {why}; what was told last counts");
                self.reporter.tell(Record::ApiServer { up: false, what });
            }
            ClusterNews::Budgets(Update::All(budgets)) => {
                cluster.budgets = budgets;
                self.take_pods_over();
            }
            ClusterNews::Budgets(Update::Broken(why)) => {
                let what = format!("disruption budgets: {why}; what was told last of them counts");
                self.reporter.tell_degraded(Part::ApiServer, what);
            }
            ClusterNews::HasNode(has_node) => {
                if cluster.has_node.replace(has_node) != Some(has_node) && !has_node {
                    let what = "the API server has no Node of this name: neither conditions nor taints are set, and no pod of this node is found; is --node-name right?";
                    self.reporter.tell_degraded(Part::ApiServer, what);
                }
            }
            ClusterNews::Deleted(uid) => {
                let asked = cluster.asked.remove(&uid).map(|asked| asked.eviction);
                let asked = asked.or_else(|| cluster.waiting.remove(&uid));
                let telling = cluster.telling.entry(uid).or_insert_with(|| Telling::begin(None));
                telling.deleted = Some(Boot::now());
                if let Some(asked) = asked {
                    // It is deleted; the Event is still to be written.
                    let eviction = Eviction { is_deleting: true, ..asked };
                    self.order_telling(eviction);
                }
                // Started while the deletion was waited for, and the next list of what the runtime has may be a minute away.
                self.kill_what_was_restarted();
            }
            ClusterNews::Told(told) => {
                let telling = cluster.telling.get_mut(&told.eviction.uid);
                let signal = telling.and_then(|telling| {
                    telling.is_told = true;
                    telling.signal
                });
                self.note_told(&told, signal);
                let took_ms = told.took.as_secs_f64() * 1e3;
                let name = format!("{}/{}", told.eviction.namespace, told.eviction.name);
                self.reporter.tell(Record::EvictionTold {
                    workload: WorkloadKey {
                        name,
                        uid: Some(told.eviction.uid.clone()),
                        ..WorkloadKey::default()
                    },
                    was_gone: told.was_gone,
                    refused: told.refused,
                    took_ms,
                    decision: Some(Time(told.eviction.at)),
                });
            }
            ClusterNews::Refused { uid, why, retry_after } => {
                cluster.refused.insert(uid.clone(), Boot::now().plus(retry_after));
                cluster.waiting.remove(&uid);
                if let Some(asked) = cluster.asked.remove(&uid) {
                    self.take_back(&asked, why);
                    self.take_pods_over();
                    self.look(true);
                }
            }
            ClusterNews::NotEvicted { uid, why } => {
                if let Some(asked) = cluster.asked.remove(&uid) {
                    let what = format!(
                        "pod {}: the API server does not evict it: {why}; the runtime is asked to stop it",
                        asked.key.name
                    );
                    self.reporter.tell_degraded(Part::ApiServer, what);
                    if self.stop_by_runtime(&uid, asked.grace) {
                        self.tell_of(uid, asked.eviction, None);
                    } else {
                        // Told once it is done, with what was decided.
                        if let Some(cluster) = &mut self.cluster {
                            cluster.waiting.insert(uid, asked.eviction);
                        }
                        let decision = self.state.terminations().decision_of(&asked.target);
                        self.give(asked.target, Step::Terminate, None, decision);
                    }
                }
            }
            ClusterNews::Trouble(what) => self.reporter.tell_degraded(Part::ApiServer, what),
        }
    }

    /// Whoever the API server is still asked to evict has been told by nobody: the grace is yet to begin.
    pub(super) fn hold_unanswered_graces(&mut self, now: Boot) {
        let asked = self.cluster.iter().flat_map(|cluster| cluster.asked.values());
        for asked in asked {
            self.state.terminations().begin_grace(&asked.target, asked.grace, now);
        }
    }

    /// Judges what pods ask of ebb by a configuration that is new.
    pub(super) fn judge_pods_anew(&mut self) {
        self.tell_of_problems();
        self.take_pods_over();
    }

    /// Says what is wrong with pods and was not before.
    fn tell_of_problems(&mut self) {
        let Some(cluster) = &mut self.cluster else { return };
        let contract = &self.policy.contract;
        let wrong = cluster.pods.values().flat_map(|pod| pod.problems(contract));
        let wrong: BTreeSet<String> = wrong.collect();
        for what in wrong.difference(&cluster.problems).cloned() {
            self.reporter.tell_degraded(Part::PodDescriptions, what);
        }
        cluster.problems = wrong;
    }

    /// Takes up what an earlier run was told of pods, until the API server tells it again.
    pub(super) fn take_up_pods(&mut self, pods: Option<NodePods>) {
        if let (Some(cluster), Some(pods)) = (&mut self.cluster, pods) {
            cluster.pods = pods;
            self.take_pods_over();
        }
    }

    /// When an API server that has said nothing is not waited for any more; `None` where it is not waited for.
    pub(super) fn first_list_due(&self) -> Option<Boot> {
        let cluster = self.cluster.as_ref().filter(|_| self.state.pods().awaits_descriptions())?;
        Some(cluster.began.plus(FIRST_LIST))
    }

    /// An API server that says nothing is not waited for: whoever it has not described is a candidate by what the runtime says.
    pub(super) fn stop_waiting_for_pods(&mut self, at: Boot) {
        if self.first_list_due().is_some_and(|due| at >= due) {
            self.state.pods_mut().await_descriptions(false);
        }
    }

    /// Puts the API server's pods into the pod book.
    fn take_pods_over(&mut self) {
        let Some(cluster) = &self.cluster else { return };
        let pods = cluster.described_pods(&self.policy.contract);
        self.state.pods_mut().observe_described(pods);
    }

    /// Nothing was done to a pod that its budget spares: another is to be chosen.
    fn take_back(&mut self, asked: &Asked, why: String) {
        self.decisions.history.forget_waiting(&asked.key);
        self.state.terminations().cancel(&asked.target);
        if let Target::Pod { uid, .. } = &asked.target {
            self.state.pods_mut().forget_evicted(uid);
        }
        self.reporter.tell(Record::EvictionRefused { workload: asked.key.clone(), why });
    }

    /// Gives an order; one that is lost is said.
    fn give_order(&mut self, order: Order) -> bool {
        let Some(cluster) = &self.cluster else { return false };
        let is_given = cluster.cluster.give(order);
        if !is_given {
            let what = "what the API server is to be told is more than waits for it: some is lost";
            self.reporter.tell_degraded(Part::ApiServer, what);
        }
        is_given
    }

    /// Has the API server told of an eviction.
    fn order_telling(&mut self, eviction: Eviction) {
        let uid = eviction.uid.clone();
        if self.give_order(Order::Tell(eviction.into())) {
            return;
        }
        let Some(cluster) = &mut self.cluster else { return };
        // Nobody will say that it is told.
        if let Some(telling) = cluster.telling.get_mut(&uid)
            && telling.deleted.is_some()
        {
            telling.is_told = true;
        } else {
            // Nor is its pod deleted: what its kubelet starts again is no part of this eviction, and to be told of by itself.
            cluster.telling.remove(&uid);
        }
    }

    /// Notes what the API server is to be told once this eviction is acted on.
    pub(super) fn note_for_cluster(
        &mut self,
        evict: &Evict,
        uid: &str,
        grace: Duration,
        decided: Time,
    ) {
        if self.mode == Mode::DryRun {
            return;
        }
        let Some(cluster) = &mut self.cluster else { return };
        let Some(pod) = cluster.object(uid, &evict.workload.name) else { return };
        let eviction = Eviction::of(evict, &pod, grace, decided.0);
        cluster.ended.remove(uid);
        cluster.waiting.insert(uid.to_owned(), eviction);
    }

    /// Leaves a graceful eviction to the API server; false where that is not possible now.
    pub(super) fn evict_by_cluster(
        &mut self,
        key: &WorkloadKey,
        target: &Target,
        grace: Duration,
    ) -> bool {
        let Target::Pod { uid, .. } = target else { return false };
        let Some(cluster) = self.cluster.as_mut().filter(|cluster| cluster.is_up) else {
            return false;
        };
        // Chosen although a budget spares it: the configuration has ebb pass budgets over, and the API server would not.
        let obeys_budgets = self.policy.limits.options().disruption_budgets;
        if !obeys_budgets && cluster.refused.contains_key(uid) {
            return false;
        }
        let Some(eviction) = cluster.waiting.remove(uid) else { return false };
        let order = Order::Evict(eviction.clone().into());
        if !cluster.cluster.give(order) {
            cluster.waiting.insert(uid.clone(), eviction);
            return false;
        }
        let (key, target) = (key.clone(), target.clone());
        cluster.asked.insert(uid.clone(), Asked { key, target, grace, eviction });
        true
    }

    /// A pod is killed before its grace is over: the API server's answer, where one is due, is not waited for any more, and it is told of the kill.
    pub(super) fn take_back_question(&mut self, uid: &str) {
        let Some(cluster) = &mut self.cluster else { return };
        if let Some(asked) = cluster.asked.remove(uid) {
            let eviction = Eviction { grace: 1, ..asked.eviction };
            cluster.waiting.insert(uid.to_owned(), eviction);
        }
    }

    /// Tells the API server of a pod that was acted on; whoever did it, and whether or not that was decided here.
    pub(super) fn tell_cluster(&mut self, uid: &str, signal: Option<Signal>) {
        let Some(cluster) = &mut self.cluster else { return };
        let eviction = cluster.waiting.remove(uid);
        if eviction.is_none()
            && (cluster.telling.contains_key(uid) || cluster.asked.contains_key(uid))
        {
            // The rest of an eviction that is being told.
            return;
        }
        let eviction = eviction.or_else(|| {
            let pod = cluster.object(uid, &self.state.pods().key_of(uid)?.name)?;
            let at = self.state.clock().unix_ms(Boot::now());
            Some(Eviction::without_decision(&pod, signal, at))
        });
        if let Some(eviction) = eviction {
            self.tell_of(uid.to_owned(), eviction, signal);
        }
    }

    fn tell_of(&mut self, uid: String, eviction: Eviction, signal: Option<Signal>) {
        let Some(cluster) = &mut self.cluster else { return };
        let is_dead = cluster.begin_telling(&uid, signal);
        self.order_telling(eviction);
        if is_dead {
            self.give_order(Order::Dead(uid));
        }
    }

    /// Adds to the episode that the eviction belongs to, where that is not over, that the API server knows of it.
    fn note_told(&mut self, told: &Told, signal: Option<Signal>) {
        let mut detail = format!("{}/{}", told.eviction.namespace, told.eviction.name);
        if !told.refused.is_empty() {
            detail = format!("{detail}: refused: {}", told.refused.join("; "));
        } else if told.was_gone {
            detail += ": its object was gone";
        }
        let moment = ("the API server was told", Boot::now());
        self.note_moment(None, signal.as_slice(), moment, &detail);
    }

    /// Nothing was done to the pod: there is nothing to tell.
    pub(super) fn forget_for_cluster(&mut self, uid: &str) {
        if let Some(cluster) = &mut self.cluster {
            cluster.waiting.remove(uid);
        }
    }

    /// Tells the API server's thread that nothing of a pod runs any more.
    pub(super) fn tell_cluster_of_death(&mut self, uid: &str) {
        let order = self.cluster.as_mut().and_then(|cluster| cluster.note_end(uid, Boot::now()));
        if let Some(order) = order {
            self.give_order(order);
        }
    }

    /// Kills what a kubelet has started of a pod that is evicted, before it has heard of its deletion: it is part of the same eviction, and needs no new one.
    pub(super) fn kill_what_was_restarted(&mut self) {
        let now = Boot::now();
        let Some(cluster) = &self.cluster else { return };
        // A static pod that was evicted while nobody said that it is one: its mirror is not deleted, and its kubelet is to run it.
        let is_static = |uid: &String| cluster.pods.get(uid).is_some_and(|pod| pod.is_mirror);
        let telling = cluster
            .telling
            .iter()
            .filter(|(uid, telling)| telling.covers_restarts(now) && !is_static(uid));
        let uids: Vec<String> = telling.map(|(uid, _)| uid.clone()).collect();
        if !uids.is_empty() {
            // The runtime may have told of a container whose cgroup nobody has told of.
            self.read_workloads(now, Depth::Memory);
        }
        for uid in uids {
            let Some(target) = self.state.started_since(&uid) else { continue };
            let Some(key) = self.state.key_of(&target) else { continue };
            let cause = Cause::default();
            self.state.terminations().begin(key, target.clone(), Duration::ZERO, cause);
            self.give(target, Step::Kill, None, None);
        }
    }

    /// Lets budgets that have refused an eviction be asked again once their time is over.
    pub(super) fn forget_refusals(&mut self, at: Boot) {
        let Some(cluster) = &mut self.cluster else { return };
        let before = cluster.refused.len();
        cluster.refused.retain(|_, until| *until > at);
        if cluster.refused.len() != before {
            self.take_pods_over();
        }
    }

    /// Has the Node say what a plan says of it; one that leaves disk out says nothing of that.
    pub(super) fn tell_conditions(&mut self, plan: &Plan, extent: Extent) {
        if self.mode == Mode::DryRun {
            return;
        }
        let Some(cluster) = &mut self.cluster else { return };
        let said = |of| cluster.conditions.iter().find(|(kind, _)| *kind == of);
        let states: Vec<(NodeConditionType, bool)> = plan
            .conditions
            .iter()
            .map(|condition| {
                let of = condition.condition_type;
                let is_left_out = of == NodeConditionType::DiskPressure && extent == Extent::Quick;
                let holds = if is_left_out {
                    said(of).is_some_and(|(_, holds)| *holds)
                } else {
                    condition.status
                };
                (of, holds)
            })
            .collect();
        if states.is_empty() || states == cluster.conditions {
            return;
        }
        let mut conditions = plan.conditions.clone();
        for (condition, (_, holds)) in conditions.iter_mut().zip(&states) {
            condition.status = *holds;
        }
        // What was lost is said anew by the next plan.
        if cluster.cluster.give(Order::Conditions(conditions)) {
            cluster.conditions = states;
        }
    }

    /// Has the Node's taints taken away, and what is still to be told written to disk, because ebb ends.
    pub(super) async fn leave_cluster(&mut self) {
        let Some(cluster) = &self.cluster else { return };
        let (done, is_done) = tokio::sync::oneshot::channel();
        if cluster.cluster.give(Order::Stop(done)) {
            // An API server that is away is not waited for: the next start takes them away.
            let _ = tokio::time::timeout(LAST_WORDS, is_done).await;
        }
    }
}

#[cfg(test)]
mod tests;
