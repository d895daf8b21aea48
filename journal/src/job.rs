//! What ebb sets out to do to a workload, what justifies it, and what was done in the end.
//!
//! Planning makes a [`Job`], acting does it, records name it; nothing here looks at the node.

use crate::target::Target;
use ebb_policy::{StallShare, Time};
use serde::{Deserialize, Serialize};

/// Whether ebb acts or only says what it would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Says what it would do.
    DryRun,
    /// Does it.
    Enforce,
}

/// How a target goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// At once, with SIGKILL.
    Kill,
    /// Asked with SIGTERM; the loop sends [`Step::Kill`] after the grace period.
    Terminate,
    /// Not at all: a step before eviction.
    #[serde(untagged)]
    Rung(Rung),
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Rung {
    /// Ask the kernel to take this many bytes from it (`memory.reclaim`, Linux 5.19). May block for long.
    Reclaim {
        /// Bytes.
        bytes: u64,
    },
    /// Slow it down above this many bytes (`memory.high`). May block for long.
    Throttle {
        /// Bytes.
        high: u64,
    },
    /// Stop it (`cgroup.freeze`); it is let go again after this long, whatever happens to the loop.
    Freeze {
        /// Milliseconds.
        thaw_after_ms: u64,
    },
    /// Undo a throttle and a freeze.
    Release,
}

/// What must be true of the node for a job to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "signal")]
pub enum Need {
    /// Available memory is below this many bytes.
    MemoryBelow {
        /// The threshold, in bytes.
        bytes: u64,
    },
    /// Swap can take less than this many bytes more.
    SwapBelow {
        /// The threshold, in bytes.
        bytes: u64,
    },
    /// Available memory and swap together are below this many bytes.
    MemoryWithSwapBelow {
        /// The threshold, in bytes.
        bytes: u64,
    },
    /// Both are below their thresholds: available memory, and swap where there still is any.
    MemoryAndSwapBelow {
        /// The threshold on memory, in bytes.
        bytes: u64,
        /// The threshold on swap, in bytes.
        swap: u64,
    },
    /// Fewer than this many threads can still be made.
    PidsBelow {
        /// The threshold, in threads.
        count: u64,
    },
    /// Memory pressure of a cgroup is above its limit.
    MemoryPressureAbove {
        /// Its path from the root of the hierarchy.
        cgroup: String,
        /// The limit of `full avg10`, hundredths of a percent.
        limit: StallShare,
    },
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// Tells jobs apart, and orders them.
    pub number: u64,
    /// What is to go.
    pub target: Target,
    /// How.
    pub step: Step,
    /// What justifies it; `None` for what was already begun, which is ended whether or not the pressure lasts.
    pub need: Option<Need>,
    /// The decision that it carries out, by when that was made: `decidedAt` of its plan in the incident record, milliseconds since the Unix epoch. `None` where no decision of the loop is behind it, as for the watchdog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Time>,
}

/// What was done to a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Method {
    /// SIGKILL to each process held, and one write to `cgroup.kill` for the rest.
    CgroupKill,
    /// Frozen, then SIGKILL to each process until none was left or half a second had passed.
    FreezeAndSignal,
    /// SIGKILL to one process.
    Signal,
    /// SIGTERM to each process: asked to end, SIGKILL follows after the grace period.
    Terminate,
    /// `memory.reclaim`.
    Reclaim,
    /// `memory.high` was lowered.
    Throttle,
    /// `cgroup.freeze`.
    Freeze,
    /// A throttle and a freeze were undone.
    Release,
    /// Nothing: a dry run.
    DryRun,
}
