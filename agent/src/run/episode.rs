//! One stretch of pressure, from the crossing of a threshold until the signal has stayed above it: what is told about it, and what is stored.

use crate::clock::{Boot, Clock};
use ebb_journal::incident::{About, DECISIONS, Decision, Incident, SCHEMA_VERSION};
use ebb_journal::{Moment, ms};
use std::time::Duration;

/// How long a signal must stay above its threshold for the episode to be over: right after a kill it swings.
pub(super) const CALM_AFTER: Duration = Duration::from_millis(250);

/// How long the end of an episode waits for what it has caused to be told: results of jobs, and the ends of its victims.
pub(super) const SETTLES_WITHIN: Duration = Duration::from_secs(5);

/// Moments kept of one episode.
const MOMENTS: usize = 256;

/// Of those, how many there may be for the signal's swinging about its threshold to be told: room is left for what was decided and how it ended.
const SWINGS: usize = MOMENTS / 2;

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
            self.moments.push(Moment {
                what: what.into(),
                after_ms: ms(at.since(self.crossed)),
                detail,
            });
        }
    }

    /// Adds that the signal went to the other side of its threshold.
    fn swing(&mut self, what: &'static str, at: Boot, available: &str) {
        if self.moments.len() < SWINGS {
            self.note(what, at, Some(available.to_owned()));
        }
    }

    /// Keeps a decision for the incident record.
    pub(super) fn keep(&mut self, decision: impl FnOnce() -> Decision) {
        if self.decisions.len() < DECISIONS {
            self.decisions.push(decision());
        }
    }

    /// Takes in that another configuration takes the place of `config`, which what was decided until now was made by.
    pub(super) fn reload(&mut self, at: Boot, config: &str) {
        self.note("configuration reloaded", at, None);
        self.decisions.iter_mut().for_each(|decision| decision.keep_config(config));
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
                self.swing(self.words.over, at, available);
                false
            }
            (true, Some(since)) => at.since(since) >= calm,
            (false, Some(_)) => {
                self.back = None;
                self.swing(self.words.again, at, available);
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
            timeline: self.timeline().to_vec(),
        })
    }

    /// Everything that happened, in order.
    pub(super) fn timeline(&mut self) -> &[Moment] {
        self.moments.sort_by(|a, b| a.after_ms.total_cmp(&b.after_ms));
        &self.moments
    }
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
        let what: Vec<_> = episode.timeline().iter().map(|m| m.what.as_ref()).collect();
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
    fn a_signal_that_swings_leaves_room_for_the_ends_of_victims() {
        let mut episode = Episode::begin(at(0));
        for n in 0..1000 {
            episode.observe(n % 2 == 0, false, at(n), "100 MiB");
        }
        episode.note("decided", at(1001), None);
        episode.note("gone", at(1002), None);
        let told = episode.timeline();
        assert_eq!(told.last().unwrap().what, "gone");
        assert!(told.len() < MOMENTS, "{}", told.len());
    }

    #[test]
    fn moments_are_told_in_the_order_in_which_they_happened() {
        let mut episode = Episode::begin(at(0));
        episode.note("late", at(9), None);
        episode.note("early", at(3), None);
        let what: Vec<_> = episode.timeline().iter().map(|m| m.what.as_ref()).collect();
        assert_eq!(what, ["threshold crossed", "early", "late"]);
    }
}
