//! `ebb rank`: the order in which workloads would be ended, with the keys that made it.

use super::Failure;
use super::configured::ConfigArgs;
use super::node::NodeArgs;
use super::plan::{self, Output};
use super::runtime::RuntimeArgs;
use super::snapshot;
use crate::report;
use anyhow::{Context as _, anyhow};
use ebb_policy::plan::Ranked;
use ebb_policy::{History, Signal, Snapshot, rank};
use std::io::Write as _;
use std::path::PathBuf;

/// Arguments of `ebb rank`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    runtime: RuntimeArgs,
    /// Rank the workloads of this saved snapshot rather than of this node; `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "cri")]
    snapshot: Option<PathBuf>,
    /// What was remembered of growth, as `ebb plan` prints it.
    #[arg(long, value_name = "FILE", requires = "snapshot")]
    history: Option<PathBuf>,
    /// The signal to rank for.
    #[arg(long, value_name = "SIGNAL", default_value = "memory.available", value_parser = signal)]
    signal: Signal,
    /// Form of the answer.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (config, snapshot) = match &args.snapshot {
        Some(path) => {
            let snapshot: Snapshot = plan::read(path)?;
            plan::check(&snapshot)
                .with_context(|| path.display().to_string())
                .map_err(Failure::Input)?;
            (args.config.load()?, snapshot)
        }
        None => snapshot::take(&args.node, &args.config, &args.runtime)?,
    };
    let history: History = match &args.history {
        Some(path) => plan::read(path)?,
        None => History::default(),
    };
    let ranking = rank(&snapshot, &config.limits, &history, args.signal);
    let answer = match args.output {
        Output::Text => lines(&ranking),
        Output::Json => plan::pretty(&ranking)? + "\n",
    };
    std::io::stdout().write_all(answer.as_bytes()).context("cannot write the ranking")?;
    Ok(())
}

fn lines(ranking: &[Ranked]) -> String {
    if ranking.is_empty() {
        return "nothing is active that could be ended\n".to_owned();
    }
    ranking.iter().map(|ranked| report::ranked(ranked) + "\n").collect()
}

fn signal(name: &str) -> anyhow::Result<Signal> {
    let known = || Signal::ALL.map(Signal::name).join(", ");
    Signal::from_name(name).ok_or_else(|| anyhow!("unknown signal; use one of {}", known()))
}
