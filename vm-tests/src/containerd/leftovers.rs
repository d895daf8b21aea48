//! What pods leave behind outside the runtime's lists, counted: the same number before and after means that nothing was orphaned.
use super::daemon::ROOT;
use crate::wait;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const BUNDLES: &str = "/run/containerd/io.containerd.runtime.v2.task/k8s.io";

/// How many there are of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leftovers {
    /// Processes of the runtime that look after a sandbox.
    pub(crate) shims: usize,
    /// Mounts below the runtime's directories.
    pub(crate) mounts: usize,
    /// Snapshots, those of images included.
    pub(crate) snapshots: usize,
    /// Named network namespaces.
    pub(crate) namespaces: usize,
    /// Directories of tasks.
    pub(crate) bundles: usize,
}

impl Leftovers {
    /// Count now.
    pub(crate) fn count() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").context("cannot list mounts")?;
        let is_ours = |line: &&str| {
            let at = line.split(' ').nth(4).unwrap_or_default();
            at.starts_with("/run/containerd/") || at.starts_with(ROOT)
        };
        Ok(Self {
            shims: shims()?,
            mounts: mounts.lines().filter(is_ours).count(),
            snapshots: entries(&format!("{ROOT}/io.containerd.snapshotter.v1.overlayfs/snapshots")),
            namespaces: entries("/run/netns"),
            bundles: entries(BUNDLES),
        })
    }

    /// Wait until there are no more of anything than there were.
    pub(crate) fn until_back(before: Self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        let back = || {
            let now = Self::count().ok()?;
            let more = now.shims > before.shims
                || now.mounts > before.mounts
                || now.snapshots > before.snapshots
                || now.namespaces > before.namespaces
                || now.bundles > before.bundles;
            (!more).then_some(())
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if wait::until_some(left, "nothing is left behind", back).is_err() {
            bail!("left behind: {:?}, before there were {before:?}", Self::count()?);
        }
        Ok(())
    }
}

fn shims() -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir("/proc").context("cannot list processes")? {
        let name = entry.context("cannot list processes")?.path().join("comm");
        // Names are cut after 15 letters.
        let is_shim = |name: String| name.trim() == "containerd-shim";
        count += usize::from(fs::read_to_string(name).is_ok_and(is_shim));
    }
    Ok(count)
}

/// Entries of a directory; one that is not there has none.
fn entries(dir: &str) -> usize {
    fs::read_dir(Path::new(dir)).map_or(0, Iterator::count)
}
