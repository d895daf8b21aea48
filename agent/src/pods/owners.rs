//! Whose a cgroup is: a pod's, nobody's, or not told yet.
//!
//! Containers run for a moment before the runtime's list names them, and for long when ebb begins before the runtime answers.
//! Until then nobody knows which pod a container belongs to, whether that pod is critical, or whether it is a sandbox: it is not for ending (decision 0017).
//! Only beside a sandbox that is listed and still runs it is known: a pod has one sandbox at a time, so what is new in the pod's cgroup is another container of it.

use crate::clock::Boot;
use crate::sense::runtime::Inventory;
use crate::sense::tree::{container_id, pod_uid};
use ebb_policy::snapshot::ContainerState;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What looks like a container and is not in a list that began this long after it was first read is none of the runtime's.
///
/// As long as the session lists without any event, so every container has been listed by then.
const LISTED_WITHIN: Duration = Duration::from_secs(60);

/// Whose a cgroup is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// UID of the pod.
    pub(crate) uid: Arc<str>,
    /// It is that of a container which has not ended: what ending the pod ends.
    pub(crate) is_payload: bool,
    /// No list names it: it is the pod's as long as this holds.
    pub(crate) unlisted: Option<Arc<Unlisted>>,
}

/// A container that no list names, in the cgroup of a pod whose sandbox is listed. Both paths are below the mount.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unlisted {
    /// Its cgroup.
    pub(crate) cgroup: PathBuf,
    /// The sandbox's: once nothing runs there, this may be the next sandbox.
    pub(crate) sandbox: PathBuf,
}

/// The pods of all cgroups that the runtime has told of.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// By path below the mount.
    by_path: HashMap<PathBuf, Owner>,
    /// Pods whose sandbox is ready, by the path of the pod's own cgroup below the mount.
    by_pod: HashMap<PathBuf, Prepared>,
    /// Ids of the containers and sandboxes of which it has not said where their cgroups are, and whether that is a container which has not ended.
    unplaced: HashMap<String, bool>,
    /// When the list began; `None` before the first.
    listed: Option<Boot>,
}

/// A pod with a sandbox that is ready.
#[derive(Debug)]
struct Prepared {
    uid: Arc<str>,
    /// The sandbox's cgroup below the mount.
    sandbox: PathBuf,
    /// What stands before and after the id in its name: a runtime names the cgroups of containers alike, and those of its own processes beside them otherwise.
    around_id: (String, String),
}

/// A cgroup that belongs to no pod that the runtime has told of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unowned<'a> {
    /// The leading part of its path below the mount that the administrator named: nobody else says what a container is.
    pub(crate) named: &'a Path,
    /// A name in that is one which the kubelet gives a pod's cgroup.
    pub(crate) is_of_a_pod: bool,
    /// When it was first read, or was last known to belong to a pod.
    pub(crate) since: Boot,
}

/// What a cgroup without an owner counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A workload of its own.
    Workload,
    /// Perhaps a pod's: the runtime has not said.
    Unlisted,
    /// Nothing that may be ended.
    NoWorkload,
}

impl Owners {
    pub(crate) fn of(inventory: &Inventory) -> Self {
        let mut owners = Self { listed: Some(inventory.at), ..Self::default() };
        for seen in &inventory.pods {
            let sandbox = &seen.sandbox;
            owners.add(&sandbox.id, seen.cgroup.as_ref(), &sandbox.pod_uid, false);
            if let Some(path) = seen.cgroup.as_ref().filter(|_| sandbox.ready)
                && let Some(of_pod) = path.parent()
                && let Some(name) = of_pod.file_name()
                && pod_uid(name.as_bytes()).is_some_and(|uid| uid == sandbox.pod_uid)
                && let Some((before, after)) = around(path, &sandbox.id)
            {
                let ready = Prepared {
                    uid: sandbox.pod_uid.as_str().into(),
                    sandbox: path.clone(),
                    around_id: (before.to_owned(), after.to_owned()),
                };
                owners.by_pod.insert(of_pod.to_owned(), ready);
            }
        }
        for seen in &inventory.containers {
            let container = &seen.container;
            let runs = container.state != ContainerState::Exited;
            owners.add(&container.id, seen.cgroup.as_ref(), &container.pod_uid, runs);
        }
        owners
    }

    fn add(&mut self, id: &str, path: Option<&PathBuf>, uid: &str, is_payload: bool) {
        if let Some(path) = path {
            let owner = Owner { uid: uid.into(), is_payload, unlisted: None };
            self.by_path.insert(path.clone(), owner);
        } else {
            self.unplaced.insert(id.to_owned(), is_payload);
        }
    }

    /// Whose the cgroup at `path` below the mount is; `None` when it is no pod's that the runtime has told of.
    pub(crate) fn owner(&self, path: &Path) -> Option<Owner> {
        if self.by_path.is_empty() {
            return None;
        }
        let listed = path.ancestors().find_map(|above| self.by_path.get(above)).cloned();
        listed.or_else(|| self.owner_of_unlisted(path))
    }

    fn owner_of_unlisted(&self, path: &Path) -> Option<Owner> {
        path.ancestors().find_map(|cgroup| {
            let id = container_id(cgroup)?;
            let Prepared { uid, sandbox, around_id } = self.by_pod.get(cgroup.parent()?)?;
            let (before, after) = around(cgroup, id)?;
            if (before, after) != (around_id.0.as_str(), around_id.1.as_str()) {
                return None;
            }
            if self.unplaced.get(id).is_some_and(|is_payload| !is_payload) {
                return None;
            }
            let unlisted = Unlisted { cgroup: cgroup.to_owned(), sandbox: sandbox.clone() };
            Some(Owner { uid: Arc::clone(uid), is_payload: true, unlisted: Some(unlisted.into()) })
        })
    }

    /// What a cgroup without an owner counts as; `pods_only` says that nothing but pods may be ended.
    pub(crate) fn standing(&self, unowned: Unowned<'_>, pods_only: bool) -> Standing {
        let Unowned { named, is_of_a_pod, since } = unowned;
        if pods_only {
            return if self.listed.is_some() { Standing::NoWorkload } else { Standing::Unlisted };
        }
        let id = named.ancestors().find_map(container_id);
        if id.is_some_and(|id| self.unplaced.contains_key(id)) {
            return Standing::Unlisted;
        }
        let may_be_listed = is_of_a_pod || id.is_some();
        let is_left_out = || self.listed.is_some_and(|at| at.since(since) >= LISTED_WITHIN);
        if may_be_listed && !is_left_out() { Standing::Unlisted } else { Standing::Workload }
    }
}

/// What stands before and after `id` in the name of a cgroup.
fn around<'a>(cgroup: &'a Path, id: &str) -> Option<(&'a str, &'a str)> {
    cgroup.file_name()?.to_str()?.split_once(id)
}
