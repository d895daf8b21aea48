//! The stage of most agent tests: innocents beside whoever misbehaves, and the verdict over all of them at the end.
use crate::actors::Actor;
use crate::cgroup::Cgroup;
use crate::node;
use anyhow::{Result, ensure};

/// A workload in a cgroup of its own.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) actor: Actor,
    pub(crate) cgroup: Cgroup,
}

impl Workload {
    /// Start an actor in the cgroup at `path`.
    pub(crate) fn start(path: &str, words: &[&str]) -> Result<Self> {
        let cgroup = Cgroup::create(path)?;
        Ok(Self { actor: Actor::start(&cgroup, words)?, cgroup })
    }
}

/// Workloads that nobody may touch, and the kernel's own kills before the test began.
#[derive(Debug)]
pub(crate) struct Scene {
    innocents: Vec<Workload>,
    oom_kills: u64,
}

impl Scene {
    /// `count` idle workloads of `mib` MiB each.
    pub(crate) fn with_innocents(count: usize, mib: u64) -> Result<Self> {
        let start = |n| {
            let path = format!("work.slice/innocent-{n}.service");
            Workload::start(&path, &["idle", &mib.to_string()])
        };
        let innocents = (0..count).map(start).collect::<Result<_>>()?;
        Ok(Self { innocents, oom_kills: node::vmstat("oom_kill ")? })
    }

    /// Every innocent lives.
    pub(crate) fn assert_innocents_live(&mut self) -> Result<()> {
        for workload in &mut self.innocents {
            ensure!(workload.actor.is_alive()?, "{} died", workload.cgroup.name());
        }
        Ok(())
    }

    /// Every innocent lives, and the kernel's OOM killer has not been needed.
    pub(crate) fn assert_peace(&mut self) -> Result<()> {
        self.assert_innocents_live()?;
        let kills = node::vmstat("oom_kill ")? - self.oom_kills;
        ensure!(kills == 0, "the kernel's OOM killer acted {kills} times");
        Ok(())
    }
}
