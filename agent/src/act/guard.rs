//! Who among the processes of a victim must not die: every one of them is asked, in one pass.
//!
//! Two small files for each process, opened relative to procfs with one buffer, and none that waits for the memory map of
//! the process (`cmdline`, `environ`, `maps`): what is asked can be held up by nobody.
//! It is done when a victim is held ready, before its threshold is crossed; at the crossing only newcomers are asked.

use crate::sense::Roots;
use crate::sense::cgroup::Cgroup;
use crate::sense::custody::Custody;
use crate::sense::members::Members;
use crate::sense::process::is_self;
use crate::sense::role::{Role, is_sandbox};
use ebb_journal::Refusal;
use ebb_policy::snapshot::ProtectedReason;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The score with which even the kernel does not kill.
const NEVER: i32 = -1000;

/// Asks processes.
pub(super) struct Guard<'a> {
    roots: &'a Roots,
    proc: OwnedFd,
    name: String,
}

impl<'a> Guard<'a> {
    /// Begins to ask.
    ///
    /// # Errors
    /// That nobody can be asked, when procfs cannot be opened.
    pub(super) fn new(roots: &'a Roots) -> Result<Self, Refusal> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let proc = open(&roots.proc, flags, Mode::empty())
            .map_err(|error| Refusal::unreadable(&error.into()))?;
        Ok(Self { roots, proc, name: String::new() })
    }

    /// All members of `cgroup`, none of which is protected. Those that were `asked` before are not asked again.
    ///
    /// # Errors
    /// One is protected, they cannot all be asked, there are none, or all of them are exiting.
    pub(super) fn members(
        &mut self,
        cgroup: &Cgroup,
        path: &Path,
        asked: &Members,
    ) -> Result<Members, Refusal> {
        let members = cgroup.members(&self.roots.proc, asked);
        let members = members.map_err(|error| Refusal::unreadable(&error))?;
        if members.has_hidden {
            return Err(Refusal::Unreadable {
                error: "some are in a pid namespace that ebb cannot see into".into(),
            });
        }
        let pids = members.pids.as_slice();
        if pids.is_empty() {
            // Since Linux 7.0 the kernel no longer lists a process none of whose threads lives, though it holds its memory
            // still; the cgroup is populated until the last of them is through (Linux a72f73c4dd9b).
            return Err(match cgroup.populated(&mut Vec::new()) {
                Some(true) => Refusal::Exiting,
                Some(false) | None => Refusal::Gone,
            });
        }
        let newcomers = || pids.iter().filter(|pid| asked.pids.binary_search(pid).is_err());
        if newcomers().next().is_none() {
            return Ok(members);
        }
        let below = path.strip_prefix(&self.roots.cgroup).ok();
        let custody = below.map(|below| Custody::of(&self.roots.cgroup, below));
        let place = below.zip(custody.as_ref());
        let has_daemons = place.is_some_and(|(below, custody)| custody.is_for_daemons(below));
        for pid in newcomers() {
            self.ask(*pid, has_daemons).map_err(|refusal| refusal.in_cgroup(cgroup.id()))?;
        }
        if let (Some((below, custody)), &[pid]) = (place, pids)
            && is_sandbox(custody, &self.roots.cgroup, below, pids, &self.roots.proc)
        {
            let because = ProtectedReason::Runtime;
            return Err(Refusal::Protected { pid, because, cgroup: Some(cgroup.id()) });
        }
        Ok(members)
    }

    /// Refuses for init, ebb, what even the kernel may not kill and, where `has_daemons`, for the kubelet and the runtime.
    pub(super) fn ask(&mut self, pid: i32, has_daemons: bool) -> Result<(), Refusal> {
        let protected = |because| Err(Refusal::Protected { pid, because, cgroup: None });
        if pid == 1 {
            return protected(ProtectedReason::Init);
        }
        if is_self(pid) {
            return protected(ProtectedReason::Agent);
        }
        match self.oom_score_adj(pid) {
            Some(NEVER) => return protected(ProtectedReason::OomScoreAdj),
            Some(_) => {}
            // It has ended, or procfs does not show it to ebb.
            None if is_there(pid) && self.oom_score_adj(pid).is_none() && is_there(pid) => {
                return Err(Refusal::Unreadable { error: format!("process {pid} is not shown") });
            }
            None => return Ok(()),
        }
        match has_daemons.then(|| Role::of(pid, &self.roots.proc)).flatten() {
            Some(Role::Runtime) => protected(ProtectedReason::Runtime),
            Some(Role::Kubelet) => protected(ProtectedReason::Kubelet),
            None => Ok(()),
        }
    }

    fn oom_score_adj(&mut self, pid: i32) -> Option<i32> {
        self.name.clear();
        write!(self.name, "{pid}/oom_score_adj").ok()?;
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let file = openat(&self.proc, self.name.as_str(), flags, Mode::empty()).ok()?;
        let mut text = [0; 16];
        let read = File::from(file).read_at(&mut text, 0).ok()?;
        std::str::from_utf8(text.get(..read)?).ok()?.trim().parse().ok()
    }
}

/// Whether some process has this pid, whoever may see it.
fn is_there(pid: i32) -> bool {
    // SAFETY: signal 0 is sent to nobody; the call takes two numbers.
    let sent = unsafe { libc::kill(pid, 0) };
    sent == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}
