//! The conformance suite: a folder for each rule, in it a folder for each scenario.
//!
//! ```text
//!  conformance/SECTION/RULE/rule.md                       what the rule says, and where ebb differs on purpose
//!                          /SCENARIO/config.yaml          or kubelet.yaml
//!                                   /snapshot.json, plan.json          one pass, or
//!                                   /1-snapshot.json, 1-plan.json, …   several, each with the history of the one before
//!                                   /pods.yaml, node.yaml, cgroups.json            for cgroups: see [`crate::cgroups`]
//!                                   /errors.txt           instead of an answer: what is said of wrong input
//! ```
//! `plan.json` holds what the rule is about, written by hand from the rule: see [`crate::subset`].
use crate::{repository, subset};
use anyhow::{Context as _, Result, bail, ensure};
use ebb::config::Config;
use ebb_policy::{History, Plan, Snapshot, decide};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A rule with its scenarios.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Folder of the section.
    pub section: String,
    /// Folder of the rule.
    pub name: String,
    /// What the rule says.
    pub text: String,
    /// Where ebb differs on purpose, or can be told to.
    pub difference: Option<String>,
    /// The scenario folders, in order.
    pub scenarios: Vec<PathBuf>,
}

/// Every rule, in the order of the folders.
///
/// # Errors
/// When a folder cannot be read, a rule has no text or no scenario.
pub fn rules() -> Result<Vec<Rule>> {
    let mut rules = Vec::new();
    for section in folders(&repository().join("tests/conformance"))? {
        for folder in folders(&section)? {
            rules.push(rule(&section, &folder).with_context(|| folder.display().to_string())?);
        }
    }
    Ok(rules)
}

fn rule(section: &Path, folder: &Path) -> Result<Rule> {
    let text = fs::read_to_string(folder.join("rule.md")).context("rule.md cannot be read")?;
    let (text, difference) = match text.split_once("\nDifference: ") {
        Some((text, difference)) => (text, Some(difference.trim().to_owned())),
        None => (text.as_str(), None),
    };
    let scenarios = folders(folder)?;
    ensure!(!scenarios.is_empty(), "there is no scenario");
    Ok(Rule {
        section: name(section),
        name: name(folder),
        text: text.trim().to_owned(),
        difference,
        scenarios,
    })
}

/// The name of a folder.
#[must_use]
pub fn name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn folders(root: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(root).with_context(|| format!("{} cannot be read", root.display()))?;
    let mut folders = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

/// Runs a scenario.
///
/// # Errors
/// What differs from what was expected, or what cannot be read.
pub fn check(scenario: &Path) -> Result<()> {
    let config = configuration(scenario)?;
    let errors = scenario.join("errors.txt");
    if scenario.join("node.yaml").exists() {
        return crate::cgroups::check(scenario, config.map_err(anyhow::Error::from)?);
    }
    if errors.exists() {
        let said = match config {
            Ok(_) => bail!("the configuration is accepted"),
            Err(errors) => errors.to_string(),
        };
        return check_errors(&fs::read_to_string(errors)?, &said);
    }
    let config = config.map_err(anyhow::Error::from)?;
    let mut history = History::default();
    let passes = passes(scenario)?;
    ensure!(!passes.is_empty(), "there is no snapshot");
    for (number, (snapshot, expected)) in passes.iter().enumerate() {
        let pass = format!("pass {}", number + 1);
        let (plan, next) = run(&config, snapshot, &history).context(pass.clone())?;
        let expected = json(expected)?;
        let differences = subset::differences(&expected, &plan);
        ensure!(
            differences.is_empty(),
            "{pass} is not as expected:\n  {}\nthe plan is\n{plan:#}",
            differences.join("\n  ")
        );
        history = next;
    }
    Ok(())
}

/// Every line that is expected must be the beginning of what is said somewhere, and nothing else may be said.
pub(crate) fn check_errors(expected: &str, said: &str) -> Result<()> {
    let mut said: Vec<&str> = said.lines().collect();
    for line in expected.lines() {
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

fn configuration(scenario: &Path) -> Result<Result<Config, ebb::config::ConfigErrors>> {
    let kubelet = scenario.join("kubelet.yaml");
    if kubelet.exists() {
        return Ok(Config::load_kubelet(&kubelet));
    }
    let text =
        fs::read_to_string(scenario.join("config.yaml")).context("config.yaml cannot be read")?;
    Ok(Config::parse(&text))
}

/// The files of each pass, in order.
fn passes(scenario: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    let single = scenario.join("snapshot.json");
    if single.exists() {
        return Ok(vec![(single, scenario.join("plan.json"))]);
    }
    let numbered = |number: usize, what: &str| scenario.join(format!("{number}-{what}.json"));
    let found = (1..).map(|number| (numbered(number, "snapshot"), numbered(number, "plan")));
    Ok(found.take_while(|(snapshot, _)| snapshot.exists()).collect())
}

/// Decides on a snapshot file. Every decision is made again on the snapshot with all lists reversed, and must be the same.
fn run(config: &Config, file: &Path, history: &History) -> Result<(Value, History)> {
    let snapshot = json(file)?;
    let mut reversed = snapshot.clone();
    reverse(&mut reversed);
    let decided = |snapshot: Value| -> Result<(Plan, History)> {
        let snapshot: Snapshot =
            serde_json::from_value(snapshot).with_context(|| file.display().to_string())?;
        Ok(decide(&snapshot, &config.limits, history))
    };
    let (plan, next) = decided(snapshot)?;
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

pub(crate) fn json(file: &Path) -> Result<Value> {
    let text =
        fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    serde_json::from_str(&text).with_context(|| file.display().to_string())
}
