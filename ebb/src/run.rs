//! `ebb run`: the agent itself.

use super::api::{Api, ApiArgs, Served};
use super::beside_kubelet::KubernetesArgs;
use super::configured::{self, ConfigArgs, Objections};
use super::listen::ListenArgs;
use super::node::NodeArgs;
use super::on_node::{self, Around, Fixed, ForReconciler};
use super::runtime::RuntimeArgs;
use super::{Failure, check_left_out, colour, event_loop, takes_colour};
use anyhow::Context as _;
use ebb_agent::act::{Mode, protect};
use ebb_agent::cgroups::reconciler::Reconciler;
use ebb_agent::clock::{Boot, Clock};
use ebb_agent::config::{self, CgroupMode, Cgroups, Config};
use ebb_agent::lock::{NodeLock, NotLocked};
use ebb_agent::privileges::{self, Features};
use ebb_agent::report::service::ServiceManager;
use ebb_agent::report::{Reporter, last_word};
use ebb_agent::run::{self, Setup, StartReconciler};
use ebb_agent::sense::Roots;
use ebb_agent::sense::host::{CgroupLayout, hierarchies};
use ebb_agent::sense::psi::Trigger;
use ebb_agent::sense::sweep::Sweeper;
use ebb_agent::threads;
use ebb_api::RecordSink;
use ebb_journal::Output;
use ebb_journal::diagnostics::{Diagnostics, LOG_WRITER};
use ebb_journal::incident::Incidents;
use ebb_journal::journald::{Entries, Journal, JournalSink, LogLines, Now};
use ebb_journal::metrics::Metrics;
use ebb_journal::queue::Queue;
use ebb_journal::stream::Stream;
use ebb_probes::{Fact, HostSupport, Options, ProbeSet, ProbeState, Probes};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing_subscriber::EnvFilter;

/// Incident records kept when only a directory is given.
const INCIDENTS_KEPT: usize = 100;

/// How long the end waits for records to be written.
const LAST_RECORDS: Duration = Duration::from_secs(2);

/// How long the end waits for diagnostics to be written.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Arguments of `ebb run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    runtime: RuntimeArgs,
    /// Act. Without this, ebb goes through the same motions and only says what it would do.
    #[arg(long)]
    enforce: bool,
    #[command(flatten)]
    kubernetes: KubernetesArgs,
    /// Form of the records on standard output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    api: ApiArgs,
    /// Keep a record of each episode of pressure in this directory, at most a hundred, and as many of a dry run's; `ebb replay` decides them again.
    #[arg(long, value_name = "DIR")]
    incidents: Option<PathBuf>,
    /// Do not attach this BPF program (`ebb check` lists them), or do without `sweep`, `reflex` or `fall`; `all` does without BPF. May be given several times.
    #[arg(long, value_name = "PROGRAM")]
    leave_out: Vec<String>,
}

pub(super) fn run(mut args: Args) -> Result<(), Failure> {
    check_left_out(&args.leave_out, &["sweep", "reflex", "fall"])?;
    if args.kubernetes.is_wanted() {
        args.config = args.config.beside_kubelet(&args.node);
    }
    let (roots, layout) = args.node.find().map_err(Failure::Input)?;
    let config = args.config.load_for(args.runtime.is_given())?;
    args.runtime = args.runtime.for_config(&config)?;
    let around = around(&args, &layout, &roots);
    on_node::refuse(&args.config, &config, &around())?;
    args.kubernetes.check(&args.runtime)?;
    let policy = configured::policy(&config).map_err(|e| Failure::Input(e.into()))?;
    let mode = if args.enforce || config.enforce { Mode::Enforce } else { Mode::DryRun };
    let incidents =
        match args.incidents.as_ref().or(config.incidents.as_ref().map(|i| &i.directory)) {
            Some(dir) => Some(Incidents::open(dir, kept(&config), mode).map_err(|e| {
                let error = anyhow::Error::new(e);
                Failure::Input(error.context(format!(
                    "incidents in {}: the directory cannot be used",
                    dir.display()
                )))
            })?),
            None => None,
        };
    let directory = args.incidents.as_ref().or(config.incidents.as_ref().map(|i| &i.directory));
    let directory = directory.cloned();
    let mut missing = Vec::new();
    let listeners = args.listen.take(&mut missing)?;
    let cluster = args.kubernetes.setup(args.runtime.state(), mode)?;
    let _lock = match mode {
        Mode::Enforce => node_lock(&args.runtime, &mut missing)?,
        Mode::DryRun => None,
    };
    // Once no other ebb acts here: of two, the second must not take the socket from the first.
    let (api, questions) = args.api.take(&mut missing)?.unzip();
    // While privileges are there: a service may be kept from the socket later.
    let clock = Clock::of_process();
    let now = Now::new(move || clock.time(Boot::now()));
    let journal = Journal::from_environment(args.output, now).unwrap_or_else(|why| {
        missing.push(format!("fields for entries in the journal: {why}; plain lines are written"));
        None
    });
    let records_to = journal.clone().filter(|journal| journal.is_behind(io::stdout()));
    last_word::end_on_panic(args.output, records_to.clone());
    let diagnostics = Diagnostics::default();
    last_word::say_after(diagnostics.clone());
    log_to(journal.filter(|journal| journal.is_behind(io::stderr())), diagnostics.clone());
    if !policy.pods_only {
        missing.extend(layout_notice(&layout));
    }
    let options = Options { leave_out: args.leave_out.clone(), ..Options::default() };
    let host = ebb_probes::survey();
    let is_left_out = |name: &str| args.leave_out.iter().any(|n| n == name || n == "all");
    let sweeper = match layout.unified() {
        Some(root) if !is_left_out("sweep") => Sweeper::open(root, &host).unwrap_or_else(|why| {
            missing.push(format!("a sweep over cgroups: {why}; files are read"));
            Sweeper::default()
        }),
        _ => Sweeper::default(),
    };
    let wanted = config.reflex.filter(|_| !is_left_out("reflex"));
    let arming = wanted.and_then(|lease| {
        run::open_reflex(lease, mode, &host).map_err(|why| missing.push(why)).ok()
    });
    let executor = event_loop()?;
    let probes = executor.block_on(async { attach(&host, &options, &mut missing) })?;
    // Without it ebb looks more often, which costs a little and loses nothing.
    let fall = (!is_left_out("fall"))
        .then(|| executor.block_on(async { run::open_fall_watch(&host, &roots).ok() }))
        .flatten();
    let protected = protect(&roots.proc);
    missing.extend(protected.refused);
    let trigger = Trigger::best(&roots.proc.join("pressure/memory"));
    // All that takes more than it goes on to need is done, and there is one thread: those that follow inherit what is left.
    let features = Features {
        enforce: mode == Mode::Enforce,
        cgroups: layout.unified().is_some(),
        bpf: probes.is_some() || fall.is_some() || sweeper.shown().is_some(),
        reflex: arming.is_some(),
        memlock: protected.memlock,
        rtprio: protected.rtprio,
    };
    let confined = privileges::confine(&features, config.seccomp);
    missing.extend(confined.missing);
    diagnostics
        .start(|writing| threads::spawn(LOG_WRITER, writing))
        .context("cannot start the writer of diagnostics")?;
    let cgroup_root = layout.v2().unwrap_or(&roots.cgroup);
    let entries_below = records_to.is_some().then(|| cgroup_root.to_owned());
    let sink: Box<dyn Write + Send> = match records_to {
        Some(journal) => Box::new(JournalSink::new(journal, Stream::new(io::stdout()))),
        None => Box::new(Stream::new(io::stdout())),
    };
    let queue = Queue::start(sink, incidents, threads::spawn)
        .context("cannot start the writers of records")?;
    last_word::tell_after(queue.progress());
    let has_runtime = args.runtime.is_given();
    let metrics = Metrics::new(has_runtime, cluster.is_some());
    let api_sink = api.as_ref().map(Api::sink);
    let counted = Arc::clone(&metrics);
    let reporters = reporters(args.output, mode, entries_below, queue.clone(), counted, api_sink);
    for listener in listeners {
        listener.serve(Arc::clone(&metrics), reporters.clone()).map_err(Failure::Failed)?;
    }
    let reporter = reporters();
    let api = api.map(|api| api.serve(directory, reporters.clone())).transpose();
    let api = api.map_err(Failure::Failed)?;
    let start_reconciler = reconcilers(roots.clone(), has_runtime, mode, reporters);
    let reconciler = start_reconciler(&config.cgroups)
        .map_err(|error| Failure::Input(error.context("cgroups")))?;
    let service =
        ServiceManager::from_environment().context("cannot start the thread for sd_notify")?;
    let result = executor.block_on(async {
        let reload = args.config.watch(args.runtime.is_given(), objections(&args, &config, around));
        run::run(Setup {
            roots,
            layout,
            runtime: args.runtime.session(args.node.node_fs(), mode),
            cluster,
            state_dir: args.runtime.state_dir(),
            steps_dir: args.runtime.steps_dir(),
            node_fs: args.node.node_fs(),
            mode,
            policy,
            reload,
            probes,
            fall,
            trigger,
            in_force: confined.in_force,
            sweeper,
            arming,
            missing,
            reporter,
            queue: queue.clone(),
            service,
            reconciler,
            start_reconciler,
            questions,
        })
        .await
        .map_err(Failure::Failed)
    });
    // Its thread has a word for the queue, too; one that hangs is not waited for.
    api.into_iter().for_each(Served::end);
    let result = match (queue.finish(LAST_RECORDS), result) {
        (Err(unwritten), Ok(())) => {
            Err(Failure::Failed(anyhow::Error::new(unwritten).context("stopped")))
        }
        (Err(unwritten), Err(Failure::Failed(error))) => {
            Err(Failure::Failed(error.context(unwritten)))
        }
        (_, result) => result,
    };
    diagnostics.flush(LAST_LINES);
    result
}

/// The lock of the one agent that acts on this node; a place that cannot be used is no reason to act on nothing.
fn node_lock(
    runtime: &RuntimeArgs,
    missing: &mut Vec<String>,
) -> Result<Option<NodeLock>, Failure> {
    match NodeLock::take(runtime.state()) {
        Ok(lock) => Ok(Some(lock)),
        Err(held @ NotLocked::Held { .. }) => Err(Failure::Locked(held.into())),
        Err(unusable @ NotLocked::Unusable { .. }) => {
            missing.push(format!("a lock against a second ebb that enforces: {unusable}"));
            Ok(None)
        }
    }
}

/// What starts the reconciler of cgroups, when a configuration wants one: at the beginning, or when it is read anew.
fn reconcilers(
    roots: Roots,
    has_runtime: bool,
    hand: Mode,
    reporters: impl Fn() -> Reporter + Clone + Send + 'static,
) -> StartReconciler {
    Box::new(move |cgroups: &Cgroups| {
        if cgroups.mode == CgroupMode::Off {
            return Ok(None);
        }
        let reporter = reporters.clone();
        Reconciler::start(cgroups.clone(), roots.clone(), has_runtime, hand, reporter).map(Some)
    })
}

/// What a configuration is held against, looked at anew each time: a machine can grow.
fn around(
    args: &Args,
    layout: &CgroupLayout,
    roots: &Roots,
) -> impl Fn() -> Around + Send + 'static {
    let (node, beside_kubelet) = (args.node.clone(), args.kubernetes.is_wanted());
    let reconciler = ForReconciler {
        has_runtime: args.runtime.is_given(),
        not_unified: layout.unified().is_none().then(|| hierarchies(&roots.proc)),
    };
    move || Around {
        capacities: node.capacities(),
        beside_kubelet,
        reconciler: Some(reconciler.clone()),
    }
}

/// What speaks against a configuration that is read while the agent runs: what does at the start, and what it would change of what is built in.
fn objections(
    args: &Args,
    running: &Config,
    around: impl Fn() -> Around + Send + 'static,
) -> Objections {
    let (enforce, incidents) = (args.enforce, args.incidents.clone());
    let no_reflex = args.leave_out.iter().any(|name| name == "reflex" || name == "all");
    let fixed = move |config: &Config| Fixed {
        enforce: enforce || config.enforce,
        mode: config.mode,
        measure: configured::measure(config),
        reflex: config.reflex.filter(|_| !no_reflex),
        seccomp: config.seccomp,
        incidents: match (&incidents, &config.incidents) {
            (Some(directory), of_file) => Some(config::Incidents {
                directory: directory.clone(),
                keep: of_file.as_ref().map_or(0, |incidents| incidents.keep),
            }),
            (None, of_file) => of_file.clone(),
        },
    };
    let running = fixed(running);
    Box::new(move |config| {
        let mut errors = on_node::objections(config, &around());
        errors.extend(running.changes(&fixed(config)));
        errors
    })
}

/// How many incident records are kept.
fn kept(config: &Config) -> usize {
    let keep = config.incidents.as_ref().and_then(|i| usize::try_from(i.keep).ok());
    keep.unwrap_or(INCIDENTS_KEPT)
}

/// Attaches what can be attached; facts that nothing tells are noted, together where the reason is the same.
fn attach(
    host: &HostSupport,
    options: &Options,
    missing: &mut Vec<String>,
) -> Result<Option<Probes>, Failure> {
    let set = ProbeSet::for_host(host, options);
    let probes = Probes::attach(&set, options).context("cannot attach BPF programs")?;
    let mut reasons: BTreeMap<&str, BTreeSet<Fact>> = BTreeMap::new();
    for status in probes.status() {
        let (ProbeState::Absent(why) | ProbeState::Refused(why)) = &status.state else { continue };
        let is_first = !reasons.values().any(|facts| facts.contains(&status.feeds));
        if is_first && !probes.tells(status.feeds) {
            let why = if options.leave_out.is_empty() { why } else { "left out, or refused" };
            reasons.entry(why).or_default().insert(status.feeds);
        }
    }
    for (why, facts) in reasons {
        let names: Vec<String> = facts.into_iter().map(run::fact_name).collect();
        missing.push(format!("BPF for {}: {why}", names.join(", ")));
    }
    let any = probes.status().iter().any(|s| s.state == ProbeState::Attached);
    Ok(any.then_some(probes))
}

/// What must be said when cgroups cannot be the workloads.
fn layout_notice(layout: &CgroupLayout) -> Option<String> {
    match layout {
        CgroupLayout::Unified { .. } => None,
        CgroupLayout::Hybrid { memory, .. } => Some(format!(
            "cgroups as workloads: the memory controller is on cgroup v1{}; processes are ranked by resident memory",
            memory.as_ref().map(|m| format!(" ({})", m.display())).unwrap_or_default()
        )),
        CgroupLayout::Legacy { .. } => Some(
            "cgroups as workloads: there is no cgroup v2; processes are ranked by resident memory"
                .into(),
        ),
    }
}

/// Diagnostics of the program itself, to the journal if there is one behind standard error; `RUST_LOG` chooses which.
fn log_to(journal: Option<Journal>, lines: Diagnostics) {
    // What the client of the API server finds fault with is a record of ebb's own.
    let usual = || EnvFilter::new("warn,kube_client=off");
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| usual());
    // What goes wrong with a line would be told by `eprintln`, which may wait, and panics where it cannot write.
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).log_internal_errors(false);
    // Only fails when a subscriber is set already, as in a test that runs the command twice.
    let _ = match journal {
        // The journal knows the time, and the level and the place are fields.
        Some(journal) => subscriber
            .with_ansi(false)
            .with_level(false)
            .with_target(false)
            .without_time()
            .with_writer(LogLines::new(journal, lines))
            .try_init(),
        None => subscriber.with_ansi(takes_colour(&io::stderr())).with_writer(lines).try_init(),
    };
}

/// What makes reporters whose records go through `queue`: as entries of the journal with paths of cgroups `entries_below` that directory, else as lines; and to clients of the API, where there is one.
fn reporters(
    output: Output,
    mode: Mode,
    entries_below: Option<PathBuf>,
    queue: Queue,
    metrics: Arc<Metrics>,
    api: Option<RecordSink>,
) -> impl Fn() -> Reporter + Clone + Send + Sync + 'static {
    move || {
        let sink = match &entries_below {
            Some(root) => Box::new(Entries::new(output, root, queue.clone())),
            None => output.to(queue.clone(), colour()),
        };
        let reporter =
            Reporter::new(Clock::of_process(), mode, sink).counted_by(Arc::clone(&metrics));
        match &api {
            Some(api) => reporter.and_to(Box::new(api.clone())),
            None => reporter,
        }
    }
}
