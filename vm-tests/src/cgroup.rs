//! Cgroups as tests use them: by path below the cgroup root, made and emptied here.
use crate::wait;
use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the hierarchy is mounted.
pub(crate) const ROOT: &str = "/sys/fs/cgroup";
const EMPTYING: Duration = Duration::from_secs(30);
/// What a node has. The first of each path is the owner of what is below it.
const NODE: [&str; 6] = [
    "init.scope",
    "test.scope",
    "system.slice/ebb.service",
    "work.slice",
    "kubepods/burstable",
    "kubepods/besteffort",
];
/// Where tests put workloads; emptied after each test.
const WORKLOADS: [&str; 4] =
    ["work.slice", "kubepods/burstable", "kubepods/besteffort", "system.slice/ebb.service"];

/// A cgroup by its path below the root.
#[derive(Debug, Clone)]
pub(crate) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Refer to a cgroup, whether or not it exists.
    pub(crate) fn at(path: &str) -> Self {
        Self { path: Path::new(ROOT).join(path) }
    }

    /// Make a cgroup, with the controllers enabled all the way down to it.
    pub(crate) fn create(path: &str) -> Result<Self> {
        let cgroup = Self::at(path);
        let mut at = PathBuf::from(ROOT);
        for part in Path::new(path) {
            enable_controllers(&at)?;
            at.push(part);
            if !at.exists() {
                fs::create_dir(&at).with_context(|| format!("cannot create {}", at.display()))?;
            }
        }
        Ok(cgroup)
    }

    /// The tree that every guest starts with.
    pub(crate) fn node_tree() -> Result<()> {
        // Process 1 must leave the root before controllers may be enabled for workloads: the root itself is exempt.
        for path in NODE {
            Self::create(path)?;
        }
        Ok(())
    }

    /// Kill and remove everything that tests may have made.
    pub(crate) fn clear_workloads() -> Result<()> {
        WORKLOADS.iter().try_for_each(|top| Self::at(top).clear())
    }

    /// Kill everything inside and remove all cgroups below, but not this one.
    pub(crate) fn clear(&self) -> Result<()> {
        self.kill()?;
        self.children()?.iter().try_for_each(Self::remove)
    }

    /// One directly below.
    pub(crate) fn child(&self, name: &str) -> Self {
        Self { path: self.path.join(name) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path below the cgroup root, as ebb and the kernel name it.
    pub(crate) fn name(&self) -> String {
        let below = self.path.strip_prefix(ROOT).unwrap_or(&self.path);
        format!("/{}", below.display())
    }

    /// The kernel's own id: the directory's inode.
    pub(crate) fn id(&self) -> Result<u64> {
        let meta = fs::metadata(&self.path);
        Ok(meta.with_context(|| format!("cannot look at {}", self.path.display()))?.ino())
    }

    pub(crate) fn adopt(&self, pid: Pid) -> Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    pub(crate) fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {text} to {}", path.display()))
    }

    pub(crate) fn read(&self, file: &str) -> Result<String> {
        let path = self.path.join(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    pub(crate) fn has(&self, file: &str) -> bool {
        self.path.join(file).exists()
    }

    /// A `KEY VALUE` line of a flat file such as memory.events.
    pub(crate) fn counter(&self, file: &str, key: &str) -> Result<u64> {
        let text = self.read(file)?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
        value.with_context(|| format!("{} has no {key} in {file}", self.path.display()))
    }

    /// Processes of this cgroup and of all below it, without those that end while they are listed: the kernel writes 0 for these,
    /// and a signal to process 0 goes to the sender's own process group, the runner's.
    pub(crate) fn processes(&self) -> Result<Vec<Pid>> {
        let mut all = Vec::new();
        // It may vanish between two looks; then it has no processes.
        let own = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        let ids = own.lines().filter_map(|line| line.parse().ok()).filter(|id| *id > 0);
        all.extend(ids.map(Pid::from_raw));
        for child in self.children()? {
            all.extend(child.processes()?);
        }
        Ok(all)
    }

    /// Kill everything inside by hand, whatever the kernel offers, and wait until it is gone.
    pub(crate) fn kill(&self) -> Result<()> {
        wait::until(EMPTYING, &format!("{} is empty", self.path.display()), || {
            let left = self.processes().unwrap_or_default();
            for &pid in &left {
                // Gone already is what we want.
                let _ = kill(pid, Signal::SIGKILL);
            }
            left.is_empty()
        })
    }

    /// Kill everything inside and remove the cgroup with all below it.
    pub(crate) fn remove(&self) -> Result<()> {
        self.kill()?;
        for child in self.children()? {
            child.remove()?;
        }
        // A dying process leaves the cgroup a moment after it left cgroup.procs.
        wait::until(EMPTYING, &format!("{} can be removed", self.path.display()), || {
            !self.path.exists() || fs::remove_dir(&self.path).is_ok()
        })
    }

    fn children(&self) -> Result<Vec<Self>> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Ok(Vec::new()) };
        let dirs =
            entries.filter_map(Result::ok).filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
        Ok(dirs.map(|entry| Self { path: entry.path() }).collect())
    }
}

/// Join a cgroup and become another program; returns only when that fails.
pub(crate) fn exec_in(cgroup: &str, program: &str, args: &[&str]) -> anyhow::Error {
    if let Err(error) = fs::write(format!("{cgroup}/cgroup.procs"), "0") {
        return anyhow::Error::new(error).context(format!("cannot join {cgroup}"));
    }
    let error = std::process::Command::new(program).args(args).exec();
    anyhow::Error::new(error).context(format!("cannot start {program}"))
}

fn enable_controllers(dir: &Path) -> Result<()> {
    let has = fs::read_to_string(dir.join("cgroup.controllers"));
    let has = has.with_context(|| format!("cannot read controllers of {}", dir.display()))?;
    let file = dir.join("cgroup.subtree_control");
    for controller in ["memory", "pids", "io", "cpu", "cpuset", "hugetlb"] {
        if has.split_whitespace().any(|name| name == controller) {
            fs::write(&file, format!("+{controller}"))
                .with_context(|| format!("cannot enable {controller} in {}", dir.display()))?;
        }
    }
    Ok(())
}
