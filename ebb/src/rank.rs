//! `ebb rank`: the candidates for eviction in their order, with the keys that made it, and who is no candidate and why.

use super::configured::ConfigArgs;
use super::node::NodeArgs;
use super::plan::{self, Output};
use super::running_agent::{RunningAgent, RunningAgentArgs};
use super::runtime::RuntimeArgs;
use super::{Failure, json, snapshot};
use anyhow::{Context as _, anyhow};
use ebb_journal::text::{plain, ranked, reason};
use ebb_policy::plan::{Ranked, SkipReason};
use ebb_policy::snapshot::{State, Workload, WorkloadKey};
use ebb_policy::{History, Signal, Snapshot, rank};
use serde::Serialize;
use std::collections::BTreeMap;
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
    #[command(flatten)]
    running_agent: RunningAgentArgs,
    /// Rank the workloads of this saved snapshot rather than of this node; `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cri", "api"])]
    snapshot: Option<PathBuf>,
    /// What the previous pass remembered, as `ebb plan` prints it: the attributed ranking goes by growth, which one snapshot does not show.
    #[arg(long, value_name = "FILE", requires = "snapshot")]
    history: Option<PathBuf>,
    /// The signal to rank for: memory and disk rank by usage above the request, task ids by processes.
    #[arg(long, value_name = "SIGNAL", default_value = "memory.available", value_parser = signal)]
    signal: Signal,
    /// Form of the answer; as JSON a list of the candidates in their order and of who is skipped.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Who is no candidate.
#[derive(Serialize)]
struct Skipped<'a> {
    workload: &'a WorkloadKey,
    skipped: SkipReason,
    /// The same in words.
    #[serde(skip)]
    why: String,
}

/// A line of the answer.
#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Candidate(Ranked),
    Skipped(Skipped<'a>),
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (config, snapshot, history) = match &args.snapshot {
        Some(path) => {
            let config = args.config.load()?;
            (config, plan::read_snapshot(path)?, plan::history(args.history.as_deref())?)
        }
        None => match args.running_agent.ask()? {
            Some(RunningAgent { config, snapshot, history, .. }) => (config, snapshot, history),
            None => {
                let (config, snapshot) = snapshot::take(&args.node, &args.config, &args.runtime)?;
                (config, snapshot, History::default())
            }
        },
    };
    let ranking = rank(&snapshot, &config.limits, &history, args.signal);
    let lines = tell_apart(&snapshot, ranking);
    let answer = match args.output {
        Output::Text => text(&lines),
        Output::Json => json::pretty(&lines)? + "\n",
    };
    std::io::stdout().write_all(answer.as_bytes()).context("cannot write the ranking")?;
    Ok(())
}

/// Those who may be evicted, with their places among themselves, and then those who may not.
fn tell_apart(snapshot: &Snapshot, ranking: Vec<Ranked>) -> Vec<Line<'_>> {
    let workloads: BTreeMap<&WorkloadKey, &Workload> =
        snapshot.workloads.iter().map(|workload| (&workload.key, workload)).collect();
    let (mut lines, mut skipped) = (Vec::new(), Vec::new());
    let mut place = 0;
    for ranked in ranking {
        let why = workloads.get_key_value(&ranked.workload).and_then(|(key, workload)| {
            let skipped = untouchable(workload)?;
            Some(Skipped { workload: key, why: why(workload, &skipped), skipped })
        });
        match why {
            Some(why) => skipped.push(Line::Skipped(why)),
            None => {
                place += 1;
                lines.push(Line::Candidate(Ranked { place, ..ranked }));
            }
        }
    }
    lines.extend(skipped);
    lines
}

/// Why a workload is no candidate whatever is short, as a plan has it.
pub(super) fn untouchable(workload: &Workload) -> Option<SkipReason> {
    if let Some(reason) = workload.never_ended() {
        return Some(reason);
    }
    match (workload.termination, workload.state) {
        (Some(dying), State::Active | State::Terminating { .. }) => {
            Some(SkipReason::Terminating { until: dying.deadline })
        }
        _ => None,
    }
}

/// Why a workload is no candidate, in words.
pub(super) fn why(workload: &Workload, skipped: &SkipReason) -> String {
    match skipped {
        // A plan counts it as if it were on its way out.
        SkipReason::Terminating { .. } if is_dry_run_victim(workload) => {
            "dry run: would have been evicted".to_owned()
        }
        skipped => reason(skipped),
    }
}

/// Whether it would have been evicted, but for the dry run, and runs on.
pub(super) fn is_dry_run_victim(workload: &Workload) -> bool {
    workload.termination.is_some_and(|dying| dying.dry_run)
}

fn text(lines: &[Line<'_>]) -> String {
    let mut text = String::new();
    if !lines.iter().any(|line| matches!(line, Line::Candidate(_))) {
        text.push_str("no eviction candidates\n");
    }
    for line in lines {
        let line = match line {
            Line::Candidate(candidate) => ranked(candidate),
            Line::Skipped(Skipped { workload, why, .. }) => {
                format!("  -. {}  skipped: {why}", workload.name)
            }
        };
        text.push_str(&plain(&line));
        text.push('\n');
    }
    text
}

fn signal(name: &str) -> anyhow::Result<Signal> {
    let known = || Signal::ALL.map(Signal::name).join(", ");
    Signal::from_name(name).ok_or_else(|| anyhow!("unknown signal; use one of {}", known()))
}
