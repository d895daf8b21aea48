//! One stretch of pressure, from the crossing of a threshold until the signal has stayed above it: what is told about it, and what is stored.

use super::timeline::{Kind, Timeline};
use crate::clock::{Boot, Clock};
use ebb_journal::incident::{About, DECISIONS, Decision, Incident, SCHEMA_VERSION};
use ebb_journal::{Moment, OomConstraint, ms};
use std::time::Duration;

/// How long a signal must stay above its threshold for the episode to be over: right after a kill it swings.
pub(super) const CALM_AFTER: Duration = Duration::from_millis(250);

/// How long the end of an episode waits for what it has caused to be told: results of jobs, and the ends of its victims.
pub(super) const SETTLES_WITHIN: Duration = Duration::from_secs(5);

/// An episode that is going on.
#[derive(Debug)]
pub(super) struct Episode {
    pub(super) crossed: Boot,
    pub(super) decisions: Vec<Decision>,
    /// Since when the signal is above its threshold again.
    back: Option<Boot>,
    timeline: Timeline,
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
        let (decisions, timeline) = (Vec::new(), Timeline::default());
        let mut episode = Self { crossed, decisions, back: None, timeline, words };
        episode.note(words.begun, crossed, None);
        episode
    }

    /// Adds a moment of ebb's own to the timeline.
    pub(super) fn note(&mut self, what: &'static str, at: Boot, detail: Option<String>) {
        self.add(Kind::of(what), what, at, detail);
    }

    /// Adds that the kernel's OOM killer has killed somebody, for whose limit.
    pub(super) fn note_oom_kill(&mut self, limit: &OomConstraint, at: Boot, who: String) {
        self.add(Kind::of_oom_kill(limit), "killed by the kernel's OOM killer", at, Some(who));
    }

    /// Adds that the signal went to the other side of its threshold.
    fn swing(&mut self, what: &'static str, at: Boot, available: &str) {
        self.add(Kind::Swing, what, at, Some(available.to_owned()));
    }

    fn add(&mut self, kind: Kind, what: &'static str, at: Boot, detail: Option<String>) {
        self.timeline.add(kind, Moment { what: what.into(), after_ms: self.after_ms(at), detail });
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
            timeline: self.timeline(),
        })
    }

    /// Everything that happened, in order.
    pub(super) fn timeline(&self) -> Vec<Moment> {
        self.timeline.moments()
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
        let told = episode.timeline();
        let what: Vec<_> = told.iter().map(|m| m.what.as_ref()).collect();
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
        // 32 of the first, 16 of the last, and that there were others; the crossing, and what was noted.
        assert_eq!(told.len(), 32 + 16 + 1 + 3);
        let between = told.iter().find(|moment| moment.times() > 1).unwrap();
        assert_eq!(between.what, "and 952 more: crossings of the threshold");
    }

    /// A container at its own limit, again and again: what ebb did is told all the same, and so is a kill for the node's sake.
    #[test]
    fn a_storm_of_oom_kills_leaves_room_for_what_was_decided_and_done() {
        let mut episode = Episode::begin(at(0));
        let own = OomConstraint::Cgroup { id: 7, path: None };
        for n in 0..10_000 {
            episode.note_oom_kill(&own, at(n), format!("java (pid {n}) in /kubepods/crashes"));
        }
        episode.note("decided", at(10_001), None);
        episode.note("killed", at(10_002), None);
        episode.note_oom_kill(&OomConstraint::Node, at(10_003), "web (pid 7) in /web".into());
        for n in 10_004..20_000 {
            episode.note_oom_kill(&own, at(n), format!("java (pid {n}) in /kubepods/crashes"));
        }
        episode.note("terminated", at(20_001), None);
        let told = episode.timeline();
        let of = |what: &str| told.iter().filter(|m| m.what == what).collect::<Vec<_>>();
        for what in ["threshold crossed", "decided", "killed", "terminated"] {
            assert_eq!(of(what).len(), 1, "{what} in {told:#?}");
        }
        let kills = of("killed by the kernel's OOM killer");
        assert!(kills.iter().any(|kill| kill.detail.as_ref().unwrap().starts_with("web ")));
        let all: u64 = told.iter().filter(|m| m.what.contains("OOM")).map(Moment::times).sum();
        assert_eq!(all, 10_000 + 1 + (20_000 - 10_004));
        assert!(told.len() < 50, "{}", told.len());
    }

    /// Whoever is chosen again and again and is gone each time is no more than that.
    #[test]
    fn what_is_not_done_again_and_again_leaves_room_for_what_is() {
        let mut episode = Episode::begin(at(0));
        for n in 0..5000 {
            episode.note("decided", at(n), Some("/gone".into()));
            episode.note("not done", at(n), Some("/gone".into()));
        }
        episode.note("decided", at(5001), Some("/hog".into()));
        episode.note("killed", at(5002), Some("/hog".into()));
        let told = episode.timeline();
        let hog = told.iter().filter(|moment| moment.detail.as_deref() == Some("/hog"));
        assert_eq!(hog.count(), 2, "{told:#?}");
        assert!(told.len() < 120, "{}", told.len());
    }

    #[test]
    fn moments_are_told_in_the_order_in_which_they_happened() {
        let mut episode = Episode::begin(at(0));
        episode.note("late", at(9), None);
        episode.note("early", at(3), None);
        let told = episode.timeline();
        let what: Vec<_> = told.iter().map(|m| m.what.as_ref()).collect();
        assert_eq!(what, ["threshold crossed", "early", "late"]);
    }
}
