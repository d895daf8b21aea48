//! What was written to cgroups of pods, and what removed ones still hold.

use serde::{Deserialize, Serialize};

/// A value that was written and read back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// Path of the cgroup below the mount.
    pub path: String,
    /// The file.
    pub file: String,
    /// What it said before.
    pub before: String,
    /// What it says now.
    pub now: String,
    /// What it is to say, where it could not be brought to that at once: more is in use than may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<String>,
}

/// A cgroup below which memory is still charged to cgroups that have been removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dying {
    /// Path below the cgroup mount: the nearest one that is still there.
    pub path: String,
    /// How many removed cgroups hold on to something.
    pub count: u64,
    /// Bytes charged here that no cgroup below accounts for; `None` where the kernel does not say.
    pub bytes: Option<u64>,
}
