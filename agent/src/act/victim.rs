//! From a name in a plan to a hold on the thing itself: identity, protection and need, each checked immediately before acting.

use super::guard::Guard;
use super::pidfd::PidFd;
use crate::clock::Boot;
use crate::sense::Roots;
use crate::sense::cgroup::Cgroup;
use crate::sense::file::KeptFile;
use crate::sense::members::Members;
use crate::sense::process::Process;
use ebb_journal::{Refusal, Target};
use ebb_model::ProcessId;
use ebb_policy::snapshot::ProtectedReason;
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Processes of a cgroup that are held one by one; a cgroup may have more, which are ended all the same.
pub(super) const HELD_AT_MOST: usize = 64;

/// Processes that are held at a time to be signalled: each takes a descriptor, and each time the cgroup is read anew.
const SIGNALLED_AT_ONCE: usize = 1024;

/// A target, held.
#[derive(Debug)]
pub(super) enum Victim {
    /// One, or all of a pod's containers that still run.
    Cgroups(Vec<HeldCgroup>),
    Process(Arc<PidFd>),
}

/// A cgroup with the processes it had when it was taken hold of.
#[derive(Debug)]
pub(super) struct HeldCgroup {
    pub(super) cgroup: Cgroup,
    /// Where it was seen.
    path: PathBuf,
    /// The procfs that tells of its processes.
    proc: PathBuf,
    /// Everybody who was in it when that was looked at last: each was asked whether it is protected.
    pub(super) checked: Members,
    pub(super) processes: Vec<Arc<PidFd>>,
}

impl Victim {
    /// Takes hold of `target`, none of whose processes may be protected.
    pub(super) fn hold(target: &Target, roots: &Roots) -> Result<Self, Refusal> {
        let mut guard = Guard::new(roots)?;
        Self::hold_by(target, &roots.proc, |id, path| {
            let cgroup = Cgroup::open(path, id).map_err(|_| Refusal::Gone)?;
            let checked = guard.members(&cgroup, path, &Members::default())?;
            let mut held = HeldCgroup { checked, ..HeldCgroup::unasked(cgroup, path, &roots.proc) };
            let first = held.checked.pids.get(..HELD_AT_MOST).unwrap_or(&held.checked.pids);
            let processes = held.hold(first).map_err(|error| Refusal::unreadable(&error))?;
            held.processes = processes.into_iter().map(|(_, process)| Arc::new(process)).collect();
            Ok(held)
        })
    }

    /// Takes hold of `target` to undo what was done to it, which may be done to anybody.
    pub(super) fn hold_to_release(target: &Target, proc: &Path) -> Result<Self, Refusal> {
        Self::hold_by(target, proc, |id, path| {
            let cgroup = Cgroup::open(path, id).map_err(|_| Refusal::Gone)?;
            Ok(HeldCgroup::unasked(cgroup, path, proc))
        })
    }

    fn hold_by(
        target: &Target,
        proc: &Path,
        mut hold: impl FnMut(u64, &Path) -> Result<HeldCgroup, Refusal>,
    ) -> Result<Self, Refusal> {
        match target {
            Target::Cgroup { id, path } => Ok(Self::Cgroups(vec![hold(*id, path)?])),
            Target::Pod { uid: _, payloads } => {
                let mut held = Vec::with_capacity(payloads.len());
                let mut ended = Refusal::Gone;
                for payload in payloads {
                    match hold(payload.id, &payload.path) {
                        Ok(cgroup) => held.push(cgroup),
                        // It has ended by itself, which is what was wanted.
                        Err(Refusal::Gone) => {}
                        Err(Refusal::Exiting) => ended = Refusal::Exiting,
                        Err(refusal) => return Err(refusal),
                    }
                }
                if held.is_empty() { Err(ended) } else { Ok(Self::Cgroups(held)) }
            }
            Target::Process { pid, start } => {
                let held = PidFd::open(*pid).map_err(|_| Refusal::Gone)?;
                // Asked after the hold: from here on the pid cannot be given to another process unnoticed.
                let process = Process::read(proc, *pid).ok_or(Refusal::Gone)?;
                if (process.id.pid_t(), process.id.start_time) != (*pid, *start) {
                    return Err(Refusal::Gone);
                }
                check_process(&process, proc)?;
                Ok(Self::Process(Arc::new(held)))
            }
        }
    }

    /// Whether what was checked when it was taken hold of still stands: nobody has joined it since who is protected or cannot be asked.
    pub(super) fn still_stands(&mut self, roots: &Roots) -> bool {
        let held = match self {
            Self::Cgroups(held) => held,
            Self::Process(process) => return process.is_there(),
        };
        let Ok(mut guard) = Guard::new(roots) else { return false };
        held.iter_mut().all(|held| {
            let now = guard.members(&held.cgroup, &held.path, &held.checked);
            let was_asked = !held.checked.pids.is_empty();
            now.map(|members| held.checked = members).is_ok() && was_asked
        })
    }
}

impl HeldCgroup {
    /// One of whose processes nothing is known.
    pub(super) fn unasked(cgroup: Cgroup, path: &Path, proc: &Path) -> Self {
        let (path, proc) = (path.to_owned(), proc.to_owned());
        Self { cgroup, path, proc, processes: Vec::new(), checked: Members::default() }
    }

    /// Writes `value` to a control file of exactly this cgroup.
    pub(super) fn write(&self, file: &str, value: &str) -> io::Result<()> {
        let fd: OwnedFd = self.cgroup.open_file(file, OFlag::O_WRONLY)?;
        std::fs::File::from(fd).write_all(value.as_bytes())
    }

    /// The content of a file of exactly this cgroup.
    pub(super) fn read(&self, file: &str) -> io::Result<String> {
        let fd = self.cgroup.open_file(file, OFlag::O_RDONLY)?;
        KeptFile::from_fd(fd).read(&mut Vec::new()).map(str::to_owned)
    }

    /// Who is in the cgroup now.
    pub(super) fn members(&self) -> io::Result<Members> {
        self.cgroup.members(&self.proc, &self.checked)
    }

    /// Sends `signal` to those of `pids` that are in the cgroup, until then; with who got it, and the last thing that failed.
    pub(super) fn signal(
        &self,
        pids: &[i32],
        signal: Signal,
        until: Boot,
    ) -> (BTreeSet<i32>, io::Result<()>) {
        let (mut signalled, mut result) = (BTreeSet::new(), Ok(()));
        for some in pids.chunks(SIGNALLED_AT_ONCE) {
            match self.hold(some) {
                Ok(held) => {
                    for (pid, process) in held {
                        match ended_is_fine(process.signal(signal)) {
                            Ok(()) => _ = signalled.insert(pid),
                            Err(error) => result = Err(error),
                        }
                    }
                }
                Err(error) => result = Err(error),
            }
            if Boot::now() > until {
                break;
            }
        }
        (signalled, result)
    }

    /// Holds those of `pids` that are in the cgroup after they were taken hold of: a pid that was given to a process elsewhere in between is let go.
    fn hold(&self, pids: &[i32]) -> io::Result<Vec<(i32, PidFd)>> {
        let mut held: Vec<(i32, PidFd)> =
            pids.iter().filter_map(|pid| Some((*pid, PidFd::open(*pid).ok()?))).collect();
        if !held.is_empty() {
            let still_there = self.members()?.pids;
            held.retain(|(pid, _)| still_there.binary_search(pid).is_ok());
        }
        Ok(held)
    }
}

/// Who has ended needs no signal.
pub(super) fn ended_is_fine(sent: io::Result<()>) -> io::Result<()> {
    match sent {
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other,
    }
}

/// At most `limit` processes of `target` by identity, for whoever is to end them without asking again.
///
/// # Errors
/// As when it is ended: it is gone, or one of all its processes is protected or cannot be asked.
pub fn members(target: &Target, roots: &Roots, limit: usize) -> Result<Vec<ProcessId>, Refusal> {
    let mut guard = Guard::new(roots)?;
    let mut of = |id: u64, path: &Path| {
        let cgroup = Cgroup::open(path, id).map_err(|_| Refusal::Gone)?;
        guard.members(&cgroup, path, &Members::default()).map(|members| members.pids)
    };
    let mut pids = match target {
        Target::Cgroup { id, path } => of(*id, path)?,
        Target::Pod { payloads, .. } => {
            let mut pids = Vec::new();
            for payload in payloads {
                match of(payload.id, &payload.path) {
                    Ok(own) => pids.extend(own),
                    // A container that has ended by itself has no members.
                    Err(Refusal::Gone | Refusal::Exiting) => {}
                    Err(refusal) => return Err(refusal),
                }
            }
            pids
        }
        Target::Process { pid, .. } => {
            let process = Process::read(&roots.proc, *pid).ok_or(Refusal::Gone)?;
            guard.ask(*pid, true)?;
            return Ok(vec![process.id]);
        }
    };
    pids.truncate(limit);
    Ok(pids.into_iter().filter_map(|pid| Some(Process::read(&roots.proc, pid)?.id)).collect())
}

/// Refuses for a process, as [`Guard::ask`] does for one of a cgroup, and for a thread of the kernel.
fn check_process(process: &Process, proc: &Path) -> Result<(), Refusal> {
    let pid = process.id.pid_t();
    if process.is_kernel_thread() {
        let because = ProtectedReason::KernelThread;
        return Err(Refusal::Protected { pid, because, cgroup: None });
    }
    let roots = Roots { proc: proc.to_owned(), ..Roots::default() };
    Guard::new(&roots)?.ask(pid, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_journal::Payload;
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::process::{Child, Command};

    fn roots() -> Roots {
        Roots::default()
    }

    fn sleeper() -> (Child, i32) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        (child, pid)
    }

    fn fake_cgroup(pids: &str) -> (tempfile::TempDir, Target) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.procs"), pids).unwrap();
        let id = fs::metadata(dir.path()).unwrap().ino();
        let path = dir.path().to_owned();
        (dir, Target::Cgroup { id, path })
    }

    #[test]
    fn a_process_that_took_over_the_pid_is_not_the_target() {
        let (mut child, pid) = sleeper();
        let proc = Path::new("/proc");
        let start = Process::read(proc, pid).unwrap().id.start_time;
        assert!(Victim::hold(&Target::Process { pid, start }, &roots()).is_ok());
        let other = Victim::hold(&Target::Process { pid, start: start + 1 }, &roots());
        assert_eq!(other.unwrap_err(), Refusal::Gone);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn init_and_ebb_itself_are_refused_wherever_they_are() {
        for pid in [1, std::process::id()] {
            let (_dir, target) = fake_cgroup(&format!("{pid}\n"));
            let refused = Victim::hold(&target, &roots()).unwrap_err();
            assert!(matches!(refused, Refusal::Protected { .. }), "{refused}");
        }
    }

    #[test]
    fn a_process_with_oom_score_adj_of_minus_1000_protects_its_cgroup() {
        let (mut child, pid) = sleeper();
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join(pid.to_string())).unwrap();
        fs::write(proc.path().join(pid.to_string()).join("oom_score_adj"), "-1000\n").unwrap();
        let (_dir, target) = fake_cgroup(&format!("{pid}\n"));
        let refused =
            Victim::hold(&target, &Roots { proc: proc.path().into(), ..roots() }).unwrap_err();
        assert!(matches!(refused, Refusal::Protected { .. }), "{refused}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The cgroup of `pids`, and a procfs in which each of them has that score.
    fn with_scores(pids: &[(i32, i32)]) -> (tempfile::TempDir, Roots, tempfile::TempDir, Target) {
        let proc = tempfile::tempdir().unwrap();
        let mut list = String::new();
        for (pid, score) in pids {
            let dir = proc.path().join(pid.to_string());
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("oom_score_adj"), format!("{score}\n")).unwrap();
            list.push_str(&format!("{pid}\n"));
        }
        let (dir, target) = fake_cgroup(&list);
        let roots = Roots { proc: proc.path().into(), ..roots() };
        (proc, roots, dir, target)
    }

    #[test]
    fn every_process_is_asked_and_not_only_the_first() {
        // Pids that no process can have.
        let many: Vec<(i32, i32)> = (0..500).map(|n| (4_194_305 + n, 0)).collect();
        let (_proc, roots, _dir, target) = with_scores(&many);
        assert!(Victim::hold(&target, &roots).is_ok());
        let mut last = many;
        last[499].1 = -1000;
        let (_proc, roots, dir, target) = with_scores(&last);
        let because = ProtectedReason::OomScoreAdj;
        let id = fs::metadata(dir.path()).unwrap().ino();
        let expected = Refusal::Protected { pid: last[499].0, because, cgroup: Some(id) };
        assert_eq!(Victim::hold(&target, &roots).unwrap_err(), expected);
        assert_eq!(members(&target, &roots, 8).unwrap_err(), expected, "nor for the reflex");
    }

    #[test]
    fn ebb_finds_itself_behind_a_crowd() {
        let crowd: String = (0..200).map(|n| format!("{}\n", 4_194_305 + n)).collect();
        let (_dir, target) = fake_cgroup(&format!("{crowd}{}\n", std::process::id()));
        let refused = Victim::hold(&target, &roots()).unwrap_err();
        assert!(
            matches!(refused, Refusal::Protected { because: ProtectedReason::Agent, .. }),
            "{refused}"
        );
    }

    #[test]
    fn a_cgroup_whose_members_cannot_all_be_read_is_not_touched() {
        let unreadable = |target: &Target, roots: &Roots| {
            let refused = Victim::hold(target, roots).unwrap_err();
            assert!(matches!(refused, Refusal::Unreadable { .. }), "{refused}");
        };
        // Of another pid namespace, alone or beside others.
        for list in ["0\n", "0\n0\n", "4194305\n0\n"] {
            let (_dir, target) = fake_cgroup(list);
            unreadable(&target, &roots());
        }
        // A process that lives and that this procfs does not show.
        let (mut child, pid) = sleeper();
        let hidden = tempfile::tempdir().unwrap();
        let (_dir, target) = fake_cgroup(&format!("{pid}\n"));
        unreadable(&target, &Roots { proc: hidden.path().into(), ..roots() });
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_the_kernel_lists_nobody_of_and_calls_populated_is_exiting() {
        let exiting = || {
            let (dir, target) = fake_cgroup("");
            fs::write(dir.path().join("cgroup.events"), "populated 1\n").unwrap();
            (dir, target)
        };
        let (_dir, target) = exiting();
        assert_eq!(Victim::hold(&target, &roots()).unwrap_err(), Refusal::Exiting);
        assert_eq!(members(&target, &roots(), 8).unwrap_err(), Refusal::Exiting);
        // A pod is so when nothing else of it runs.
        let (_ended, gone) = fake_cgroup("");
        let payload = |target: &Target| match target {
            Target::Cgroup { id, path } => Payload { id: *id, path: path.clone() },
            other => panic!("{other:?}"),
        };
        let payloads = vec![payload(&gone), payload(&target)];
        let pod = Target::Pod { uid: "u".into(), payloads };
        assert_eq!(Victim::hold(&pod, &roots()).unwrap_err(), Refusal::Exiting);
    }

    #[test]
    fn a_process_that_calls_itself_a_daemon_protects_nobody() {
        for name in ["pause", "podman", "kubelet", "containerd"] {
            let dir = tempfile::tempdir().unwrap();
            let program = dir.path().join(name);
            fs::copy("/bin/sleep", &program).unwrap();
            let mut child = Command::new(&program).arg("1000").spawn().unwrap();
            let tree = tempfile::tempdir().unwrap();
            let path = tree.path().join("apps.slice");
            fs::create_dir(&path).unwrap();
            fs::write(path.join("cgroup.procs"), format!("{}\n", child.id())).unwrap();
            // As a user's process looks, whoever runs this test.
            let proc = tempfile::tempdir().unwrap();
            let own = proc.path().join(child.id().to_string());
            fs::create_dir(&own).unwrap();
            for (file, text) in [
                ("comm", format!("{name}\n")),
                ("oom_score_adj", "0\n".to_owned()),
                ("status", "Uid:\t1000\t1000\t1000\t1000\nNSpid:\t7\n".to_owned()),
            ] {
                fs::write(own.join(file), text).unwrap();
            }
            let id = fs::metadata(&path).unwrap().ino();
            let roots = Roots { proc: proc.path().into(), cgroup: tree.path().into() };
            let held = Victim::hold(&Target::Cgroup { id, path }, &roots);
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(held.is_ok(), "{name}: {held:?}");
        }
    }

    #[test]
    fn what_was_done_is_undone_whoever_has_joined_since() {
        let (_dir, target) = fake_cgroup("1\n0\n");
        assert!(Victim::hold(&target, &roots()).is_err());
        assert!(Victim::hold_to_release(&target, Path::new("/proc")).is_ok());
    }

    #[test]
    fn of_a_pod_what_still_runs_is_held_and_a_protected_container_is_named() {
        let (mut child, pid) = sleeper();
        let payload = |target: &Target| match target {
            Target::Cgroup { id, path } => Payload { id: *id, path: path.clone() },
            other => panic!("{other:?}"),
        };
        let (_one, running) = fake_cgroup(&format!("{pid}\n"));
        let (_two, ended) = fake_cgroup("");
        let (_three, protected) = fake_cgroup("1\n");
        let pod = |payloads| Target::Pod { uid: "u".into(), payloads };
        let some = pod(vec![payload(&running), payload(&ended)]);
        match Victim::hold(&some, &roots()).unwrap() {
            Victim::Cgroups(held) => assert_eq!(held.len(), 1),
            other @ Victim::Process(_) => panic!("{other:?}"),
        }
        let none = pod(vec![payload(&ended)]);
        assert_eq!(Victim::hold(&none, &roots()).unwrap_err(), Refusal::Gone);
        let spared = pod(vec![payload(&running), payload(&protected)]);
        let named = Some(payload(&protected).id);
        assert!(matches!(
            Victim::hold(&spared, &roots()),
            Err(Refusal::Protected { cgroup, .. }) if cgroup == named
        ));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn an_empty_cgroup_or_one_with_another_id_is_gone() {
        let (dir, target) = fake_cgroup("");
        assert_eq!(Victim::hold(&target, &roots()).unwrap_err(), Refusal::Gone);
        let other = Target::Cgroup { id: 1, path: dir.path().to_owned() };
        assert_eq!(Victim::hold(&other, &roots()).unwrap_err(), Refusal::Gone);
    }
}
