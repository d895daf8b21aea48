//! Arguments that say which node: shared by every command that reads one.

use ebb_agent::config::Capacities;
use ebb_agent::sense::Roots;
use ebb_agent::sense::host::CgroupLayout;
use ebb_agent::sense::node::NodeSensor;
use ebb_policy::Signal;
use std::path::{Path, PathBuf};

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
    /// Whether nothing names another node than the one that this process sees.
    pub(super) fn is_this_one(&self) -> bool {
        self.cgroup_root.is_none() && self.node_fs.is_none() && self.proc_root == Path::new("/proc")
    }

    /// The directory on the node's own filesystem; `None` where there is none of those that are usual.
    pub(super) fn node_fs(&self) -> Option<PathBuf> {
        let usual = || {
            let dirs = ["/var/lib/kubelet", "/var/lib"].map(PathBuf::from);
            dirs.into_iter().find(|dir| dir.is_dir())
        };
        self.node_fs.clone().or_else(usual)
    }

    /// Where the kubelet has its configuration, unless it was told otherwise: in its root directory, as kubeadm puts it.
    pub(super) fn kubelet_config(&self) -> PathBuf {
        let root = self.node_fs.clone().unwrap_or_else(|| "/var/lib/kubelet".into());
        root.join("config.yaml")
    }

    /// How much of each signal this machine has; what cannot be read is absent.
    pub(super) fn capacities(&self) -> Capacities {
        let mut capacities = Capacities::new();
        let roots = Roots { proc: self.proc_root.clone(), ..Roots::default() };
        let reading = NodeSensor::open(&roots).and_then(|mut sensor| sensor.read());
        if let Ok(reading) = reading {
            capacities.insert(Signal::MemoryAvailable, reading.memory.total);
            let swap = reading.memory.swap_total.filter(|total| *total > 0);
            capacities.extend(swap.map(|swap| (Signal::SwapAvailable, swap)));
            let with_swap = reading.memory.total.saturating_add(swap.unwrap_or_default());
            capacities.insert(Signal::MemoryWithSwapAvailable, with_swap);
            capacities.extend(reading.task_limit.map(|limit| (Signal::PidAvailable, limit)));
        }
        let filesystem = self.node_fs().and_then(|dir| nix::sys::statvfs::statvfs(&dir).ok());
        if let Some(filesystem) = filesystem {
            let bytes = filesystem.blocks().saturating_mul(filesystem.fragment_size());
            capacities.insert(Signal::NodeFsAvailable, bytes);
            capacities.insert(Signal::NodeFsInodesFree, filesystem.files());
        }
        capacities
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
