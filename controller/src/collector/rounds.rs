//! Rounds of the pod collector: where something has changed or time has passed, its rules are asked, and what goes is queued.

use super::Collector;
use crate::job::Job;
use crate::pods::core;
use ebb_policy_cluster::{State, Uid};
use std::time::{Duration, Instant};

impl Collector {
    /// Whether all pods and nodes are known, so that the rules may be asked and what they said may be done.
    pub(super) fn knows_pods(&self) -> bool {
        let is_synced =
            |of: &str| matches!(self.graph.resource(&core(of)), Some((_, State::Synced)));
        let is_ignored = self.config.exclusions.resources.contains(&core("Pod"));
        is_synced("Pod") && is_synced("Node") && !is_ignored
    }

    /// Asks the rules where something has changed or time has passed.
    pub(crate) fn collect_pods(&mut self, now: Instant) {
        if !self.config.collectors.pods || self.pods.wake_at(now).is_none_or(|at| at > now) {
            return;
        }
        self.pods.is_due = false;
        (self.pods.last, self.pods.due) = (Some(now), None);
        self.pods.asked.retain(|_, until| until.is_none_or(|until| until > now));
        if !self.knows_pods() || !self.may_act(now) {
            return;
        }
        let time = self.pods.time(now);
        let nodes = self.pods.nodes.iter().map(|(name, (_, node))| (name.clone(), *node)).collect();
        let round = self.pods.rules.collect(&self.pods.pods, &nodes, time);
        self.pods.due =
            round.due.map(|due| now + Duration::from_millis(due.0.saturating_sub(time.0).max(1)));
        for name in round.confirm {
            if !self.pods.asked.contains_key(&name) {
                self.pods.asked.insert(name.clone(), None);
                self.requests.queue.push(Uid::new(&name), Job::Node(name));
            }
        }
        self.pods.wanted =
            round.deletions.iter().map(|deletion| deletion.preconditions.uid.clone()).collect();
        for deletion in round.deletions {
            let on = &deletion.preconditions;
            let is_sent = self.pods.sent.get(&on.uid) == Some(&on.resource_version);
            let waits = self.requests.busy.contains(&on.uid) || self.requests.is_held(&on.uid, now);
            if !is_sent && !waits && self.pods.queued.insert(on.uid.clone()) {
                self.requests.queue.push(on.uid.clone(), Job::Pod(deletion));
            }
        }
    }
}
