//! What this host offers, without BPF: facts only, no opinion on what to do with them (`ebb check` has that).

use super::file::read_once;
use super::tree::Tree;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// How cgroups are laid out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum CgroupLayout {
    /// One cgroup v2 hierarchy that has the memory controller.
    Unified {
        /// Its mount.
        root: PathBuf,
    },
    /// A cgroup v2 hierarchy is there, but the memory controller is on cgroup v1.
    Hybrid {
        /// Mount of the v2 hierarchy.
        root: PathBuf,
        /// Mount of the v1 memory controller, when it is mounted at all.
        memory: Option<PathBuf>,
    },
    /// No cgroup v2 anywhere.
    Legacy {
        /// Mount of the v1 memory controller, when it is mounted at all.
        memory: Option<PathBuf>,
    },
}

impl CgroupLayout {
    /// Reads the layout from the mount table at `proc/mounts`; `told` overrides where the v2 hierarchy is.
    #[must_use]
    pub fn detect(proc: &Path, told: Option<&Path>) -> Self {
        let mounts = read_once(&proc.join("mounts")).unwrap_or_default();
        let memory = v1_memory_mount(&mounts);
        let Some(root) = told.map(Path::to_owned).or_else(|| v2_mount(&mounts)) else {
            return Self::Legacy { memory };
        };
        let controllers = read_once(&root.join("cgroup.controllers")).unwrap_or_default();
        if controllers.split_ascii_whitespace().any(|c| c == "memory") {
            Self::Unified { root }
        } else {
            Self::Hybrid { root, memory }
        }
    }

    /// The unified hierarchy, where cgroups can be workloads.
    #[must_use]
    pub fn unified(&self) -> Option<&Path> {
        match self {
            Self::Unified { root } => Some(root),
            Self::Hybrid { .. } | Self::Legacy { .. } => None,
        }
    }

    /// The v2 hierarchy, with or without the memory controller: where BPF's cgroup ids belong.
    #[must_use]
    pub fn v2(&self) -> Option<&Path> {
        match self {
            Self::Unified { root } | Self::Hybrid { root, .. } => Some(root),
            Self::Legacy { .. } => None,
        }
    }
}

/// Every cgroup hierarchy of the mount table with its controllers, for people: `cgroup v1 memory at /sys/fs/cgroup/memory, cgroup v2 without controllers at /sys/fs/cgroup/unified`.
#[must_use]
pub fn hierarchies(proc: &Path) -> String {
    let mounts = read_once(&proc.join("mounts")).unwrap_or_default();
    let mut found = Vec::new();
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(at), Some(kind), Some(options)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        match kind {
            "cgroup2" => {
                let all = read_once(&Path::new(at).join("cgroup.controllers")).unwrap_or_default();
                let all = all.split_whitespace().collect::<Vec<_>>().join(", ");
                let has = if all.is_empty() {
                    "without controllers".to_owned()
                } else {
                    format!("with {all}")
                };
                found.push(format!("cgroup v2 {has} at {at}"));
            }
            "cgroup" => {
                let is_controller = |option: &&str| V1_CONTROLLERS.contains(option);
                let all: Vec<&str> = options.split(',').filter(is_controller).collect();
                // A hierarchy without controllers is only there for names.
                if !all.is_empty() {
                    found.push(format!("cgroup v1 {} at {at}", all.join(", ")));
                }
            }
            _ => {}
        }
    }
    if found.is_empty() { "no cgroup hierarchy is mounted".to_owned() } else { found.join("; ") }
}

/// Controllers of the v2 hierarchy mounted at `root`; `None` when it does not tell.
#[must_use]
pub fn v2_controllers(root: &Path) -> Option<BTreeSet<String>> {
    let text = read_once(&root.join("cgroup.controllers")).ok()?;
    Some(text.split_whitespace().map(str::to_owned).collect())
}

/// Controllers that are mounted as cgroup v1.
#[must_use]
pub fn v1_controllers(proc: &Path) -> BTreeSet<String> {
    let is_mounted = |controller: &&str| v1_mount(proc, controller).is_some();
    V1_CONTROLLERS.iter().copied().filter(is_mounted).map(str::to_owned).collect()
}

/// Where a cgroup v1 controller is mounted.
#[must_use]
pub fn v1_mount(proc: &Path, controller: &str) -> Option<PathBuf> {
    let mounts = read_once(&proc.join("mounts")).ok()?;
    mount_points(&mounts, |kind, options| {
        kind == "cgroup" && options.split(',').any(|option| option == controller)
    })
}

/// Controllers of cgroup v1.
const V1_CONTROLLERS: [&str; 13] = [
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "net_cls",
    "net_prio",
    "perf_event",
    "pids",
    "rdma",
];

/// The kernel interfaces that ebb acts through, each found by looking for its file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interfaces {
    /// `cgroup.kill` (Linux 5.14): ends a cgroup in one write. `None` when there is no cgroup below the root to look at.
    pub cgroup_kill: Option<bool>,
    /// `memory.reclaim` (Linux 5.19).
    pub memory_reclaim: Option<bool>,
    /// `/proc/pressure/memory`.
    pub psi: bool,
}

impl Interfaces {
    /// Looks at the first cgroups below the root of `tree`: the root itself has none of these files.
    #[must_use]
    pub fn detect(proc: &Path, tree: Option<&Tree>) -> Self {
        let has = |file: &str| {
            let tree = tree?;
            let mut below = tree.iter().filter(|(_, n)| !n.path.as_os_str().is_empty()).peekable();
            below.peek()?;
            Some(below.any(|(_, n)| tree.root().join(&n.path).join(file).exists()))
        };
        Self {
            cgroup_kill: has("cgroup.kill"),
            memory_reclaim: has("memory.reclaim"),
            psi: proc.join("pressure/memory").exists(),
        }
    }
}

/// The kernel's release string, for people to read; nothing is ever decided by it.
#[must_use]
pub fn kernel_release(proc: &Path) -> Option<String> {
    read_once(&proc.join("sys/kernel/osrelease")).ok().map(|t| t.trim().to_owned())
}

fn v2_mount(mounts: &str) -> Option<PathBuf> {
    mount_points(mounts, |kind, _| kind == "cgroup2")
}

fn v1_memory_mount(mounts: &str) -> Option<PathBuf> {
    mount_points(mounts, |kind, options| {
        kind == "cgroup" && options.split(',').any(|o| o == "memory")
    })
}

/// The first mount point whose type and options `wanted` accepts; spaces in it are undone from their octal form.
fn mount_points(mounts: &str, wanted: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (at, kind, options) = (words.next()?, words.next()?, words.next()?);
        wanted(kind, options).then(|| PathBuf::from(at.replace("\\040", " ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn layout_of(mounts: &str) -> CgroupLayout {
        let proc = tempfile::tempdir().unwrap();
        fs::write(proc.path().join("mounts"), mounts).unwrap();
        CgroupLayout::detect(proc.path(), None)
    }

    #[test]
    fn a_v2_mount_without_the_memory_controller_is_hybrid() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "\n").unwrap();
        let mounts = format!(
            "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\ncgroup2 {} cgroup2 rw 0 0\n",
            root.path().display()
        );
        let memory = Some(PathBuf::from("/sys/fs/cgroup/memory"));
        assert_eq!(layout_of(&mounts), CgroupLayout::Hybrid { root: root.path().into(), memory });
    }

    #[test]
    fn a_v2_mount_with_the_memory_controller_is_unified_whatever_its_place() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        let layout = layout_of(&format!("none {} cgroup2 rw 0 0\n", root.path().display()));
        assert_eq!(layout.unified(), Some(root.path()));
    }

    #[test]
    fn every_hierarchy_is_named_with_its_controllers() {
        let proc = tempfile::tempdir().unwrap();
        let mounts = "none /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /c/cpu cgroup rw,cpu,cpuacct 0 0\ncgroup /c/systemd cgroup rw,name=systemd 0 0\n";
        fs::write(proc.path().join("mounts"), mounts).unwrap();
        let said = hierarchies(proc.path());
        assert!(said.contains("cgroup v1 cpu, cpuacct at /c/cpu"), "{said}");
        assert!(!said.contains("/c/systemd"), "{said}");
        assert_eq!(v1_mount(proc.path(), "cpuacct"), Some(PathBuf::from("/c/cpu")));
    }

    #[test]
    fn no_v2_mount_is_legacy() {
        assert_eq!(layout_of("proc /proc proc rw 0 0\n"), CgroupLayout::Legacy { memory: None });
    }
}
