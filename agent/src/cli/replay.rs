//! `ebb replay`: the decisions of a recorded incident again, by the same limits or by others.

use super::Failure;
use super::configured::ConfigArgs;
use super::plan;
use crate::config::Config;
use crate::report::incident::{Incident, SCHEMA_VERSION};
use anyhow::{Context as _, anyhow};
use ebb_policy::{Plan, decide};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

/// Arguments of `ebb replay`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The incident record, as `ebb run --incidents DIR` stores it.
    incident: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let incident: Incident = plan::read(&args.incident)?;
    let name = args.incident.display();
    if incident.schema_version != SCHEMA_VERSION {
        let found = incident.schema_version;
        return Err(Failure::Input(anyhow!(
            "{name}: schemaVersion = {found}: this ebb reads version {SCHEMA_VERSION}"
        )));
    }
    let config = if args.config.is_given() {
        args.config.load()?
    } else {
        Config::parse(&incident.config)
            .with_context(|| format!("{name}: the configuration in it"))
            .map_err(Failure::Input)?
    };
    let mut differing = 0;
    let mut text = String::new();
    for (nth, decision) in incident.decisions.iter().enumerate() {
        let (again, _) = decide(&decision.snapshot, &config.limits, &decision.history);
        let (then, now) = (ended(&decision.plan), ended(&again));
        let verdict = if then == now { "the same" } else { "different" };
        differing += usize::from(then != now);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "decision {}: {verdict}", nth + 1);
        let _ = writeln!(text, "  then: {}", list(&then));
        let _ = writeln!(text, "  now:  {}", list(&now));
        for ranked in again.ranking.iter().take(5) {
            let _ = writeln!(text, "  {}", crate::report::ranked(ranked));
        }
    }
    let _ = writeln!(text, "{} decisions, {differing} different", incident.decisions.len());
    std::io::stdout().write_all(text.as_bytes()).context("cannot write the decisions")?;
    Ok(())
}

/// Whom a plan ends.
fn ended(plan: &Plan) -> Vec<&str> {
    plan.evictions().map(|evict| evict.workload.name.as_str()).collect()
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
}
