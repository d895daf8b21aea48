//! Saying what happened: the agent's way into the journal (crate `ebb-journal`), and what only the agent itself can say.
//!
//! Every record gets its time and the episodes of pressure that are going on, and goes to each sink in turn.
//! Records go to standard output, as lines for people or as one JSON object a line; diagnostics of the program itself go to standard error through `tracing`.
//! Where systemd has connected these to its journal, each is an entry with fields there.
//! Nothing here decides anything, and a record is never made for a single kernel event.

pub mod last_word;
pub mod service;

use crate::clock::{Boot, Clock};
use ebb_journal::incident::{self, About};
use ebb_journal::metrics::Metrics;
use ebb_journal::{Entry, Mode, Part, Record, Sink};
use std::sync::Arc;

/// Tells records to sinks.
pub struct Reporter {
    clock: Clock,
    sinks: Vec<Box<dyn Sink>>,
    /// Told while records are held back, in their order; `None` while they are not.
    held_back: Option<Vec<Entry>>,
    /// Episodes of pressure that are going on, with the names of their incident records.
    episodes: Vec<(About, String)>,
    /// By which those names are told apart.
    mode: Mode,
    /// Where records are counted.
    metrics: Option<Arc<Metrics>>,
}

impl Reporter {
    /// Records of an agent in this mode to `sink`, with times by `clock`.
    #[must_use]
    pub fn new(clock: Clock, mode: Mode, sink: Box<dyn Sink>) -> Self {
        let (episodes, sinks) = (Vec::new(), vec![sink]);
        Self { clock, sinks, held_back: None, episodes, mode, metrics: None }
    }

    /// Records that are counted, too.
    #[must_use]
    pub fn counted_by(mut self, metrics: Arc<Metrics>) -> Self {
        self.sinks.push(Box::new(Arc::clone(&metrics)));
        Self { metrics: Some(metrics), ..self }
    }

    /// Records that another sink takes as well.
    #[must_use]
    pub fn and_to(mut self, sink: Box<dyn Sink>) -> Self {
        self.sinks.push(sink);
        self
    }

    /// Names of the episodes of pressure that are going on.
    pub(crate) fn episodes(&self) -> impl Iterator<Item = &str> {
        self.episodes.iter().map(|(_, name)| name.as_str())
    }

    /// Where records are counted.
    pub(crate) fn metrics(&self) -> Option<&Arc<Metrics>> {
        self.metrics.as_ref()
    }

    /// Until [`Self::episode_ends`], records are said to belong to this episode of pressure, crossed at `crossed_at` (milliseconds since the Unix epoch).
    pub fn episode_begins(&mut self, about: About, crossed_at: u64) {
        let name = incident::name(&about, crossed_at, self.mode);
        self.episodes.push((about, name));
    }

    /// The episode of pressure is over.
    pub fn episode_ends(&mut self, about: &About) {
        self.episodes.retain(|(of, _)| of != about);
    }

    /// Tells what has happened now.
    pub fn tell(&mut self, record: Record) {
        self.tell_at(Boot::now(), record);
    }

    /// Tells that something is not there that was relied on: which `part`, what exactly, and what is used instead.
    pub fn tell_degraded(&mut self, part: Part, what: impl Into<String>) {
        self.tell(Record::Degraded { part, what: what.into() });
    }

    /// Tells what happened at `at`.
    pub fn tell_at(&mut self, at: Boot, record: Record) {
        let entry = self.entry(at, record);
        self.tell_entry(entry);
    }

    /// What happened at `at`, for [`Self::tell_entry`]: it belongs to the episodes that go on now, whenever it is told.
    #[must_use]
    pub fn entry(&self, at: Boot, record: Record) -> Entry {
        let episodes = self.episodes.iter().map(|(_, name)| name.clone()).collect();
        Entry { at: self.clock.time(at), episodes, record }
    }

    /// Tells it.
    pub fn tell_entry(&mut self, entry: Entry) {
        match &mut self.held_back {
            Some(held_back) => held_back.push(entry),
            None => self.hand_on(&entry),
        }
    }

    fn hand_on(&mut self, entry: &Entry) {
        self.sinks.iter_mut().for_each(|sink| sink.take(entry));
    }

    /// From here to [`Self::go_on`] no sink takes anything: to word a record takes longer than what is more urgent.
    pub(crate) fn hold_back(&mut self) {
        self.held_back.get_or_insert_default();
    }

    /// Hands what was held back to the sinks, and from here on every record at once.
    pub(crate) fn go_on(&mut self) {
        for entry in self.held_back.take().into_iter().flatten() {
            self.hand_on(&entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::Standby;
    use std::sync::Mutex;
    use std::time::Duration;

    /// Keeps what records say.
    #[derive(Clone, Default)]
    struct Taken(Arc<Mutex<Vec<String>>>);

    impl Sink for Taken {
        fn take(&mut self, entry: &Entry) {
            let Record::Degraded { what, .. } = &entry.record else { panic!("{entry:?}") };
            self.0.lock().unwrap().push(what.clone());
        }
    }

    #[test]
    fn what_is_told_while_records_are_held_back_is_handed_on_later_and_in_its_order() {
        let taken = Taken::default();
        let told = || taken.0.lock().unwrap().clone();
        let mut reporter =
            Reporter::new(Clock::of_process(), Mode::Enforce, Box::new(taken.clone()));
        reporter.go_on();
        reporter.hold_back();
        reporter.tell_degraded(Part::Actors, "first");
        reporter.hold_back();
        reporter.tell_degraded(Part::Actors, "second");
        assert!(told().is_empty());
        reporter.go_on();
        assert_eq!(told(), ["first", "second"]);
        reporter.tell_degraded(Part::Actors, "third");
        assert_eq!(told(), ["first", "second", "third"]);
    }

    #[test]
    fn a_loop_that_does_not_come_round_is_not_alive() {
        let (metrics, standby) = (Metrics::default(), Arc::new(Standby::default()));
        assert_eq!(metrics.alive(), Ok(()));
        metrics.follow(standby.clone());
        assert_eq!(metrics.alive(), Ok(()), "it has not begun");
        standby.beat(Duration::from_secs(60));
        assert_eq!(metrics.alive(), Ok(()));
        standby.silence();
        assert!(metrics.alive().is_err());
    }
}
