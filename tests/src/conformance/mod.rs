//! The conformance suite: a file for each rule, in it the rule and a YAML document for each scenario.
//!
//! `tests/conformance/README.md` says how a scenario is written.
//! Here files are read; [`defaults`] fills in what a scenario leaves out, [`check`] and [`cgroups`] hold plans against it,
//! [`subset`] compares what is expected with an answer, [`document`] writes `docs/conformance.md`.
use crate::repository;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::{
    fs,
    path::{Path, PathBuf},
};

pub mod cgroups;
pub mod check;
pub mod defaults;
pub mod document;
pub mod subset;

/// A rule with its scenarios.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What the rule says.
    pub text: String,
    /// Where ebb differs on purpose, or can be told to.
    pub difference: Option<String>,
    /// At least one, in the order of the file.
    pub scenarios: Vec<Scenario>,
}

/// Where a rule is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleFile {
    /// Folder of the section, such as `a4-ranking`.
    pub section: String,
    /// Name of the file without `.yaml`, such as `memory`.
    pub name: String,
}

/// A scenario with its defaults filled in.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it is about, such as `three keys`.
    pub name: String,
    /// The configuration.
    pub configuration: Configuration,
    /// What is given besides it, and what is expected.
    pub case: Case,
}

/// A configuration.
#[derive(Clone, Debug)]
pub enum Configuration {
    /// `ebb.yaml`.
    Ebb(String),
    /// A KubeletConfiguration.
    Kubelet(String),
}

/// What is given besides the configuration, and what is expected.
#[derive(Clone, Debug)]
pub enum Case {
    /// Decisions, each with the history of the one before.
    Passes(Vec<Pass>),
    /// A configuration that is refused: what is said of it.
    Refused(Vec<String>),
    /// Cgroups of pods.
    Cgroups {
        /// Facts about the node.
        node: Value,
        /// Manifests.
        pods: Value,
        /// What is planned, or what is said of wrong input.
        expected: Result<Value, Vec<String>>,
    },
}

/// A snapshot, and what its plan must say.
#[derive(Clone, Debug)]
pub struct Pass {
    /// The snapshot in its JSON form.
    pub snapshot: Value,
    /// What the rule is about, written by hand from the rule: see [`subset`].
    pub plan: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    rule: String,
    difference: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    scenario: String,
    config: Option<Value>,
    kubelet: Option<String>,
    snapshot: Option<Map<String, Value>>,
    plan: Option<Value>,
    passes: Option<Vec<WrittenPass>>,
    node: Option<Value>,
    pods: Option<Vec<Value>>,
    cgroups: Option<Value>,
    errors: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPass {
    snapshot: Map<String, Value>,
    plan: Value,
}

/// The file of every rule, in order.
///
/// # Errors
/// When a folder cannot be read, or there is no rule at all.
pub fn files() -> Result<Vec<RuleFile>> {
    let mut found = Vec::new();
    for section in entries(&folder())?.into_iter().filter(|path| path.is_dir()) {
        let files = entries(&section)?;
        ensure!(!files.is_empty(), "{}: there is no rule", section.display());
        for file in files {
            let is_rule = file.is_file() && file.extension().is_some_and(|end| end == "yaml");
            ensure!(is_rule, "{}: only rules belong here, as RULE.yaml", file.display());
            let stem = |path: &Path| path.file_stem().unwrap_or_default().to_owned();
            found.push(RuleFile {
                section: stem(&section).to_string_lossy().into_owned(),
                name: stem(&file).to_string_lossy().into_owned(),
            });
        }
    }
    ensure!(!found.is_empty(), "{}: there is no rule", folder().display());
    found.sort();
    Ok(found)
}

fn folder() -> PathBuf {
    repository().join("tests/conformance")
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {folder:?}"))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

impl RuleFile {
    /// Reads the rule.
    ///
    /// # Errors
    /// When the file cannot be read or a scenario in it is not whole; names the file and the scenario.
    pub fn read(&self) -> Result<Rule> {
        let path = folder().join(&self.section).join(format!("{}.yaml", self.name));
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        parse(&text).with_context(|| path.display().to_string())
    }

    /// Whether the rule is the kubelet's, rather than one of ebb's own.
    #[must_use]
    pub fn is_the_kubelets(&self) -> bool {
        self.section != "c-beyond-the-kubelet"
    }
}

/// The rule and the scenarios of a file.
fn parse(text: &str) -> Result<Rule> {
    // A name such as `n` or `on` is a name, not a truth value, as where configuration and manifests are read.
    let options = serde_saphyr::options! { strict_booleans: true };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| anyhow!(ebb_agent::yaml::problem(&error)))?;
    let mut documents = documents.into_iter();
    let head: Head = read(documents.next().context("the file is empty")?).context("the rule")?;
    let mut scenarios: Vec<Scenario> = Vec::new();
    for document in documents {
        let name = document.get("scenario").and_then(Value::as_str).unwrap_or_default().to_owned();
        let place = format!("scenario {name:?}, number {} of the file", scenarios.len() + 1);
        let scenario = read(document).and_then(Written::scenario).context(place.clone())?;
        let is_new = scenarios.iter().all(|other| other.name != scenario.name);
        ensure!(is_new, "{place}: another one has the same name");
        scenarios.push(scenario);
    }
    ensure!(!scenarios.is_empty(), "there is no scenario");
    Ok(Rule { text: head.rule.trim().to_owned(), difference: head.difference, scenarios })
}

fn read<T: DeserializeOwned>(document: Value) -> Result<T> {
    Ok(serde_json::from_value(document)?)
}

impl Written {
    fn scenario(self) -> Result<Scenario> {
        let Written { scenario, config, kubelet, snapshot, plan, passes, .. } = self;
        ensure!(!scenario.is_empty(), "`scenario` says what it is about");
        ensure!(self.node.is_none() || self.pods.is_some(), "`node` goes with `pods`");
        let configuration = match (config, kubelet) {
            (Some(_), Some(_)) => bail!("`config` and `kubelet` exclude each other"),
            (None, Some(kubelet)) => Configuration::Kubelet(kubelet),
            (config, None) => Configuration::Ebb(defaults::config(config)?),
        };
        let case = match (snapshot, plan, passes, self.pods, self.cgroups, self.errors) {
            (Some(snapshot), Some(plan), None, None, None, None) => {
                Case::Passes(defaults::passes([(snapshot, plan)])?)
            }
            (None, None, Some(passes), None, None, None) if !passes.is_empty() => {
                let passes = passes.into_iter().map(|pass| (pass.snapshot, pass.plan));
                Case::Passes(defaults::passes(passes)?)
            }
            (None, None, None, Some(pods), cgroups, errors) => Case::Cgroups {
                node: self.node.unwrap_or_else(defaults::node),
                pods: defaults::pods(pods)?,
                expected: match (cgroups, errors) {
                    (Some(cgroups), None) => Ok(cgroups),
                    (None, Some(errors)) => Err(errors),
                    _ => bail!("`pods` go with either `cgroups` or `errors`"),
                },
            },
            (None, None, None, None, None, Some(errors)) => Case::Refused(errors),
            _ => bail!(
                "a scenario has either `snapshot` and `plan`, or `passes`, or `pods` with `cgroups` or `errors`, or `errors` of its configuration"
            ),
        };
        Ok(Scenario { name: scenario, configuration, case })
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn error(text: &str) -> String {
        format!("{:#}", parse(text).unwrap_err())
    }

    #[test]
    fn a_file_without_scenarios_is_refused() {
        assert_eq!(error("rule: something\n"), "there is no scenario");
    }

    #[test]
    fn an_unknown_key_is_named_with_the_scenario() {
        let error = error("rule: r\n---\nscenario: s\nsnapshot: {}\nplans: {}\n");
        assert!(error.starts_with("scenario \"s\", number 1 of the file: "), "{error}");
        assert!(error.contains("unknown field `plans`"), "{error}");
    }

    #[test]
    fn a_scenario_that_expects_nothing_is_refused() {
        let said = error("rule: r\n---\nscenario: s\nsnapshot: {}\n");
        assert!(said.contains("a scenario has either `snapshot` and `plan`"), "{said}");
    }

    #[test]
    fn two_scenarios_of_one_name_are_refused() {
        let one = "---\nscenario: s\nerrors: []\n";
        let said = error(&format!("rule: r\n{one}{one}"));
        assert!(said.ends_with("another one has the same name"), "{said}");
    }
}
