//! What an incident says as a whole: what was short and when, who was evicted and how soon, and how it ended. Read off its timeline.

use crate::records::Recorded;
use ebb_journal::incident::{About, Incident, mode_of, name};
use ebb_journal::{Mode, Moment};
use ebb_kube::{Time, timestamp};
use serde::Serialize;

/// What the timeline calls the end of a shortage, and its return.
const OVER: [&str; 2] = ["back above the threshold", "no longer above the limit"];
const AGAIN: [&str; 2] = ["below it again", "above it again"];
/// What was done to a workload that was chosen, as the timeline calls it and as a sentence does.
const KILLS: [(&str, &str); 3] = [
    ("killed", "killed"),
    ("killed by the watchdog", "killed by the watchdog"),
    ("killed by the reflex", "killed by the reflex"),
];
const ASKS: [(&str, &str); 2] =
    [("terminating", "told to terminate"), ("would be evicted (dry run)", "evicted")];
/// The last milliseconds that there are in years of four digits.
const LAST_MS: u64 = 253_402_300_799_999;

/// An incident, and what follows from it.
#[derive(Debug)]
pub(super) struct Story<'a> {
    pub(super) incident: &'a Incident,
    /// As its file and the journal call it: letters, digits, dots, dashes and `_` alone.
    pub(super) id: String,
    /// When it was seen, decided and acted: milliseconds since the crossing.
    pub(super) seen: Option<f64>,
    pub(super) decided: Option<f64>,
    /// The first kill.
    pub(super) kill: Option<Act>,
    /// That a victim was told to terminate, or would have been evicted.
    pub(super) ask: Option<Act>,
    pub(super) outcome: Outcome,
    /// Who was evicted, in the order of the decisions.
    pub(super) victims: Vec<&'a str>,
    /// How often the kernel's OOM killer came in.
    pub(super) oom_kills: u64,
}

/// The first thing of its kind that was done to a victim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Act {
    /// As the timeline calls it.
    pub(super) what: &'static str,
    /// As a sentence does.
    words: &'static str,
    /// Milliseconds since the crossing.
    pub(super) after_ms: f64,
}

impl Act {
    pub(super) fn is_dry_run(self) -> bool {
        self.what == "would be evicted (dry run)"
    }
}

/// How an incident ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub(super) enum Outcome {
    /// What was short is no longer.
    Relieved {
        /// When, milliseconds since the crossing.
        after_ms: f64,
    },
    /// ebb was stopped while it went on.
    Stopped,
    /// The configuration no longer watched it.
    NoLongerWatched,
    /// The record does not say.
    Unknown,
}

/// A stretch of the timeline in which it was short, milliseconds since the crossing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Short {
    pub(super) from: f64,
    /// `None` where it was still so when the record ends.
    pub(super) to: Option<f64>,
}

impl<'a> Story<'a> {
    /// That of a record whose file says by its name whether it is a dry run's.
    pub(super) fn of_file(recorded: &'a Recorded) -> Self {
        let story = Self::of(&recorded.incident);
        let stem = recorded.file.file_stem().and_then(|stem| stem.to_str());
        let mode = stem.and_then(mode_of).unwrap_or(Mode::Enforce);
        Self { id: name(&about(story.incident), story.incident.crossed_at, mode), ..story }
    }

    pub(super) fn of(incident: &'a Incident) -> Self {
        let timeline = incident.timeline.as_slice();
        let first = |names: &[&str]| timeline.iter().find(|m| names.contains(&m.what.as_ref()));
        let mut victims: Vec<&str> = Vec::new();
        for decision in &incident.decisions {
            for evict in decision.plan.evictions() {
                let name = evict.workload.name.as_str();
                if !victims.contains(&name) {
                    victims.push(name);
                }
            }
        }
        Self {
            id: name(&about(incident), incident.crossed_at, Mode::Enforce),
            seen: first(&["seen below it", "seen above the limit"]).map(|m| m.after_ms),
            decided: first(&["decided", "decided ahead"]).map(|m| m.after_ms),
            kill: act(timeline, &KILLS),
            ask: act(timeline, &ASKS),
            outcome: outcome(timeline),
            oom_kills: timeline.iter().filter(|m| is_oom_kill(m)).map(Moment::times).sum(),
            incident,
            victims,
        }
    }

    /// What was short: a signal, or the memory pressure of a cgroup.
    pub(super) fn short_of(&self) -> String {
        match (self.incident.signal, &self.incident.memory_pressure) {
            (Some(signal), _) => signal.name().to_owned(),
            (None, Some(cgroup)) => format!("memory pressure of {cgroup}"),
            (None, None) => "unknown".to_owned(),
        }
    }

    /// When it began, in UTC to the millisecond.
    pub(super) fn crossed_at(&self) -> String {
        moment(self.incident.crossed_at)
    }

    /// Whom the record says to have been chosen, and that nobody was.
    pub(super) fn whom(&self) -> String {
        match self.victims.as_slice() {
            [] => "nobody".to_owned(),
            [one] => (*one).to_owned(),
            [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        }
    }

    /// What was done and how soon, in one sentence without a full stop.
    pub(super) fn verdict(&self) -> String {
        let whom = self.whom();
        let told = |act: Act| format!("{} {} after the crossing", act.words, ms(act.after_ms));
        let done = match (self.ask, self.kill) {
            (Some(ask), _) if ask.is_dry_run() => {
                format!("dry run: {whom} would be {}", told(ask))
            }
            (Some(ask), Some(kill)) => {
                format!("{whom} was {}, {} after {}", told(ask), kill.words, ms(kill.after_ms))
            }
            (Some(act), None) | (None, Some(act)) => format!("{whom} was {}", told(act)),
            (None, None) if self.victims.is_empty() => "nobody was evicted".to_owned(),
            (None, None) => format!("{whom} was chosen; whether anything was done is unknown"),
        };
        format!("{done}; {}", self.outcome.words())
    }

    /// When it was short.
    pub(super) fn shortages(&self) -> Vec<Short> {
        let mut found = vec![Short { from: 0.0, to: None }];
        for moment in &self.incident.timeline {
            let is = |names: &[&str]| names.contains(&moment.what.as_ref());
            let open = found.last_mut().filter(|short| short.to.is_none());
            match open {
                Some(short) if is(&OVER) => short.to = Some(moment.after_ms),
                None if is(&AGAIN) => found.push(Short { from: moment.after_ms, to: None }),
                _ => {}
            }
        }
        found
    }
}

impl Outcome {
    /// How it ended, in words.
    pub(super) fn words(self) -> String {
        match self {
            Self::Relieved { after_ms } => format!("relieved after {}", ms(after_ms)),
            Self::Stopped => "not over: ebb was stopped".to_owned(),
            Self::NoLongerWatched => "not over: no longer watched".to_owned(),
            Self::Unknown => "how it ended is unknown".to_owned(),
        }
    }
}

/// Whether it is of the kernel's OOM killer, and so nothing that ebb did.
pub(super) fn is_oom_kill(moment: &Moment) -> bool {
    moment.what.contains("OOM killer")
}

/// Milliseconds as people read them.
pub(super) fn ms(value: f64) -> String {
    if value.abs() < 1e12 { format!("{value:.1} ms") } else { format!("{value:.1e} ms") }
}

/// A time in UTC to the millisecond; one that cannot be a time is shown as the number that it is.
pub(super) fn moment(unix_ms: u64) -> String {
    if unix_ms > LAST_MS {
        return format!("{unix_ms} ms since the Unix epoch");
    }
    let text = timestamp(Time(unix_ms));
    text.strip_suffix("000Z").map_or_else(|| text.clone(), |short| format!("{short}Z"))
}

fn about(incident: &Incident) -> About {
    match (incident.signal, &incident.memory_pressure) {
        (Some(signal), _) => About::Signal(signal),
        (None, cgroup) => About::MemoryPressure(cgroup.clone().unwrap_or_default()),
    }
}

fn act(timeline: &[Moment], kinds: &[(&'static str, &'static str)]) -> Option<Act> {
    timeline.iter().find_map(|moment| {
        let (what, words) = kinds.iter().find(|(what, _)| moment.what == *what)?;
        Some(Act { what, words, after_ms: moment.after_ms })
    })
}

fn outcome(timeline: &[Moment]) -> Outcome {
    let is = |moment: &Moment, names: &[&str]| names.contains(&moment.what.as_ref());
    let last = timeline.iter().rev().find(|m| is(m, &OVER) || is(m, &AGAIN));
    match last {
        Some(moment) if is(moment, &OVER) => Outcome::Relieved { after_ms: moment.after_ms },
        _ if timeline.iter().any(|m| m.what == "ebb was stopped") => Outcome::Stopped,
        _ if timeline.iter().any(|m| m.what == "no longer watched") => Outcome::NoLongerWatched,
        _ => Outcome::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::html::tests::{entry, incident};

    #[test]
    fn the_story_is_read_off_the_timeline() {
        let record = incident(&[
            entry("threshold crossed", 0.0, None),
            entry("seen below it", 0.9, None),
            entry("decided", 4.0, Some("/a")),
            entry("killed", 5.5, Some("/a")),
            entry("back above the threshold", 9.0, None),
            entry("below it again", 12.0, None),
            entry("back above the threshold", 30.0, None),
        ]);
        let story = Story::of(&record);
        assert_eq!((story.seen, story.decided), (Some(0.9), Some(4.0)));
        assert_eq!(story.kill.map(|act| act.after_ms), Some(5.5));
        assert_eq!(
            story.verdict(),
            "nobody was killed 5.5 ms after the crossing; relieved after 30.0 ms"
        );
        assert_eq!(story.outcome, Outcome::Relieved { after_ms: 30.0 });
        let shortages = [Short { from: 0.0, to: Some(9.0) }, Short { from: 12.0, to: Some(30.0) }];
        assert_eq!(story.shortages(), shortages);
    }

    #[test]
    fn what_the_record_does_not_say_is_unknown() {
        let record = incident(&[entry("threshold crossed", 0.0, None)]);
        let story = Story::of(&record);
        assert_eq!((story.seen, story.decided, story.kill), (None, None, None));
        assert_eq!(story.outcome, Outcome::Unknown);
        assert_eq!(story.shortages(), [Short { from: 0.0, to: None }]);
        let record = incident(&[entry("ebb was stopped", 7.0, Some("SIGTERM"))]);
        assert_eq!(Story::of(&record).outcome, Outcome::Stopped);
    }

    #[test]
    fn kills_that_are_left_out_of_the_timeline_count() {
        let kill = entry("killed by the kernel's OOM killer", 1.0, Some("java (pid 7) in /java"));
        let more = Moment::left_out(900, "killed by the kernel's OOM killer", 2.0);
        let record = incident(&[kill.clone(), more, kill]);
        let story = Story::of(&record);
        assert_eq!((story.oom_kills, story.kill), (902, None));
    }

    #[test]
    fn a_time_that_cannot_be_one_is_a_number() {
        assert_eq!(moment(1_764_089_130_123), "2025-11-25T16:45:30.123Z");
        assert_eq!(moment(u64::MAX), "18446744073709551615 ms since the Unix epoch");
    }
}
