//! `ebb plan`: the pure core on a saved snapshot. Reads files, decides, prints; it touches nothing of this node.

use super::Failure;
use super::configured::ConfigArgs;
use crate::report;
use anyhow::{Context as _, anyhow, ensure};
use ebb_policy::plan::{Action, Evict, Kept, Subject, ThresholdStatus};
use ebb_policy::snapshot::SCHEMA_VERSION;
use ebb_policy::{History, Plan, Snapshot, decide};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Arguments of `ebb plan`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// The snapshot, as `ebb snapshot` prints it; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    snapshot: PathBuf,
    /// What the previous pass remembered, as printed under `history` or written by --history-out; without it, this is a first pass.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Write what this pass remembers to this file, for the next one.
    #[arg(long, value_name = "FILE")]
    history_out: Option<PathBuf>,
    /// Form of the answer.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Form of the answer.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(super) enum Output {
    /// For people.
    #[default]
    Text,
    /// One JSON object with `plan` and `history`; the schemas are in docs/schema.
    Json,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let config = args.config.load()?;
    let snapshot: Snapshot = read(&args.snapshot)?;
    check(&snapshot)
        .with_context(|| args.snapshot.display().to_string())
        .map_err(Failure::Input)?;
    let history: History = match &args.history {
        Some(path) => read(path)?,
        None => History::default(),
    };
    let (plan, history) = decide(&snapshot, &config.limits, &history);
    if let Some(path) = &args.history_out {
        let text = pretty(&history)?;
        std::fs::write(path, text + "\n")
            .with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    let answer = match args.output {
        Output::Text => describe(&plan),
        Output::Json => pretty(&json!({ "plan": plan, "history": history }))? + "\n",
    };
    std::io::stdout().write_all(answer.as_bytes()).context("cannot write the plan")?;
    Ok(())
}

/// Reads a JSON file into a checked type; the error names the file, the field and the line.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let parsed =
        text.map_err(|error| anyhow!("cannot be read: {error}")).and_then(|text| parse(&text));
    parsed.with_context(|| path.display().to_string()).map_err(Failure::Input)
}

fn parse<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| anyhow!("not complete, correct JSON: {error}"))?;
    // The answer of an earlier `ebb plan` holds the history beside the plan.
    let value = match value {
        Value::Object(mut both) if both.contains_key("plan") && both.contains_key("history") => {
            both.remove("history").unwrap_or_default()
        }
        other => other,
    };
    serde_json::from_value::<T>(value).map_err(|from_value| {
        // Reading the text again tells the line, which reading a value cannot; an answer's line would mislead.
        match serde_json::from_str::<T>(text) {
            Err(from_text) if from_text.line() > 0 => anyhow!("{from_text}"),
            _ => anyhow!("{from_value}"),
        }
    })
}

/// What the types cannot hold: the version, and that nothing is listed twice.
pub(super) fn check(snapshot: &Snapshot) -> anyhow::Result<()> {
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

fn unique<T: Ord + std::fmt::Debug>(
    list: &str,
    field: &str,
    items: impl Iterator<Item = T>,
) -> anyhow::Result<()> {
    let mut seen = BTreeSet::new();
    for item in items {
        let shown = format!("{item:?}");
        ensure!(seen.insert(item), "{list}: {field} = {shown} is there twice; keep one of them");
    }
    Ok(())
}

/// JSON without the fields that say nothing: an absent field and `null` mean the same.
pub(super) fn pretty(value: &impl serde::Serialize) -> anyhow::Result<String> {
    let mut value = serde_json::to_value(value).context("cannot be written as JSON")?;
    strip(&mut value);
    serde_json::to_string_pretty(&value).context("cannot be written as JSON")
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A plan for people.
fn describe(plan: &Plan) -> String {
    let mut lines = String::new();
    let mut say = |line: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{line}");
    };
    for status in &plan.thresholds {
        say(threshold(status));
    }
    for condition in plan.conditions.iter().filter(|condition| condition.status) {
        say(format!("condition {}: {}", condition.condition_type, condition.message));
    }
    for event in &plan.events {
        say(format!("event {}: {}", event.reason, event.message));
    }
    if plan.actions.is_empty() {
        say("nothing to do".to_owned());
    }
    for action in &plan.actions {
        say(describe_action(action));
    }
    if !plan.ranking.is_empty() {
        say("ranking, the first victim first:".to_owned());
    }
    for ranked in &plan.ranking {
        say(report::ranked(ranked));
    }
    for kept in &plan.kept {
        say(describe_kept(kept));
    }
    for answer in &plan.admissions {
        let verdict = if answer.admit { "admitted" } else { "refused" };
        let why = answer.message.as_deref().map(|why| format!(": {}", why.trim_end()));
        say(format!("{verdict} {}{}", answer.workload.name, why.unwrap_or_default()));
    }
    for note in report::notes(plan) {
        say(format!("note: {note}"));
    }
    if let Some(wake) = plan.wake_in {
        say(format!("look again in {wake} at the latest"));
    }
    lines
}

fn threshold(status: &ThresholdStatus) -> String {
    let ThresholdStatus { signal, strength, state, threshold, available, grace_left, .. } = status;
    let mut line = format!("{signal} ({strength:?}): {state:?}");
    if let (Some(threshold), Some(available)) = (threshold, available) {
        let _ =
            write!(line, ", threshold {threshold}, {} left", report::amount(*signal, *available));
    }
    if let Some(left) = grace_left {
        let _ = write!(line, ", acts in {left}");
    }
    line
}

fn describe_action(action: &Action) -> String {
    match action {
        Action::Evict(evict) => {
            let Evict { workload, grace, message, .. } = &**evict;
            format!("end {} within {} s: {}", workload.name, grace.0, message.trim_end())
        }
        Action::RemoveContainer(container) => {
            format!(
                "remove container {} ({}): {:?}",
                container.id, container.name, container.reason
            )
        }
        Action::RemoveSandbox(sandbox) => {
            format!("remove sandbox {}: {:?}", sandbox.id, sandbox.reason)
        }
        Action::RemoveLogDir(dir) => format!("remove logs {}: {:?}", dir.path, dir.reason),
        Action::RemoveLogLink(link) => format!("remove link {}: {:?}", link.path, link.reason),
        Action::RemoveImage(image) => format!("remove image {}: {:?}", image.id, image.reason),
        Action::Warn(warn) => format!("warn {}: {}", warn.workload.name, warn.message),
        Action::ReclaimMemory(reclaim) => {
            format!("reclaim {} bytes from {}", reclaim.bytes, reclaim.workload.name)
        }
        Action::Throttle(throttle) => {
            format!("slow {} down at {} bytes", throttle.workload.name, throttle.high)
        }
        Action::Freeze(freeze) => format!("freeze {}", freeze.workload.name),
        Action::Release(release) => format!("release {}", release.workload.name),
    }
}

fn describe_kept(kept: &Kept) -> String {
    let subject = match &kept.subject {
        Subject::Workload { workload } => workload.name.clone(),
        Subject::Container { id } => format!("container {id}"),
        Subject::Sandbox { id } => format!("sandbox {id}"),
        Subject::Image { id } => format!("image {id}"),
        Subject::LogDir { path } | Subject::LogLink { path } => path.clone(),
    };
    format!("kept {subject}: {:?}", kept.reason)
}
