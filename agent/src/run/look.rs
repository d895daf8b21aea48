//! One look: the node is read, and what follows from it is done.

use super::runtime::RuntimeWatch;
use super::watch::{Finding, Watch};
use super::watches::{Watches, quick_signals};
use super::{Agent, BACKSTOP};
use crate::cadence::LONGEST;
use crate::clock::Boot;
use crate::sense::node::{NodeSensor, processors};
use crate::state::Depth;
use ebb_policy::{Limits, Millis, Signal};
use std::time::Duration;

/// How old what is known of the workloads may be when a decision is made on it.
const FRESH: Duration = Duration::from_millis(20);

/// Before it is looked again for who is to be evicted, where it was not found who holds the memory.
const AGAIN: Duration = Duration::from_millis(5);

/// How often workloads are read while a threshold is near but not reached.
const FOLLOW: Duration = Duration::from_millis(100);

/// Between two looks where something may be done long before a threshold is reached, and between two decisions while it is foreseen: a trend takes three.
const FORESEE: Duration = Duration::from_millis(250);

/// Between two looks while memory comes back, or is about to.
const RECOVERING: Duration = Duration::from_millis(2);

/// Between two looks below a threshold while nothing moves.
const STUCK: Duration = Duration::from_millis(20);

/// The loop's side of the node's own files: memory, swap, task ids.
#[derive(Debug)]
pub(super) struct NodeWatch {
    pub(super) sensor: NodeSensor,
    /// When the node was last looked at, or that was tried.
    pub(super) looked: Boot,
    /// When the node is to be decided on again whatever a look finds; `None` when nothing waits for that.
    pub(super) decide_at: Option<Boot>,
    /// A cgroup ran into its own limit: the next look reads workloads.
    pub(super) local_due: bool,
    /// `SwapTotal` as last read.
    swap_total: Option<u64>,
}

impl NodeWatch {
    /// Nothing is known of the node yet.
    pub(super) fn new(sensor: NodeSensor) -> Self {
        Self { sensor, looked: Boot::now(), decide_at: None, local_due: false, swap_total: None }
    }

    /// When the node is to be looked at again, whatever else happens: counted from the last look, so that nothing that is told meanwhile puts it off. `is_freeing` while somebody who was killed has memory to give back.
    pub(super) fn due(&self, watches: &Watches, limits: &Limits, is_freeing: bool) -> Boot {
        let mut wait = watches.quick().filter_map(Watch::wait).fold(BACKSTOP, Duration::min);
        if limits.thresholds().iter().any(|t| t.signal.is_beyond_kubelet()) {
            // Swap may be added at any time.
            wait = wait.min(LONGEST);
        }
        if limits.options().foresight() > Millis(0) {
            wait = wait.min(FORESEE);
        }
        if watches.quick().any(|watch| watch.episode.is_some()) {
            // Whether memory comes back is to be seen by the millisecond, but not at any price for as long as it does not.
            let is_moving = is_freeing || watches.quick().any(|watch| !watch.is_below());
            wait = wait.min(if is_moving { RECOVERING } else { STUCK });
        }
        self.looked.plus(wait)
    }

    /// Takes in the size of swap: what the thresholds on it are changes with that; returns whether it has changed.
    fn is_resized(&mut self, swap_total: Option<u64>) -> bool {
        std::mem::replace(&mut self.swap_total, swap_total) != swap_total
    }
}

impl Agent {
    /// Takes a reading of the node; returns whether that succeeded.
    pub(super) fn read_node(&mut self) -> bool {
        match self.node.sensor.read_headroom() {
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
            self.watches.count_processors(processors());
        }
    }

    /// Reads what a decision wants to know beside what can run out.
    pub(super) fn read_stall(&mut self) {
        let (memory, io) = self.node.sensor.read_stall();
        self.state.observe_stall(memory, io);
    }

    /// Decides on what is known at `at`. Where somebody is to be chosen by memory, `is_choosing`, that waits until it is known who has it.
    pub(super) fn pass_or_wait(&mut self, at: Boot, is_choosing: bool) {
        if is_choosing && self.state.holds_choice(at) {
            self.node.decide_at = Some(at.plus(AGAIN));
        } else {
            self.pass(at);
        }
    }

    /// Whether a hard threshold may be reached so soon that something may be due before it is.
    fn is_foreseen(&self) -> bool {
        let within = Duration::from_millis(self.policy.limits.options().foresight().0);
        let left = |watch: &Watch| watch.time_left(watch.hard()?);
        self.watches.quick().filter_map(left).any(|left| left < within)
    }

    /// Looks at the node, and does what follows; `thoroughly` reads the workloads whatever was found.
    pub(super) fn look(&mut self, thoroughly: bool) {
        self.node.looked = Boot::now();
        // Before anything is decided: who was waited for is waited for no more.
        let is_hook_over = self.end_overdue_hook(self.node.looked);
        let thoroughly = thoroughly || is_hook_over;
        // Before the node is read: what the reflex has given back is to be seen.
        self.take_in_shot();
        // The same of who has gone by now: read in the other order, one that goes in between counts neither as dying nor as memory that is back, and costs another its life.
        self.look_at_terminations(self.node.looked);
        if !self.read_node() || self.pull_reflex() && !self.read_node() {
            return;
        }
        // Who was decided on ahead goes before a word is said of the crossing, or of what the kernel did.
        self.reporter.hold_back();
        self.hear_the_kernel();
        let Some(at) = self.state.reading().map(|r| r.at) else {
            self.reporter.go_on();
            return;
        };
        let swap_total = self.state.reading().and_then(|reading| reading.memory.swap_total);
        let is_resized = self.node.is_resized(swap_total);
        let mut is_near = false;
        let mut is_below = false;
        for signal in quick_signals() {
            match self.observe_signal(signal, at) {
                Finding::Clear => {}
                Finding::Near => is_near = true,
                Finding::Crossed(crossed) => {
                    is_below = true;
                    self.precedence.take(at);
                    self.act_on_what_was_decided_ahead(signal, at);
                    // Records count milliseconds; whoever measures the way from here wants the moment itself.
                    tracing::debug!(
                        ?signal,
                        crossed_ns = crossed.0,
                        seen_ns = at.0,
                        "a threshold is crossed"
                    );
                }
                Finding::Below => is_below = true,
            }
        }
        self.reporter.go_on();
        if self.watches.of(Signal::MemoryAvailable).is_some_and(Watch::is_above) {
            self.state.terminations().note_memory_is_back();
        }
        let is_imminent = self.watches.quick().any(Watch::is_imminent);
        if is_imminent {
            self.precedence.take(at);
        }
        let calm = if is_near || is_below { Depth::Full } else { Depth::Swept };
        // While the node is short nothing is decided on it, and reading it takes time that the node has not.
        let is_pressed = !self.is_short_or_soon() && self.read_memory_pressure();
        let (wanted, depth) = if thoroughly || self.node.local_due {
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
        } else if is_near || self.watches.quick().any(|w| w.episode.is_some()) {
            (FOLLOW, Depth::Full)
        } else if self.is_foreseen() {
            (FORESEE, Depth::Full)
        } else {
            (BACKSTOP, calm)
        };
        self.node.local_due = false;
        if !is_below {
            self.decide_ahead(at);
        }
        let collector = self.runtime.as_ref().and_then(RuntimeWatch::due);
        let is_due = [self.node.decide_at, collector, self.first_list_due()]
            .into_iter()
            .flatten()
            .any(|wake| wake <= at);
        // Whoever came since they were read may have taken what is gone. What is dying counts until it is seen to be gone.
        let is_unexplained =
            is_below && self.state.has_unexplained_fall() && !self.state.awaits_terminations();
        if is_unexplained {
            self.state.look_for_newcomers();
        }
        let is_old = is_unexplained
            || self.state.sampled().is_none_or(|sampled| at.since(sampled) >= wanted);
        let is_decided = is_old || is_due || is_below || is_resized || is_pressed;
        if is_old || is_decided && self.state.is_outdated(at) {
            self.read_workloads(at, depth);
        }
        if is_decided {
            self.pass_or_wait(at, is_below || is_pressed);
        }
        self.close_episodes(at);
        self.close_pressure_episodes();
        self.watch_falls();
    }
}
