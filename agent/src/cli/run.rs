//! `ebb run`: the agent itself.

use super::configured::{self, ConfigArgs};
use super::node::NodeArgs;
use super::runtime::RuntimeArgs;
use super::{Failure, colour, event_loop};
use crate::act::{Mode, protect};
use crate::cgroups::keeper::Keeper;
use crate::clock::Clock;
use crate::config::{CgroupMode, Cgroups, Config};
use crate::report::incident::Incidents;
use crate::report::queue::Queue;
use crate::report::{Output, Reporter};
use crate::run::{self, Setup, StartKeeper};
use crate::sense::Roots;
use crate::sense::host::{CgroupLayout, hierarchies};
use crate::sense::sweep::Sweeper;
use anyhow::{Context as _, bail};
use ebb_probes::{Fact, HostSupport, Options, ProbeSet, ProbeState, Probes};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use tracing_subscriber::EnvFilter;

/// Incident records kept when only a directory is given.
const INCIDENTS_KEPT: usize = 100;

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
    /// Form of the records on standard output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Keep a record of each episode of pressure in this directory, at most a hundred; `ebb replay` decides them again.
    #[arg(long, value_name = "DIR")]
    incidents: Option<PathBuf>,
    /// Do not attach this BPF program (`ebb check` lists them), or do without `sweep` or `reflex`; `all` does without BPF. May be given several times.
    #[arg(long, value_name = "PROGRAM")]
    leave_out: Vec<String>,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let (roots, layout) = args.node.find().map_err(Failure::Input)?;
    let config = args.config.load_for(args.runtime.is_given())?;
    let policy = configured::policy(&config).map_err(|e| Failure::Input(e.into()))?;
    let incidents =
        match args.incidents.as_ref().or(config.incidents.as_ref().map(|i| &i.directory)) {
            Some(dir) => Some(Incidents::open(dir, kept(&config)).map_err(|e| {
                let error = anyhow::Error::new(e);
                Failure::Input(error.context(format!(
                    "incidents in {}: the directory cannot be used",
                    dir.display()
                )))
            })?),
            None => None,
        };
    let (queue, drained) =
        Queue::start(io::stdout(), incidents).context("cannot start the writer of records")?;
    log_to_stderr();
    let mut missing = Vec::new();
    if !policy.pods_only {
        missing.extend(layout_notice(&layout));
    }
    let mode = if args.enforce || config.enforce { Mode::Enforce } else { Mode::DryRun };
    let reporter =
        Reporter::new(args.output, colour(), Clock::anchored_now(), Box::new(queue.clone()));
    let has_runtime = args.runtime.is_given();
    let start_keeper =
        keepers(roots.clone(), layout.clone(), has_runtime, args.output, queue.clone());
    let keeper = start_keeper(&config.cgroups).map_err(|error| {
        let failure = if layout.unified().is_none() { Failure::Host } else { Failure::Input };
        failure(error.context("cgroups"))
    })?;
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
    let result = event_loop()?.block_on(async {
        let probes = attach(&host, &options, &mut missing)?;
        missing.extend(protect(&roots.proc));
        let reload = args.config.watch(args.runtime.is_given());
        run::run(Setup {
            roots,
            layout,
            runtime: args.runtime.session(args.node.node_fs(), mode),
            state_dir: args.runtime.state_dir(),
            node_fs: args.node.node_fs(),
            mode,
            policy,
            reload,
            probes,
            sweeper,
            arming,
            missing,
            reporter,
            queue,
            keeper,
            start_keeper,
        })
        .await
        .map_err(Failure::Failed)
    });
    drained.wait();
    result
}

/// What starts the keeper of cgroups, when a configuration wants one: at the beginning, or when it is read anew.
fn keepers(
    roots: Roots,
    layout: CgroupLayout,
    has_runtime: bool,
    output: Output,
    queue: Queue,
) -> StartKeeper {
    Box::new(move |cgroups: &Cgroups| {
        if cgroups.mode == CgroupMode::Off {
            return Ok(None);
        }
        if layout.unified().is_none() {
            bail!(
                "ebb.cgroups.mode: the unified hierarchy is needed (cgroup v2 with the memory controller): {}",
                hierarchies(&roots.proc)
            );
        }
        let queue = queue.clone();
        let reporter =
            move || Reporter::new(output, colour(), Clock::anchored_now(), Box::new(queue));
        Keeper::start(cgroups.clone(), roots.clone(), has_runtime, reporter).map(Some)
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

/// Diagnostics of the program itself; `RUST_LOG` chooses which.
fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // Only fails when a subscriber is set already, as in a test that runs the command twice.
    let _ = subscriber.try_init();
}
