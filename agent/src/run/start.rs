//! Putting the agent together: its threads, what they tell the loop by, and what the loop knows at the start.

use super::kernel::KernelFeed;
use super::look::NodeWatch;
use super::memory_pressure::Pressures;
use super::precedence::Precedence;
use super::reload::Reload;
use super::runtime::RuntimeWatch;
use super::setup::Setup;
use super::wake::{Inboxes, Wakers};
use super::watches::Watches;
use super::{
    Agent, AtStart, ClusterWatch, Decisions, Dispatcher, Reconciling, Told, disk, hooks, reload,
    session, status,
};
use crate::act::{self, Actor, Crew, Jobs, Mode, Standby};
use crate::clock::{Clock, StandstillMeter};
use crate::cluster::Cluster;
use crate::sense::node::NodeSensor;
use crate::state::NodeState;
use anyhow::{Context as _, Result};
use std::io;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Results of jobs that may wait for the loop.
const WAITING_RESULTS: usize = 256;

/// Threads that wait to take over from one that hangs while it kills.
const SPARES: usize = 2;

/// News of the runtime, or of the API server, that may wait for the loop.
const WAITING_NEWS: usize = 64;

/// The threads that read for the loop.
struct Readers {
    disk: disk::DiskWatch,
    config: reload::ConfigWatch,
    session: Option<session::Session>,
    cluster: Option<Cluster>,
    hooks: hooks::Hooks,
}

/// Runs until told to stop.
///
/// # Errors
/// What makes it impossible to begin: the node cannot be read, or no thread can be made. Once begun, it ends only when told to; then, that something was not done in time.
pub async fn run(mut setup: Setup) -> Result<()> {
    let (results, inbox) = mpsc::channel(WAITING_RESULTS);
    let actor = |mode| {
        Actor::new(&setup.roots, setup.policy.measure, mode)
            .map(|actor| match mode {
                Mode::Enforce => actor.with_state(&setup.steps_dir),
                Mode::DryRun => actor,
            })
            .context("cannot read the node's memory")
    };
    let standby = Arc::new(Standby::default());
    if let Some(metrics) = setup.reporter.metrics() {
        metrics.follow(standby.clone());
    }
    let mut spares = Vec::new();
    for _ in 0..SPARES {
        spares.push(actor(setup.mode)?);
    }
    let crew = Crew { quick: actor(setup.mode)?, spares, slow: actor(setup.mode)? };
    let jobs = act::start(crew, Arc::clone(&standby), results)
        .context("cannot start the threads that act")?;
    let janitor = actor(setup.mode)?;
    let mut understudy = actor(Mode::DryRun)?;
    let (readings, disk_inbox) = mpsc::channel(1);
    let dirs = setup.runtime.as_ref().map(|runtime| runtime.dirs.clone());
    let disk =
        disk::DiskWatch::start(readings, dirs).context("cannot start the reader of filesystems")?;
    let (news, news_inbox) = mpsc::channel(WAITING_NEWS);
    let session = match setup.runtime.take() {
        Some(runtime) => {
            let session = session::start(runtime, Clock::of_process(), news);
            Some(session.context("cannot start the thread for the container runtime")?)
        }
        None => None,
    };
    let (told, cluster_inbox) = mpsc::channel(WAITING_NEWS);
    let cluster = match setup.cluster.take() {
        Some(connect) => {
            let cluster = connect(Clock::of_process(), told);
            Some(cluster.context("the API server")?)
        }
        None => None,
    };
    let (reloaded, config_inbox) = mpsc::channel(1);
    let reload = std::mem::replace(&mut setup.reload, Reload::never());
    let config = reload::ConfigWatch::start(reload, reloaded)
        .context("cannot start the reader of the configuration")?;
    let (ends, hook_inbox) = mpsc::channel(1);
    // A dry run asks nobody.
    let is_wanted = setup.policy.before_eviction.is_some() && setup.mode == Mode::Enforce;
    let hooks = hooks::Hooks::new(ends, is_wanted)
        .context("cannot start the thread for the hook before evictions")?;
    let asked = setup.questions.take();
    let may_ask = asked.is_some();
    let inboxes = Inboxes {
        acted: inbox,
        disk: disk_inbox,
        news: news_inbox,
        cluster: cluster_inbox,
        config: config_inbox,
        hook: hook_inbox,
        // Without anybody who may ask, one that is closed.
        asked: asked.map_or_else(|| mpsc::channel(1).1, |inbox| inbox.0),
    };
    let trigger = std::mem::replace(&mut setup.trigger, Err(io::ErrorKind::Unsupported.into()));
    let in_force = std::mem::take(&mut setup.in_force);
    let mode = setup.mode;
    let memory = setup.state_dir.take();
    let mut agent =
        Agent::new(setup, jobs, standby, Readers { disk, config, session, cluster, hooks })?;
    agent.kept = may_ask.then(status::Kept::default);
    let bell = agent.pressures.bell();
    let wakers = Wakers::new(inboxes, trigger, bell, in_force, mode)?;
    if let Some(dir) = memory {
        agent.remember_in(&dir);
    }
    agent.at_start.unavailable.extend(wakers.missing().iter().cloned());
    agent.begin(&wakers, &mut understudy);
    drop(understudy);
    agent.release_all(&janitor, "an earlier run left it throttled or frozen: released");
    agent.until_told_to_stop(wakers).await;
    agent.release_all(&janitor, "released: no longer throttled or frozen");
    agent.remember_last().context("stopped")
}

impl Agent {
    fn new(setup: Setup, jobs: Jobs, standby: Arc<Standby>, readers: Readers) -> Result<Self> {
        let Setup {
            roots,
            layout,
            node_fs,
            runtime: _,
            cluster: _,
            state_dir: _,
            steps_dir: _,
            mode,
            policy,
            reload: _,
            probes,
            fall,
            trigger: _,
            in_force: _,
            sweeper,
            arming,
            missing,
            reporter,
            queue,
            service,
            reconciler,
            start_reconciler,
            questions: _,
        } = setup;
        let sensor = NodeSensor::open(&roots)
            .with_context(|| format!("cannot read {}", roots.proc.join("meminfo").display()))?;
        let rules = policy.rules.clone();
        let pressures = Pressures::new(&roots, policy.limits.memory_pressure());
        let mut state = NodeState::new(roots.clone(), layout, policy.measure, rules);
        state.sweep_with(sweeper);
        state.pods_mut().set_pods_only(policy.pods_only);
        if readers.session.is_some() {
            state.pods_mut().expect_runtime();
        }
        state.pods_mut().await_descriptions(readers.cluster.is_some());
        if let Some(path) = node_fs {
            state.disk_mut().watch(path);
        }
        Ok(Self {
            state,
            standstills: StandstillMeter::begin(),
            node: NodeWatch::new(sensor),
            policy,
            config: readers.config,
            decisions: Decisions::default(),
            watches: Watches::new(),
            disk: readers.disk,
            runtime: readers.session.map(RuntimeWatch::new),
            cluster: readers.cluster.map(ClusterWatch::new),
            memory: None,
            mode,
            dispatcher: Dispatcher::new(jobs),
            precedence: Precedence::new(mode, Arc::clone(&standby)),
            standby,
            arming,
            reporter,
            queue,
            at_start: AtStart { unavailable: missing, ..AtStart::default() },
            told: Told::default(),
            service,
            reconciling: Reconciling { running: reconciler, start: start_reconciler },
            kernel: KernelFeed::new(probes, fall),
            roots,
            pressures,
            hooks: readers.hooks,
            kept: None,
        })
    }
}
