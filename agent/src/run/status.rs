//! How the node stands, for whoever asks while the loop runs: from what the loop knows anyhow. Nothing is read or ranked for it, and nobody is waited for.
//!
//! ```text
//!  NodeQuestions ──one at a time──► Event::Asked ─┬─► NodeStatus      ──► who asked
//!                                                 ├─► WorkloadsStatus ──► who asked, who ranks them on a thread of its own
//!                                                 └─► LatestDecision  ──► who asked, who writes it down there
//! ```
//! Of the workloads the loop hands over the snapshot of its latest decision, which it needs no more, as it is.

use super::{Agent, watch::Watch};
use crate::act::Mode;
use crate::clock::Boot;
use crate::state::Extent;
use ebb_policy::history::Growth;
use ebb_policy::limits::{Limits, MemoryPressure};
use ebb_policy::plan::ThresholdStatus;
use ebb_policy::snapshot::WorkloadKey;
use ebb_policy::{History, Signal, Snapshot, StallShare, Time, observed};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Who would be evicted first that are told.
pub(super) const RANKED: usize = 16;

/// How the node stands.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// Whether ebb acts.
    pub mode: Mode,
    /// When this was said.
    pub answered_at: Time,
    /// When the node was last looked at.
    pub looked_at: Time,
    /// Every threshold in force.
    pub thresholds: Vec<ThresholdNow>,
    /// Every cgroup whose memory pressure is watched, with what was read last.
    pub memory_pressure: Vec<(MemoryPressure, Option<StallShare>)>,
    /// Who would be evicted first below the hard threshold of memory, and when that was found; `None` without such a threshold, or when nobody may be evicted.
    pub ranking: Option<(Time, Vec<WorkloadKey>)>,
    /// Workloads that are known.
    pub workloads: usize,
    /// Names of the episodes of pressure that are going on.
    pub episodes: Vec<String>,
}

/// A threshold as it was last decided on, with what is left now.
#[derive(Clone, Debug)]
pub struct ThresholdNow {
    /// The threshold; `available` as of the latest look.
    pub status: ThresholdStatus,
    /// Time until it is met at the present rate; `None` when what is left does not shrink.
    pub time_left: Option<Duration>,
    /// All that there is of the signal.
    pub capacity: Option<u64>,
}

/// The workloads, and what ranking them takes.
#[derive(Clone, Debug)]
pub struct WorkloadsStatus {
    /// What the latest decision knew; `None` before the first.
    pub seen: Option<Arc<Snapshot>>,
    /// How fast they grow, ordered by who they are.
    pub growth: Vec<Growth>,
    /// What is decided by.
    pub limits: Limits,
    /// The cgroups of pods, by their UIDs.
    pub pod_cgroups: BTreeMap<String, String>,
}

/// What the latest decision on everything, disk and images too, was made of: the policy makes it again of this.
#[derive(Clone, Debug)]
pub struct LatestDecision {
    /// What was known, and what was remembered before; `None` until such a decision was made that evicted nobody.
    pub made_of: Option<(Arc<Snapshot>, Arc<History>)>,
    /// The configuration in force, as YAML.
    pub config: String,
    /// The cgroups of pods, by their UIDs.
    pub pod_cgroups: BTreeMap<String, String>,
}

/// A question, which is answered by what is sent there.
pub(super) enum Asked {
    /// How the node stands.
    Node(oneshot::Sender<NodeStatus>),
    /// Which workloads there are.
    Workloads(oneshot::Sender<WorkloadsStatus>),
    /// What the latest decision was made of.
    Decision(oneshot::Sender<LatestDecision>),
}

/// The way of questions to the loop.
#[derive(Clone, Debug)]
pub struct NodeQuestions(mpsc::Sender<Asked>);

/// The loop's end of it.
#[derive(Debug)]
pub struct NodeInbox(pub(super) mpsc::Receiver<Asked>);

/// A way of questions, and its other end.
#[must_use]
pub fn node_questions() -> (NodeQuestions, NodeInbox) {
    let (sender, inbox) = mpsc::channel(1);
    (NodeQuestions(sender), NodeInbox(inbox))
}

impl NodeQuestions {
    /// Asks how the node stands; `None` while another question waits.
    #[must_use]
    pub fn ask(&self) -> Option<oneshot::Receiver<NodeStatus>> {
        self.put(Asked::Node)
    }

    /// Asks which workloads there are; `None` while another question waits.
    #[must_use]
    pub fn ask_workloads(&self) -> Option<oneshot::Receiver<WorkloadsStatus>> {
        self.put(Asked::Workloads)
    }

    /// Asks what the latest decision was made of; `None` while another question waits.
    #[must_use]
    pub fn ask_decision(&self) -> Option<oneshot::Receiver<LatestDecision>> {
        self.put(Asked::Decision)
    }

    fn put<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<T>) -> Asked,
    ) -> Option<oneshot::Receiver<T>> {
        let (told, answer) = oneshot::channel();
        self.0.try_send(question(told)).ok().map(|()| answer)
    }
}

/// What is kept of the latest decisions, where somebody may ask for it.
#[derive(Debug, Default)]
pub(super) struct Kept {
    thresholds: Vec<ThresholdStatus>,
    ranking: Option<(Boot, Vec<WorkloadKey>)>,
    /// What there is of each signal, as last observed.
    capacities: BTreeMap<Signal, u64>,
    seen: Option<Arc<Snapshot>>,
    /// Of the latest decision on everything: what it knew, and what was remembered before it.
    made_of: Option<(Arc<Snapshot>, Arc<History>)>,
}

impl Kept {
    /// Keeps where the thresholds stand; one that left disk out says nothing about thresholds on disk.
    pub(super) fn take_thresholds(&mut self, decided: &[ThresholdStatus], extent: Extent) {
        let before = std::mem::take(&mut self.thresholds);
        let now = decided.iter().map(|status| {
            let stays = |old: &&ThresholdStatus| {
                (old.signal, old.strength) == (status.signal, status.strength)
            };
            let is_left_out = extent == Extent::Quick && status.signal.is_disk();
            let old = before.iter().find(stays).filter(|_| is_left_out);
            old.unwrap_or(status).clone()
        });
        self.thresholds = now.collect();
    }

    /// Keeps who would be evicted first.
    pub(super) fn take_ranking(&mut self, at: Boot, ranked: Option<Vec<WorkloadKey>>) {
        self.ranking = ranked.map(|ranked| (at, ranked));
    }

    /// Keeps what a decision was made of, which needs it no more: nothing is copied.
    pub(super) fn take_made_of(&mut self, seen: Snapshot, before: History, extent: Extent) {
        let known = observed(&seen).into_iter();
        self.capacities.extend(known.filter_map(|(signal, seen)| Some((signal, seen.capacity?))));
        let seen = Arc::new(seen);
        if extent == Extent::Everything {
            self.made_of = Some((Arc::clone(&seen), Arc::new(before)));
        }
        self.seen = Some(seen);
    }
}

impl Agent {
    /// Answers a question. Who has asked may have gone meanwhile.
    pub(super) fn on_asked(&self, question: Asked) {
        match question {
            Asked::Node(answer) => drop(answer.send(self.node_status())),
            Asked::Workloads(answer) => drop(answer.send(self.workloads_status())),
            Asked::Decision(answer) => drop(answer.send(self.latest_decision())),
        }
    }

    fn latest_decision(&self) -> LatestDecision {
        LatestDecision {
            made_of: self.kept.as_ref().and_then(|kept| kept.made_of.clone()),
            config: self.policy.text.clone(),
            pod_cgroups: self.state.pod_cgroups(),
        }
    }

    fn workloads_status(&self) -> WorkloadsStatus {
        WorkloadsStatus {
            seen: self.kept.as_ref().and_then(|kept| kept.seen.clone()),
            growth: self.decisions.history.growth.clone(),
            limits: self.policy.limits.clone(),
            pod_cgroups: self.state.pod_cgroups(),
        }
    }

    fn node_status(&self) -> NodeStatus {
        let now = Boot::now();
        let clock = self.state.clock();
        let kept = self.kept.as_ref();
        let thresholds = kept.map_or(&[][..], |kept| &kept.thresholds);
        let ranking = kept.and_then(|kept| kept.ranking.as_ref());
        NodeStatus {
            mode: self.mode,
            answered_at: clock.time(now),
            looked_at: clock.time(self.node.looked),
            thresholds: thresholds.iter().map(|status| self.threshold_now(status)).collect(),
            memory_pressure: self.pressures.latest(),
            ranking: ranking.map(|(at, ranked)| (clock.time(*at), ranked.clone())),
            workloads: self.state.workload_count(),
            episodes: self.reporter.episodes().map(str::to_owned).collect(),
        }
    }

    fn threshold_now(&self, status: &ThresholdStatus) -> ThresholdNow {
        let mut status = status.clone();
        status.available = self.state.available(status.signal).or(status.available);
        if let Some(also) = &mut status.also_below {
            also.available = self.state.available(also.signal).or(also.available);
        }
        let watch = self.watches.of(status.signal);
        let time_left = watch.and_then(|watch: &Watch| {
            let threshold = status.threshold?.ceil();
            watch.time_left(u64::try_from(threshold).ok()?)
        });
        let capacities = self.kept.as_ref().map(|kept| &kept.capacities);
        let capacity = capacities.and_then(|known| known.get(&status.signal).copied());
        ThresholdNow { status, time_left, capacity }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_policy::plan::{Strength, ThresholdState};
    use ebb_policy::snapshot::Observation;

    fn status(signal: Signal, state: ThresholdState) -> ThresholdStatus {
        ThresholdStatus {
            signal,
            strength: Strength::Hard,
            state,
            threshold: None,
            available: None,
            by_minimum_reclaim: false,
            since: None,
            grace_left: None,
            also_below: None,
        }
    }

    #[test]
    fn a_decision_without_disk_leaves_what_was_known_of_disk() {
        let of = |memory, disk| {
            [status(Signal::MemoryAvailable, memory), status(Signal::NodeFsAvailable, disk)]
        };
        let (clear, met, unobserved) =
            (ThresholdState::Clear, ThresholdState::Met, ThresholdState::Unobserved);
        let states = |kept: &Kept| -> Vec<ThresholdState> {
            kept.thresholds.iter().map(|status| status.state).collect()
        };
        let mut kept = Kept::default();
        kept.take_thresholds(&of(clear, met), Extent::Everything);
        kept.take_thresholds(&of(met, unobserved), Extent::Quick);
        assert_eq!(states(&kept), [met, met]);
        kept.take_thresholds(&of(clear, clear), Extent::Everything);
        assert_eq!(states(&kept), [clear, clear]);
    }

    #[test]
    fn a_second_question_is_refused_while_one_waits() {
        let (questions, mut inbox) = node_questions();
        let first = questions.ask();
        assert!(first.is_some() && questions.ask().is_none());
        assert!(questions.ask_workloads().is_none());
        assert!(inbox.0.try_recv().is_ok() && questions.ask_workloads().is_some());
    }

    #[test]
    fn the_latest_decision_is_kept_and_the_latest_on_everything_beside_it() {
        let mut kept = Kept::default();
        let snapshot = |at, signal, capacity| {
            let mut snapshot = Snapshot::at(Time(at));
            let seen = Observation { available: 1, capacity, observed_at: None };
            snapshot.signals.insert(signal, seen);
            snapshot
        };
        let whole = snapshot(7, Signal::NodeFsAvailable, Some(9));
        kept.take_made_of(whole, History::default(), Extent::Everything);
        let quick = snapshot(8, Signal::MemoryAvailable, Some(4));
        kept.take_made_of(quick, History::default(), Extent::Quick);
        let at = [kept.seen.as_ref(), kept.made_of.as_ref().map(|(seen, _)| seen)];
        assert_eq!(at.map(|seen| seen.map(|seen| seen.taken_at)), [Some(Time(8)), Some(Time(7))]);
        let expected = [(Signal::MemoryAvailable, 4), (Signal::NodeFsAvailable, 9)];
        assert_eq!(kept.capacities, BTreeMap::from(expected));
    }
}
