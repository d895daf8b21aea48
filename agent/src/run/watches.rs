//! The watches: one for each signal that this agent observes.

use super::episode::Episode;
use super::watch::Watch;
use crate::cadence::Cadence;
use ebb_policy::{Plan, Signal};

/// The signals of the node's own files. They can run out within milliseconds: each look at the node serves them.
pub(super) fn quick_signals() -> impl Iterator<Item = Signal> {
    Signal::ALL.into_iter().filter(|signal| !signal.is_disk())
}

/// The signals of filesystems. They take longer, and looking at them may block: each reading of the disks serves them.
pub(super) fn disk_signals() -> impl Iterator<Item = Signal> {
    Signal::ALL.into_iter().filter(|signal| signal.is_disk())
}

/// All watches, by who serves them.
#[derive(Debug)]
pub(super) struct Watches {
    quick: Vec<Watch>,
    on_disk: Vec<Watch>,
}

impl Watches {
    /// Without thresholds: those come with the first decision.
    pub(super) fn new() -> Self {
        let watch = |signal| Some(Watch::new(signal, cadence(signal)?));
        Self {
            quick: quick_signals().filter_map(watch).collect(),
            on_disk: disk_signals().filter_map(watch).collect(),
        }
    }

    /// Those of [`quick_signals`].
    pub(super) fn quick(&self) -> impl Iterator<Item = &Watch> {
        self.quick.iter()
    }

    /// Those of [`disk_signals`].
    pub(super) fn on_disk(&self) -> impl Iterator<Item = &Watch> {
        self.on_disk.iter()
    }

    /// All of them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Watch> {
        self.quick.iter_mut().chain(&mut self.on_disk)
    }

    /// That of `signal`.
    pub(super) fn of(&self, signal: Signal) -> Option<&Watch> {
        self.quick.iter().chain(&self.on_disk).find(|watch| watch.signal == signal)
    }

    /// The same, to change it.
    pub(super) fn of_mut(&mut self, signal: Signal) -> Option<&mut Watch> {
        self.iter_mut().find(|watch| watch.signal == signal)
    }

    /// The episodes that are going on.
    pub(super) fn episodes_mut(&mut self) -> impl Iterator<Item = &mut Episode> {
        self.iter_mut().filter_map(|watch| watch.episode.as_mut())
    }

    /// Whether an episode is going on.
    pub(super) fn is_any_in_episode(&self) -> bool {
        self.quick.iter().chain(&self.on_disk).any(|watch| watch.episode.is_some())
    }

    /// Takes over the thresholds that `plan` resolved for the signals that it judged.
    pub(super) fn take_thresholds(&mut self, plan: &Plan, is_judged: impl Fn(Signal) -> bool) {
        let judged = self.iter_mut().filter(|watch| is_judged(watch.signal));
        judged.for_each(|watch| watch.take_thresholds(plan));
    }

    /// Takes in how many processors there are to take memory.
    pub(super) fn count_processors(&mut self, processors: u64) {
        for signal in [Signal::MemoryAvailable, Signal::MemoryWithSwapAvailable] {
            if let Some(watch) = self.of_mut(signal) {
                watch.cadence.taken_by(processors);
            }
        }
    }
}

/// How fast what `signal` tells of may run out; `None` for one that this agent does not observe.
fn cadence(signal: Signal) -> Option<Cadence> {
    let cadence = match signal {
        Signal::MemoryAvailable | Signal::MemoryWithSwapAvailable => Cadence::memory(),
        Signal::AllocatableMemoryAvailable => return None,
        Signal::SwapAvailable => Cadence::swap(),
        Signal::PidAvailable => Cadence::pids(),
        Signal::NodeFsAvailable | Signal::ImageFsAvailable | Signal::ContainerFsAvailable => {
            Cadence::disk()
        }
        Signal::NodeFsInodesFree | Signal::ImageFsInodesFree | Signal::ContainerFsInodesFree => {
            Cadence::inodes()
        }
    };
    Some(cadence)
}
