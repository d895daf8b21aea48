//! `ebb replay`: the decisions of a recorded incident again, by the same limits or by others, and where the plans differ.

mod difference;

use super::configured::ConfigArgs;
use super::{Failure, json};
use anyhow::{Context as _, anyhow};
pub(super) use difference::differences;
use ebb_agent::config::Config;
use ebb_journal::incident::{Incident, SCHEMA_VERSION};
use ebb_journal::text::{plain, ranked};
use ebb_policy::{Plan, decide};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

/// Candidates of a ranking that are shown.
const SHOWN: usize = 5;

/// Differences of a plan that are shown.
const DIFFERENCES_SHOWN: usize = 10;

/// Arguments of `ebb replay`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The incident record, as `ebb run --incidents DIR` stores it.
    incident: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let incident: Incident = json::read(&args.incident).map_err(Failure::Input)?;
    let name = args.incident.display();
    if incident.schema_version != SCHEMA_VERSION {
        let found = incident.schema_version;
        return Err(Failure::Input(anyhow!(
            "{name}: schemaVersion = {found}: this ebb reads version {SCHEMA_VERSION}"
        )));
    }
    let other = args.config.is_given().then(|| args.config.load()).transpose()?;
    let mut text = String::new();
    let mut say = |line: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", plain(line));
    };
    let mut differing = 0;
    for (nth, decision) in incident.decisions.iter().enumerate() {
        let limits = match &other {
            Some(config) => config.limits.clone(),
            None => {
                Config::parse(decision.config.as_ref().unwrap_or(&incident.config))
                    .with_context(|| format!("{name}: the configuration of decision {}", nth + 1))
                    .map_err(Failure::Input)?
                    .limits
            }
        };
        let (again, _) = decide(&decision.snapshot, &limits, &decision.history);
        let found = differences(&decision.plan, &again)?;
        let verdict = if found.is_empty() { "the same" } else { "different" };
        differing += usize::from(!found.is_empty());
        say(&format!("decision {}: {verdict}", nth + 1));
        say(&format!("  then: {}", victims(&decision.plan)));
        say(&format!("  now:  {}", victims(&again)));
        for difference in found.iter().take(DIFFERENCES_SHOWN) {
            say(&format!("  differs at {difference}"));
        }
        if let Some(more @ 1..) = found.len().checked_sub(DIFFERENCES_SHOWN) {
            say(&format!("  and {more} differences more"));
        }
        for candidate in again.ranking.iter().take(SHOWN) {
            say(&format!("  {}", ranked(candidate)));
        }
    }
    say(&format!("{} decisions, {differing} different", incident.decisions.len()));
    std::io::stdout().write_all(text.as_bytes()).context("cannot write the decisions")?;
    if differing == 0 { Ok(()) } else { Err(Failure::Differs) }
}

/// Whom a plan evicts.
fn victims(plan: &Plan) -> String {
    let names: Vec<&str> = plan.evictions().map(|evict| evict.workload.name.as_str()).collect();
    if names.is_empty() {
        "evicts nobody".to_owned()
    } else {
        format!("evicts {}", names.join(", "))
    }
}
