//! Pods' log directories and the links to containers' logs, as the kubelet lays them out.
//!
//! ```text
//!  /var/log/pods/<namespace>_<name>_<uid>/<container>/<n>.log          directories of pods
//!  /var/log/containers/<pod>_<namespace>_<container>-<id>.log ──► …    links
//! ```
//! A name that does not have this form is nobody's of whom ebb knows: it is left alone and counted.
//! Removing is done in `act/logs`.

use ebb_policy::snapshot::{ContainerState, LogDir, LogLink};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Entries of one directory that are looked at; a directory with more has other troubles, and the rest comes next time.
const LOOKED_AT: usize = 10_000;

/// Where the logs are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRoots {
    /// Pods' log directories.
    pub pods: PathBuf,
    /// Links to containers' logs.
    pub containers: PathBuf,
}

impl Default for LogRoots {
    fn default() -> Self {
        Self { pods: "/var/log/pods".into(), containers: "/var/log/containers".into() }
    }
}

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    /// Directories of pods, by name.
    pub dirs: Vec<LogDir>,
    /// Links, by name.
    pub links: Vec<LogLink>,
    /// Entries with names of another form, which are left alone.
    pub foreign: usize,
}

impl Logs {
    /// Looks at both directories; one that is not there has nothing in it. `states` are the containers that the runtime lists.
    #[must_use]
    pub fn read(roots: &LogRoots, states: &BTreeMap<&str, ContainerState>) -> Self {
        let mut logs = Self::default();
        for path in entries(&roots.pods) {
            let is_dir = path.symlink_metadata().is_ok_and(|m| m.is_dir());
            match path.file_name().and_then(|n| n.to_str()).and_then(pod_uid) {
                Some(uid) if is_dir => {
                    logs.dirs.push(LogDir { path: shown(&path), pod_uid: uid.to_owned() });
                }
                _ => logs.foreign += 1,
            }
        }
        for path in entries(&roots.containers) {
            let is_link = path.symlink_metadata().is_ok_and(|m| m.file_type().is_symlink());
            match path.file_name().and_then(|n| n.to_str()).and_then(container_id) {
                Some(id) if is_link => {
                    let container_state = states.get(id).copied();
                    logs.links.push(LogLink {
                        target_exists: path.try_exists().unwrap_or(true),
                        container_state,
                        // The runtime has been asked for all that it has: one that it does not list is not there to be asked about.
                        status_failed: container_state.is_none(),
                        path: shown(&path),
                    });
                }
                _ => logs.foreign += 1,
            }
        }
        logs.dirs.sort_by(|a, b| a.path.cmp(&b.path));
        logs.links.sort_by(|a, b| a.path.cmp(&b.path));
        logs
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.take(LOOKED_AT).filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// Names that parse are ASCII, and the roots are the operator's: nothing is lost here.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The UID at the end of `<namespace>_<name>_<uid>`; neither part may be empty, and a UID is hex digits and dashes.
fn pod_uid(name: &str) -> Option<&str> {
    let mut parts = name.split('_');
    let (namespace, pod, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let is_plain = |s: &str| {
        !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
    };
    (parts.next().is_none() && [namespace, pod, uid].into_iter().all(is_plain)).then_some(uid)
}

/// The container's id at the end of `<pod>_<namespace>_<container>-<id>.log`.
fn container_id(name: &str) -> Option<&str> {
    let (rest, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
    let is_id = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
    (is_id && rest.split('_').count() == 3).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn roots(dir: &Path) -> LogRoots {
        let roots = LogRoots { pods: dir.join("pods"), containers: dir.join("containers") };
        fs::create_dir(&roots.pods).unwrap();
        fs::create_dir(&roots.containers).unwrap();
        roots
    }

    #[test]
    fn directories_are_known_by_the_uid_at_the_end_and_foreign_names_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let roots = roots(dir.path());
        for name in ["shop_web-1_0a1b-2c", "shop_web", "a__b", "shop_web_0a_1b", "..x_y_z;rm"] {
            fs::create_dir(roots.pods.join(name)).unwrap();
        }
        fs::write(roots.pods.join("shop_file_0a1b"), "").unwrap();
        symlink("/", roots.pods.join("shop_link_0a1b")).unwrap();
        let logs = Logs::read(&roots, &BTreeMap::new());
        assert_eq!(logs.dirs.len(), 1);
        assert_eq!(logs.dirs[0].pod_uid, "0a1b-2c");
        assert_eq!(logs.foreign, 6);
    }

    #[test]
    fn links_say_whether_they_dangle_and_what_became_of_their_container() {
        let dir = tempfile::tempdir().unwrap();
        let roots = roots(dir.path());
        fs::write(dir.path().join("0.log"), "x").unwrap();
        let name = |pod: &str| format!("{pod}_ns_main-{ID}.log");
        symlink(dir.path().join("0.log"), roots.containers.join(name("live"))).unwrap();
        symlink(dir.path().join("gone"), roots.containers.join(name("dead"))).unwrap();
        symlink("/x", roots.containers.join("odd.log")).unwrap();
        let logs = Logs::read(&roots, &BTreeMap::from([(ID, ContainerState::Exited)]));
        let seen: Vec<_> = logs.links.iter().map(|l| (l.target_exists, l.status_failed)).collect();
        assert_eq!(seen, [(false, false), (true, false)]);
        assert_eq!(logs.foreign, 1);
        let unknown = Logs::read(&roots, &BTreeMap::new());
        assert!(unknown.links.iter().all(|link| link.status_failed));
    }

    #[test]
    fn without_the_directories_there_are_no_logs() {
        let roots = LogRoots { pods: "/nowhere/a".into(), containers: "/nowhere/b".into() };
        assert_eq!(Logs::read(&roots, &BTreeMap::new()), Logs::default());
    }
}
