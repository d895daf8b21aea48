//! Who a workload is to whoever acts on it: by cgroup id, by the containers of a pod, by process; and what was found when that was tried last.

use super::NodeState;
use super::tracked::Tracked;
use crate::clock::Boot;
use crate::pods::Owner;
use crate::sense::custody::Custody;
use crate::sense::process::Process;
use ebb_journal::{Payload, Target};
use ebb_policy::snapshot::{CgroupId, ProtectedReason, WorkloadKey};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long it stands that a target was found protected when it was about to be killed: whoever protected it may have gone since.
pub(super) const PROTECTED_FOR: Duration = Duration::from_secs(1);

/// How long a pod of which nothing was found to end counts as one of which nothing runs, unless the runtime tells more of it before.
pub(super) const EMPTY_FOR: Duration = Duration::from_secs(1);

impl NodeState {
    /// Notes that `target` was found to be protected when it was about to be killed: it is not chosen again for a second.
    ///
    /// Of a pod, `cgroup` says which container that was; the others may be killed.
    pub fn protect(&mut self, target: &Target, because: ProtectedReason, cgroup: Option<u64>) {
        let now = Boot::now();
        let found = match (target, cgroup) {
            (Target::Pod { payloads, .. }, Some(id)) => {
                let found = payloads.iter().find(|payload| payload.id == id).cloned();
                found.map(|Payload { id, path }| Target::Cgroup { id, path })
            }
            _ => None,
        };
        self.found_protected.insert(found.unwrap_or_else(|| target.clone()), (because, now));
    }

    /// Why `key` was found to be protected when it was about to be killed, if that was a moment ago: of a pod, each of its containers.
    pub(super) fn found_protected(&self, key: &WorkloadKey, now: Boot) -> Option<ProtectedReason> {
        // To find a target takes a search, and hardly ever is one found protected.
        if self.found_protected.is_empty() {
            return None;
        }
        let found = |target: &Target| {
            let (because, at) = self.found_protected.get(target)?;
            (now.since(*at) < PROTECTED_FOR).then_some(*because)
        };
        match self.target_of(key)? {
            Target::Pod { uid, payloads } => {
                let of = |Payload { id, path }| found(&Target::Cgroup { id, path });
                let whole = found(&Target::Pod { uid, payloads: payloads.clone() });
                whole.or_else(|| payloads.into_iter().map(of).collect::<Option<Vec<_>>>()?.pop())
            }
            target => found(&target),
        }
    }

    /// Notes that nothing of the chosen `key` was found to end: it is not chosen again before more is known of it, or for a second.
    pub fn found_empty(&mut self, key: &WorkloadKey) {
        let now = Boot::now();
        self.found_empty.retain(|_, at| now.since(*at) < EMPTY_FOR);
        self.found_empty.insert(key.clone(), now);
    }

    /// Who `target` is, by name; `None` when it is no longer known.
    #[must_use]
    pub fn key_of(&self, target: &Target) -> Option<WorkloadKey> {
        if let Some(termination) = self.terminations.get(target) {
            return Some(termination.key.clone());
        }
        match target {
            Target::Cgroup { id, .. } => self.cgroups.get(id).map(|t| t.key.clone()),
            Target::Pod { uid, .. } => self.pods.key_of(uid),
            Target::Process { .. } => None,
        }
    }

    /// Who `target` is or was, for people: a cgroup that is no longer known has the name by which it was.
    #[must_use]
    pub fn name_of(&self, target: &Target) -> Option<WorkloadKey> {
        self.key_of(target).or_else(|| match target {
            Target::Cgroup { id, path } => {
                let name = format!("/{}", self.roots.below_mount(path).display());
                Some(WorkloadKey { name, cgroup: Some(CgroupId(*id)), ..WorkloadKey::default() })
            }
            Target::Pod { .. } | Target::Process { .. } => None,
        })
    }

    /// The identity that an action on `key` is to use: of a pod, the containers that are not protected. `None` when it is no longer known.
    #[must_use]
    pub fn target(&self, key: &WorkloadKey) -> Option<Target> {
        match self.target_of(key)? {
            Target::Pod { uid, mut payloads } => {
                payloads.retain(|payload| !self.is_protected(payload));
                (!payloads.is_empty()).then_some(Target::Pod { uid, payloads })
            }
            target => Some(target),
        }
    }

    /// Whether `target` is a cgroup in a tree that was handed to somebody, who may move processes in it at will.
    #[must_use]
    pub fn is_handed_over(&self, target: &Target) -> bool {
        let Target::Cgroup { id, .. } = target else { return false };
        self.cgroups.get(id).is_some_and(|tracked| tracked.is_handed_over)
    }

    /// Bytes of memory that `target` has now: read anew, for this question alone. `None` where it is gone or that is not told.
    pub fn memory_now(&mut self, target: &Target) -> Option<u64> {
        let roots: Vec<&Path> = match target {
            Target::Process { pid, start } => {
                let process = Process::read(&self.roots.proc, *pid)?;
                return (process.id.start_time == *start).then_some(process.rss);
            }
            Target::Cgroup { path, .. } => vec![path],
            Target::Pod { payloads, .. } => payloads.iter().map(|one| one.path.as_path()).collect(),
        };
        let is_meant = |tracked: &&mut Tracked| roots.iter().any(|at| tracked.path.starts_with(at));
        let mut all = None;
        for tracked in self.cgroups.values_mut().filter(is_meant) {
            tracked.read_current(&mut self.buffer);
            all = Some(tracked.current()?.saturating_add(all.unwrap_or(0)));
        }
        all
    }

    /// The cgroups of the containers of the pod `uid` that run, listed or not.
    #[must_use]
    pub fn payloads(&self, uid: &str) -> Vec<Payload> {
        let root = &self.roots.cgroup;
        let mut all = self.pods.payloads(uid, root, |path| self.tree.id_of(path));
        let owners = self.cgroups.values().filter_map(|tracked| tracked.owner.as_ref());
        let own = owners.filter(|owner| &*owner.uid == uid && self.still_owns(owner));
        for cgroup in own.filter_map(|owner| Some(&owner.unlisted.as_ref()?.cgroup)) {
            if let Some(id) = self.tree.id_of(cgroup)
                && all.iter().all(|payload| payload.id != id)
            {
                all.push(Payload { id, path: root.join(cgroup) });
            }
        }
        all
    }

    /// What runs of the pod `uid` and was started since the rest of it was killed here.
    #[must_use]
    pub fn started_since(&self, uid: &str) -> Option<Target> {
        let mut payloads = self.payloads(uid);
        payloads.retain(|payload| {
            let is_old = self.terminations.has(payload.id) || self.terminations.had(payload.id);
            !is_old && !self.is_protected(payload)
        });
        (!payloads.is_empty()).then(|| Target::Pod { uid: uid.to_owned(), payloads })
    }

    /// Whether a cgroup is still what it was taken for: one that no list names is, as long as something runs in the sandbox beside it.
    pub(super) fn still_owns(&self, owner: &Owner) -> bool {
        owner.unlisted.as_ref().is_none_or(|unlisted| self.lives(&unlisted.sandbox))
    }

    /// Whether some process lives in the cgroup at `path` below the mount.
    pub(super) fn lives(&self, path: &Path) -> bool {
        let node = self.tree.id_of(path).and_then(|id| self.tree.get(id));
        node.is_some_and(|node| node.populated)
    }

    /// Whether a container of the pod `uid` runs that must not be killed with the others: neither the runtime nor the end of the sandbox may do it then.
    #[must_use]
    pub fn spares_some_of(&self, uid: &str) -> bool {
        let payloads = self.payloads(uid);
        let lives = |id| self.tree.get(id).is_some_and(|node| node.populated);
        payloads.iter().any(|payload| lives(payload.id) && self.is_protected(payload))
    }

    /// Whether something in the cgroup of a container is protected.
    fn is_protected(&self, payload: &Payload) -> bool {
        let Payload { id, path } = payload;
        let mut protected = self.cgroups.values().filter(|tracked| tracked.protected.is_some());
        let found = || Target::Cgroup { id: *id, path: path.clone() };
        protected.any(|tracked| tracked.path.starts_with(path))
            || !self.found_protected.is_empty() && self.found_protected.contains_key(&found())
    }

    fn target_of(&self, key: &WorkloadKey) -> Option<Target> {
        if let Some(id) = key.cgroup {
            let path = self.cgroups.get(&id.0)?.path.clone();
            return Some(Target::Cgroup { id: id.0, path });
        }
        if let (Some(uid), None) = (&key.uid, key.process) {
            let mut payloads = self.payloads(uid);
            payloads.retain(|payload| !self.terminations.had(payload.id));
            if payloads.iter().any(|payload| !self.terminations.has(payload.id)) {
                // What was started since the rest of it was killed.
                payloads.retain(|payload| !self.terminations.has(payload.id));
            }
            return (!payloads.is_empty()).then(|| Target::Pod { uid: uid.clone(), payloads });
        }
        let process = key.process?;
        Some(Target::Process { pid: i32::try_from(process.pid).ok()?, start: process.start_time })
    }

    /// The path below the mount of the cgroup `id`, if it is that of a container or sandbox that the runtime told of, or below it.
    #[must_use]
    pub fn path_in_a_pod(&self, id: u64) -> Option<&Path> {
        let path = self.tree.get(id)?.path.as_path();
        self.pods.owner(path).map(|_| path)
    }

    /// Path of the cgroup `id` below the mount, if it is known.
    #[must_use]
    pub fn path_of(&self, id: u64) -> Option<String> {
        self.tree.get(id).map(|node| format!("/{}", node.path.display()))
    }

    /// The part of a cgroup's path below the mount that the administrator named: all of it, or the tree that was handed to somebody in which it lies.
    #[must_use]
    pub fn named_part(&self, id: u64) -> Option<PathBuf> {
        let path = &self.tree.get(id)?.path;
        Some(Custody::of(&self.roots.cgroup, path).named_part(path))
    }
}
