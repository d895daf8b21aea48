//! `ebb pods`: the pods that the runtime has, with what they use and asked for.

use super::configured::ConfigArgs;
use super::node::NodeArgs;
use super::plan::Output;
use super::runtime::{RuntimeArgs, Sight, table};
use super::{Failure, event_loop, json, warn};
use anyhow::Context as _;
use ebb_journal::text::bytes;
use ebb_policy::snapshot::{ContainerState, State, Workload, WorkloadKind};
use std::io::Write as _;

/// Arguments of `ebb pods`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    runtime: RuntimeArgs,
    /// Form of the answer; as JSON a list of pods.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let sight = event_loop()?.block_on(Sight::take(&args.node, &args.config, &args.runtime))?;
    for note in &sight.notes {
        warn("note", note);
    }
    let mut pods: Vec<&Workload> =
        sight.snapshot.workloads.iter().filter(|w| w.kind == WorkloadKind::Pod).collect();
    pods.sort_by(|a, b| a.key.cmp(&b.key));
    let answer = match args.output {
        Output::Json => json::pretty(&pods)? + "\n",
        Output::Text => {
            let rows: Vec<Vec<String>> = pods.iter().map(|pod| row(pod, &sight)).collect();
            table(&HEAD, &rows)
        }
    };
    std::io::stdout().write_all(answer.as_bytes()).context("cannot write the pods")?;
    Ok(())
}

const HEAD: [&str; 7] = ["POD", "STATE", "CONTAINERS", "DEAD", "MEMORY", "DISK", "PRIORITY"];

fn row(pod: &Workload, sight: &Sight) -> Vec<String> {
    let containers =
        || sight.snapshot.containers.iter().filter(|c| Some(&c.pod_uid) == pod.key.uid.as_ref());
    let running = containers().filter(|c| c.state == ContainerState::Running).count();
    let stats = pod.stats.as_ref();
    let memory = stats.and_then(|s| s.memory?.working_set());
    let disk = stats.and_then(|s| s.ephemeral_storage);
    let or_unknown = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), bytes);
    let state = match pod.state {
        _ if pod.evicted => "evicted",
        State::Active if pod.deleted => "no manifest",
        State::Active if pod.static_pod => "static",
        State::Active => "running",
        State::Terminating { .. } => "terminating",
        State::Terminated { .. } => "terminated",
    };
    vec![
        pod.key.name.clone(),
        state.to_owned(),
        running.to_string(),
        (containers().count() - running).to_string(),
        or_unknown(memory),
        or_unknown(disk),
        pod.priority.map_or_else(|| "-".to_owned(), |priority| priority.to_string()),
    ]
}
