//! The `ebb` command line: one file per command.
//!
//! Exit codes: 0 done; 1 failed on the way; 2 bad input (arguments, configuration, files), nothing was begun; 3 this host does not offer what the command needs; 4 what was compared differs.

mod cgroups;
mod check;
mod complete;
mod configured;
mod events;
mod gc;
mod images;
mod node;
mod plan;
mod pods;
mod rank;
mod replay;
mod run;
mod runtime;
mod snapshot;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Node reclaimer for Linux and Kubernetes: senses memory pressure through eBPF, decides who must go and why, and gives the memory back in milliseconds.
#[derive(Debug, Parser)]
#[command(name = "ebb", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch this node and reclaim when it runs short; a dry run unless --enforce is given.
    Run(run::Args),
    /// Say what this host offers, what ebb will therefore use, and what to do about what is missing.
    Check(check::Args),
    /// Show kernel events as they happen.
    Events(events::Args),
    /// Print this node as a snapshot that `ebb plan` accepts.
    Snapshot(snapshot::Args),
    /// Decide on a saved snapshot and print the plan, what was kept and why.
    Plan(plan::Args),
    /// Print the order in which workloads would be ended.
    Rank(rank::Args),
    /// Decide a recorded incident again, by the same configuration or by another.
    Replay(replay::Args),
    /// List the pods of the container runtime: what they use, and what is dead in them.
    Pods(pods::Args),
    /// List the images of the container runtime: what each takes up alone, when it was last in use, why it stays or when it goes.
    Images(images::Args),
    /// Collect dead containers, unused images or orphaned logs now; a dry run unless --enforce is given.
    Gc(gc::Args),
    /// The cgroups of pods: what Kubernetes' rules demand, where this node differs, and putting that right.
    Cgroups(cgroups::Args),
    /// Print a shell completion script or the manual page.
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
        }
    }

    fn error(&self) -> Option<&anyhow::Error> {
        match self {
            Self::Failed(e) | Self::Input(e) | Self::Host(e) => Some(e),
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
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Run(args) => run::run(args),
        Command::Check(args) => check::run(&args),
        Command::Events(args) => events::run(&args),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Rank(args) => rank::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Pods(args) => pods::run(&args),
        Command::Images(args) => images::run(&args),
        Command::Gc(args) => gc::run(&args),
        Command::Cgroups(args) => cgroups::run(args),
        Command::Complete(args) => complete::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(error) = failure.error() {
                eprintln!("ebb: {error:#}");
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

/// Whether standard output is a terminal that takes colours (`NO_COLOR` is honoured).
fn colour() -> bool {
    use std::io::IsTerminal as _;
    std::env::var_os("NO_COLOR").is_none() && std::io::stdout().is_terminal()
}
