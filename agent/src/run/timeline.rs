//! What happened in an episode of pressure, in order, and how much of it is kept.
//!
//! Some of it a workload can bring about as often as it likes: a container that runs into its own limit is killed by the kernel again and again, and a signal can be held at its threshold.
//! So there is room for so many of each kind, and none takes another's: what ebb decided and did is told whatever happens meanwhile.
//! Of each kind the first are kept and the last; how many there were between them is one more moment.

use ebb_journal::{Moment, OomConstraint};
use std::collections::VecDeque;

/// What a moment is of, and so how many are kept beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What was done, what came of it, and what happened to the episode or to ebb: as often as evictions allow.
    Done,
    /// What was decided.
    Decided,
    /// What was decided and not done: who is chosen may be gone each time.
    NotDone,
    /// The signal went to the other side of its threshold.
    Swing,
    /// The kernel's OOM killer came in as the node was out of memory.
    NodeOom,
    /// It came in at a limit of somebody's own.
    OwnOom,
}

/// The moments of an episode.
#[derive(Debug, Default)]
pub(super) struct Timeline([Kept; Kind::ALL.len()]);

/// Those of one kind.
#[derive(Debug, Default)]
struct Kept {
    first: Vec<Moment>,
    last: VecDeque<Moment>,
    /// How many were between them, and when the first of those was.
    left_out: u64,
    since_ms: f64,
}

impl Kind {
    const ALL: [Self; 6] =
        [Self::Done, Self::Decided, Self::NotDone, Self::Swing, Self::NodeOom, Self::OwnOom];

    /// What a moment of ebb's own is of, by what it is called.
    pub(super) fn of(what: &str) -> Self {
        match what {
            "decided" | "decided ahead" => Self::Decided,
            "not done" | "the reflex held back" => Self::NotDone,
            _ => Self::Done,
        }
    }

    /// What a kill by the kernel's OOM killer is of.
    pub(super) fn of_oom_kill(limit: &OomConstraint) -> Self {
        match limit {
            // One of which the limit is not known may be the node's.
            OomConstraint::Node | OomConstraint::Unknown => Self::NodeOom,
            OomConstraint::Cgroup { .. } | OomConstraint::CgroupV1 { .. } => Self::OwnOom,
        }
    }

    /// How many of the first are kept, and how many of the last.
    fn room(self) -> (usize, usize) {
        match self {
            Self::Done => (256, 256),
            Self::Decided => (32, 32),
            Self::NotDone | Self::NodeOom | Self::OwnOom => (16, 16),
            // There and back.
            Self::Swing => (32, 16),
        }
    }

    /// What those are that were left out.
    fn words(self) -> &'static str {
        match self {
            Self::Done => "of what was done",
            Self::Decided => "decided",
            Self::NotDone => "not done",
            Self::Swing => "crossings of the threshold",
            Self::NodeOom | Self::OwnOom => "killed by the kernel's OOM killer",
        }
    }
}

impl Timeline {
    /// Adds a moment.
    pub(super) fn add(&mut self, kind: Kind, moment: Moment) {
        let mut all = Kind::ALL.iter().zip(&mut self.0);
        if let Some((_, kept)) = all.find(|(of, _)| **of == kind) {
            kept.add(kind.room(), moment);
        }
    }

    /// Everything that is kept, in the order in which it happened.
    pub(super) fn moments(&self) -> Vec<Moment> {
        let mut all: Vec<Moment> = Vec::new();
        for (kind, kept) in Kind::ALL.iter().zip(&self.0) {
            let Kept { first, last, left_out, since_ms } = kept;
            all.extend(first.iter().chain(last).cloned());
            if *left_out > 0 {
                all.push(Moment::left_out(*left_out, kind.words(), *since_ms));
            }
        }
        all.sort_by(|a, b| a.after_ms.total_cmp(&b.after_ms));
        all
    }
}

impl Kept {
    fn add(&mut self, (first, last): (usize, usize), moment: Moment) {
        if self.first.len() < first {
            self.first.push(moment);
            return;
        }
        self.last.push_back(moment);
        if self.last.len() > last
            && let Some(between) = self.last.pop_front()
        {
            if self.left_out == 0 {
                self.since_ms = between.after_ms;
            }
            self.left_out += 1;
        }
    }
}
