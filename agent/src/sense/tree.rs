//! The cgroup v2 tree: which cgroups exist, by id, and which of them are workloads.
//!
//! A cgroup is known by its id (the inode of its directory, the same number BPF reports), never by its path.
//! The tree is read once by [`Tree::scan`] and then kept up by [`Tree::refresh`] for the one cgroup an event names; a lost event is answered by scanning again.
//! What counts as a workload is decided by [`Tree::workloads`] from names and marks alone, so a plan can be replayed without the node.

use super::file::{keyed, read_once};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Deeper than any real tree: what lies below counts as a part of the cgroup at this depth, which is a workload then.
pub const MAX_DEPTH: usize = 64;

/// Longest path, in bytes, that is looked below: with a name and a file behind it, it still is one that the kernel takes.
const MAX_PATH: usize = 3072;

/// Length of the ids that containerd, CRI-O, Docker and podman give containers.
const ID_LENGTH: usize = 64;

/// One cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The id of the cgroup above; the root's own id for the root.
    pub parent: u64,
    /// Path below the cgroup mount, empty for the root.
    pub path: PathBuf,
    /// Some process lives in this cgroup or below.
    pub populated: bool,
    /// Some process lives in this cgroup itself, or has not exited for good.
    pub has_processes: bool,
    /// `memory.oom.group` is 1: the kernel too treats everything below as one thing.
    pub oom_group: bool,
}

/// All cgroups below one mount.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    root: PathBuf,
    nodes: BTreeMap<u64, Node>,
    /// The same by path: whatever is below a cgroup follows it here.
    by_path: BTreeMap<PathBuf, u64>,
}

impl Tree {
    /// Reads the whole tree below `root`.
    ///
    /// A cgroup that disappears while it is read is left out; that is not an error.
    ///
    /// # Errors
    /// Only what makes `root` itself unreadable.
    pub fn scan(root: &Path) -> io::Result<Self> {
        let mut tree = Self { root: root.to_owned(), ..Self::default() };
        let root_id = std::fs::metadata(root)?.ino();
        std::fs::read_dir(root)?;
        tree.put(
            root_id,
            Node {
                parent: root_id,
                path: PathBuf::new(),
                populated: true,
                has_processes: false,
                oom_group: false,
            },
        );
        tree.scan_below(root_id);
        Ok(tree)
    }

    fn scan_below(&mut self, root: u64) {
        let mut pending = vec![(root, PathBuf::new())];
        while let Some((parent, path)) = pending.pop() {
            let Ok(entries) = std::fs::read_dir(self.root.join(&path)) else { continue };
            for entry in entries.flatten() {
                if !entry.file_type().is_ok_and(|t| t.is_dir()) {
                    continue;
                }
                let child = path.join(entry.file_name());
                let id = entry.ino();
                self.insert(id, parent, child.clone());
                if !is_deepest(&child) {
                    pending.push((id, child));
                }
            }
        }
    }

    fn insert(&mut self, id: u64, parent: u64, path: PathBuf) {
        let dir = self.root.join(&path);
        let events = read_once(&dir.join("cgroup.events")).unwrap_or_default();
        let populated = keyed(&events, "populated") == Some(1);
        let node = Node {
            parent,
            populated,
            has_processes: populated && has_processes(&dir),
            oom_group: read_once(&dir.join("memory.oom.group")).is_ok_and(|t| t.trim() == "1"),
            path,
        };
        self.put(id, node);
    }

    /// Notes a cgroup under its id and its path; whatever had either of them before is forgotten.
    fn put(&mut self, id: u64, node: Node) {
        let path = node.path.clone();
        if let Some(before) = self.nodes.insert(id, node)
            && before.path != path
        {
            self.by_path.remove(&before.path);
        }
        if let Some(other) = self.by_path.insert(path, id)
            && other != id
        {
            self.nodes.remove(&other);
        }
    }

    /// Looks again at the cgroup `id`, said by an event to be at `path` below the mount, and forgets it if another or none is there now.
    ///
    /// Returns whether the tree changed.
    pub fn refresh(&mut self, id: u64, path: &Path) -> bool {
        if !self.is_at(id, path) {
            return self.forget(id);
        }
        let above = path.parent().filter(|above| !is_deepest(above));
        let Some(parent) = above.and_then(|above| self.id_of(above)) else { return false };
        let before = self.nodes.get(&id).cloned();
        self.insert(id, parent, path.to_owned());
        before.as_ref() != self.nodes.get(&id)
    }

    /// Whether the cgroup `id` is at `path` below the mount and the one above it is not known, whose making was missed.
    #[must_use]
    pub fn is_cut_off(&self, id: u64, path: &Path) -> bool {
        let is_above_known = path.parent().is_none_or(|above| self.id_of(above).is_some());
        !is_above_known && !path.parent().is_some_and(is_deepest) && self.is_at(id, path)
    }

    /// Whether it is the cgroup `id` that is at `path` below the mount.
    fn is_at(&self, id: u64, path: &Path) -> bool {
        std::fs::symlink_metadata(self.root.join(path)).is_ok_and(|dir| dir.ino() == id)
    }

    /// Forgets the cgroup `id` and everything below it; returns whether it was known.
    pub fn forget(&mut self, id: u64) -> bool {
        let Some(gone) = self.nodes.remove(&id) else { return false };
        // Paths are ordered by their parts, so what is below stands right behind.
        let from = self.by_path.range(gone.path.clone()..);
        let below: Vec<(PathBuf, u64)> = from
            .take_while(|(path, _)| path.starts_with(&gone.path))
            .map(|(path, id)| (path.clone(), *id))
            .collect();
        for (path, id) in below {
            self.by_path.remove(&path);
            self.nodes.remove(&id);
        }
        true
    }

    /// The cgroup at `path` below the mount.
    #[must_use]
    pub fn id_of(&self, path: &Path) -> Option<u64> {
        self.by_path.get(path).copied()
    }

    /// The cgroup `id`.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// The cgroup mount this tree was read from.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether cgroups lie so deep, or under so long a path, that nothing below them is followed.
    #[must_use]
    pub fn is_deep(&self) -> bool {
        self.nodes.values().any(|node| is_deepest(&node.path))
    }

    /// Number of cgroups known, the root included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing was read yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Every cgroup with its id, in id order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// The ids of the cgroups that are workloads: what can be ended as one thing.
    ///
    /// From the root down, the first of these wins and nothing below it is looked at:
    /// a path that `chosen` accepts (the operator's own list, which then replaces all that follows);
    /// a systemd service or scope, unless a tree is delegated to it (`user@1000.service`); a cgroup marked `memory.oom.group`; a cgroup with processes of its own; one so deep that nothing below it is followed.
    /// Slices and pods only hold others: below a pod each container counts by itself, so that a payload can be ended without the sandbox beside it.
    /// A workload without any process is left out.
    pub fn workloads(&self, chosen: Option<&dyn Fn(&Path) -> bool>) -> Vec<u64> {
        let mut children: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut top = None;
        for (id, node) in &self.nodes {
            if node.path.as_os_str().is_empty() {
                top = Some(*id);
            } else {
                children.entry(node.parent).or_default().push(*id);
            }
        }
        let mut found = Vec::new();
        let mut open: Vec<u64> = top.into_iter().collect();
        while let Some(id) = open.pop() {
            for child in children.get(&id).into_iter().flatten() {
                let Some(node) = self.nodes.get(child) else { continue };
                let is_leaf = !children.contains_key(child);
                let whole = match chosen {
                    Some(accepts) => accepts(&node.path),
                    None => node.is_workload(is_leaf),
                };
                if !whole {
                    open.push(*child);
                } else if node.populated {
                    found.push(*child);
                }
            }
        }
        found.sort_unstable();
        found
    }
}

impl Node {
    fn is_workload(&self, is_leaf: bool) -> bool {
        let name = self.path.file_name().unwrap_or_default().as_bytes();
        let is_unit = name.ends_with(b".service") || name.ends_with(b".scope");
        let is_delegated = name.starts_with(b"user@") && !is_leaf;
        is_unit && !is_delegated || self.oom_group || self.has_processes || is_deepest(&self.path)
    }

    /// UID of the pod to which this cgroup belongs, by the names above it.
    #[must_use]
    pub fn pod_uid(&self) -> Option<String> {
        self.path.iter().rev().find_map(|name| pod_uid(name.as_bytes()))
    }
}

/// Whether a populated cgroup has processes of its own.
///
/// The kernel lists no process that is exiting (since Linux 7.0), so one without cgroups below has some though it lists none.
/// Nor does it list one whose first thread had ended when it was moved here, but its other threads; and where those are in
/// threaded cgroups below, this is the one that has their memory.
fn has_processes(dir: &Path) -> bool {
    let lists = |file: &str| read_once(&dir.join(file)).is_ok_and(|t| !t.trim().is_empty());
    // A directory has a link from each that is directly below it, and two more.
    let has_none_below = || std::fs::metadata(dir).is_ok_and(|m| m.nlink() <= 2);
    let is_of_threaded =
        || read_once(&dir.join("cgroup.type")).is_ok_and(|t| t.trim() == "domain threaded");
    lists("cgroup.procs") || has_none_below() || lists("cgroup.threads") || is_of_threaded()
}

/// Whether nothing below the cgroup at `path` is followed.
fn is_deepest(path: &Path) -> bool {
    path.as_os_str().len() >= MAX_PATH || path.iter().count() >= MAX_DEPTH
}

/// The pod UID in a cgroup name as the kubelet writes it: `pod<UID>` (cgroupfs driver), `kubepods[-<qos>]-pod<UID>.slice` with `_` for `-` (systemd driver).
///
/// A UID is a UUID, or for a static pod the 32 hex digits of its manifest's hash.
#[must_use]
pub fn pod_uid(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    let uid =
        if let Some(inner) = name.strip_prefix("kubepods").and_then(|n| n.strip_suffix(".slice")) {
            let after_qos = inner.strip_prefix("-burstable").or(inner.strip_prefix("-besteffort"));
            after_qos.unwrap_or(inner).strip_prefix("-pod")?.replace('_', "-")
        } else {
            name.strip_prefix("pod")?.to_owned()
        };
    let hex = |s: &str| s.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    ((uid.len() == 36 || uid.len() == 32) && hex(&uid)).then_some(uid)
}

/// The container's id in the name of its cgroup: `ID`, `RUNTIME-ID.scope` where systemd makes the cgroups, `kata_ID`.
#[must_use]
pub fn container_id(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let id = name.rsplit(['-', '_']).next()?;
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (id.len() == ID_LENGTH && id.bytes().all(is_hex)).then_some(id)
}

#[cfg(test)]
mod tests;
