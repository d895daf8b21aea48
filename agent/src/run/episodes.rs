//! The episodes of the signals that are watched: when one begins, when it is over, and what is told then.

use super::Agent;
use super::episode::Episode;
use super::watch::Finding;
use crate::clock::Boot;
use ebb_journal::incident::About;
use ebb_journal::{Record, ms};
use ebb_policy::Signal;
use ebb_policy::snapshot::WorkloadKey;

impl Agent {
    /// Compares what is left by `signal` with its threshold; a crossing begins an episode.
    pub(super) fn observe_signal(&mut self, signal: Signal, at: Boot) -> Finding {
        let Some(watch) = self.watches.of_mut(signal) else { return Finding::Clear };
        let value = self.state.available(signal);
        let other = watch.also().and_then(|also| self.state.available(also.signal));
        let finding = watch.observe(at, value, other);
        if let Some(metrics) = self.reporter.metrics() {
            metrics.observe(signal, self.state.clock().time(at), value, watch.nearest);
        }
        if let (Finding::Crossed(crossed), Some(available), Some(threshold)) =
            (finding, value, watch.nearest)
        {
            let mut episode = Episode::begin(crossed);
            episode.note("seen below it", at, None);
            watch.episode = Some(episode);
            let about = About::Signal(signal);
            self.reporter.episode_begins(about, self.state.clock().unix_ms(crossed));
            let record = Record::ThresholdCrossed {
                signal,
                threshold,
                available,
                seen_after_ms: ms(at.since(crossed)),
            };
            self.reporter.tell_at(crossed, record);
        }
        finding
    }

    pub(super) fn close_episodes(&mut self, at: Boot) {
        let has_jobs = !self.dispatcher.is_idle();
        let cluster = self.cluster.as_ref();
        for watch in self.watches.iter_mut() {
            let is_above = !watch.is_below();
            let is_under_way = has_jobs
                || self.state.terminations().awaits(watch.signal)
                || self.hooks.is_asking_for(watch.signal)
                || cluster.is_some_and(|cluster| cluster.is_telling_of(watch.signal, at));
            let Some(available) = watch.available else { continue };
            let Some(episode) = &mut watch.episode else { continue };
            let shown = ebb_journal::text::amount(watch.signal, available);
            if !episode.observe(is_above, is_under_way, at, &shown) {
                continue;
            }
            let Some(mut episode) = watch.episode.take() else { continue };
            let signal = watch.signal;
            let timeline = episode.timeline();
            self.reporter.tell_at(at, Record::PressureRelieved { signal, available, timeline });
            let about = About::Signal(signal);
            self.reporter.episode_ends(&about);
            let incident = episode.incident(about, self.state.clock(), &self.policy.text);
            incident.into_iter().for_each(|incident| self.queue.store(incident));
            self.told.deferral = None;
        }
    }

    /// Notes a moment of what is done to `workload` in each episode that it belongs to: that of the memory pressure that it was chosen for, and those of `signals`; where none of these goes on, in whichever does. Returns how many milliseconds after the beginning of the first of them that was.
    pub(super) fn note_moment(
        &mut self,
        workload: Option<&WorkloadKey>,
        signals: &[Signal],
        (what, at): (&'static str, Boot),
        detail: &str,
    ) -> Option<f64> {
        let mut first = None;
        let mut note = |episode: &mut Episode| {
            first.get_or_insert(episode.after_ms(at));
            episode.note(what, at, Some(detail.to_owned()));
        };
        workload.and_then(|key| self.pressures.episode_of(key)).into_iter().for_each(&mut note);
        for signal in signals {
            let own = self.watches.of_mut(*signal);
            own.and_then(|watch| watch.episode.as_mut()).into_iter().for_each(&mut note);
        }
        if first.is_none() {
            let episode = self.watches.episodes_mut().next()?;
            first = Some(episode.after_ms(at));
            episode.note(what, at, Some(detail.to_owned()));
        }
        first
    }

    /// Stores the episodes that are going on, because ebb is told to stop: what led to its last decisions must not be lost.
    pub(super) fn store_open_episodes(&mut self, why: &str) {
        let at = Boot::now();
        for watch in self.watches.iter_mut() {
            let Some(mut episode) = watch.episode.take() else { continue };
            episode.note("ebb was stopped", at, Some(why.to_owned()));
            let about = About::Signal(watch.signal);
            let incident = episode.incident(about, self.state.clock(), &self.policy.text);
            incident.into_iter().for_each(|incident| self.queue.store(incident));
        }
        self.store_open_pressure_episodes(at, why);
    }
}
