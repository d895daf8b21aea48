//! Pod cgroups that no pod belongs to: finding them, emptying them, removing them; and memory that is still charged to cgroups that are gone.
//!
//! What runs is ended first, held and checked as any victim is, then directories go from the bottom up, with bounded retries: a process that is ending leaves its cgroup a moment late.
//! An orphaned pod cgroup whose volumes are still mounted only loses its CPU, as with the kubelet: removing it would charge a tmpfs's memory to all pods together.

use super::beneath::Beneath;
use super::write::{NotWritten, Writer};
use crate::act::{NotDone, Refusal, Target, kill_orphaned};
use crate::sense::Roots;
use crate::sense::file::{keyed, read_once};
use ebb_journal::cgroups::Dying;
use ebb_policy::cgroups::PodTree;
use ebb_policy::cgroups::orphans::{Action, Known, Orphan, PodCgroup, STARVED_WEIGHT, orphans};
use ebb_policy::snapshot::Qos;
use std::io;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

/// Tries to remove a directory; the pause between them begins at a millisecond and doubles.
const REMOVE_TRIES: u32 = 10;
/// Deeper than any real pod.
const MAX_DEPTH: usize = 32;

/// Where orphaned pod cgroups are looked for.
#[derive(Clone, Debug)]
pub struct Ground {
    /// The cgroup mount.
    pub root: PathBuf,
    /// The proc mount.
    pub proc: PathBuf,
    /// The kubelet's directory, whose `pods/<UID>/volumes` tells of volumes.
    pub kubelet: PathBuf,
}

impl Ground {
    /// The orphaned pod cgroups, by path. `known` are all pods; `None` means that not every source has reported or that none names a pod, and then nothing is a leftover.
    #[must_use]
    pub fn orphaned_pods(&self, tree: &PodTree, known: Option<&Known>) -> Vec<Orphan> {
        let mounts = read_once(&self.proc.join("self/mountinfo")).ok();
        let mut cgroups = Vec::new();
        for (path, uid) in self.pods(tree) {
            cgroups.push(PodCgroup {
                // What cannot be told to be empty is not.
                populated: self.populated(&path) != Some(0),
                volumes_mounted: self.volumes_mounted(&uid, mounts.as_deref()),
                path,
            });
        }
        orphans(tree, &cgroups, known)
    }

    /// Does about an orphaned pod cgroup what its action says.
    ///
    /// # Errors
    /// What could not be done: it holds a protected process, or what the kernel says.
    pub fn end(&self, orphan: &Orphan) -> io::Result<()> {
        let root = self.beneath();
        match orphan.action {
            Action::Skip => Ok(()),
            Action::ReduceCpu => {
                match root.write(&orphan.path, "cpu.weight", &STARVED_WEIGHT.to_string()) {
                    // Without the controller it has no CPU of its own to lose.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    other => other,
                }
            }
            Action::Remove => {
                // By its id, so that a later cgroup of the same name is not the one that is emptied.
                let target =
                    Target::Cgroup { id: root.id(&orphan.path)?, path: root.shown(&orphan.path) };
                let roots = Roots { proc: self.proc.clone(), cgroup: self.root.clone() };
                match kill_orphaned(&target, &roots) {
                    Ok(_) | Err(NotDone::Refused(Refusal::Gone | Refusal::Exiting)) => {
                        remove(&root, &orphan.path, 0)
                    }
                    Err(error) => Err(io::Error::other(error)),
                }
            }
        }
    }

    /// Removed cgroups that still hold memory, attributed to the nearest one that is there; those of pods and classes only.
    #[must_use]
    pub fn dying(&self, tree: &PodTree) -> Vec<Dying> {
        let top = tree.kubepods().path(tree.driver());
        let mut found = Vec::new();
        self.dying_below(&top, 0, &mut found);
        found
    }

    /// Asks the kernel to take back what removed cgroups still hold; returns how many bytes less are charged.
    ///
    /// # Errors
    /// Why it could not be asked; [`NotWritten::Gone`] before Linux 5.19.
    pub fn reclaim(&self, writer: &Writer, dying: &Dying) -> Result<u64, NotWritten> {
        let Dying { path, bytes: Some(bytes @ 1..), .. } = dying else { return Ok(0) };
        let before = self.held(path);
        match writer.reclaim_bytes(path, *bytes) {
            // It went while it was looked at.
            Err(NotWritten::Gone { .. }) if self.held(path).is_none() => return Ok(0),
            result => result?,
        }
        Ok(before.zip(self.held(path)).map_or(0, |(before, after)| before.saturating_sub(after)))
    }

    /// Cgroups directly below those of known pods in which nothing runs and which the plan does not have.
    #[must_use]
    pub fn empty(
        &self,
        tree: &PodTree,
        known: &Known,
        is_planned: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let mut found = Vec::new();
        for (pod, _) in self.pods(tree).iter().filter(|(_, uid)| known.uids.contains(uid)) {
            for name in self.beneath().children(pod) {
                let path = format!("{pod}/{name}");
                if self.populated(&path) == Some(0) && !is_planned(&path) {
                    found.push(path);
                }
            }
        }
        found
    }

    /// Whether something runs in the cgroup of any pod, or may.
    #[must_use]
    pub fn runs_something(&self, tree: &PodTree) -> bool {
        self.pods(tree).iter().any(|(path, _)| self.populated(path) != Some(0))
    }

    fn beneath(&self) -> Beneath {
        Beneath::new(&self.root)
    }

    /// Cgroups that are named as those of pods, each with the UID, in the order of classes and names.
    fn pods(&self, tree: &PodTree) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for qos in [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort] {
            let parent = tree.class(qos).path(tree.driver());
            for name in self.beneath().children(&parent) {
                let path = format!("{parent}/{name}");
                if let Some((uid, _)) = tree.parse_pod(&path) {
                    found.push((path, uid));
                }
            }
        }
        found
    }

    /// 1 when processes are in a cgroup or below, 0 when none are; `None` when that cannot be read.
    fn populated(&self, path: &str) -> Option<u64> {
        keyed(&self.beneath().read(path, "cgroup.events").ok()?, "populated")
    }

    /// Bytes charged to a cgroup; `None` when it is gone or the kernel does not say.
    fn held(&self, path: &str) -> Option<u64> {
        self.beneath().read(path, "memory.current").ok()?.trim().parse().ok()
    }

    fn dying_below(&self, path: &str, depth: usize, found: &mut Vec<Dying>) -> u64 {
        let stat = self.beneath().read(path, "cgroup.stat").unwrap_or_default();
        let all = keyed(&stat, "nr_dying_descendants").unwrap_or(0);
        let mut elsewhere = 0;
        let children = self.beneath().children(path);
        if all > 0 && depth < MAX_DEPTH {
            for name in &children {
                elsewhere += self.dying_below(&format!("{path}/{name}"), depth + 1, found);
            }
        }
        let own = all.saturating_sub(elsewhere);
        if own > 0 {
            let each = children.iter().map(|name| self.held(&format!("{path}/{name}")));
            let accounted: Option<u64> = each.sum();
            let bytes =
                self.held(path).zip(accounted).map(|(all, below)| all.saturating_sub(below));
            found.push(Dying { path: path.to_owned(), count: own, bytes });
        }
        all
    }

    /// Whether volumes of a pod are mounted; `None` when the mount table cannot be read.
    fn volumes_mounted(&self, uid: &str, mounts: Option<&str>) -> Option<bool> {
        let pod = self.kubelet.join("pods").join(uid);
        let prefix = format!("{}/volumes/", pod.display());
        mounts.map(|mounts| {
            let point =
                |line: &str| line.split(' ').nth(4).is_some_and(|at| at.starts_with(&prefix));
            mounts.lines().any(point)
        })
    }
}

/// Removes a cgroup and everything below it, the lowest first.
fn remove(root: &Beneath, path: &str, depth: usize) -> io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(io::Error::other("it is nested deeper than any pod"));
    }
    for name in root.children(path) {
        remove(root, &format!("{path}/{name}"), depth + 1)?;
    }
    let (parent, name) = path.rsplit_once('/').unwrap_or_default();
    for attempt in 0..REMOVE_TRIES {
        match root.remove(parent, name) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                sleep(Duration::from_millis(1 << attempt));
            }
            Err(error) => return Err(error),
        }
    }
    root.remove(parent, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_policy::cgroups::{CgroupName, Driver};
    use std::collections::BTreeSet;
    use std::fs;

    fn known(uid: &str) -> Known {
        Known { uids: BTreeSet::from([uid.to_owned()]), doubt: None }
    }

    fn ground(mountinfo: &str) -> (tempfile::TempDir, Ground, PodTree) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (path, events) in [
            ("cgroup/kubepods/podgone", "populated 1\n"),
            ("cgroup/kubepods/burstable/podlive", "populated 1\n"),
            ("cgroup/kubepods/besteffort/podmounted", "populated 0\n"),
            ("cgroup/kubepods/burstable/other", "populated 1\n"),
        ] {
            fs::create_dir_all(at(path)).unwrap();
            fs::write(at(path).join("cgroup.events"), events).unwrap();
        }
        fs::create_dir_all(at("proc/self")).unwrap();
        fs::write(at("proc/self/mountinfo"), mountinfo).unwrap();
        let ground =
            Ground { root: at("cgroup"), proc: at("proc"), kubelet: "/var/lib/kubelet".into() };
        let tree = PodTree::below(&CgroupName::root(), Driver::Cgroupfs).unwrap();
        (dir, ground, tree)
    }

    #[test]
    fn a_pod_whose_volumes_are_mounted_is_not_removed() {
        let line = "36 35 0:33 / /var/lib/kubelet/pods/mounted/volumes/kubernetes.io~empty-dir/x rw - tmpfs tmpfs rw\n";
        let (_dir, ground, tree) = ground(line);
        let known = known("live");
        let found = ground.orphaned_pods(&tree, Some(&known));
        let actions: Vec<_> =
            found.iter().map(|o| (o.uid.as_str(), o.action, o.populated)).collect();
        assert_eq!(
            actions,
            [("mounted", Action::ReduceCpu, false), ("gone", Action::Remove, true)]
        );
        let weight = ground.root.join("kubepods/besteffort/podmounted/cpu.weight");
        ground.end(&found[0]).unwrap();
        assert!(!weight.exists(), "without the controller there is nothing to take");
        fs::write(&weight, "100").unwrap();
        ground.end(&found[0]).unwrap();
        assert_eq!(fs::read_to_string(weight).unwrap(), "1");
    }

    #[test]
    fn an_orphaned_pod_that_holds_a_protected_process_is_left_alone() {
        let (_dir, ground, tree) = ground("");
        let at = ground.root.join("kubepods/podgone");
        fs::write(at.join("cgroup.procs"), format!("{}\n", std::process::id())).unwrap();
        let found = ground.orphaned_pods(&tree, Some(&known("live")));
        let gone = found.iter().find(|orphan| orphan.uid == "gone").unwrap();
        let error = ground.end(gone).unwrap_err().to_string();
        assert!(error.contains("it is ebb itself"), "{error}");
        assert!(at.exists());
    }

    #[test]
    fn dying_cgroups_are_attributed_to_the_nearest_that_is_there() {
        let (_dir, ground, tree) = ground("");
        let pods = ground.root.join("kubepods");
        for (path, dying, current) in [
            ("", 5, 100),
            ("burstable", 3, 40),
            ("burstable/podlive", 0, 10),
            ("burstable/other", 0, 5),
            ("besteffort", 0, 0),
            ("podgone", 2, 7),
        ] {
            let at = pods.join(path);
            fs::write(at.join("cgroup.stat"), format!("nr_dying_descendants {dying}\n")).unwrap();
            fs::write(at.join("memory.current"), current.to_string()).unwrap();
        }
        let mut found = ground.dying(&tree);
        found.sort_by(|a, b| a.path.cmp(&b.path));
        let shown: Vec<_> = found.iter().map(|d| (d.path.as_str(), d.count, d.bytes)).collect();
        let expected = [("/kubepods/burstable", 3, Some(25)), ("/kubepods/podgone", 2, Some(7))];
        assert_eq!(shown, expected);
    }
}
