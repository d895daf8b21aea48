//! `ebb snapshot`: this node as policy sees it, for `ebb plan`, for reports and for tests.

use super::configured::ConfigArgs;
use super::look::look;
use super::node::NodeArgs;
use super::runtime::{RuntimeArgs, Sight};
use super::{Failure, event_loop, warn};
use anyhow::Context as _;
use ebb_agent::clock::Boot;
use ebb_agent::config::Config;
use ebb_agent::state::NodeState;
use ebb_journal::text;
use ebb_policy::snapshot::Workload;
use ebb_policy::{Signal, Snapshot};
use std::cmp::Reverse;
use std::io::Write as _;

/// Arguments of `ebb snapshot`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    runtime: RuntimeArgs,
    /// Form of the snapshot.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

/// Form of the snapshot: unlike elsewhere, the one for machines is the usual one.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Form {
    /// What `ebb plan` reads; the schema is in docs/schema.
    #[default]
    Json,
    /// For people: each signal, then the workloads, largest first.
    Text,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (_, snapshot) = take(&args.node, &args.config, &args.runtime)?;
    print(&snapshot, args.output)
}

fn print(snapshot: &Snapshot, form: Form) -> Result<(), Failure> {
    let text = match form {
        Form::Json => super::json::pretty(snapshot)? + "\n",
        Form::Text => lines(snapshot),
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write the snapshot")?;
    Ok(())
}

fn lines(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for (signal, seen) in &snapshot.signals {
        let of = seen.capacity.map(|c| format!(" of {}", text::amount(*signal, c)));
        let available = text::amount(*signal, seen.available);
        text += &format!("{signal}: {available}{}\n", of.unwrap_or_default());
    }
    let memory = |w: &Workload| w.stats.as_ref()?.memory?.working_set();
    let mut workloads: Vec<&Workload> = snapshot.workloads.iter().collect();
    workloads.sort_by_key(|w| (Reverse(memory(w)), &w.key));
    for workload in workloads {
        let size = memory(workload).map(|m| text::amount(Signal::MemoryAvailable, m));
        let why = workload.protected.map(|p| format!("  protected: {}", text::protection(p)));
        let size = size.unwrap_or_else(|| "not measured".to_owned());
        let name = text::plain(&workload.key.name);
        text += &format!("{size:>12}  {name}{}\n", why.unwrap_or_default());
    }
    text
}

/// Reads the node once, in full, and its runtime where one is given; with the configuration that this was done by.
pub(super) fn take(
    node: &NodeArgs,
    config: &ConfigArgs,
    runtime: &RuntimeArgs,
) -> Result<(Config, Snapshot), Failure> {
    let given = config.load_for(runtime.is_given())?;
    let runtime = &runtime.for_config(&given)?;
    if runtime.is_given() {
        let sight = event_loop()?.block_on(Sight::take(node, config, runtime))?;
        for note in &sight.notes {
            warn("note", note);
        }
        return Ok((sight.config, sight.snapshot));
    }
    let state = cgroups(node, &given)?;
    Ok((given, state.snapshot(Boot::now())))
}

/// Reads a node once, in full, whose workloads are cgroups.
pub(super) fn cgroups(node: &NodeArgs, config: &Config) -> Result<NodeState, Failure> {
    let (roots, layout) = node.find().map_err(Failure::Input)?;
    look(config, roots, layout, node.node_fs())
}
