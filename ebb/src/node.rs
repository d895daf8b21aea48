//! Arguments that say which node: shared by every command that reads one.

use ebb_agent::sense::Roots;
use ebb_agent::sense::host::CgroupLayout;
use std::path::PathBuf;

/// Where the node's files are.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct NodeArgs {
    /// The cgroup v2 mount; found in the mount table when not given.
    #[arg(long, value_name = "DIR")]
    cgroup_root: Option<PathBuf>,
    /// The proc mount; the host's, where ebb runs in a container without hostPID.
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc_root: PathBuf,
    /// The kubelet's root directory: what `nodefs` is. Without one, /var/lib/kubelet where that exists, else /var/lib.
    #[arg(long, value_name = "DIR")]
    node_fs: Option<PathBuf>,
}

impl NodeArgs {
    /// The directory on the node's own filesystem; `None` where there is none of those that are usual.
    pub(super) fn node_fs(&self) -> Option<PathBuf> {
        let usual = || {
            let dirs = ["/var/lib/kubelet", "/var/lib"].map(PathBuf::from);
            dirs.into_iter().find(|dir| dir.is_dir())
        };
        self.node_fs.clone().or_else(usual)
    }

    /// The proc mount.
    pub(super) fn proc_root(&self) -> &std::path::Path {
        &self.proc_root
    }

    /// The node's roots, and how its cgroups are laid out.
    ///
    /// # Errors
    /// When a directory that was named is not there, or not what it was said to be.
    pub(super) fn find(&self) -> anyhow::Result<(Roots, CgroupLayout)> {
        anyhow::ensure!(
            self.proc_root.join("meminfo").exists(),
            "--proc-root {}: there is no meminfo in it; name a proc mount such as /proc",
            self.proc_root.display()
        );
        if let Some(root) = &self.cgroup_root {
            std::fs::read_dir(root)
                .map_err(|e| anyhow::anyhow!("--cgroup-root {}: {e}", root.display()))?;
            anyhow::ensure!(
                root.join("cgroup.controllers").exists(),
                "--cgroup-root {}: there is no cgroup.controllers in it; name a cgroup v2 mount such as /sys/fs/cgroup",
                root.display()
            );
        }
        let layout = CgroupLayout::detect(&self.proc_root, self.cgroup_root.as_deref());
        let mut roots = Roots { proc: self.proc_root.clone(), ..Roots::default() };
        if let Some(root) = layout.v2() {
            roots.cgroup = root.to_owned();
        }
        Ok((roots, layout))
    }
}
