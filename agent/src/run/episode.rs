//! One stretch of pressure, from the crossing of a threshold until the signal has stayed above it: what is told about it, and what is stored.

use super::Agent;
use super::watch::{Finding, Watch};
use crate::clock::{Boot, Clock};
use crate::report::incident::{About, DECISIONS, Decision, Incident, SCHEMA_VERSION};
use crate::report::{Moment, Record, ms};
use ebb_policy::Signal;
use std::time::Duration;

/// How long a signal must stay above its threshold for the episode to be over: right after a kill it swings.
pub(super) const CALM_AFTER: Duration = Duration::from_millis(250);

/// How long the end of an episode waits for what it has caused to be told: results of jobs, and the ends of its victims.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);

/// Moments kept of one episode.
const MOMENTS: usize = 256;

/// An episode that is going on.
#[derive(Debug)]
pub(super) struct Episode {
    pub(super) crossed: Boot,
    pub(super) decisions: Vec<Decision>,
    /// Since when the signal is above its threshold again.
    back: Option<Boot>,
    moments: Vec<Moment>,
    words: &'static Words,
}

/// What the moments of an episode are called.
#[derive(Debug)]
struct Words {
    begun: &'static str,
    over: &'static str,
    again: &'static str,
}

const SIGNAL: Words =
    Words { begun: "threshold crossed", over: "back above the threshold", again: "below it again" };

const PRESSURE: Words = Words {
    begun: "seen above the limit",
    over: "no longer above the limit",
    again: "above it again",
};

impl Episode {
    pub(super) fn begin(crossed: Boot) -> Self {
        Self::in_words(crossed, &SIGNAL)
    }

    /// One of memory pressure of a cgroup.
    pub(super) fn of_pressure(seen: Boot) -> Self {
        Self::in_words(seen, &PRESSURE)
    }

    fn in_words(crossed: Boot, words: &'static Words) -> Self {
        let (decisions, moments) = (Vec::new(), Vec::new());
        let mut episode = Self { crossed, decisions, back: None, moments, words };
        episode.note(words.begun, crossed, None);
        episode
    }

    /// Adds a moment to the timeline.
    pub(super) fn note(&mut self, what: &'static str, at: Boot, detail: Option<String>) {
        if self.moments.len() < MOMENTS {
            self.moments.push(Moment { what, after_ms: ms(at.since(self.crossed)), detail });
        }
    }

    /// Keeps a decision for the incident record.
    pub(super) fn keep(&mut self, decision: impl FnOnce() -> Decision) {
        if self.decisions.len() < DECISIONS {
            self.decisions.push(decision());
        }
    }

    /// Milliseconds from the crossing to `at`.
    pub(super) fn after_ms(&self, at: Boot) -> f64 {
        ms(at.since(self.crossed))
    }

    /// Takes in whether the signal is above its threshold at `at`; returns whether the episode is over.
    ///
    /// It is not while something that it has caused `is_under_way`, but for a limited time: its record is to say how that ended.
    pub(super) fn observe(
        &mut self,
        is_above: bool,
        is_under_way: bool,
        at: Boot,
        available: &str,
    ) -> bool {
        let calm = if is_under_way { SETTLES_WITHIN } else { CALM_AFTER };
        match (is_above, self.back) {
            (true, None) => {
                self.back = Some(at);
                self.note(self.words.over, at, Some(available.to_owned()));
                false
            }
            (true, Some(since)) => at.since(since) >= calm,
            (false, Some(_)) => {
                self.back = None;
                self.note(self.words.again, at, Some(available.to_owned()));
                false
            }
            (false, None) => false,
        }
    }

    /// The record of it; `None` when nothing was decided.
    pub(super) fn incident(
        &mut self,
        about: About,
        clock: Clock,
        config: &str,
    ) -> Option<Incident> {
        let decisions = std::mem::take(&mut self.decisions);
        let (signal, memory_pressure) = match about {
            About::Signal(signal) => (Some(signal), None),
            About::MemoryPressure(cgroup) => (None, Some(cgroup)),
        };
        (!decisions.is_empty()).then(|| Incident {
            schema_version: SCHEMA_VERSION,
            ebb_version: env!("CARGO_PKG_VERSION").to_owned(),
            signal,
            memory_pressure,
            crossed_at: clock.unix_ms(self.crossed),
            config: config.to_owned(),
            decisions,
            timeline: self.timeline().iter().map(Into::into).collect(),
        })
    }

    /// Everything that happened, in order.
    pub(super) fn timeline(&mut self) -> &[Moment] {
        self.moments.sort_by(|a, b| a.after_ms.total_cmp(&b.after_ms));
        &self.moments
    }
}

impl Agent {
    /// The watches that each look at the node serves.
    pub(super) fn quick_watches(&self) -> impl Iterator<Item = &Watch> {
        self.watches.iter().filter(|watch| watch.is_quick())
    }

    /// Compares what is left by the `n`th watch's signal with its threshold; a crossing begins an episode.
    pub(super) fn watch_observe(&mut self, n: usize, at: Boot) -> Finding {
        let Some(watch) = self.watches.get_mut(n) else { return Finding::Clear };
        let value = self.state.available(watch.signal);
        let other = watch.also().and_then(|also| self.state.available(also.signal));
        let finding = watch.observe(at, value, other);
        if let (Finding::Crossed(crossed), Some(available), Some(threshold)) =
            (finding, value, watch.nearest)
        {
            let mut episode = Episode::begin(crossed);
            episode.note("seen below it", at, None);
            watch.episode = Some(episode);
            let about = About::Signal(watch.signal);
            self.reporter.episode_begins(about, self.state.clock().unix_ms(crossed));
            self.reporter.tell(&Record::Crossed {
                signal: watch.signal,
                threshold,
                available,
                seen_after_ms: ms(at.since(crossed)),
            });
        }
        finding
    }

    pub(super) fn close_episodes(&mut self, at: Boot) {
        let has_jobs = !self.names.is_empty();
        for watch in &mut self.watches {
            let is_above = !watch.is_below();
            let is_under_way = has_jobs || self.state.departures().awaits(watch.signal);
            let Some(available) = watch.available else { continue };
            let Some(episode) = &mut watch.episode else { continue };
            let shown = crate::report::amount(watch.signal, available);
            if !episode.observe(is_above, is_under_way, at, &shown) {
                continue;
            }
            let Some(mut episode) = watch.episode.take() else { continue };
            let signal = watch.signal;
            let timeline = episode.timeline();
            self.reporter.tell(&Record::Recovered { signal, available, timeline });
            let about = About::Signal(signal);
            self.reporter.episode_ends(&about);
            let incident = episode.incident(about, self.state.clock(), &self.policy.text);
            incident.into_iter().for_each(|incident| self.queue.store(incident));
            self.holding = None;
        }
    }

    /// Stores the episodes that are going on, because ebb is told to stop: what led to its last decisions must not be lost.
    pub(super) fn store_open_episodes(&mut self, why: &str) {
        let at = Boot::now();
        for watch in &mut self.watches {
            let Some(mut episode) = watch.episode.take() else { continue };
            episode.note("ebb was stopped", at, Some(why.to_owned()));
            let about = About::Signal(watch.signal);
            let incident = episode.incident(about, self.state.clock(), &self.policy.text);
            incident.into_iter().for_each(|incident| self.queue.store(incident));
        }
        self.store_open_pressure_episodes(at, why);
    }
}

/// The episode that something which was done for `signal` belongs to: that of the signal, else whichever there is.
pub(super) fn of_signal(watches: &mut [Watch], signal: Option<Signal>) -> Option<&mut Episode> {
    let has = |watch: &Watch| watch.episode.is_some();
    let own = watches.iter().position(|w| has(w) && Some(w.signal) == signal);
    let place = own.or_else(|| watches.iter().position(has))?;
    watches.get_mut(place)?.episode.as_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Boot {
        Boot(ms * 1_000_000)
    }

    #[test]
    fn it_is_over_only_when_the_signal_has_stayed_back() {
        let mut episode = Episode::begin(at(0));
        assert!(!episode.observe(true, false, at(10), "200 MiB"));
        assert!(!episode.observe(false, false, at(20), "90 MiB"), "it swings");
        assert!(!episode.observe(true, false, at(30), "200 MiB"));
        assert!(!episode.observe(true, false, at(31), "200 MiB"));
        assert!(episode.observe(true, false, at(30 + 250), "200 MiB"));
        let what: Vec<_> = episode.timeline().iter().map(|m| m.what).collect();
        let back = "back above the threshold";
        assert_eq!(what, ["threshold crossed", back, "below it again", back]);
    }

    #[test]
    fn it_waits_for_the_ends_of_what_it_caused_but_not_for_ever() {
        let mut episode = Episode::begin(at(0));
        assert!(!episode.observe(true, true, at(10), "200 MiB"));
        assert!(!episode.observe(true, true, at(1000), "200 MiB"), "a victim is still there");
        assert!(episode.observe(true, false, at(1001), "200 MiB"), "it has gone");
        let mut episode = Episode::begin(at(0));
        assert!(!episode.observe(true, true, at(10), "200 MiB"));
        assert!(episode.observe(true, true, at(10 + 5000), "200 MiB"), "it does not go");
    }

    #[test]
    fn moments_are_told_in_the_order_in_which_they_happened() {
        let mut episode = Episode::begin(at(0));
        episode.note("late", at(9), None);
        episode.note("early", at(3), None);
        let what: Vec<_> = episode.timeline().iter().map(|m| m.what).collect();
        assert_eq!(what, ["threshold crossed", "early", "late"]);
    }
}
