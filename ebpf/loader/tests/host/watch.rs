//! Attached programs and what they have told, and cgroups to tell about.
use ebb_probes::{Fact, KernelEvent, Options, ProbeSet, Probes, survey};
use libtest_mimic::Failed;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Attached programs with a runtime of their own.
pub(crate) struct Watch {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) probes: Probes,
    pub(crate) events: Vec<KernelEvent>,
}

impl Watch {
    pub(crate) fn start(options: &Options) -> Result<Self, Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let set = ProbeSet::for_host(&survey(), options);
        let probes = runtime.block_on(async { Probes::attach(&set, options) })?;
        Ok(Self { runtime, probes, events: Vec::new() })
    }

    /// Read events until `done` or a deadline; the events stay in `self.events`.
    pub(crate) fn until(&mut self, done: impl Fn(&[KernelEvent]) -> bool) -> Result<bool, Failed> {
        let deadline = tokio::time::Instant::from_std(Instant::now() + Duration::from_secs(20));
        let Self { runtime, probes, events } = self;
        runtime.block_on(async {
            while !done(events) {
                match tokio::time::timeout_at(deadline, probes.next(events)).await {
                    Ok(result) => result?,
                    Err(_) => return Ok(false),
                }
            }
            Ok(true)
        })
    }

    /// Read what is there already.
    pub(crate) fn drain(&mut self) -> Result<(), Failed> {
        let Self { runtime, probes, events } = self;
        runtime.block_on(async {
            // Polled once before its time is over.
            while let Ok(result) = tokio::time::timeout(Duration::ZERO, probes.next(events)).await {
                result?;
            }
            Ok(())
        })
    }

    /// Read all that was told before now: up to the end of a process that begins now.
    pub(crate) fn settle(&mut self) -> Result<(), Failed> {
        self.drain()?;
        let mut child = Command::new("true").spawn()?;
        let marker = HashSet::from([child.id()]);
        child.wait()?;
        match self.until(|events| !ends(events, &marker).is_empty())? {
            true => Ok(()),
            false => Err("the end of the last process did not arrive".into()),
        }
    }

    pub(crate) fn needs(&self, fact: Fact) -> Result<(), Failed> {
        let states = || self.probes.status().iter().filter(|probe| probe.feeds == fact);
        if self.probes.tells(fact) {
            return Ok(());
        }
        let states: Vec<_> = states().map(|probe| (probe.name, &probe.state)).collect();
        Err(format!("nothing tells {fact:?} here: {states:?}").into())
    }
}

/// How often each process of `pids` was reported to have ended.
pub(crate) fn ends(events: &[KernelEvent], pids: &HashSet<u32>) -> HashMap<u32, usize> {
    let mut ends = HashMap::new();
    for event in events {
        if let KernelEvent::Exit { pid, .. } = event
            && pids.contains(pid)
        {
            *ends.entry(*pid).or_default() += 1;
        }
    }
    ends
}

/// Where a file system of this type is mounted.
pub(crate) fn mount(kind: &str) -> Result<PathBuf, Failed> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (dir, its_kind) = (fields.next()?, fields.next()?);
        (its_kind == kind).then(|| PathBuf::from(dir))
    });
    mount.ok_or_else(|| format!("no {kind} is mounted").into())
}

/// A cgroup of a test's own, removed at its end.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn make(parent: &Path, name: &str) -> Result<Self, Failed> {
        let dir = parent.join(format!("ebb-test-{name}-{}", std::process::id()));
        fs::create_dir(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A process that has been waited for can still be on its way out of the cgroup.
        let deadline = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.0).is_err() && Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
}
