//! The `ebb` command line: one file per command.
//!
//! Exit codes: see the `EXIT_CODES` of this module, which `ebb --help` prints.

mod api;
mod beside_kubelet;
mod cgroups;
mod check;
mod client;
mod cluster;
mod complete;
mod configured;
mod controller;
mod events;
mod explain;
mod gc;
mod images;
mod in_kernel;
mod incident;
mod json;
mod listen;
mod look;
mod node;
mod notify;
mod on_node;
mod page;
mod plan;
mod pods;
mod rank;
mod records;
mod replay;
mod run;
mod running_agent;
mod runtime;
mod snapshot;
mod sockets;
mod status;
mod top;
mod watch;
mod workloads;

use clap::{Parser, Subcommand};
use ebb_journal::stream::write_within;
use ebb_journal::text::plain;
use std::io::{self, IsTerminal, Write as _};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::Duration;

/// How long an agent that fails waits for somebody to read why.
const LAST_LINE: Duration = Duration::from_millis(500);

/// What `ebb --help` says about exit codes, and docs/operating.md with it.
const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed on the way; told to stop, and not all was written in time (run)
  2  bad input (arguments, configuration, files): nothing was begun
  3  this host does not offer what the command needs
  4  what was compared differs (replay; cgroups audit, tree and enforce)
  5  a thread of the agent panicked, as its last record says (run)
  6  another ebb that enforces runs on this node (run)";

/// Node reclaimer for Linux and Kubernetes: senses memory pressure through eBPF, decides whom to evict and why, and gives the memory back in milliseconds.
#[derive(Debug, Parser)]
#[command(name = "ebb", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch this node and reclaim when it runs short; a dry run unless --enforce is given.
    Run(run::Args),
    /// Show how the node stands, as a running agent knows it: thresholds with what is left of each, and who would be evicted first.
    Status(status::Args),
    /// Show the records of a running agent as they happen.
    Watch(watch::Args),
    /// Show the node in a terminal, live or as an incident recorded it: what is left and until when, workloads with usage, growth, stall and rank, the last records.
    Top(top::Args),
    /// Say what this host offers, what ebb will therefore use, and what to do about what is missing.
    Check(check::Args),
    /// Show kernel events as they happen.
    Events(events::Args),
    /// Print this node as a snapshot that `ebb plan` accepts.
    Snapshot(snapshot::Args),
    /// Decide on a saved snapshot and print the plan, and what was skipped and why.
    Plan(plan::Args),
    /// Rank the candidates for eviction on one signal, the first victim first, and say who is skipped and why; which of them would go, and whether any need, `ebb plan` and a dry run of `ebb run` say.
    Rank(rank::Args),
    /// Decide a recorded incident again, by the same configuration or by another; exit code 4 when a plan differs from the recorded one.
    Replay(replay::Args),
    /// List recorded incidents, show one from the crossing to the relief, or write it as an HTML page.
    Incident(incident::Args),
    /// List the pods of the container runtime: what they use, and what is dead in them.
    Pods(pods::Args),
    /// List the images of the container runtime: what each takes up alone, when it was last in use, why it stays or when it goes.
    Images(images::Args),
    /// Collect dead containers, unused images or orphaned logs now; a dry run unless --enforce is given.
    Gc(gc::Args),
    /// The cgroups of pods: what Kubernetes' rules demand, where this node differs, and putting that right.
    Cgroups(cgroups::Args),
    /// Show owners and dependents of an object of a cluster, live or saved, and what deleting it would do.
    Graph(cluster::graph::Args),
    /// Say why an object of a cluster, live or saved, is still there, and what would release it; of a pod or a cgroup, on its node, why ebb does not evict it, where it ranks for each signal, or why it was evicted; of an image, why it is kept or when it is removed.
    Explain(explain::Args),
    /// Find what does not move by itself in a cluster, live or saved: deletions that do not end, cycles, references that cannot be right.
    Stuck(cluster::stuck::Args),
    /// Collect what the owners of a cluster's objects leave behind, and pods that nobody else takes away; only says what it would do unless --enforce is given.
    Controller(controller::Args),
    /// Print a shell completion script or the manual: a page for each command.
    Complete(complete::Args),
}

/// Why a command failed, and with which exit code.
#[derive(Debug)]
pub enum Failure {
    /// On the way: exit code 1.
    Failed(anyhow::Error),
    /// Bad input, nothing was begun: exit code 2.
    Input(anyhow::Error),
    /// The host does not offer what it takes: exit code 3.
    Host(anyhow::Error),
    /// Another agent acts on this node: exit code 6.
    Locked(anyhow::Error),
    /// What was compared differs, as was said on standard output: exit code 4.
    Differs,
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Input(_) => 2,
            Self::Host(_) => 3,
            Self::Differs => 4,
            Self::Locked(_) => 6,
        }
    }

    fn error(&self) -> Option<&anyhow::Error> {
        match self {
            Self::Failed(e) | Self::Input(e) | Self::Host(e) | Self::Locked(e) => Some(e),
            Self::Differs => None,
        }
    }
}

/// Without a statement to the contrary, a failure is one on the way.
impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// Parses the arguments, runs the command, and says on standard error what went wrong.
fn main() -> ExitCode {
    let cli = Cli::parse();
    let is_agent = matches!(cli.command, Command::Run(_));
    let result = match cli.command {
        Command::Run(args) => run::run(args),
        Command::Status(args) => status::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Events(args) => events::run(&args),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Rank(args) => rank::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Incident(args) => incident::run(&args),
        Command::Pods(args) => pods::run(&args),
        Command::Images(args) => images::run(&args),
        Command::Gc(args) => gc::run(&args),
        Command::Cgroups(args) => cgroups::run(args),
        Command::Graph(args) => cluster::graph::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Stuck(args) => cluster::stuck::run(&args),
        Command::Controller(args) => controller::run(&args),
        Command::Complete(args) => complete::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(error) = failure.error() {
                let text = format!("{error:#}");
                let text: String = text.lines().map(|l| format!("ebb: {}\n", plain(l))).collect();
                match is_agent {
                    // Whoever starts it again waits for its end.
                    true => _ = write_within(io::stderr().as_fd(), text.as_bytes(), LAST_LINE),
                    false => say(&text),
                }
            }
            ExitCode::from(failure.code())
        }
    }
}

/// A current-thread runtime: the agent has one loop, and its other work is on threads of its own.
fn event_loop() -> anyhow::Result<tokio::runtime::Runtime> {
    use anyhow::Context as _;
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().context("cannot start the event loop")
}

/// Whether standard output takes colours.
fn colour() -> bool {
    takes_colour(&std::io::stdout())
}

/// Whether a stream takes colours: a terminal that knows escapes, and nobody has said `NO_COLOR`.
fn takes_colour(stream: &impl IsTerminal) -> bool {
    // As no-color.org has it: set and not empty.
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !is_refused && takes_escapes(stream)
}

/// Whether a stream is a terminal that knows escapes; a dumb one shows them.
fn takes_escapes(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Says something to people on standard error, beside the answer.
fn warn(kind: &str, what: &str) {
    say(&format!("ebb: {kind}: {}\n", plain(what)));
}

/// Says something on standard error, if that can be: `eprintln` panics where it cannot.
fn say(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Refuses names of programs that there are not: a typing error must not leave what it was to leave out.
fn check_left_out(names: &[String], more: &[&str]) -> Result<(), Failure> {
    let mut known: Vec<&str> = ebb_probes::program_names();
    known.extend(more);
    known.push("all");
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Failure::Input(anyhow::anyhow!(
            "--leave-out {name}: there is no such program; use one of {}",
            known.join(", ")
        ))),
    }
}
