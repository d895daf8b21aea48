//! What the kernel told: records from the rings in the terms of the node.
//!
//! All times are `CLOCK_BOOTTIME` in nanoseconds, the clock behind the start times in `/proc/PID/stat`.
//! All pids are those of the initial pid namespace. All cgroup ids are kernfs inode numbers of the v2 hierarchy.
use ebb_wire::{COMM_LEN, Record, change, exit_flags, oom_limit, which};
use serde::{Serialize, Serializer};
use std::fmt;

/// One thing that has happened in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum KernelEvent {
    /// A process has ended: once per process, whichever of its threads was last.
    Exit {
        /// When.
        ts_ns: u64,
        /// Its cgroup.
        cgroup: u64,
        /// Its process id.
        pid: u32,
        /// Its parent's process id.
        ppid: Option<u32>,
        /// When it started.
        started_ns: Option<u64>,
        /// Name of its last thread.
        comm: Comm,
        /// How it ended.
        status: Option<ExitStatus>,
        /// What is known to have ended.
        scope: ExitScope,
    },
    /// The kernel's OOM killer has marked a victim. One per victim: a group kill gives several.
    /// Also sent for a task that was already exiting and is merely let through.
    OomKill {
        /// When.
        ts_ns: u64,
        /// The victim's process id.
        pid: u32,
        /// When the victim started.
        started_ns: u64,
        /// The victim's name.
        comm: Comm,
        /// The victim's cgroup, which can be far below the one whose limit was hit.
        victim_cgroup: u64,
        /// Whose shortage it was.
        limit: OomLimit,
        /// The victim's `oom_score_adj`, -1000 to 1000.
        oom_score_adj: i32,
    },
    /// A counter in a cgroup's `memory.events` has changed.
    ///
    /// At most one per cgroup in 100 ms: after one, the file says what the counters are *now*, and what changes in the
    /// 100 ms after it shows in the next event or in [`CgroupTotals::memory_events`](crate::CgroupTotals).
    MemoryEvent {
        /// When.
        ts_ns: u64,
        /// Whose.
        cgroup: u64,
        /// Which counter, when the hook knows.
        which: Option<MemoryCounter>,
        /// How many events of this cgroup were swallowed since its last one.
        folded: u32,
    },
    /// A cgroup has come, gone or changed.
    Cgroup {
        /// When.
        ts_ns: u64,
        /// What happened.
        change: CgroupChange,
        /// Its id.
        id: u64,
        /// Its parent's id.
        parent: Option<u64>,
        /// Distance from the root, which is at 0.
        level: u32,
        /// Path from the root of the hierarchy: with [`CgroupChange::Created`] and [`CgroupChange::Renamed`], unless
        /// it is longer than a record or the kernel forbids reading strings.
        path: Option<String>,
    },
    /// kswapd was woken because a node's free memory fell below its low watermark. At most one per node in 10 ms.
    KswapdWake {
        /// When.
        ts_ns: u64,
        /// NUMA node.
        node: u32,
        /// Wakes of this node that were swallowed since its last event.
        folded: u32,
    },
}

/// A task's name: at most 15 bytes, whatever bytes its owner chose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Comm([u8; COMM_LEN]);

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// It called `exit` with this code.
    Code(u8),
    /// This signal ended it.
    Signal(u8),
}

/// What an exit event is known to cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitScope {
    /// The process: none of its threads lives on.
    Process,
    /// Its first thread; others may live on. Only where no better hook can be attached.
    Leader,
}

/// Whose shortage an OOM kill was meant to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OomLimit {
    /// The node's.
    Node,
    /// That of the cgroup with this id.
    Cgroup(u64),
    /// That of the cgroup with this id in a v1 memory hierarchy, whose ids are separate from v2's.
    CgroupV1(u64),
    /// The hook that knows is not attached.
    Unknown,
}

/// A line of `memory.events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "each is documented by the kernel's cgroup-v2 guide under its name")]
pub enum MemoryCounter {
    Low,
    High,
    Max,
    Oom,
    OomKill,
    OomGroupKill,
    SwapHigh,
    SwapMax,
    SwapFail,
    SockThrottled,
}

/// What happened to a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupChange {
    /// Its directory was made. Limits are not written yet, and nothing runs in it.
    Created,
    /// Its directory was removed; pages charged to it may remain.
    Removed,
    /// Its directory was renamed.
    Renamed,
    /// The kernel has let go of it altogether.
    Released,
    /// The first process arrived in it or below (true), or the last one is gone (false).
    Populated(bool),
}

impl KernelEvent {
    /// When it happened, `CLOCK_BOOTTIME` in nanoseconds.
    pub fn ts_ns(&self) -> u64 {
        match self {
            Self::Exit { ts_ns, .. }
            | Self::OomKill { ts_ns, .. }
            | Self::MemoryEvent { ts_ns, .. }
            | Self::Cgroup { ts_ns, .. }
            | Self::KswapdWake { ts_ns, .. } => *ts_ns,
        }
    }
}

impl From<Record> for KernelEvent {
    fn from(record: Record) -> Self {
        match record {
            Record::Exit(exit) => Self::Exit {
                ts_ns: exit.header.ts_ns,
                cgroup: exit.cgroup,
                pid: exit.pid,
                ppid: known(exit.ppid),
                started_ns: known(exit.start_ns),
                comm: Comm(exit.comm),
                status: (exit.flags & exit_flags::STATUS != 0)
                    .then(|| ExitStatus::from_wait(exit.status)),
                scope: if exit.flags & exit_flags::LEADER_ONLY == 0 {
                    ExitScope::Process
                } else {
                    ExitScope::Leader
                },
            },
            Record::OomKill(kill) => Self::OomKill {
                ts_ns: kill.header.ts_ns,
                pid: kill.pid,
                started_ns: kill.start_ns,
                comm: Comm(kill.comm),
                victim_cgroup: kill.victim_cgroup,
                limit: match kill.limit {
                    oom_limit::NODE => OomLimit::Node,
                    oom_limit::CGROUP => OomLimit::Cgroup(kill.limit_cgroup),
                    oom_limit::CGROUP_V1 => OomLimit::CgroupV1(kill.limit_cgroup),
                    _ => OomLimit::Unknown,
                },
                oom_score_adj: kill.oom_score_adj,
            },
            Record::MemoryEvent(event) => Self::MemoryEvent {
                ts_ns: event.header.ts_ns,
                cgroup: event.cgroup,
                which: MemoryCounter::from_wire(event.which),
                folded: event.folded,
            },
            Record::Cgroup(cgroup) => cgroup_event(&cgroup, None),
            Record::CgroupNamed(named) => cgroup_event(&named.what, text(&named.path)),
            Record::KswapdWake(wake) => {
                Self::KswapdWake { ts_ns: wake.header.ts_ns, node: wake.node, folded: wake.folded }
            }
        }
    }
}

fn cgroup_event(cgroup: &ebb_wire::Cgroup, path: Option<String>) -> KernelEvent {
    KernelEvent::Cgroup {
        ts_ns: cgroup.header.ts_ns,
        change: match cgroup.change {
            change::CREATED => CgroupChange::Created,
            change::REMOVED => CgroupChange::Removed,
            change::RENAMED => CgroupChange::Renamed,
            change::RELEASED => CgroupChange::Released,
            populated => CgroupChange::Populated(populated == change::POPULATED),
        },
        id: cgroup.cgroup,
        parent: known(cgroup.parent),
        level: cgroup.level,
        path,
    }
}

/// On the wire 0 stands for unknown where 0 cannot be a value.
fn known<T: Default + PartialEq>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

/// A NUL-padded string; `None` when it is empty or was cut off, which is seen by the missing NUL.
fn text(padded: &[u8]) -> Option<String> {
    let len = padded.iter().position(|byte| *byte == 0)?;
    (len > 0).then(|| String::from_utf8_lossy(&padded[..len]).into_owned())
}

impl ExitStatus {
    /// From the number that `waitpid` fills in: a signal in the low seven bits, a code in the next byte.
    fn from_wait(status: u32) -> Self {
        let [low, code, ..] = status.to_le_bytes();
        match low & 0x7f {
            0 => Self::Code(code),
            signal => Self::Signal(signal),
        }
    }
}

impl MemoryCounter {
    fn from_wire(number: u32) -> Option<Self> {
        Some(match number {
            which::LOW => Self::Low,
            which::HIGH => Self::High,
            which::MAX => Self::Max,
            which::OOM => Self::Oom,
            which::OOM_KILL => Self::OomKill,
            which::OOM_GROUP_KILL => Self::OomGroupKill,
            which::SWAP_HIGH => Self::SwapHigh,
            which::SWAP_MAX => Self::SwapMax,
            which::SWAP_FAIL => Self::SwapFail,
            which::SOCK_THROTTLED => Self::SockThrottled,
            _ => return None,
        })
    }
}

impl Comm {
    /// A name from text, cut to what a task can have.
    pub fn new(name: &str) -> Self {
        let mut bytes = [0; COMM_LEN];
        for (to, from) in bytes.iter_mut().zip(name.bytes().take(COMM_LEN - 1)) {
            *to = from;
        }
        Self(bytes)
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(COMM_LEN);
        f.pad(&String::from_utf8_lossy(&self.0[..len]))
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl Serialize for Comm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_wire::{CgroupNamed, Exit, Header, PATH_LEN};

    const HEADER: Header = Header { kind: 0, len: 0, cpu: 0, ts_ns: 5 };

    #[test]
    fn what_the_program_could_not_know_is_none() {
        let exit = Exit {
            header: HEADER,
            cgroup: 7,
            start_ns: 0,
            pid: 100,
            ppid: 0,
            status: 9,
            flags: exit_flags::LEADER_ONLY,
            comm: *b"fifteen-bytes-x\0",
        };
        assert_eq!(
            KernelEvent::from(Record::Exit(exit)),
            KernelEvent::Exit {
                ts_ns: 5,
                cgroup: 7,
                pid: 100,
                ppid: None,
                started_ns: None,
                comm: Comm::new("fifteen-bytes-x"),
                status: None,
                scope: ExitScope::Leader,
            }
        );
    }

    #[test]
    fn a_wait_status_tells_a_code_from_a_signal_with_or_without_a_core() {
        assert_eq!(ExitStatus::from_wait(0), ExitStatus::Code(0));
        assert_eq!(ExitStatus::from_wait(3 << 8), ExitStatus::Code(3));
        assert_eq!(ExitStatus::from_wait(9), ExitStatus::Signal(9));
        assert_eq!(ExitStatus::from_wait(11 | 0x80), ExitStatus::Signal(11));
    }

    #[test]
    fn a_path_that_was_cut_off_or_not_read_is_none() {
        let mut path = [b'/'; PATH_LEN];
        assert_eq!(text(&path), None);
        path[4..].fill(0);
        assert_eq!(text(&path).as_deref(), Some("////"));
        path.fill(0);
        assert_eq!(text(&path), None);
    }

    #[test]
    fn events_serialize_flat_with_text_for_names() {
        let named = CgroupNamed {
            what: ebb_wire::Cgroup {
                header: HEADER,
                cgroup: 9,
                parent: 1,
                level: 1,
                change: change::EMPTIED,
            },
            path: [0; PATH_LEN],
        };
        let json = serde_json::to_value(KernelEvent::from(Record::CgroupNamed(named))).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "kind": "cgroup", "ts_ns": 5, "change": {"populated": false}, "id": 9, "parent": 1,
                "level": 1, "path": null,
            })
        );
    }
}
