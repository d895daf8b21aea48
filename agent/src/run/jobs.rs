//! What was set in motion: jobs handed to the workers, what became of them, and what is on its way out.

use super::Agent;
use crate::act::{self, Acted, NotDone, Target};
use crate::clock::Boot;
use crate::report::{Fate, Record, ms};
use crate::state::NodeState;

impl Agent {
    /// Hands a job to the worker.
    pub(super) fn give(&mut self, target: Target, step: act::Step, need: Option<act::Need>) {
        self.job_number += 1;
        let job = act::Job { number: self.job_number, target, step, need };
        if let Some(key) = self.state.key_of(&job.target) {
            self.names.insert(job.number, key);
        }
        if let Err(job) = self.jobs.give(job) {
            self.names.remove(&job.number);
            self.state.departures().fail(&job.target);
            left_alone(&mut self.state, &job.target);
            let why = "the worker has not kept up".to_owned();
            self.reporter.tell(&Record::NotDone { job: &job, workload: None, why });
        }
    }

    /// Takes in what became of a job.
    pub(super) fn on_acted(&mut self, acted: &Acted) {
        let name = self.names.remove(&acted.job.number);
        let workload = name.as_ref();
        let episode = self.watches.iter_mut().find_map(|w| w.episode.as_mut());
        match &acted.result {
            Ok(ended) => {
                let after_ms = episode.as_ref().map(|e| e.after_ms(ended.at));
                if let Some(episode) = episode {
                    let who = workload
                        .map_or_else(|| format!("{:?}", acted.job.target), |k| k.name.clone());
                    let what = match (ended.method, acted.by_watchdog) {
                        (act::Method::DryRun, _) => "would be killed (dry run)",
                        (act::Method::Terminate, _) => "asked to end",
                        (act::Method::Reclaim, _) => "reclaimed from",
                        (act::Method::Throttle, _) => "slowed down",
                        (act::Method::Freeze, _) => "stopped",
                        (act::Method::Release, _) => "let go again",
                        (_, false) => "killed",
                        (_, true) => "killed by the watchdog",
                    };
                    episode.note(what, ended.at, Some(who));
                }
                if ended.method == act::Method::DryRun {
                    self.state.departures().only_pretended(&acted.job.target);
                } else if let (Target::Pod { uid, .. }, true) =
                    (&acted.job.target, acted.by_watchdog)
                {
                    // Nobody decided on it here, so nobody has noted it.
                    self.state.pods_mut().note_evicted(uid);
                }
                self.reporter.tell(&Record::Acted {
                    job: &acted.job,
                    workload,
                    method: ended.method,
                    after_ms,
                    took_us: u64::try_from(ended.at.since(acted.begun).as_micros())
                        .unwrap_or(u64::MAX),
                    by_watchdog: acted.by_watchdog,
                });
            }
            Err(error) => {
                let target = &acted.job.target;
                match error {
                    // Nothing was on its way because of it.
                    _ if matches!(acted.job.step, act::Step::Rung(_)) => {}
                    NotDone::Refused(act::Refusal::Protected { because, .. }) => {
                        self.state.departures().cancel(target);
                        self.state.protect(target, *because);
                        left_alone(&mut self.state, target);
                    }
                    NotDone::Refused(act::Refusal::Gone) => {
                        self.state.departures().cancel(target);
                        self.state.forget_removed(target);
                        if let Some(key) = workload {
                            self.state.found_empty(key);
                        }
                    }
                    NotDone::NotNeeded { .. } => {
                        self.state.departures().cancel(target);
                        left_alone(&mut self.state, target);
                    }
                    // Not chosen again for a while: another may be, and the log does not fill with the same refusal.
                    NotDone::UnknownNeed(_) => {
                        self.state.departures().fail(target);
                        left_alone(&mut self.state, target);
                    }
                    NotDone::Failed(_) => self.state.departures().fail(target),
                }
                if let Some(episode) = episode {
                    episode.note("not done", Boot::now(), Some(error.to_string()));
                }
                let why = error.to_string();
                self.reporter.tell(&Record::NotDone { job: &acted.job, workload, why });
            }
        }
    }

    /// Looks who has gone, who has not in time, and whose grace is over.
    pub(super) fn look_at_departures(&mut self, at: Boot) {
        if !self.state.departures().are_remembered() {
            return;
        }
        for target in self.state.departures().take_overdue(at) {
            self.give(target, act::Step::Kill, None);
        }
        let proc = self.roots.proc.clone();
        let (gone, stuck) = self.state.departures().look(&proc, at);
        for (departures, fate) in [(gone, Fate::Gone), (stuck, Fate::Stuck)] {
            for departure in departures {
                match (&departure.target, fate) {
                    (Target::Pod { uid, .. }, Fate::Gone) => self.stop_sandboxes(uid),
                    (target, Fate::Gone) => self.state.forget_removed(target),
                    (_, Fate::Stuck) => {}
                }
                if let Some(episode) = self.watches.iter_mut().find_map(|w| w.episode.as_mut()) {
                    let what = match fate {
                        Fate::Gone => "gone",
                        Fate::Stuck => "still there past its deadline",
                    };
                    episode.note(what, at, Some(departure.key.name.clone()));
                }
                let after_ms = ms(at.since(departure.chosen));
                self.reporter.tell(&Record::Departed { workload: &departure.key, fate, after_ms });
            }
        }
    }
}

/// A pod to which nothing was done does not count as ended: what is dead of it is not to be collected, nor its sandbox stopped.
fn left_alone(state: &mut NodeState, target: &Target) {
    if let Target::Pod { uid, .. } = target {
        state.pods_mut().forget_evicted(uid);
    }
}
