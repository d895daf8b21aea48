//! Who a thing of the node is: ids that are never, or not soon, used again for something else.
//!
//! A path or a bare pid is for people; it is no identity.

/// A cgroup's id: the inode of its kernfs directory, never used again while the machine is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(transparent)
)]
pub struct CgroupId(pub u64);

/// A process: its id with its start time, since ids are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub struct ProcessId {
    /// Process id in the initial namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot, field 22 of `/proc/PID/stat`.
    pub start_time: u64,
}

impl ProcessId {
    /// The pid as system calls take it; a number that no process can have becomes one that none has, never a negative one, which would mean a process group.
    #[must_use]
    pub fn pid_t(self) -> i32 {
        i32::try_from(self.pid).unwrap_or(i32::MAX)
    }
}
