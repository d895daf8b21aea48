//! Runs a scenario: decides, and holds the plan against what is expected.
use super::{Case, Configuration, Pass, Scenario, cgroups, subset};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use ebb_agent::config::{Config, ConfigErrors};
use ebb_policy::limits::{Limits, Options, RawEviction};
use ebb_policy::{History, Plan, Snapshot, decide};
use serde_json::Value;
use std::io::Write as _;

/// Runs a scenario of a rule that is the kubelet's or one of ebb's own.
///
/// # Errors
/// What differs from what is expected, or what cannot be read.
pub fn check(scenario: &Scenario, is_the_kubelets: bool) -> Result<()> {
    let config = configuration(&scenario.configuration)?;
    match &scenario.case {
        Case::Refused(errors) => match config {
            Ok(_) => bail!("the configuration is accepted"),
            Err(said) => check_errors(errors, &said.to_string()),
        },
        Case::Cgroups { node, pods, expected } => cgroups::check(node, pods, expected, &config?),
        Case::Passes(passes) => {
            let mut config = config?;
            if is_the_kubelets {
                evict_for_anything(&mut config)?;
            }
            check_passes(passes, &config)
        }
    }
}

/// The configuration of a scenario, or what is said of it.
///
/// # Errors
/// When a KubeletConfiguration cannot be put into a file.
pub fn configuration(written: &Configuration) -> Result<Result<Config, ConfigErrors>> {
    match written {
        Configuration::Ebb(text) => Ok(Config::parse(text)),
        Configuration::Kubelet(text) => {
            let mut file = tempfile::NamedTempFile::new()?;
            file.write_all(text.as_bytes())?;
            Ok(Config::load_kubelet(file.path()))
        }
    }
}

fn check_passes(passes: &[Pass], config: &Config) -> Result<()> {
    let mut history = History::default();
    for (number, Pass { snapshot, plan: expected }) in passes.iter().enumerate() {
        let pass = format!("pass {}", number + 1);
        let (plan, next) = run(config, snapshot, &history).context(pass.clone())?;
        let differences = subset::differences(expected, &plan);
        ensure!(
            differences.is_empty(),
            "{pass} is not as expected:\n  {}\nthe plan is\n{plan:#}",
            differences.join("\n  ")
        );
        history = next;
    }
    Ok(())
}

/// Has whoever is first in the ranking evicted, however little that frees: the kubelet's rule, from which ebb differs as the rule `nobody-goes-for-nothing` says.
fn evict_for_anything(config: &mut Config) -> Result<()> {
    let options = config.limits.options().clone();
    let options = Options { min_freed_of_threshold: 0, min_freed_of_need: 0, ..options };
    let raw = RawEviction { options: Some(options), ..config.eviction.clone() };
    config.limits = Limits::new(&raw).map_err(|errors| anyhow!("{errors:?}"))?;
    Ok(())
}

/// Every line that is expected must be the beginning of what is said somewhere, and nothing else may be said.
pub(super) fn check_errors(expected: &[String], said: &str) -> Result<()> {
    let mut said: Vec<&str> = said.lines().collect();
    for line in expected {
        let place = said.iter().position(|message| {
            message.split_once(": ").is_some_and(|(_, message)| message.starts_with(line))
        });
        match place {
            Some(index) => drop(said.remove(index)),
            None => bail!("nobody says {line:?}; what is said is\n{}", said.join("\n")),
        }
    }
    ensure!(said.is_empty(), "this was not expected:\n{}", said.join("\n"));
    Ok(())
}

/// Decides on a snapshot. Every decision is made again on the snapshot with all lists reversed, and must be the same.
fn run(config: &Config, snapshot: &Value, history: &History) -> Result<(Value, History)> {
    let mut reversed = snapshot.clone();
    reverse(&mut reversed);
    let decided = |snapshot: Value| -> Result<(Plan, History)> {
        let snapshot: Snapshot = serde_json::from_value(snapshot).context("the snapshot")?;
        Ok(decide(&snapshot, &config.limits, history))
    };
    let (plan, next) = decided(snapshot.clone())?;
    let (plan_reversed, next_reversed) = decided(reversed)?;
    ensure!(
        plan == plan_reversed,
        "the order of the lists changes the plan:\n{plan:#?}\n{plan_reversed:#?}"
    );
    ensure!(next == next_reversed, "the order of the lists changes the history");
    let text = serde_json::to_string(&next)?;
    let read_back: History =
        serde_json::from_str(&text).context("the history cannot be read back")?;
    ensure!(next == read_back, "the history is not what was written");
    Ok((serde_json::to_value(plan)?, next))
}

/// Reverses every list but those that a specification orders (init containers, which `startOrder` orders where it is given).
fn reverse(value: &mut Value) {
    match value {
        Value::Array(items) => {
            let ordered = items.iter().any(|item| {
                matches!(item.get("kind").and_then(Value::as_str), Some("init" | "sidecar"))
                    && item.get("startOrder").is_none()
            });
            if !ordered {
                items.reverse();
            }
            items.iter_mut().for_each(reverse);
        }
        Value::Object(fields) => fields.values_mut().for_each(reverse),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
