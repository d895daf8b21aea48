//! Which part a process plays on the node, told by who made it and never by what it calls itself.
//!
//! A name only says whom to look at. A kubelet, a container runtime or a shim runs as root (all four user ids, in the
//! initial user namespace), in the initial pid and mount namespaces, from a program that root alone can have put there,
//! in a cgroup that is nobody else's ([`Custody`]).
//! User ids and the depth of the pid namespace are open to everybody. Namespaces and the program are not: reading them
//! takes `CAP_SYS_PTRACE`. What they say is **unknown** without it, and then a process that is root's, outside of every
//! container and named like a daemon counts as one: nobody but root can have made it.

use super::cgroup::Cgroup;
use super::custody::Custody;
use super::file::read_once;
use super::process::{Process, oom_score_adj, status_field};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::Path;

/// A part that forbids ending a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The container runtime or one of its shims or monitors.
    Runtime,
    /// The kubelet, or a distribution of Kubernetes that has it inside.
    Kubelet,
}

/// Command names and names of programs as the kernel cuts them, at 15 bytes.
const RUNTIMES: [&[u8]; 8] = [
    b"containerd",
    b"containerd-shim",
    b"dockerd",
    b"cri-dockerd",
    b"crio",
    b"conmon",
    b"conmonrs",
    b"podman",
];
const KUBELETS: [&[u8]; 6] =
    [b"kubelet", b"k3s", b"k3s-server", b"k3s-agent", b"kubelite", b"rke2"];

/// Length of a command name.
const NAME: usize = 15;

/// `oom_score_adj` that containerd, CRI-O and cri-dockerd give a sandbox. Nothing without `CAP_SYS_RESOURCE` can lower its own to it.
const SANDBOX_SCORE: i32 = -998;

/// Processes of each container beside a possible sandbox that are asked when they began.
const SIBLINGS_ASKED: usize = 16;

impl Role {
    /// The part that the process `pid` plays, in a cgroup where daemons of the node may live.
    #[must_use]
    pub fn of(pid: i32, proc: &Path) -> Option<Self> {
        let dir = proc.join(pid.to_string());
        let comm = read_once(&dir.join("comm")).ok()?;
        let role = Self::by_name(comm.trim_end().as_bytes())?;
        let status = read_once(&dir.join("status")).ok()?;
        if !is_roots(&status) || !is_in_our_pid_namespace(&status) {
            return None;
        }
        let init = proc.join("1/ns");
        let elsewhere = ["mnt", "pid", "user"].into_iter().any(|kind| {
            let namespace = |ns: &Path| std::fs::read_link(ns.join(kind)).ok();
            let both = namespace(&init).zip(namespace(&dir.join("ns")));
            both.is_some_and(|(init, own)| init != own)
        });
        (!elsewhere && has_program_of(role, &dir.join("exe")) != Some(false)).then_some(role)
    }

    /// Whether a process of that command name is worth asking.
    #[must_use]
    pub fn is_name_of_any(comm: &str) -> bool {
        Self::by_name(comm.as_bytes()).is_some()
    }

    fn by_name(name: &[u8]) -> Option<Self> {
        if RUNTIMES.contains(&name) {
            Some(Self::Runtime)
        } else if KUBELETS.contains(&name) {
            Some(Self::Kubelet)
        } else {
            None
        }
    }
}

/// Whether real, effective, saved and filesystem user ids are all root's: a set-user-id program has kept its caller's.
fn is_roots(status: &str) -> bool {
    status_field(status, "Uid:").is_some_and(|ids| ids.split_ascii_whitespace().all(|id| id == "0"))
}

/// Whether its pid namespace is the one that this procfs shows; each namespace below adds a number.
fn is_in_our_pid_namespace(status: &str) -> bool {
    status_field(status, "NSpid:").is_none_or(|pids| pids.split_ascii_whitespace().count() == 1)
}

/// Whether the program behind `exe` has a daemon's name and could be written by root only; `None` when that may not be read.
fn has_program_of(role: Role, exe: &Path) -> Option<bool> {
    let program = std::fs::read_link(exe).ok()?;
    let name = program.file_name().map(OsStr::as_bytes).unwrap_or_default();
    // What the kernel adds once a newer version has replaced it.
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    if Role::by_name(name.get(..NAME).unwrap_or(name)) != Some(role) {
        return Some(false);
    }
    let file = std::fs::metadata(exe).ok()?;
    Some(file.uid() == 0 && file.mode() & 0o022 == 0)
}

/// Whether the cgroup at `path` below the mount `root` is a pod's sandbox, for when no runtime has listed it.
///
/// It lies directly below a pod's cgroup, holds one process alone, which has the score that runtimes give to sandboxes and is not younger than what runs in the containers beside it.
#[must_use]
pub fn is_sandbox(custody: &Custody, root: &Path, path: &Path, pids: &[i32], proc: &Path) -> bool {
    let (true, &[sole]) = (custody.is_made_for_a_pod(), pids) else { return false };
    if oom_score_adj(proc, sole).is_none_or(|score| score > SANDBOX_SCORE) {
        return false;
    }
    let start = |pid: i32| Process::read(proc, pid).map(|process| process.id.start_time);
    let Some(began) = start(sole) else { return false };
    let Some(pod) = path.parent().map(|pod| root.join(pod)) else { return false };
    let Ok(beside) = std::fs::read_dir(&pod) else { return false };
    beside.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).all(
        |entry| {
            let Ok(cgroup) = Cgroup::open(&entry.path(), entry.ino()) else { return true };
            let pids = cgroup.processes(SIBLINGS_ASKED);
            pids.into_iter().filter_map(start).all(|other| other >= began)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const INIT: [(&str, &str); 3] = [("mnt", "mnt:[1]"), ("pid", "pid:[1]"), ("user", "user:[1]")];

    /// A process of a fake procfs.
    struct Fake<'a> {
        comm: &'a str,
        uids: &'a str,
        pids: &'a str,
        namespaces: &'a [(&'a str, &'a str)],
        exe: Option<&'a str>,
    }

    const KUBELET: Fake<'static> =
        Fake { comm: "kubelet", uids: "0 0 0 0", pids: "20", namespaces: &INIT, exe: None };

    fn role(fake: &Fake<'_>) -> Option<Role> {
        let proc = tempfile::tempdir().unwrap();
        let make = |pid: &str, namespaces: &[(&str, &str)]| {
            let dir = proc.path().join(pid);
            fs::create_dir_all(dir.join("ns")).unwrap();
            for (kind, namespace) in namespaces {
                symlink(namespace, dir.join("ns").join(kind)).unwrap();
            }
            dir
        };
        make("1", &INIT);
        let dir = make("20", fake.namespaces);
        fs::write(dir.join("comm"), format!("{}\n", fake.comm)).unwrap();
        let status = format!("Name:\tx\nUid:\t{}\nNSpid:\t{}\n", fake.uids, fake.pids);
        fs::write(dir.join("status"), status).unwrap();
        if let Some(exe) = fake.exe {
            symlink(exe, dir.join("exe")).unwrap();
        }
        Role::of(20, proc.path())
    }

    #[test]
    fn a_daemon_of_the_node_is_roots_and_outside_of_every_container() {
        assert_eq!(role(&KUBELET), Some(Role::Kubelet));
        let shim = Fake { comm: "containerd-shim", ..KUBELET };
        assert_eq!(role(&shim), Some(Role::Runtime));
        assert_eq!(role(&Fake { comm: "worker", ..KUBELET }), None);
        assert_eq!(role(&Fake { comm: "pause", ..KUBELET }), None, "a name makes no sandbox");
    }

    #[test]
    fn an_unprivileged_process_plays_no_part_whatever_its_name() {
        assert_eq!(role(&Fake { uids: "1000 1000 1000 1000", ..KUBELET }), None);
        let set_user_id = Fake { uids: "1000 0 0 0", ..KUBELET };
        assert_eq!(role(&set_user_id), None, "a set-user-id program started by a user");
    }

    #[test]
    fn root_in_a_container_plays_no_part_even_where_namespaces_cannot_be_read() {
        let other = [("mnt", "mnt:[2]"), ("pid", "pid:[1]"), ("user", "user:[1]")];
        assert_eq!(role(&Fake { namespaces: &other, ..KUBELET }), None);
        let unreadable = Fake { namespaces: &[], ..KUBELET };
        assert_eq!(role(&unreadable), Some(Role::Kubelet), "unknown: nobody but root made it");
        assert_eq!(role(&Fake { pids: "20\t1", ..unreadable }), None, "it has a pid of its own");
    }

    #[test]
    fn another_program_under_a_daemons_name_is_none() {
        assert_eq!(role(&Fake { exe: Some("/usr/bin/sudo"), ..KUBELET }), None);
    }

    #[test]
    fn a_program_that_others_can_write_is_no_daemons() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet");
        fs::write(&path, "").unwrap();
        let mut mode = fs::metadata(&path).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o777);
        fs::set_permissions(&path, mode).unwrap();
        assert_eq!(role(&Fake { exe: path.to_str(), ..KUBELET }), None);
    }

    const POD: &str = "kubepods/pod5a0b9c1e-1111-2222-3333-444455556666";

    /// A node with one pod of two containers, each with the start time and score of its process.
    fn sandbox(first: (&str, i32, u64), other: u64) -> bool {
        let (name, score, began) = first;
        let node = tempfile::tempdir().unwrap();
        let (root, proc) = (node.path().join("cgroup"), node.path().join("proc"));
        for (pid, path, start) in [(30, name.to_owned(), began), (31, format!("{POD}/app"), other)]
        {
            fs::create_dir_all(root.join(&path)).unwrap();
            fs::write(root.join(&path).join("cgroup.procs"), format!("{pid}\n")).unwrap();
            let dir = proc.join(pid.to_string());
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("oom_score_adj"), format!("{score}\n")).unwrap();
            let stat = format!(
                "{pid} (pause) S 1 17 17 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 {start} 1000000 250 1 0"
            );
            fs::write(dir.join("stat"), stat).unwrap();
        }
        let custody = Custody::of(&root, Path::new(name));
        is_sandbox(&custody, &root, Path::new(name), &[30], &proc)
    }

    #[test]
    fn a_sandbox_is_known_by_place_score_and_age_and_not_by_its_name() {
        let path = format!("{POD}/sandbox");
        assert!(sandbox((&path, -998, 5), 9));
        assert!(!sandbox((&path, 0, 5), 9), "any process can call itself pause");
        assert!(!sandbox((&path, -998, 10), 9), "it was not there when the pod began");
        assert!(!sandbox(("apps/pause", -998, 5), 9), "it is not in the kubelet's tree");
    }

    #[test]
    fn what_is_not_alone_in_its_cgroup_is_no_sandbox() {
        let root = tempfile::tempdir().unwrap();
        let path = Path::new(POD).join("sandbox");
        fs::create_dir_all(root.path().join(&path)).unwrap();
        let custody = Custody::of(root.path(), &path);
        assert!(!is_sandbox(&custody, root.path(), &path, &[30, 31], root.path()));
    }
}
