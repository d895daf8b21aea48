//! The containerd process: its configuration, start and end. It is known by process id, and only ever signalled by it.
use crate::cgroup::{self, Cgroup};
use crate::init::SELF;
use crate::wait;
use anyhow::{Context, Result, ensure};
use ebb_vm_protocol::images::PAUSE;
use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Where it listens.
pub(crate) const SOCKET: &str = "/run/containerd/containerd.sock";
/// What containers and images take on disk.
pub(crate) const ROOT: &str = "/var/lib/containerd";
const CONFIG: &str = "/etc/containerd/config.toml";
const CGROUP: &str = "system.slice/containerd.service";
const PID_FILE: &str = "/run/containerd.pid";
const LOG: &str = "/run/containerd.log";
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// 3 s alone under TCG, more beside another guest.
const STARTS_IN: Duration = Duration::from_secs(90);
const ENDS_IN: Duration = Duration::from_secs(20);
const STOPS_WITHIN: Duration = Duration::from_secs(20);

/// The version on this guest, as `matrix.toml` names it: `1.4`, `1.6`, `1.7` or `2`.
pub(crate) fn version() -> Result<String> {
    let version =
        fs::read_to_string("/payload/containerd").context("nobody said which containerd")?;
    ensure!(!version.is_empty(), "this machine has no containerd");
    Ok(version)
}

/// Run containerd's own client in CRI's namespace.
pub(crate) fn ctr(words: &[&str]) -> Result<String> {
    let mut command = Command::new("/usr/bin/ctr");
    command.env("PATH", PATH).args(["-a", SOCKET, "-n", "k8s.io"]).args(words);
    let out = command.output().context("cannot start ctr")?;
    let errors = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "ctr {words:?} failed: {}", errors.trim());
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Daemon {
    pid: Pid,
}

impl Daemon {
    /// The one that runs, or a new one.
    pub(crate) fn ensure() -> Result<Self> {
        match Self::running() {
            Some(daemon) => Ok(daemon),
            None => Self::start(),
        }
    }

    /// The one that this guest started last, if it lives.
    pub(crate) fn running() -> Option<Self> {
        let pid: i32 = fs::read_to_string(PID_FILE).ok()?.trim().parse().ok()?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name.trim() == "containerd").then(|| Self { pid: Pid::from_raw(pid) })
    }

    /// Start one and wait until it listens.
    pub(crate) fn start() -> Result<Self> {
        prepare()?;
        let log =
            File::options().create(true).append(true).open(LOG).context("cannot open a log")?;
        let cgroup = Cgroup::create(CGROUP)?;
        let mut command = Command::new(SELF);
        command.arg("exec-in").arg(cgroup.path()).args(["/usr/bin/containerd", "-c", CONFIG]);
        command.args(["-l", "warn"]).env("PATH", PATH).stdin(Stdio::null());
        command.stdout(log.try_clone().context("cannot share a log")?).stderr(log);
        // It stays when the test that starts it has ended.
        let mut child = command.process_group(0).spawn().context("cannot start containerd")?;
        let pid = Pid::from_raw(i32::try_from(child.id()).context("an impossible process id")?);
        fs::write(PID_FILE, pid.to_string()).context("cannot note containerd's process id")?;
        let listens = wait::until_some(STARTS_IN, "containerd listens", || {
            if UnixStream::connect(SOCKET).is_ok() {
                return Some(true);
            }
            // Ended before it listened: no need to wait for more.
            child.try_wait().ok().flatten().map(|_| false)
        });
        ensure!(listens?, "containerd ended: {}", last_words());
        Ok(Self { pid })
    }

    /// SIGKILL, and wait until the process is gone. Shims and containers stay.
    pub(crate) fn kill(self) -> Result<()> {
        kill(self.pid, Signal::SIGKILL).context("cannot kill containerd")?;
        wait::until(ENDS_IN, "containerd is gone", || {
            // A zombie whose parent is another test's process, or init, holds nothing any more.
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
            stat.is_empty() || is_in_state(&stat, 'Z')
        })
    }

    /// Stop it as a debugger would: connections stay open and nothing answers.
    pub(crate) fn freeze(self) -> Result<()> {
        kill(self.pid, Signal::SIGSTOP).context("cannot stop containerd")?;
        // A thread that runs on another processor stops a moment later, and could still answer.
        wait::until(STOPS_WITHIN, "containerd has stopped", || {
            let tasks = fs::read_dir(format!("/proc/{}/task", self.pid));
            tasks.is_ok_and(|mut tasks| {
                tasks.all(|task| {
                    let stat = task.and_then(|task| fs::read_to_string(task.path().join("stat")));
                    stat.is_ok_and(|stat| is_in_state(&stat, 'T'))
                })
            })
        })
    }

    pub(crate) fn thaw(self) -> Result<()> {
        kill(self.pid, Signal::SIGCONT).context("cannot continue containerd")
    }
}

/// Whether a `stat` file of procfs says this of a process or thread: the state stands behind the name, which ends with the last bracket.
fn is_in_state(stat: &str, state: char) -> bool {
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(state))
}

/// The end of the log, for whoever reads why something failed.
pub(crate) fn last_words() -> String {
    let log = fs::read_to_string(LOG).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines.iter().rev().take(5).rev().copied().collect::<Vec<_>>().join(" / ")
}

fn prepare() -> Result<()> {
    load("overlay")?;
    for dir in ["/etc/containerd", "/run/containerd", ROOT] {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {dir}"))?;
    }
    // Each sandbox gets a copy of the first two.
    let files = [
        ("/etc/hosts", "127.0.0.1 localhost\n"),
        ("/etc/resolv.conf", ""),
        ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
        ("/etc/group", "root:x:0:\n"),
    ];
    for (path, text) in files {
        if !Path::new(path).exists() {
            fs::write(path, text).with_context(|| format!("cannot write {path}"))?;
        }
    }
    let is_new = !version()?.starts_with("1.");
    let config = if is_new { config_of_version_3() } else { config_of_version_2() };
    fs::write(CONFIG, config).context("cannot write containerd's configuration")
}

/// Load a module that the payload carries; one that is there already is fine.
pub(crate) fn load(name: &str) -> Result<()> {
    let path = format!("/payload/{name}.ko");
    let file = File::open(&path).with_context(|| format!("cannot open {path}"))?;
    match finit_module(&file, c"", ModuleInitFlags::empty()) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot load {path}")),
    }
}

/// What a guest without network, other filesystems and AppArmor's tools would only complain about.
const DISABLED: &str = "disabled_plugins = [\
    'io.containerd.snapshotter.v1.btrfs', 'io.containerd.snapshotter.v1.devmapper', \
    'io.containerd.snapshotter.v1.zfs', 'io.containerd.snapshotter.v1.erofs', \
    'io.containerd.snapshotter.v1.blockfile', 'io.containerd.tracing.processor.v1.otlp', \
    'io.containerd.internal.v1.tracing', 'io.containerd.nri.v1.nri']";

/// containerd 1.x.
fn config_of_version_2() -> String {
    let cri = "plugins.'io.containerd.grpc.v1.cri'";
    format!(
        "version = 2\n{DISABLED}\n[{cri}]\nsandbox_image = '{PAUSE}'\ndisable_apparmor = true\n\
         stats_collect_period = 2\n[{cri}.containerd]\ndefault_runtime_name = 'runc'\n\
         [{cri}.containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'\n"
    )
}

/// containerd 2.x.
fn config_of_version_3() -> String {
    let runtime = "plugins.'io.containerd.cri.v1.runtime'";
    format!(
        "version = 3\n{DISABLED}\n\
         [plugins.'io.containerd.cri.v1.images']\nstats_collect_period = 2\n\
         [plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = '{PAUSE}'\n\
         [{runtime}]\ndisable_apparmor = true\n\
         [{runtime}.containerd]\ndefault_runtime_name = 'runc'\n\
         [{runtime}.containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'\n"
    )
}

/// Where pods go, below the cgroup root.
pub(crate) fn pod_cgroup(class: &str, uid: &str) -> String {
    format!("/kubepods/{class}/pod{uid}")
}

/// That cgroup as a path of this guest.
pub(crate) fn cgroup_path(name: &str) -> String {
    format!("{}{name}", cgroup::ROOT)
}
