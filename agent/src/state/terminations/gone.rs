//! Whether anything is left of a target, and how much.

use crate::sense::cgroup::Cgroup;
use crate::sense::process::Process;
use ebb_journal::Target;
use std::path::Path;

/// What of a termination is still there; both only ever fall once everything in it has been killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    processes: Option<u64>,
    memory: Option<u64>,
}

impl Left {
    /// `None` for a single process: what it holds goes all at once.
    pub(super) fn of(target: &Target) -> Option<Self> {
        let of = |(id, path): (u64, &Path)| {
            let usage = Cgroup::open(path, id).ok()?.read_usage(&mut Vec::new());
            Some(Self { processes: usage.pids, memory: usage.current })
        };
        cgroups_of(target).filter_map(of).reduce(Self::plus)
    }

    fn plus(self, other: Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        Self {
            processes: sum(self.processes, other.processes),
            memory: sum(self.memory, other.memory),
        }
    }

    pub(super) fn is_less_than(self, before: Self) -> bool {
        let fell = |now: Option<u64>, before: Option<u64>| {
            now.zip(before).is_some_and(|(now, before)| now < before)
        };
        fell(self.processes, before.processes) || fell(self.memory, before.memory)
    }
}

/// The cgroups that go with a target.
pub(super) fn cgroups_of(target: &Target) -> impl Iterator<Item = (u64, &Path)> {
    let (own, payloads) = match target {
        Target::Cgroup { id, path } => (Some((*id, path.as_path())), &[][..]),
        Target::Pod { payloads, .. } => (None, &payloads[..]),
        Target::Process { .. } => (None, &[][..]),
    };
    own.into_iter().chain(payloads.iter().map(|payload| (payload.id, payload.path.as_path())))
}

/// Whether all that goes with `target` goes with `whole` too.
pub(super) fn is_part_of(target: &Target, whole: &Target) -> bool {
    match (target, whole) {
        (Target::Process { .. }, _) | (_, Target::Process { .. }) => target == whole,
        _ => cgroups_of(target).all(|(id, _)| cgroups_of(whole).any(|(own, _)| own == id)),
    }
}

/// Whether nothing of the target runs any more. A zombie holds no memory, and its parent's tardiness is not ours to wait for.
pub(super) fn is_gone(target: &Target, proc: &Path) -> bool {
    let is_empty = |id: u64, path: &Path| match Cgroup::open(path, id) {
        Ok(cgroup) => cgroup.populated(&mut Vec::new()) != Some(true),
        Err(_) => true,
    };
    match target {
        Target::Cgroup { .. } | Target::Pod { .. } => {
            cgroups_of(target).all(|(id, path)| is_empty(id, path))
        }
        Target::Process { pid, start } => Process::read(proc, *pid).is_none_or(|process| {
            (process.id.pid_t(), process.id.start_time) != (*pid, *start) || process.state == 'Z'
        }),
    }
}
