//! Reading the node, and only reading: every file that ebb looks at on a node is opened below this module.
//!
//! ```text
//!  /proc/meminfo, loadavg, pressure ─► node   ─┐
//!  /proc/swaps, zram's mm_stat      ─► zram   ─┤
//!  cgroup v2 tree                   ─► cgroup ─┼─► state
//!  /proc/PID (cgroup v1 hosts)      ─► process─┤
//!  filesystems, logs, manifests     ─► disk, pod_dirs, logs, manifests, usage ─┤
//!  the container runtime            ─► runtime ─┘
//! ```
//! Each reader takes its root directory as an argument ([`Roots`]), so a fake node is a temporary directory.
//! What the kernel does not offer is `None`; nothing here guesses.
//! Deliberately elsewhere: BPF (the crate `ebb-probes`), and every write (`act`).

pub mod block;
pub mod cgroup;
pub mod custody;
pub mod descriptors;
pub mod disk;
pub mod file;
pub mod host;
pub mod logs;
pub mod manifests;
pub mod members;
pub mod meminfo;
pub mod node;
pub mod pod_dirs;
pub mod process;
pub mod psi;
pub mod role;
pub mod runtime;
mod set_aside;
mod subtree;
pub mod sweep;
pub mod tree;
pub mod usage;
mod walk;
pub mod zram;

use std::path::{Path, PathBuf};

/// Where the node's pseudo file systems are mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// procfs, `/proc` on a real node.
    pub proc: PathBuf,
    /// The cgroup mount as found by [`host::CgroupLayout::detect`], or as told by the operator.
    pub cgroup: PathBuf,
}

impl Roots {
    /// A cgroup's path as it is below the mount; of one that is not, the path as it is.
    #[must_use]
    pub fn below_mount<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.cgroup).unwrap_or(path)
    }
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), cgroup: "/sys/fs/cgroup".into() }
    }
}
