//! From a name in a plan to a hold on the thing itself: identity, protection and need, each checked immediately before acting.

use super::pidfd::PidFd;
use crate::sense::cgroup::Cgroup;
use crate::sense::file::KeptFile;
use crate::sense::process::{Guardian, Process, ProcessId, oom_score_adj};
use ebb_policy::snapshot::ProtectedReason;
use nix::fcntl::OFlag;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Processes of a cgroup that are held one by one; a cgroup may have more, which are ended all the same.
pub(super) const HELD_AT_MOST: usize = 64;

/// Processes whose part and `oom_score_adj` are looked at before a cgroup is ended: a cgroup's first processes are those that made the others.
const ASKED_AT_MOST: usize = 8;

/// What a plan wants ended, by identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Target {
    /// A cgroup and everything below it.
    Cgroup {
        /// Its id.
        id: u64,
        /// Where it was seen, as an absolute path.
        path: PathBuf,
    },
    /// The containers of a pod: each a cgroup, the sandbox not among them. Ending that is the runtime's part.
    Pod {
        /// UID of the pod.
        uid: String,
        /// The cgroups of its containers.
        payloads: Vec<Payload>,
    },
    /// One process.
    Process {
        /// Its pid.
        pid: i32,
        /// Its start time, in clock ticks since boot.
        start: u64,
    },
}

/// The cgroup of one container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Payload {
    /// Its id.
    pub id: u64,
    /// Where it was seen, as an absolute path.
    pub path: PathBuf,
}

/// Why a target is not touched.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase", tag = "why")]
pub enum Refusal {
    /// It has ended, or its name belongs to another cgroup or process by now.
    #[error("it is gone")]
    Gone,
    /// It holds a process that must not die.
    #[error("it holds process {pid}, which is protected: {}", protection(*because))]
    Protected {
        /// The process.
        pid: i32,
        /// What protects it.
        because: ProtectedReason,
    },
}

/// A target, held.
#[derive(Debug)]
pub(super) enum Victim {
    /// One, or all of a pod's containers that still run.
    Cgroups(Vec<HeldCgroup>),
    Process(PidFd),
}

/// A cgroup with the processes it had when it was taken hold of.
#[derive(Debug)]
pub(super) struct HeldCgroup {
    pub(super) cgroup: Cgroup,
    /// Every process that it had, held or not, up to [`HELD_AT_MOST`].
    pub(super) checked: Vec<i32>,
    pub(super) processes: Vec<PidFd>,
}

impl Victim {
    /// Takes hold of `target`.
    pub(super) fn hold(target: &Target, proc: &Path) -> Result<Self, Refusal> {
        match target {
            Target::Cgroup { id, path } => Ok(Self::Cgroups(vec![hold(*id, path, proc)?])),
            Target::Pod { uid: _, payloads } => {
                let mut held = Vec::with_capacity(payloads.len());
                for payload in payloads {
                    match hold(payload.id, &payload.path, proc) {
                        Ok(cgroup) => held.push(cgroup),
                        // It has ended by itself, which is what was wanted.
                        Err(Refusal::Gone) => {}
                        Err(refusal) => return Err(refusal),
                    }
                }
                if held.is_empty() { Err(Refusal::Gone) } else { Ok(Self::Cgroups(held)) }
            }
            Target::Process { pid, start } => {
                let held = PidFd::open(*pid).map_err(|_| Refusal::Gone)?;
                // Asked after the hold: from here on the pid cannot be given to another process unnoticed.
                let process = Process::read(proc, *pid).ok_or(Refusal::Gone)?;
                if process.id != (ProcessId { pid: *pid, start: *start }) {
                    return Err(Refusal::Gone);
                }
                if process.is_kernel_thread() {
                    return Err(Refusal::Protected {
                        pid: *pid,
                        because: ProtectedReason::KernelThread,
                    });
                }
                check_protection(*pid, Some(proc))?;
                Ok(Self::Process(held))
            }
        }
    }
}

/// Takes hold of one cgroup and its first processes, none of which may be protected.
fn hold(id: u64, path: &Path, proc: &Path) -> Result<HeldCgroup, Refusal> {
    let cgroup = Cgroup::open(path, id).map_err(|_| Refusal::Gone)?;
    let pids = cgroup.processes(HELD_AT_MOST);
    if pids.is_empty() && cgroup.populated(&mut Vec::new()) != Some(true) {
        return Err(Refusal::Gone);
    }
    for (nth, pid) in pids.iter().enumerate() {
        check_protection(*pid, (nth < ASKED_AT_MOST).then_some(proc))?;
    }
    let processes = hold_members(&cgroup, &pids);
    Ok(HeldCgroup { processes, checked: pids, cgroup })
}

impl Victim {
    /// Whether what was checked when it was taken hold of still stands: the same processes and no others.
    pub(super) fn is_unchanged(&self) -> bool {
        match self {
            Self::Cgroups(held) => held.iter().all(|held| {
                !held.checked.is_empty() && held.cgroup.processes(HELD_AT_MOST) == held.checked
            }),
            Self::Process(process) => process.is_there(),
        }
    }
}

impl HeldCgroup {
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

    /// Holds the processes that are in the cgroup now.
    pub(super) fn hold_again(&mut self, limit: usize) {
        let pids = self.cgroup.processes(limit);
        self.processes = hold_members(&self.cgroup, &pids);
    }
}

/// Holds those of `pids` that are in `cgroup` after they were taken hold of: a pid that was given to a process elsewhere in between is let go.
fn hold_members(cgroup: &Cgroup, pids: &[i32]) -> Vec<PidFd> {
    let held: Vec<(i32, PidFd)> =
        pids.iter().filter_map(|pid| Some((*pid, PidFd::open(*pid).ok()?))).collect();
    let still_there = cgroup.processes(usize::MAX);
    held.into_iter().filter(|(pid, _)| still_there.contains(pid)).map(|(_, fd)| fd).collect()
}

/// At most `limit` processes of `target` by identity, for whoever is to end them without asking again.
///
/// # Errors
/// As when it is ended: it is gone, or one of its processes is protected.
pub fn members(target: &Target, proc: &Path, limit: usize) -> Result<Vec<ProcessId>, Refusal> {
    let of = |id: u64, path: &Path| Cgroup::open(path, id).map(|cgroup| cgroup.processes(limit));
    let mut pids = match target {
        Target::Cgroup { id, path } => of(*id, path).map_err(|_| Refusal::Gone)?,
        // A container that has ended by itself has no members.
        Target::Pod { payloads, .. } => payloads
            .iter()
            .flat_map(|payload| of(payload.id, &payload.path).unwrap_or_default())
            .collect(),
        Target::Process { pid, .. } => vec![*pid],
    };
    pids.truncate(limit);
    for (nth, pid) in pids.iter().enumerate() {
        check_protection(*pid, (nth < ASKED_AT_MOST).then_some(proc))?;
    }
    Ok(pids.into_iter().filter_map(|pid| Some(Process::read(proc, pid)?.id)).collect())
}

/// Refuses for init and the agent itself, and, when `proc` is given, for the runtime, the kubelet and what even the kernel may not kill.
fn check_protection(pid: i32, proc: Option<&Path>) -> Result<(), Refusal> {
    let protected = |because| Err(Refusal::Protected { pid, because });
    if pid == 1 {
        return protected(ProtectedReason::Init);
    }
    if u32::try_from(pid) == Ok(std::process::id()) {
        return protected(ProtectedReason::Agent);
    }
    let Some(proc) = proc else { return Ok(()) };
    if oom_score_adj(proc, pid) == Some(-1000) {
        return protected(ProtectedReason::OomScoreAdj);
    }
    match Process::read(proc, pid).and_then(|process| Guardian::of(&process, proc)) {
        Some(Guardian::Runtime) => protected(ProtectedReason::Runtime),
        Some(Guardian::Kubelet) => protected(ProtectedReason::Kubelet),
        None => Ok(()),
    }
}

fn protection(reason: ProtectedReason) -> &'static str {
    match reason {
        ProtectedReason::Agent => "it is ebb itself",
        ProtectedReason::Init => "it is init",
        ProtectedReason::Kubelet => "it is the kubelet",
        ProtectedReason::Runtime => "it is part of the container runtime",
        ProtectedReason::Configured => "the configuration protects it",
        ProtectedReason::OomScoreAdj => "its oom_score_adj is -1000",
        ProtectedReason::KernelThread => "it is a kernel thread",
        ProtectedReason::NothingRuns => "nothing of it runs",
        ProtectedReason::Unlisted => "the container runtime has not told yet whose it is",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::process::{Child, Command};

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
        let start = Process::read(proc, pid).unwrap().id.start;
        assert!(Victim::hold(&Target::Process { pid, start }, proc).is_ok());
        let other = Victim::hold(&Target::Process { pid, start: start + 1 }, proc);
        assert_eq!(other.unwrap_err(), Refusal::Gone);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn init_and_ebb_itself_are_refused_wherever_they_are() {
        for pid in [1, std::process::id()] {
            let (_dir, target) = fake_cgroup(&format!("{pid}\n"));
            let refused = Victim::hold(&target, Path::new("/proc")).unwrap_err();
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
        let refused = Victim::hold(&target, proc.path()).unwrap_err();
        assert!(matches!(refused, Refusal::Protected { .. }), "{refused}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn of_a_pod_what_still_runs_is_held_and_one_protected_container_protects_it() {
        let (mut child, pid) = sleeper();
        let proc = Path::new("/proc");
        let payload = |target: &Target| match target {
            Target::Cgroup { id, path } => Payload { id: *id, path: path.clone() },
            other => panic!("{other:?}"),
        };
        let (_one, running) = fake_cgroup(&format!("{pid}\n"));
        let (_two, ended) = fake_cgroup("");
        let (_three, protected) = fake_cgroup("1\n");
        let pod = |payloads| Target::Pod { uid: "u".into(), payloads };
        let some = pod(vec![payload(&running), payload(&ended)]);
        match Victim::hold(&some, proc).unwrap() {
            Victim::Cgroups(held) => assert_eq!(held.len(), 1),
            other @ Victim::Process(_) => panic!("{other:?}"),
        }
        let none = pod(vec![payload(&ended)]);
        assert_eq!(Victim::hold(&none, proc).unwrap_err(), Refusal::Gone);
        let spared = pod(vec![payload(&running), payload(&protected)]);
        assert!(matches!(Victim::hold(&spared, proc), Err(Refusal::Protected { .. })));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn an_empty_cgroup_or_one_with_another_id_is_gone() {
        let (dir, target) = fake_cgroup("");
        assert_eq!(Victim::hold(&target, Path::new("/proc")).unwrap_err(), Refusal::Gone);
        let other = Target::Cgroup { id: 1, path: dir.path().to_owned() };
        assert_eq!(Victim::hold(&other, Path::new("/proc")).unwrap_err(), Refusal::Gone);
    }
}
