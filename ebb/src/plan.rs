//! `ebb plan`: the pure core on a saved snapshot, or on what a running agent knows. Decides and prints; it touches nothing of this node.

mod batch;
mod text;

use super::configured::ConfigArgs;
use super::running_agent::RunningAgent;
use super::{Failure, json};
use anyhow::{Context as _, anyhow, ensure};
use ebb_agent::config::{Config, Setting, placed};
use ebb_journal::text::plain;
use ebb_policy::limits::ConfigError;
use ebb_policy::snapshot::SCHEMA_VERSION;
use ebb_policy::{History, Snapshot, decide};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
pub(super) use text::{describe, list, standing, threshold};

/// Arguments of `ebb plan`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["snapshot", "batch", "explain_config", "api"])))]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// The snapshot, as `ebb snapshot` prints it; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Many passes in one process: a snapshot a line, answered by a line each; what a pass remembers is carried on to the next. `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    batch: Option<PathBuf>,
    /// Make the latest decision of the agent whose API has its socket there once more, as in /run/ebb/api.sock; by the thresholds of the configuration that is named, if one is. Protection, preference and priorities stay those that the agent has given. Nothing is done.
    #[arg(long, value_name = "PATH", conflicts_with = "history")]
    api: Option<PathBuf>,
    /// Decide nothing: list every setting in force, those in the file and those that follow from leaving them out.
    #[arg(long)]
    explain_config: bool,
    /// What the previous pass remembered, as printed under `history` or written by --history-out; without it, this is a first pass.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Write what this pass remembers to this file, for the next one.
    #[arg(long, value_name = "FILE")]
    history_out: Option<PathBuf>,
    /// Form of the answer; as JSON one object with `plan` and `history`, whose schemas are in docs/schema.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Form of the answer.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(super) enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(socket) = &args.api {
        let RunningAgent { config, snapshot, history, .. } = RunningAgent::ask(socket)?;
        let config = if args.config.is_given() { args.config.load()? } else { config };
        return decide_and_print(args, &config, &snapshot, &history);
    }
    let config = args.config.load()?;
    if args.explain_config {
        return explain(&args.config, &config, args.output);
    }
    let history = history(args.history.as_deref())?;
    if let Some(path) = &args.batch {
        let (history, result) = batch::run(path, &config, history);
        remember(args.history_out.as_deref(), &history)?;
        return result;
    }
    // One of the two is given, as the arguments demand.
    let path = args.snapshot.as_deref().unwrap_or(Path::new("-"));
    decide_and_print(args, &config, &read_snapshot(path)?, &history)
}

fn decide_and_print(
    args: &Args,
    config: &Config,
    snapshot: &Snapshot,
    history: &History,
) -> Result<(), Failure> {
    within_reach(config, snapshot)
        .map_err(|errors| Failure::Input(placed(args.config.file(), errors).into()))?;
    let (plan, history) = decide(snapshot, &config.limits, history);
    remember(args.history_out.as_deref(), &history)?;
    let answer = match args.output {
        Output::Text => describe(&plan),
        Output::Json => json::pretty(&json!({ "plan": plan, "history": history }))? + "\n",
    };
    std::io::stdout().write_all(answer.as_bytes()).context("cannot write the plan")?;
    Ok(())
}

/// Reads and checks a snapshot.
pub(super) fn read_snapshot(path: &Path) -> Result<Snapshot, Failure> {
    let snapshot: Snapshot = json::read(path).map_err(Failure::Input)?;
    check(&snapshot).with_context(|| path.display().to_string()).map_err(Failure::Input)?;
    Ok(snapshot)
}

/// What was remembered, where a file of it is named.
pub(super) fn history(path: Option<&Path>) -> Result<History, Failure> {
    path.map_or(Ok(History::default()), |path| json::read_history(path).map_err(Failure::Input))
}

/// Lists the settings in force.
fn explain(args: &ConfigArgs, config: &Config, output: Output) -> Result<(), Failure> {
    let settings = config.explain(args.file());
    let answer = match output {
        Output::Json => json::pretty(&settings)? + "\n",
        Output::Text => {
            settings.iter().map(|setting| plain(&shown(setting)).into_owned() + "\n").collect()
        }
    };
    std::io::stdout().write_all(answer.as_bytes()).context("cannot write the settings")?;
    Ok(())
}

/// A setting as a line.
pub(super) fn shown(setting: &Setting) -> String {
    let origin = if setting.given { "given" } else { "default" };
    format!("{origin:<8} {}: {}", setting.key, setting.value)
}

/// Refuses thresholds that the node of a snapshot can never be above, as far as the snapshot says how much there is.
fn within_reach(config: &Config, snapshot: &Snapshot) -> Result<(), Vec<ConfigError>> {
    let known = snapshot.signals.iter();
    let capacities = known.filter_map(|(signal, seen)| Some((*signal, seen.capacity?))).collect();
    let errors = config.out_of_reach(&capacities);
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn remember(path: Option<&Path>, history: &History) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let text = json::pretty(history)? + "\n";
    std::fs::write(path, text).with_context(|| format!("{}: cannot be written", path.display()))?;
    Ok(())
}

/// What the types cannot hold: the version, and that nothing is listed twice.
fn check(snapshot: &Snapshot) -> anyhow::Result<()> {
    ensure!(
        snapshot.schema_version == SCHEMA_VERSION,
        "schemaVersion = {}: this ebb reads version {SCHEMA_VERSION}",
        snapshot.schema_version
    );
    let Snapshot { workloads, containers, sandboxes, images, .. } = snapshot;
    unique("workloads", "key", workloads.iter().map(|w| &w.key))?;
    unique("workloads", "key.uid", workloads.iter().filter_map(|w| w.key.uid.as_ref()))?;
    unique("containers", "id", containers.iter().map(|c| &c.id))?;
    unique("sandboxes", "id", sandboxes.iter().map(|s| &s.id))?;
    unique("images", "id", images.iter().map(|i| (&i.id, &i.runtime_handler)))?;
    for workload in workloads {
        let name = &workload.key.name;
        let path = |list| format!("workloads[{name:?}].{list}");
        unique(&path("containers"), "name", workload.containers.iter().map(|c| &c.name))?;
        unique(&path("volumes"), "name", workload.volumes.iter().map(|v| &v.name))?;
        if let Some(stats) = &workload.stats {
            unique(&path("stats.containers"), "name", stats.containers.iter().map(|c| &c.name))?;
            unique(&path("stats.volumes"), "name", stats.volumes.iter().map(|v| &v.name))?;
        }
    }
    Ok(())
}

/// Refuses a list in which two items are the same by `field`; what both say is shown as JSON.
fn unique<T: Ord + Serialize>(
    list: &str,
    field: &str,
    items: impl Iterator<Item = T>,
) -> anyhow::Result<()> {
    let mut seen = BTreeMap::new();
    for (index, item) in items.enumerate() {
        let shown = json::line(&item)?;
        if let Some(first) = seen.insert(item, index) {
            return Err(anyhow!(
                "{list}[{index}]: {field} = {shown} is there twice, first at {list}[{first}]; keep one of them"
            ));
        }
    }
    Ok(())
}
