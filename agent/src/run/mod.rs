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
mod oom_kills;
mod pass;
mod persist;
mod precedence;
mod reflex;
mod reload;
mod runtime;
pub mod session;
mod setup;
mod start;
mod status;
mod timeline;
mod wake;
mod warm_up;
mod watch;
mod watches;

use crate::act::{Actor, Mode, Standby};
use crate::cadence::SHORTEST;
use crate::cgroups::reconciler::Reconciler;
use crate::clock::{Boot, StandstillMeter};
use crate::config::{CgroupMode, Cgroups};
use crate::report::Reporter;
use crate::report::service::ServiceManager;
use crate::sense::Roots;
use crate::state::NodeState;
use crate::store::Memory;
use cluster::ClusterWatch;
use ebb_journal::queue::{Dropped, Queue};
use ebb_journal::storing::Storing;
use ebb_journal::{InForce, Part, Record, Worded};
use ebb_policy::snapshot::WorkloadKey;
use ebb_policy::{History, Millis};
pub use fall::open as open_fall_watch;
use jobs::Dispatcher;
use kernel::KernelFeed;
use lag::{LagMonitor, Turn};
use look::NodeWatch;
use memory_pressure::Pressures;
use oom_kills::OomKillReports;
use precedence::Precedence;
pub use reflex::{Arming, open as open_reflex};
pub use reload::{ReadAnew, Reload};
use runtime::RuntimeWatch;
pub use session::SessionSetup;
pub use setup::{Policy, Setup, StartReconciler};
pub use start::run;
pub use status::{
    LatestDecision, NodeInbox, NodeQuestions, NodeStatus, ThresholdNow, WorkloadsStatus,
    node_questions,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
pub use wake::fact_name;
use wake::{Event, Wakers};
use watches::Watches;

/// Workloads are read again this often even when nothing is near, so that the watchdog has a ranking and a missed event is made good.
const BACKSTOP: Duration = Duration::from_secs(60);

/// How long the end waits for jobs that are under way: taking back the memory of a large process takes its time.
const LAST_RESULTS: Duration = Duration::from_secs(3);

/// How long the end waits for the reconciler of cgroups, so that what it did last is told before it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How often a cgroup that runs into its own limit may cause the workloads to be read.
const LOCAL_EVERY: Duration = Duration::from_secs(5);

/// What was decided.
#[derive(Default)]
struct Decisions {
    /// What the next decision goes by.
    history: History,
    /// When everything was last decided on, disk and the runtime too.
    whole: Option<Boot>,
    /// The one that waits for a crossing.
    ahead: Option<held_decision::HeldDecision>,
}

/// What is collected for the record of the start.
#[derive(Default)]
struct AtStart {
    unavailable: Vec<String>,
    thresholds: Vec<Worded<InForce>>,
}

/// What was told last, and is not told again while it stays so.
#[derive(Default)]
struct Told {
    /// Why a decision waits, one line for each kind of reason.
    deferral: Option<Vec<String>>,
    /// When that was told.
    deferral_at: Boot,
    /// Who runs into a limit of its own.
    own_limits: BTreeSet<WorkloadKey>,
    /// When that was told.
    own_limits_at: Boot,
    /// How many workloads are not held open.
    not_held: usize,
    /// How many records were dropped.
    dropped: Dropped,
    /// How storing incidents goes.
    storing: Storing,
    /// Kills by the kernel, of late.
    oom_kills: OomKillReports,
}

/// The reconciler of cgroups; none runs where the configuration has it off.
struct Reconciling {
    running: Option<Reconciler>,
    start: StartReconciler,
}

/// The running agent.
struct Agent {
    state: NodeState,
    standstills: StandstillMeter,
    node: NodeWatch,
    policy: Policy,
    config: reload::ConfigWatch,
    decisions: Decisions,
    watches: Watches,
    disk: disk::DiskWatch,
    runtime: Option<RuntimeWatch>,
    cluster: Option<ClusterWatch>,
    memory: Option<Memory>,
    mode: Mode,
    dispatcher: Dispatcher,
    standby: Arc<Standby>,
    precedence: Precedence,
    arming: Option<Arming>,
    reporter: Reporter,
    queue: Queue,
    at_start: AtStart,
    told: Told,
    service: ServiceManager,
    reconciling: Reconciling,
    kernel: KernelFeed,
    roots: Roots,
    pressures: Pressures,
    hooks: hooks::Hooks,
    /// What is kept for whoever asks how the node stands; `None` when nobody may.
    kept: Option<status::Kept>,
}

impl Agent {
    fn begin(&mut self, wakers: &Wakers, understudy: &mut Actor) {
        self.state
            .tree_events_are_live(wakers.tells_tree(self.kernel.probes.as_ref(), &self.roots));
        // The first look is by what thresholds are on this node: without that it would find no crossing, and the pass would evict without one.
        if self.read_node() {
            self.resolve_thresholds(Boot::now());
        }
        self.look(true);
        if self.state.has_deep_cgroups() {
            self.hear_no_more_of_cgroups();
        }
        let failed = self.warm_up(understudy);
        self.at_start.unavailable.extend(failed);
        self.at_start.unavailable.extend(self.why_nobody_is_ended());
        self.at_start.unavailable.extend(self.pressures.tell_of_missing());
        self.reporter.tell(Record::Started {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: wakers.mode(),
            sources: wakers.live(&self.kernel).into_iter().chain(self.state.swept()).collect(),
            unavailable: std::mem::take(&mut self.at_start.unavailable),
            thresholds: std::mem::take(&mut self.at_start.thresholds),
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
        let mut pace = LagMonitor::begin();
        loop {
            self.ask_for_disk();
            let wait = self.wait();
            self.standby.beat(wait);
            self.service.alive(Boot::now());
            let due = self.standstills.rest(wait);
            let event = wakers.wait(wait, &mut self.kernel).await;
            self.standby.awake();
            self.look_for_standstill();
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
                Event::Tick => self.on_tick(),
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
                    self.reconciling
                        .running
                        .iter()
                        .for_each(|reconciler| reconciler.end(LAST_WORDS));
                    self.store_open_episodes(why);
                    self.leave_cluster().await;
                    self.tell_of_oom_kills(true);
                    self.tell_of_dropped_records();
                    self.reporter.tell(Record::Stopping { why: why.to_owned() });
                    return;
                }
            }
            if self.due() <= Boot::now() {
                // What is told all the time must not keep the timer from its turn.
                self.on_tick();
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

    /// Nothing runs while the machine is suspended or paused, so no grace does.
    ///
    /// A turn may be interrupted by that: whoever is about to say whose time is over says so by a moment from before this call.
    fn look_for_standstill(&mut self) {
        let Some(lasted) = self.standstills.lasted() else { return };
        tracing::info!(
            "for {lasted:.0?} nothing could happen, as in a machine that is suspended or paused: that counts towards no grace"
        );
        let (now, clock) = (Boot::now(), self.state.clock());
        self.state.terminations().note_standstill(lasted, now);
        if let Some(cluster) = &mut self.cluster {
            cluster.note_standstill(lasted, now);
        }
        let lasted = Millis(u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX));
        self.decisions.history.note_standstill(lasted, clock.time(now));
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
        if self.mode == Mode::DryRun {
            // They are an enforcing agent's, which may run beside.
            return;
        }
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
        let wait = self.due().since(Boot::now());
        wait.min(self.renew_within().unwrap_or(wait)).max(SHORTEST)
    }

    /// When the next thing is due that nothing else wakes the loop for.
    fn due(&self) -> Boot {
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
        others.flatten().fold(self.look_due(), Boot::min)
    }

    /// When the node is to be looked at again.
    fn look_due(&self) -> Boot {
        let is_freeing = self.state.awaits_terminations();
        self.node.due(&self.watches, &self.policy.limits, is_freeing)
    }

    /// Tells how many records were dropped because their reader did not keep up, as soon as one can be written again.
    fn tell_of_dropped_records(&mut self) {
        let reporter = &mut self.reporter;
        self.told.dropped.tell(&self.queue, |records| reporter.tell(Record::Dropped { records }));
    }

    /// Says when incident records cannot be stored, and when some are lost.
    fn tell_of_unstored_incidents(&mut self) {
        let Some(now) = self.queue.storing() else { return };
        let before = std::mem::replace(&mut self.told.storing, now.clone());
        if now.lost > before.lost {
            let more = now.lost - before.lost;
            if let Some(metrics) = self.reporter.metrics() {
                metrics.lose_incidents(more);
            }
            let what = format!("{more} incident records could not be stored and are lost");
            self.reporter.tell_degraded(Part::Incidents, what);
        }
        if let Some(what) = now.trouble.filter(|what| before.trouble.as_ref() != Some(what)) {
            self.reporter.tell_degraded(Part::Incidents, what);
        }
    }

    /// Does what is due by time.
    fn on_tick(&mut self) {
        self.tell_of_dropped_records();
        self.tell_of_oom_kills(false);
        self.tell_of_unstored_incidents();
        self.look_for_losses();
        self.look_for_a_stuck_configuration();
        self.look_for_a_stuck_hook(Boot::now());
        self.tell_of_stuck_threads();
        self.tell_of_descriptors();
        self.count();
        self.look(false);
    }

    /// Has the cgroups of pods kept by another configuration, or no more, or from now on.
    fn configure_reconciler(&mut self, cgroups: &Cgroups) {
        match &self.reconciling.running {
            // Dropping it ends it.
            Some(_) if cgroups.mode == CgroupMode::Off => self.reconciling.running = None,
            Some(reconciler) => reconciler.configured(cgroups.clone()),
            None => match (self.reconciling.start)(cgroups) {
                Ok(reconciler) => {
                    self.reconciling.running = reconciler;
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
