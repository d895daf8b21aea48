//! The loop: the only place that waits, and the only owner of the state.
//!
//! ```text
//!            ┌──────────────────────────── wait ◄───────────────────────────────┐
//!            ▼                                                                   │
//!  Kernel · Pressure · Disk · Runtime · Tick · Acted · Reload(ed) · Asked …      │
//!            │                                                                   │
//!            ▼                                                                   │
//!  look ─► (near or below a threshold) sample ─► decide ─► jobs ─► act (thread) ─┘
//! ```
//! A look reads the node alone and costs microseconds; workloads are read only when a threshold is near, and again just before a decision.

mod alarm;
mod baseline;
mod cluster;
mod disk;
mod episode;
mod episodes;
mod fall;
mod held_decision;
mod hooks;
mod image_resync;
mod jobs;
mod kernel;
mod lag;
mod look;
mod memory_pressure;
mod pass;
mod persist;
mod precedence;
mod reflex;
mod reload;
mod runtime;
pub mod session;
mod setup;
mod status;
mod wake;
mod warm_up;
mod watch;
mod watches;

use crate::act::{self, Actor, Crew, Jobs, Mode, Standby};
use crate::cadence::SHORTEST;
use crate::cgroups::reconciler::Reconciler;
use crate::clock::{Boot, Clock};
use crate::cluster as api_server;
use crate::config::{CgroupMode, Cgroups};
use crate::report::Reporter;
use crate::report::service::ServiceManager;
use crate::sense::Roots;
use crate::sense::node::NodeSensor;
use crate::state::NodeState;
use crate::store::Memory;
use anyhow::{Context as _, Result};
use cluster::ClusterWatch;
use ebb_journal::queue::{Dropped, Queue};
use ebb_journal::{InForce, Part, Record, Worded};
use ebb_policy::History;
use ebb_policy::snapshot::WorkloadKey;
pub use fall::open as open_fall_watch;
use jobs::Dispatcher;
use kernel::KernelFeed;
use lag::{LagMonitor, Turn};
use look::NodeWatch;
use memory_pressure::Pressures;
use precedence::Precedence;
pub use reflex::{Arming, open as open_reflex};
pub use reload::{ReadAnew, Reload};
use runtime::RuntimeWatch;
pub use session::SessionSetup;
pub use setup::{Policy, Setup, StartReconciler};
pub use status::{
    LatestDecision, NodeInbox, NodeQuestions, NodeStatus, ThresholdNow, WorkloadsStatus,
    node_questions,
};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
pub use wake::fact_name;
use wake::{Event, Inboxes, Wakers};
use watches::Watches;

/// Results of jobs that may wait for the loop.
const WAITING_RESULTS: usize = 256;

/// Threads that wait to take over from one that hangs while it kills.
const SPARES: usize = 2;

/// News of the runtime that may wait for the loop.
const WAITING_NEWS: usize = 64;

/// Workloads are read again this often even when nothing is near, so that the watchdog has a ranking and a missed event is made good.
const BACKSTOP: Duration = Duration::from_secs(60);

/// How long the end waits for jobs that are under way: taking back the memory of a large process takes its time.
const LAST_RESULTS: Duration = Duration::from_secs(3);

/// How long the end waits for the reconciler of cgroups, so that what it did last is told before it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How often a cgroup that runs into its own limit may cause the workloads to be read.
const LOCAL_EVERY: Duration = Duration::from_secs(5);

/// The threads that read for the loop.
struct Readers {
    disk: disk::DiskWatch,
    config: reload::ConfigWatch,
    session: Option<session::Session>,
    cluster: Option<api_server::Cluster>,
    hooks: hooks::Hooks,
}

/// The agent at work.
struct Agent {
    state: NodeState,
    node: NodeWatch,
    policy: Policy,
    config: reload::ConfigWatch,
    history: History,
    watches: Watches,
    disk: disk::DiskWatch,
    runtime: Option<RuntimeWatch>,
    cluster: Option<ClusterWatch>,
    memory: Option<Memory>,
    mode: Mode,
    /// When everything was last decided on, disk and the runtime too.
    whole_pass: Option<Boot>,
    dispatcher: Dispatcher,
    /// How many workloads were not held open when that was told last.
    not_held_told: usize,
    standby: Arc<Standby>,
    precedence: Precedence,
    arming: Option<Arming>,
    reporter: Reporter,
    queue: Queue,
    /// Records that were dropped, as far as that was told.
    dropped: Dropped,
    service: ServiceManager,
    reconciler: Option<Reconciler>,
    start_reconciler: StartReconciler,
    kernel: KernelFeed,
    roots: Roots,
    holding: Option<Vec<String>>,
    local: Vec<WorkloadKey>,
    missing: Vec<String>,
    thresholds: Vec<Worded<InForce>>,
    ahead: Option<held_decision::HeldDecision>,
    pressures: Pressures,
    hooks: hooks::Hooks,
    /// What is kept for whoever asks how the node stands; `None` when nobody may.
    kept: Option<status::Kept>,
}

/// Runs until told to stop.
///
/// # Errors
/// What makes it impossible to begin: the node cannot be read, or no thread can be made. Once begun, it ends only when told to.
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
    agent.missing.extend(wakers.missing().iter().cloned());
    agent.begin(&wakers, &mut understudy);
    drop(understudy);
    agent.release_all(&janitor, "an earlier run left it throttled or frozen: released");
    agent.until_told_to_stop(wakers).await;
    agent.release_all(&janitor, "released: no longer throttled or frozen");
    agent.remember_last();
    Ok(())
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
            node: NodeWatch::new(sensor),
            policy,
            config: readers.config,
            history: History::default(),
            watches: Watches::new(),
            disk: readers.disk,
            runtime: readers.session.map(RuntimeWatch::new),
            cluster: readers.cluster.map(ClusterWatch::new),
            memory: None,
            mode,
            whole_pass: None,
            dispatcher: Dispatcher::new(jobs),
            not_held_told: 0,
            precedence: Precedence::new(mode, Arc::clone(&standby)),
            standby,
            arming,
            reporter,
            queue,
            dropped: Dropped::default(),
            service,
            reconciler,
            start_reconciler,
            kernel: KernelFeed::new(probes, fall),
            roots,
            holding: None,
            local: Vec::new(),
            missing,
            thresholds: Vec::new(),
            ahead: None,
            pressures,
            hooks: readers.hooks,
            kept: None,
        })
    }

    fn begin(&mut self, wakers: &Wakers, understudy: &mut Actor) {
        self.state
            .tree_events_are_live(wakers.tells_tree(self.kernel.probes.as_ref(), &self.roots));
        self.look(true);
        let failed = self.warm_up(understudy);
        self.missing.extend(failed);
        self.missing.extend(self.why_nobody_is_ended());
        self.missing.extend(self.pressures.tell_of_missing());
        self.reporter.tell(Record::Started {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: wakers.mode(),
            sources: wakers.live(&self.kernel).into_iter().chain(self.state.swept()).collect(),
            unavailable: std::mem::take(&mut self.missing),
            thresholds: std::mem::take(&mut self.thresholds),
            workloads: self.state.workload_count(),
        });
        if let Some(guard_band) = &self.policy.guard_band {
            self.reporter.tell(Record::KubeletThresholds(guard_band.clone()));
        }
        let mode = match self.mode {
            Mode::Enforce => "enforcing",
            Mode::DryRun => "dry run",
        };
        self.service.ready(format!("{mode}, {} workloads at start", self.state.workload_count()));
    }

    async fn until_told_to_stop(&mut self, mut wakers: Wakers) {
        let mut pace = LagMonitor::default();
        loop {
            self.ask_for_disk();
            let wait = self.wait();
            self.standby.beat(wait);
            self.service.alive(Boot::now());
            let due = Instant::now() + wait;
            let event = wakers.wait(wait, &mut self.kernel).await;
            self.standby.awake();
            let (began, what) = (Instant::now(), event.what());
            match event {
                Event::Kernel => self.on_kernel(),
                Event::Fall => self.on_fall(),
                Event::KernelLost(error) => {
                    self.state.tree_events_are_live(false);
                    let what = format!(
                        "kernel events are lost for good ({error}); files are read instead"
                    );
                    self.reporter.tell_degraded(Part::KernelEvents, what);
                }
                Event::Disk(reading) => self.on_disk(reading),
                Event::Runtime(news) => self.on_runtime(*news),
                Event::Cluster(news) => self.on_cluster(*news),
                Event::CgroupPressure => {
                    self.pressures.hear(Boot::now());
                    self.look(false);
                }
                Event::Pressure => {
                    self.count();
                    self.look(false);
                }
                Event::Tick => {
                    self.on_tick();
                    self.count();
                    self.look(false);
                }
                Event::Acted(acted) => {
                    self.on_acted(&acted);
                    self.look(false);
                }
                Event::Hook(ended) => {
                    self.on_hook(ended);
                    self.look(true);
                }
                Event::Reload => self.ask_for_configuration(),
                Event::Reloaded(reloaded) => self.on_reloaded(*reloaded),
                Event::Asked(question) => self.on_asked(question),
                Event::Shutdown(why) => {
                    self.service.stopping();
                    self.hear_what_was_done(&mut wakers).await;
                    self.reconciler.iter().for_each(|reconciler| reconciler.end(LAST_WORDS));
                    self.store_open_episodes(why);
                    self.leave_cluster().await;
                    self.tell_of_dropped_records();
                    self.reporter.tell(Record::Stopping { why: why.to_owned() });
                    return;
                }
            }
            if self.look_due() <= Boot::now() {
                // What is told all the time must not keep the timer from its turn.
                self.count();
                self.look(false);
            }
            // Memory is back before who was killed has ended, and somebody waits to hear of that end: the API server.
            let is_dying = self.state.terminations().are_dying();
            let is_urgent = !self.dispatcher.is_idle() || is_dying || self.is_short_or_soon();
            self.precedence.settle(Boot::now(), is_urgent);
            let turn = Turn { due, began, ended: Instant::now(), what };
            if let Some(what) = pace.observe(turn) {
                self.reporter.tell_degraded(Part::Loop, what);
            }
        }
    }

    /// Waits a moment for jobs that are under way: what was done must be on record, even when it is the last thing.
    async fn hear_what_was_done(&mut self, wakers: &mut Wakers) {
        let deadline = Boot::now().plus(LAST_RESULTS);
        while !self.dispatcher.is_idle() {
            let Some(acted) = wakers.acted(deadline.since(Boot::now())).await else { return };
            self.on_acted(&acted);
        }
    }

    /// Undoes every throttle and freeze that a cgroup carries the mark of: none outlives the agent.
    fn release_all(&mut self, actor: &Actor, what: &str) {
        let cgroups: Vec<_> =
            self.state.cgroups().map(|(id, path)| (id, path.to_owned())).collect();
        for (id, path) in cgroups {
            let what = match actor.release_left_over(id, &path) {
                Ok(false) => continue,
                Ok(true) => format!("{}: {what}", path.display()),
                Err(error) => {
                    format!("{}: cannot undo a throttle or freeze: {error}", path.display())
                }
            };
            self.reporter.tell_degraded(Part::Steps, what);
        }
    }

    /// How long nothing can happen that would not wake the loop by itself.
    fn wait(&self) -> Duration {
        let now = Boot::now();
        let collector = self.runtime.as_ref().and_then(RuntimeWatch::due);
        let alive = self.service.due();
        let others = [
            self.disk.due(),
            self.node.decide_at,
            self.first_list_due(),
            self.state.next_termination_change(),
            collector,
            alive,
            self.hooks.due(),
        ];
        let others =
            others.into_iter().chain([self.pressures.due().filter(|_| !self.is_short_or_soon())]);
        let next = others.flatten().fold(self.look_due(), Boot::min);
        let wait = next.since(now);
        wait.min(self.renew_within().unwrap_or(wait)).max(SHORTEST)
    }

    /// When the node is to be looked at again.
    fn look_due(&self) -> Boot {
        let is_freeing = self.state.awaits_terminations();
        self.node.due(&self.watches, &self.policy.limits, is_freeing)
    }

    /// Tells how many records were dropped because their reader did not keep up, as soon as one can be written again.
    fn tell_of_dropped_records(&mut self) {
        let reporter = &mut self.reporter;
        self.dropped.tell(&self.queue, |records| reporter.tell(Record::Dropped { records }));
    }

    fn on_tick(&mut self) {
        self.tell_of_dropped_records();
        self.look_for_losses();
        self.look_for_a_stuck_configuration();
        self.look_for_a_stuck_hook(Boot::now());
        self.tell_of_stuck_threads();
        self.tell_of_descriptors();
    }

    /// Has the cgroups of pods kept by another configuration, or no more, or from now on.
    fn configure_reconciler(&mut self, cgroups: &Cgroups) {
        match &self.reconciler {
            // Dropping it ends it.
            Some(_) if cgroups.mode == CgroupMode::Off => self.reconciler = None,
            Some(reconciler) => reconciler.configured(cgroups.clone()),
            None => match (self.start_reconciler)(cgroups) {
                Ok(reconciler) => {
                    self.reconciler = reconciler;
                    if let Some(runtime) = &self.runtime {
                        runtime.list();
                    }
                }
                Err(error) => {
                    let what = format!("cgroups of pods are not reconciled: {error:#}");
                    self.reporter.tell_degraded(Part::Cgroups, what);
                }
            },
        }
    }

    /// Why nobody is ended whatever is short, if that is so.
    fn why_nobody_is_ended(&self) -> Option<String> {
        let why = if !self.policy.pods_only {
            return None;
        } else if self.runtime.is_none() {
            "no runtime is named that could tell which there are (--cri SOCKET)"
        } else if !self.state.has_cgroups() {
            "what they use only cgroup v2 tells"
        } else {
            return None;
        };
        let rule = "with mode: kubernetes nothing but pods may be ended";
        Some(format!("pods: {rule}, and {why}; nobody is evicted"))
    }
}
