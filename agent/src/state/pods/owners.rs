//! Whose a cgroup is: a pod's, nobody's, or not told yet.
//!
//! Containers run for a moment before the runtime's list names them, and for long when ebb begins before the runtime answers.
//! Until then nobody knows which pod a container belongs to, whether that pod is critical, or whether it is a sandbox: it is not for ending (decision 0074).

use crate::clock::Boot;
use crate::sense::runtime::Inventory;
use ebb_policy::snapshot::ContainerState;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What looks like a container and is not in a list that began this long after it was first read is none of the runtime's.
///
/// As long as the session lists without any event, so every container has been listed by then.
const LISTED_WITHIN: Duration = Duration::from_secs(60);

/// Length of the ids that containerd, CRI-O, Docker and podman give containers.
const ID_LENGTH: usize = 64;

/// Whose a cgroup is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// UID of the pod.
    pub(super) uid: Arc<str>,
    /// It is that of a container which has not ended: what ending the pod ends.
    pub(super) is_payload: bool,
}

/// The pods of all cgroups that the runtime has told of.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// By path below the mount.
    by_path: HashMap<PathBuf, Owner>,
    /// Ids of all containers and sandboxes: of some it has not said where their cgroups are.
    ids: HashSet<String>,
    /// When the list began; `None` before the first.
    listed: Option<Boot>,
}

/// A cgroup that belongs to no pod that the runtime has told of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stranger<'a> {
    /// Below the mount.
    pub(super) path: &'a Path,
    /// Its name, or one above it, is that which the kubelet gives a pod's cgroup.
    pub(super) is_of_a_pod: bool,
    /// When it was first read, or was last known to belong to a pod.
    pub(super) since: Boot,
}

/// What a stranger counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// A workload of its own.
    Workload,
    /// Perhaps a pod's: the runtime has not said.
    Unlisted,
    /// Nothing that may be ended.
    NoWorkload,
}

impl Owners {
    pub(super) fn of(inventory: &Inventory) -> Self {
        let mut owners = Self { listed: Some(inventory.at), ..Self::default() };
        for seen in &inventory.pods {
            let sandbox = &seen.sandbox;
            owners.add(&sandbox.id, seen.cgroup.as_ref(), &sandbox.pod_uid, false);
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
            self.by_path.insert(path.clone(), Owner { uid: uid.into(), is_payload });
        }
        self.ids.insert(id.to_owned());
    }

    /// Whose the cgroup at `path` below the mount is; `None` when it is no pod's that the runtime has told of.
    pub(super) fn owner(&self, path: &Path) -> Option<&Owner> {
        if self.by_path.is_empty() {
            return None;
        }
        path.ancestors().find_map(|above| self.by_path.get(above))
    }

    /// What a cgroup without an owner counts as; `pods_only` says that nothing but pods may be ended.
    pub(super) fn standing(&self, stranger: Stranger<'_>, pods_only: bool) -> Standing {
        let Stranger { path, is_of_a_pod, since } = stranger;
        if pods_only {
            return if self.listed.is_some() { Standing::NoWorkload } else { Standing::Unlisted };
        }
        let id = path.ancestors().find_map(container_id);
        let is_the_runtimes = is_of_a_pod || id.is_some_and(|id| self.ids.contains(id));
        let is_left_out = || self.listed.is_some_and(|at| at.since(since) >= LISTED_WITHIN);
        if !is_the_runtimes && (id.is_none() || is_left_out()) {
            Standing::Workload
        } else {
            Standing::Unlisted
        }
    }
}

/// The container's id in the name of its cgroup: `ID`, `RUNTIME-ID.scope` where systemd makes the cgroups, `kata_ID`.
fn container_id(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let id = name.rsplit(['-', '_']).next()?;
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (id.len() == ID_LENGTH && id.bytes().all(is_hex)).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_known_by_its_name_under_either_driver() {
        let id = "0123456789abcdef".repeat(4);
        for name in [
            id.clone(),
            format!("kubepods.slice/cri-containerd-{id}.scope"),
            format!("kubepods/burstable/podu1/crio-{id}"),
            format!("system.slice/docker-{id}.scope"),
            format!("kubepods/podu1/kata_{id}"),
        ] {
            assert_eq!(container_id(Path::new(&name)), Some(id.as_str()), "{name}");
        }
        for name in [
            "system.slice/web.service".to_owned(),
            "podu1".to_owned(),
            id[1..].to_owned(),
            id.to_uppercase(),
            format!("{id}.service"),
            String::new(),
        ] {
            assert_eq!(container_id(Path::new(&name)), None, "{name}");
        }
    }
}
