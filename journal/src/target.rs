//! What an action is aimed at: a cgroup, a pod's containers or a process, by identity.
//!
//! Planning makes one, acting takes hold of it, records name it; nothing here looks at the node.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// What a plan wants ended, by identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Target {
    /// A cgroup and everything below it.
    Cgroup {
        /// Its id.
        id: u64,
        /// Where it was seen, as an absolute path.
        path: PathBuf,
    },
    /// The containers of a pod: each a cgroup, the sandbox not among them. Ending that is the runtime's part.
    Pod {
        /// UID of the pod.
        uid: String,
        /// The cgroups of its containers.
        payloads: Vec<Payload>,
    },
    /// One process.
    Process {
        /// Its pid.
        pid: i32,
        /// Its start time, in clock ticks since boot.
        start: u64,
    },
}

/// The cgroup of one container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Payload {
    /// Its id.
    pub id: u64,
    /// Where it was seen, as an absolute path.
    pub path: PathBuf,
}

/// For people: where it is, or whose it is.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup { path, .. } => path.display().fmt(f),
            Self::Pod { uid, .. } => write!(f, "pod {uid}"),
            Self::Process { pid, .. } => write!(f, "process {pid}"),
        }
    }
}
