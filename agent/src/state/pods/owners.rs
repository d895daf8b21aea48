//! Whose a cgroup is: a pod's, nobody's, or not told yet.
//!
//! Containers run for a moment before the runtime's list names them, and for long when ebb begins before the runtime answers.
//! Until then nobody knows which pod a container belongs to, whether that pod is critical, or whether it is a sandbox: it is not for ending (decision 0074).

use crate::clock::Boot;
use crate::sense::runtime::Inventory;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What looks like a container and is still not listed by a list that began this long after it was first seen is none of the runtime's.
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
    /// It is a container's, not the sandbox's own.
    pub(super) is_payload: bool,
}

/// The pods of all cgroups that the runtime has told of.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// By path below the mount, where the runtime has said it.
    by_path: HashMap<PathBuf, Owner>,
    /// By id of the container or sandbox, which is in the cgroup's name.
    by_id: HashMap<String, Owner>,
    /// When the list began; `None` before the first.
    listed: Option<Boot>,
}

/// A cgroup that belongs to no pod that the runtime has told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stranger {
    /// A workload of its own.
    Workload,
    /// It may be a pod's: the runtime has not said.
    Unlisted,
    /// Nothing that may be ended.
    NoWorkload,
}

impl Owners {
    pub(super) fn of(inventory: &Inventory) -> Self {
        let mut owners = Self { listed: Some(inventory.at), ..Self::default() };
        for seen in &inventory.pods {
            let (id, uid) = (&seen.sandbox.id, seen.sandbox.pod_uid.as_str());
            owners.add(id, seen.cgroup.as_ref(), Owner { uid: uid.into(), is_payload: false });
        }
        for seen in &inventory.containers {
            let (id, uid) = (&seen.container.id, seen.container.pod_uid.as_str());
            owners.add(id, seen.cgroup.as_ref(), Owner { uid: uid.into(), is_payload: true });
        }
        owners
    }

    fn add(&mut self, id: &str, path: Option<&PathBuf>, owner: Owner) {
        if let Some(path) = path {
            self.by_path.insert(path.clone(), owner.clone());
        }
        self.by_id.insert(id.to_owned(), owner);
    }

    /// Whose the cgroup at `path` below the mount is; `None` when it is no pod's that the runtime has told of.
    pub(super) fn owner(&self, path: &Path) -> Option<&Owner> {
        if self.by_id.is_empty() {
            return None;
        }
        let by_id = |above| container_id(above).and_then(|id| self.by_id.get(id));
        path.ancestors().find_map(|above| self.by_path.get(above).or_else(|| by_id(above)))
    }

    /// What the cgroup at `path` is when it has no owner. It was first seen at `since`; `pods_only` says that nothing but pods may be ended.
    pub(super) fn stranger(&self, path: &Path, since: Boot, pods_only: bool) -> Stranger {
        let is_listed_since = |wait| self.listed.is_some_and(|at| at.since(since) >= wait);
        match (pods_only, self.listed) {
            (true, None) => Stranger::Unlisted,
            (true, Some(_)) => Stranger::NoWorkload,
            (false, _) if !path.ancestors().any(|above| container_id(above).is_some()) => {
                Stranger::Workload
            }
            (false, _) if is_listed_since(LISTED_WITHIN) => Stranger::Workload,
            (false, _) => Stranger::Unlisted,
        }
    }
}

/// The container's id in the name of its cgroup: `ID`, or `RUNTIME-ID.scope` where systemd makes the cgroups.
fn container_id(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let id = name.rsplit('-').next()?;
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
