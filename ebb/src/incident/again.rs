//! The decisions of an incident again: by the configuration that made them, which should change nothing, and by another.
//!
//! Each is decided by itself, from what was known and remembered then, as `ebb replay` does: what would have followed from another choice is not known.
//! Whom a configuration protects, prefers or gives a priority is in the snapshot already, so patterns of another change nothing.

use crate::replay::differences;
use ebb_agent::config::Config;
use ebb_journal::incident::{Decision, Incident};
use ebb_policy::{Plan, decide};

/// Differences that are kept of a decision.
const KEPT: usize = 8;

/// The decisions again.
#[derive(Debug)]
pub(super) struct Again {
    /// By the recorded configuration; why not, where this ebb cannot read that.
    pub(super) recorded: Result<Vec<Redecided>, String>,
    /// By another.
    pub(super) other: Option<Other>,
}

/// The decisions by another configuration.
#[derive(Debug)]
pub(super) struct Other {
    /// Its file.
    pub(super) name: String,
    pub(super) decisions: Vec<Redecided>,
}

/// One decision again.
#[derive(Debug)]
pub(super) struct Redecided {
    pub(super) plan: Plan,
    /// Where it differs from the recorded plan, each by its path with both values; the first ones.
    pub(super) differences: Vec<String>,
    /// How many differences there are.
    pub(super) count: usize,
}

impl Again {
    pub(super) fn of(incident: &Incident, other: Option<(String, &Config)>) -> Self {
        let recorded = incident.decisions.iter().enumerate().map(|(nth, decision)| {
            let text = decision.config.as_ref().unwrap_or(&incident.config);
            let config = Config::parse(text)
                .map_err(|errors| format!("the configuration of decision {}: {errors}", nth + 1))?;
            redecide(decision, &config)
        });
        let recorded = recorded.collect();
        let other = other.map(|(name, config)| Other {
            name,
            // What cannot be compared is a plan that cannot be written, which no plan is.
            decisions: incident.decisions.iter().flat_map(|d| redecide(d, config)).collect(),
        });
        Self { recorded, other }
    }

    /// Whether this ebb decides as was recorded, in one sentence without a full stop.
    pub(super) fn verdict(&self) -> String {
        match &self.recorded {
            Ok(all) if all.is_empty() => "no decision is recorded".to_owned(),
            Ok(all) => match all.iter().filter(|one| one.count > 0).count() {
                0 => format!(
                    "decided again by ebb {} with the recorded configuration: the same",
                    env!("CARGO_PKG_VERSION")
                ),
                n => format!(
                    "decided again by ebb {} with the recorded configuration: {n} of {} differ; `ebb replay` shows where",
                    env!("CARGO_PKG_VERSION"),
                    all.len()
                ),
            },
            Err(why) => format!("not decided again by this ebb: {why}"),
        }
    }
}

fn redecide(decision: &Decision, config: &Config) -> Result<Redecided, String> {
    let (plan, _) = decide(&decision.snapshot, &config.limits, &decision.history);
    let mut found = differences(&decision.plan, &plan).map_err(|error| format!("{error:#}"))?;
    let count = found.len();
    found.truncate(KEPT);
    Ok(Redecided { plan, differences: found, count })
}
