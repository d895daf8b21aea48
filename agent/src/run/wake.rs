//! Everything that can wake the loop. Whoever has something to say is heard in a random turn, so that nobody who always has keeps the others from theirs.

use super::alarm::Alarm;
use super::fall::fallen;
use super::kernel::KernelFeed;
use super::reload::Reloaded;
use super::session::News;
use super::status::Asked;
use crate::act::{Acted, Mode};
use crate::cluster::ClusterNews;
use crate::hook;
use crate::sense::Roots;
use crate::sense::cgroup::id_at;
use crate::sense::disk::DiskReading;
use crate::sense::psi::Trigger;
use crate::testing;
use anyhow::{Context as _, Result};
use ebb_probes::{Fact, KernelEvent, ProbeState, Probes, RingError};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::sync::mpsc::Receiver;

/// The inode of the root of the cgroup hierarchy itself: another number means that only a part of it is mounted here.
const ROOT_CGROUP: u64 = 1;

/// Why the loop woke: everything that can.
pub(super) enum Event {
    /// A workload was acted on, or not.
    Acted(Acted),
    /// The kernel told something; it is in the batch.
    Kernel,
    /// Memory has fallen since the last look.
    Fall,
    /// The kernel will tell nothing more.
    KernelLost(RingError),
    /// The filesystems were read.
    Disk(DiskReading),
    /// The container runtime, or what was asked of it.
    Runtime(Box<News>),
    /// The API server, or what it was told.
    Cluster(Box<ClusterNews>),
    /// A call of the hook before an eviction has ended.
    Hook(hook::Ended),
    /// Tasks stall for memory.
    Pressure,
    /// Tasks of a cgroup that is watched for it stall for memory.
    CgroupPressure,
    /// Time is up.
    Tick,
    /// The operator asks for the configuration to be read again.
    Reload,
    /// The configuration was looked at.
    Reloaded(Box<Reloaded>),
    /// Somebody asks how the node stands.
    Asked(Asked),
    /// The operator asks for the end.
    Shutdown(&'static str),
}

impl Event {
    /// What there is to do about it, for people.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Acted(_) => "taking in what was done",
            Self::Kernel | Self::KernelLost(_) => "taking in kernel events",
            Self::Disk(_) => "a decision about disk",
            Self::Runtime(_) => "taking in news of the container runtime",
            Self::Cluster(_) => "taking in news of the API server",
            Self::Hook(_) => "taking in the end of a hook",
            Self::Fall | Self::Pressure | Self::CgroupPressure | Self::Tick => "a look at the node",
            Self::Reload | Self::Reloaded(_) => "a new configuration",
            Self::Asked(_) => "saying how the node stands",
            Self::Shutdown(_) => "the end",
        }
    }
}

/// Where the threads that work for the loop leave what they have to say.
pub(super) struct Inboxes {
    pub(super) acted: Receiver<Acted>,
    pub(super) disk: Receiver<DiskReading>,
    pub(super) news: Receiver<News>,
    pub(super) cluster: Receiver<ClusterNews>,
    pub(super) config: Receiver<Reloaded>,
    pub(super) hook: Receiver<hook::Ended>,
    pub(super) asked: Receiver<Asked>,
}

/// All sources of events.
pub(super) struct Wakers {
    inboxes: Inboxes,
    trigger: Option<AsyncFd<Trigger>>,
    /// Rung by the triggers on cgroups.
    bell: Arc<Notify>,
    alarm: Alarm,
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    mode: Mode,
    missing: Vec<String>,
    /// A test has the kernel tell nothing more from the first wait on.
    is_to_be_lost: bool,
    in_force: String,
}

impl Wakers {
    /// Registers for everything there is.
    ///
    /// # Errors
    /// When signals cannot be received, for then the agent could not be stopped in order, or when there is no timer.
    pub(super) fn new(
        inboxes: Inboxes,
        trigger: io::Result<Trigger>,
        bell: Arc<Notify>,
        in_force: String,
        mode: Mode,
    ) -> Result<Self> {
        let mut missing = Vec::new();
        let trigger = match trigger {
            // SAFETY: a trigger owns its descriptor, keeps it open for as long as it lives, and never exchanges it.
            Ok(trigger) => unsafe {
                AsyncFd::register_with_interest(trigger, Interest::PRIORITY).ok()
            },
            Err(error) => {
                missing.push(format!("memory pressure trigger: {error}"));
                None
            }
        };
        crate::stop::limit().context("cannot receive signals")?;
        let on = |kind| signal(kind).context("cannot receive signals");
        Ok(Self {
            inboxes,
            trigger,
            bell,
            alarm: Alarm::new().context("cannot have a timer")?,
            hangup: on(SignalKind::hangup())?,
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            mode,
            missing,
            is_to_be_lost: is_to_be_lost(),
            in_force,
        })
    }

    /// Waits for the next event, at most `wait`. What the kernel told by its programs is with `kernel` then.
    pub(super) async fn wait(&mut self, wait: Duration, kernel: &mut KernelFeed) -> Event {
        let KernelFeed { probes, fall, told: batch, .. } = kernel;
        if std::mem::take(&mut self.is_to_be_lost) {
            let source = io::Error::other("EBB_TEST_KERNEL_LOST asks for it");
            return Event::KernelLost(RingError::Wait { name: "events", source });
        }
        let Self { inboxes, trigger, bell, alarm, hangup, terminate, interrupt, .. } = self;
        let Inboxes { acted, disk, news, cluster, config, hook, asked } = inboxes;
        let event = tokio::select! {
            _ = terminate.recv() => Event::Shutdown("SIGTERM"),
            _ = interrupt.recv() => Event::Shutdown("SIGINT"),
            Some(acted) = acted.recv() => Event::Acted(acted),
            told = told(probes, batch) => match told {
                Ok(()) => Event::Kernel,
                Err(error) => Event::KernelLost(error),
            },
            () = fallen(fall) => Event::Fall,
            () = stalled(trigger) => Event::Pressure,
            () = bell.notified() => Event::CgroupPressure,
            Some(reading) = disk.recv() => Event::Disk(reading),
            Some(news) = news.recv() => Event::Runtime(Box::new(news)),
            Some(news) = cluster.recv() => Event::Cluster(Box::new(news)),
            _ = hangup.recv() => Event::Reload,
            Some(reloaded) = config.recv() => Event::Reloaded(Box::new(reloaded)),
            Some(ended) = hook.recv() => Event::Hook(ended),
            Some(question) = asked.recv() => Event::Asked(question),
            () = alarm.after(wait) => Event::Tick,
        };
        if matches!(event, Event::KernelLost(_)) {
            *probes = None;
        }
        event
    }

    /// The next result of a job, waited for at most `wait`.
    pub(super) async fn acted(&mut self, wait: Duration) -> Option<Acted> {
        tokio::time::timeout(wait, self.inboxes.acted.recv()).await.ok().flatten()
    }

    /// Whether the agent acts.
    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// What could not be registered for, and why.
    pub(super) fn missing(&self) -> &[String] {
        &self.missing
    }

    /// What tells of what, for people.
    pub(super) fn live(&self, kernel: &KernelFeed) -> Vec<String> {
        let mut live = Vec::new();
        if let Some(probes) = &kernel.probes {
            let attached = probes.status().iter().filter(|p| p.state == ProbeState::Attached);
            let facts: BTreeSet<Fact> = attached.map(|p| p.feeds).collect();
            let names: Vec<String> = facts.iter().map(|fact| fact_name(*fact)).collect();
            if !names.is_empty() {
                live.push(format!("BPF: {}", names.join(", ")));
            }
        }
        if let Some(trigger) = &self.trigger {
            let trigger = trigger.get_ref();
            live.push(format!(
                "memory pressure trigger: {} ms of stall within {} ms",
                trigger.stall_us / 1000,
                trigger.window_us / 1000
            ));
        }
        if kernel.fall.is_some() {
            live.push("a timer of the kernel: falls of available memory between two looks".into());
        }
        live.push(
            "files: meminfo, loadavg, pressure, cgroups, read as often as the headroom asks".into(),
        );
        live.push(self.in_force.clone());
        live
    }

    /// Whether kernel events tell of every change to the cgroup tree that is mounted at the root.
    pub(super) fn tells_tree(&self, probes: Option<&Probes>, roots: &Roots) -> bool {
        if self.is_to_be_lost {
            return true;
        }
        let Some(probes) = probes else { return false };
        let facts = [
            Fact::CgroupsCreated,
            Fact::CgroupsRemoved,
            Fact::CgroupsRenamed,
            Fact::CgroupsPopulated,
        ];
        // Paths in events start at the hierarchy's own root; below another root they would name nothing.
        let is_whole = id_at(&roots.cgroup) == Some(ROOT_CGROUP);
        is_whole && facts.into_iter().all(|fact| probes.tells(fact))
    }
}

/// A fact by the name under which `ebb check` lists it.
#[must_use]
pub fn fact_name(fact: Fact) -> String {
    let name = serde_json::to_value(fact).ok();
    name.and_then(|n| n.as_str().map(|n| n.replace('_', " "))).unwrap_or_default()
}

/// A test wants an agent that relies on kernel events for the tree and loses them, without any privilege.
fn is_to_be_lost() -> bool {
    testing::asks("EBB_TEST_KERNEL_LOST").is_some()
}

async fn told(probes: &mut Option<Probes>, batch: &mut Vec<KernelEvent>) -> Result<(), RingError> {
    match probes {
        Some(probes) => probes.next(batch).await,
        None => std::future::pending().await,
    }
}

async fn stalled(trigger: &Option<AsyncFd<Trigger>>) {
    let Some(trigger) = trigger else { return std::future::pending().await };
    match trigger.ready(Interest::PRIORITY).await {
        // The kernel clears the condition when it is polled; only the runtime's memory of it is left.
        Ok(mut ready) => ready.clear_ready(),
        Err(_) => std::future::pending().await,
    }
}
