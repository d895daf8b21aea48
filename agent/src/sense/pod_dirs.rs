//! The directories of pods on the node's filesystem, found by the pods' UIDs alone, and what each takes up at this moment.
//!
//! ```text
//!  /var/log/pods/<namespace>_<name>_<uid>/<container>/                    logs
//!  <kubelet>/pods/<uid>/volumes/kubernetes.io~empty-dir/<name>/           emptyDir volumes
//! ```
//! Near a threshold these are looked at with every reading of the filesystem, so only what costs next to nothing is:
//! a walk over so many entries. What is larger is unknown here; [`super::usage`] walks it in its own time.
//! A directory's project quota would tell at once, and is not asked: what counts for a project is for the owner of each file to say (decision 0021).
//! A volume that is a mount of its own (`medium: Memory`) is no disk, and left out.

use super::logs::LogRoots;
use super::walk::{Walk, names, open_below, open_dir};
use crate::clock::Boot;
use ebb_policy::snapshot::FsUsage;
use nix::sys::stat::fstat;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Entries looked at in one directory.
const ENTRIES: u64 = 512;

/// Entries looked at in all of them together in one reading.
const ALL_ENTRIES: u64 = 32_768;

/// Directories of containers or volumes that are looked for: more than a pod's description can name, which the API server bounds at some MiB.
const DIRS: usize = 65_536;

/// Name of the plugin's directory, as the kubelet lays it out.
const EMPTY_DIR: &str = "kubernetes.io~empty-dir";

/// Where pods' directories are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRoots {
    /// Where logs are.
    pub logs: LogRoots,
    /// The kubelet's root directory; `None` where there is none.
    pub kubelet: Option<PathBuf>,
}

/// Who a pod is, as its directories are named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodName {
    /// Its UID.
    pub uid: String,
    /// `namespace/name`.
    pub name: String,
}

/// A figure and when it was begun to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// What was found.
    pub usage: FsUsage,
    /// When.
    pub at: Boot,
    /// Everything was counted. Else there is at least this, and how much is not known.
    pub is_whole: bool,
}

/// What was found of one pod; what could not be measured is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSizes {
    /// Logs, by name of the container.
    pub logs: BTreeMap<String, Figure>,
    /// Volumes on local disk, by name.
    pub volumes: BTreeMap<String, Figure>,
    /// Names of all volumes on local disk, measured or not.
    pub volume_names: Vec<String>,
}

impl Figure {
    /// What is known once at least `part` was found later: this, unless that is more.
    #[must_use]
    pub fn or_more(self, part: Self) -> Self {
        let (all, found) = (self.usage, part.usage);
        if found.used_bytes <= all.used_bytes && found.inodes_used <= all.inodes_used {
            return self;
        }
        let usage = FsUsage {
            used_bytes: found.used_bytes.max(all.used_bytes),
            inodes_used: found.inodes_used.max(all.inodes_used),
        };
        Self { usage, ..part }
    }
}

impl PodName {
    /// Name of its directory of logs.
    #[must_use]
    pub fn log_dir(&self) -> String {
        format!("{}_{}", self.name.replacen('/', "_", 1), self.uid)
    }
}

impl PodRoots {
    /// Names of a pod's `emptyDir` volumes that are on disk, with their paths.
    #[must_use]
    pub fn volumes(&self, uid: &str) -> Vec<(String, PathBuf)> {
        let Some((path, dir)) = self.volumes_dir(uid) else { return Vec::new() };
        on_disk(&dir).into_iter().map(|(name, _)| (name.clone(), path.join(name))).collect()
    }

    fn volumes_dir(&self, uid: &str) -> Option<(PathBuf, OwnedFd)> {
        let mut path = self.kubelet.as_ref()?.join("pods");
        let mut dir = open_dir(&path).ok()?;
        for name in [uid, "volumes", EMPTY_DIR] {
            dir = open_below(&dir, name).ok()?;
            path.push(name);
        }
        Some((path, dir))
    }

    /// Measures what can be measured at once of these pods.
    ///
    /// May block for as long as a filesystem does.
    #[must_use]
    pub fn measure(&self, pods: &[PodName]) -> BTreeMap<String, PodSizes> {
        let mut left = ALL_ENTRIES;
        let logs = open_dir(&self.logs.pods).ok();
        let each = pods.iter().map(|pod| {
            let mut sizes = PodSizes::default();
            let own = logs.as_ref().and_then(|logs| open_below(logs, &pod.log_dir()).ok());
            for name in own.iter().filter_map(|own| names(own, DIRS).ok()).flatten() {
                let dir = own.as_ref().and_then(|own| open_below(own, &name).ok());
                let figure = dir.and_then(|dir| size(dir, &mut left));
                sizes.logs.extend(figure.map(|figure| (name, figure)));
            }
            if let Some((_, dir)) = self.volumes_dir(&pod.uid) {
                for (name, volume) in on_disk(&dir) {
                    let figure = size(volume, &mut left);
                    sizes.volumes.extend(figure.map(|figure| (name.clone(), figure)));
                    sizes.volume_names.push(name);
                }
            }
            (pod.uid.clone(), sizes)
        });
        each.collect()
    }
}

/// The directories in `dir` that are on its own filesystem.
fn on_disk(dir: &OwnedFd) -> Vec<(String, OwnedFd)> {
    let Ok(about) = fstat(dir) else { return Vec::new() };
    let names = names(dir, DIRS).unwrap_or_default().into_iter();
    let mut found: Vec<_> = names
        .filter_map(|name| {
            let volume = open_below(dir, &name).ok()?;
            (fstat(&volume).ok()?.st_dev == about.st_dev).then_some((name, volume))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// What a directory takes up, if it is small enough to be told at once.
fn size(dir: OwnedFd, left: &mut u64) -> Option<Figure> {
    let at = Boot::now();
    let mut own = ENTRIES.min(*left);
    let before = own;
    let mut walk = Walk::begin(dir).ok()?;
    let is_whole = walk.go_on(&mut own) && walk.is_whole();
    *left -= before - own;
    is_whole.then(|| Figure { usage: walk.usage(), at, is_whole })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn roots(dir: &std::path::Path) -> PodRoots {
        let logs = LogRoots { pods: dir.join("logs"), ..LogRoots::default() };
        PodRoots { logs, kubelet: Some(dir.join("kubelet")) }
    }

    fn web() -> PodName {
        PodName { uid: "0a-1b".into(), name: "shop/web".into() }
    }

    #[test]
    fn volumes_and_logs_are_found_by_the_uid_alone() {
        let dir = tempfile::tempdir().unwrap();
        let roots = roots(dir.path());
        let volumes = dir.path().join("kubelet/pods/0a-1b/volumes");
        fs::create_dir_all(volumes.join("kubernetes.io~empty-dir/data")).unwrap();
        fs::create_dir_all(volumes.join("kubernetes.io~configmap/conf")).unwrap();
        fs::create_dir_all(dir.path().join("logs/shop_web_0a-1b/main")).unwrap();
        fs::write(volumes.join("kubernetes.io~empty-dir/data/file"), vec![b'x'; 100_000]).unwrap();
        fs::write(dir.path().join("logs/shop_web_0a-1b/main/0.log"), vec![b'x'; 50_000]).unwrap();
        let found = roots.measure(&[web()]);
        let pod = &found["0a-1b"];
        assert_eq!(pod.volume_names, ["data"]);
        assert!(pod.volumes["data"].usage.used_bytes.unwrap() >= 100_000);
        assert!(pod.logs["main"].usage.used_bytes.unwrap() >= 50_000);
        assert_eq!(roots.volumes("0a-1b").len(), 1);
    }

    #[test]
    fn a_directory_that_is_too_large_to_be_told_at_once_is_unknown_and_not_small() {
        let dir = tempfile::tempdir().unwrap();
        let roots = roots(dir.path());
        let volume = dir.path().join("kubelet/pods/0a-1b/volumes/kubernetes.io~empty-dir/data");
        fs::create_dir_all(&volume).unwrap();
        for n in 0..ENTRIES {
            fs::write(volume.join(n.to_string()), "").unwrap();
        }
        let found = roots.measure(&[web()]);
        assert_eq!(found["0a-1b"].volume_names, ["data"]);
        assert!(found["0a-1b"].volumes.is_empty());
    }

    #[test]
    fn what_a_name_or_a_link_says_leads_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let roots = roots(dir.path());
        fs::create_dir_all(dir.path().join("elsewhere/volumes/kubernetes.io~empty-dir/data"))
            .unwrap();
        fs::create_dir_all(dir.path().join("kubelet/pods")).unwrap();
        symlink(dir.path().join("elsewhere"), dir.path().join("kubelet/pods/linked")).unwrap();
        for uid in ["../../elsewhere", "linked", "", "."] {
            assert!(roots.volumes(uid).is_empty(), "{uid:?}");
        }
    }
}
