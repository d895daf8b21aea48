//! One stretch of pressure, from the crossing of a threshold until the signal has stayed above it: what is told about it, and what is stored.

use super::Agent;
use super::watch::{Finding, Watch};
use crate::clock::Boot;
use crate::report::incident::{DECISIONS, Decision, Incident, SCHEMA_VERSION};
use crate::report::{Moment, Record, ms};
use std::time::Duration;

/// How long a signal must stay above its threshold for the episode to be over: right after a kill it swings.
pub(super) const CALM_AFTER: Duration = Duration::from_millis(250);

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
}

impl Episode {
    pub(super) fn begin(crossed: Boot) -> Self {
        let mut episode = Self { crossed, decisions: Vec::new(), back: None, moments: Vec::new() };
        episode.note("threshold crossed", crossed, None);
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
    pub(super) fn observe(&mut self, is_above: bool, at: Boot, available: &str) -> bool {
        match (is_above, self.back) {
            (true, None) => {
                self.back = Some(at);
                self.note("back above the threshold", at, Some(available.to_owned()));
                false
            }
            (true, Some(since)) => at.since(since) >= CALM_AFTER,
            (false, Some(_)) => {
                self.back = None;
                self.note("below it again", at, Some(available.to_owned()));
                false
            }
            (false, None) => false,
        }
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
        let finding = watch.observe(at, value);
        if let (Finding::Crossed(crossed), Some(available), Some(threshold)) =
            (finding, value, watch.nearest)
        {
            let mut episode = Episode::begin(crossed);
            episode.note("seen below it", at, None);
            watch.episode = Some(episode);
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
        for watch in &mut self.watches {
            let is_above = !watch.is_below();
            let Some(available) = watch.available else { continue };
            let Some(episode) = &mut watch.episode else { continue };
            let shown = crate::report::amount(watch.signal, available);
            if !episode.observe(is_above, at, &shown) {
                continue;
            }
            let Some(mut episode) = watch.episode.take() else { continue };
            let decisions = std::mem::take(&mut episode.decisions);
            let timeline = episode.timeline();
            self.reporter.tell(&Record::Recovered { signal: watch.signal, available, timeline });
            if !decisions.is_empty() {
                self.queue.store(Incident {
                    schema_version: SCHEMA_VERSION,
                    ebb_version: env!("CARGO_PKG_VERSION").to_owned(),
                    signal: watch.signal,
                    crossed_at: self.state.clock().unix_ms(episode.crossed),
                    config: self.policy.text.clone(),
                    decisions,
                    timeline: episode.timeline().iter().map(Into::into).collect(),
                });
            }
            self.holding = None;
        }
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
        assert!(!episode.observe(true, at(10), "200 MiB"));
        assert!(!episode.observe(false, at(20), "90 MiB"), "it swings");
        assert!(!episode.observe(true, at(30), "200 MiB"));
        assert!(!episode.observe(true, at(31), "200 MiB"));
        assert!(episode.observe(true, at(30 + 250), "200 MiB"));
        let what: Vec<_> = episode.timeline().iter().map(|m| m.what).collect();
        let back = "back above the threshold";
        assert_eq!(what, ["threshold crossed", back, "below it again", back]);
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
