//! One look: the node is read, and what follows from it is done.

use super::runtime::RuntimeWatch;
use super::watch::{Finding, Watch};
use super::{Agent, BACKSTOP};
use crate::clock::Boot;
use crate::sense::node::processors;
use crate::state::Depth;
use ebb_policy::Signal;
use std::time::Duration;

/// How old what is known of the workloads may be when a decision is made on it.
const FRESH: Duration = Duration::from_millis(20);

/// Before it is looked again for who is to be evicted, where it was not found who holds the memory.
const AGAIN: Duration = Duration::from_millis(5);

/// How often workloads are read while a threshold is near but not reached.
const FOLLOW: Duration = Duration::from_millis(100);

/// Between two looks where something may be done long before a threshold is reached, and between two decisions while it is foreseen: a trend takes three.
pub(super) const FORESEE: Duration = Duration::from_millis(250);

impl Agent {
    /// Takes a reading of the node; returns whether that succeeded.
    fn read_node(&mut self) -> bool {
        match self.sensor.read_headroom() {
            Ok(reading) => self.state.observe_node(reading),
            Err(error) => {
                tracing::warn!(%error, "the node could not be read");
                return false;
            }
        }
        true
    }

    /// Reads the workloads; what cannot be read stays as it was.
    pub(super) fn read_workloads(&mut self, at: Boot, depth: Depth) {
        if let Err(error) = self.state.sample(at, depth) {
            tracing::warn!(%error, root = %self.roots.cgroup.display(), "workloads could not be read");
        }
        // Not while time counts: processors come and go rarely.
        if depth != Depth::Memory {
            let processors = processors();
            self.watches.iter_mut().for_each(|watch| watch.count_processors(processors));
        }
    }

    /// Reads what a decision wants to know beside what can run out.
    pub(super) fn read_stall(&mut self) {
        let (memory, io) = self.sensor.read_stall();
        self.state.observe_stall(memory, io);
    }

    /// Decides on what is known at `at`. Where somebody is to be chosen by memory, `is_choosing`, that waits until it is known who has it.
    pub(super) fn pass_or_wait(&mut self, at: Boot, is_choosing: bool) {
        if is_choosing && self.state.holds_choice(at) {
            self.wake_at = Some(at.plus(AGAIN));
        } else {
            self.pass(at);
        }
    }

    /// Whether a hard threshold may be reached so soon that something may be due before it is.
    fn is_foreseen(&self) -> bool {
        let within = Duration::from_millis(self.policy.limits.options().foresight().0);
        let left = |watch: &Watch| watch.time_left(watch.hard()?);
        self.quick_watches().filter_map(left).any(|left| left < within)
    }

    /// Looks at the node, and does what follows; `thoroughly` reads the workloads whatever was found.
    pub(super) fn look(&mut self, thoroughly: bool) {
        self.looked = Boot::now();
        // Before anything is decided: who was waited for is waited for no more.
        let is_hook_over = self.end_overdue_hook(self.looked);
        let thoroughly = thoroughly || is_hook_over;
        // Before the node is read: what the reflex has given back is to be seen.
        self.take_in_shot();
        // The same of who has gone by now: read in the other order, one that goes in between counts neither as dying nor as memory that is back, and costs another its life.
        self.look_at_terminations(self.looked);
        if !self.read_node() || self.pull_reflex() && !self.read_node() {
            return;
        }
        self.hear_the_kernel();
        let Some(at) = self.state.reading().map(|r| r.at) else { return };
        let swap_total = self.state.reading().and_then(|reading| reading.memory.swap_total);
        // What the thresholds on swap are changes with its size.
        let is_resized = std::mem::replace(&mut self.swap_total, swap_total) != swap_total;
        let mut is_near = false;
        let mut is_below = false;
        for n in 0..self.watches.len() {
            if !self.watches.get(n).is_some_and(Watch::is_quick) {
                continue;
            }
            match self.watch_observe(n, at) {
                Finding::Clear => {}
                Finding::Near => is_near = true,
                Finding::Crossed(_) => {
                    is_below = true;
                    self.precedence.take(at);
                    self.act_on_what_was_decided_ahead(n, at);
                }
                Finding::Below => is_below = true,
            }
        }
        let mut of_memory = self.watches.iter().filter(|w| w.signal == Signal::MemoryAvailable);
        if of_memory.any(Watch::is_above) {
            self.state.terminations().note_memory_is_back();
        }
        let is_imminent = self.quick_watches().any(Watch::is_imminent);
        if is_imminent {
            self.precedence.take(at);
        }
        let calm = if is_near || is_below { Depth::Full } else { Depth::Swept };
        // While the node is short nothing is decided on it, and reading it takes time that the node has not.
        let is_pressed = !self.is_short_or_soon() && self.read_memory_pressure();
        let (wanted, depth) = if thoroughly || self.local_due {
            (Duration::ZERO, calm)
        } else if is_below && self.state.has_would_be_victims() {
            // What they hold grows while the node runs short, and must not be older than what is short.
            (Duration::ZERO, Depth::Memory)
        } else if is_below {
            (FRESH, Depth::Memory)
        } else if is_pressed {
            (Duration::ZERO, Depth::Full)
        } else if is_imminent {
            // Reading the workloads now would only delay the look that finds the threshold crossed.
            (BACKSTOP, Depth::Memory)
        } else if is_near || self.quick_watches().any(|w| w.episode.is_some()) {
            (FOLLOW, Depth::Full)
        } else if self.is_foreseen() {
            (FORESEE, Depth::Full)
        } else {
            (BACKSTOP, calm)
        };
        self.local_due = false;
        if !is_below {
            self.decide_ahead(at);
        }
        let collector = self.runtime.as_ref().and_then(RuntimeWatch::due);
        let is_due = [self.wake_at, collector, self.first_list_due()]
            .into_iter()
            .flatten()
            .any(|wake| wake <= at);
        // Whoever came since they were read may have taken what is gone. What is dying counts until it is seen to be gone.
        let is_overtaken = is_below && self.state.is_overtaken() && !self.state.has_terminations();
        if is_overtaken {
            self.state.look_for_newcomers();
        }
        let is_old =
            is_overtaken || self.state.sampled().is_none_or(|sampled| at.since(sampled) >= wanted);
        let is_decided = is_old || is_due || is_below || is_resized || is_pressed;
        if is_old || is_decided && self.state.is_outdated(at) {
            self.read_workloads(at, depth);
        }
        if is_decided {
            self.pass_or_wait(at, is_below || is_pressed);
        }
        self.close_episodes(at);
        self.close_pressure_episodes();
    }
}
