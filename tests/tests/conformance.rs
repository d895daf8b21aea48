//! Every scenario of every rule, each a test of its own: `a4_ranking::memory::three_keys`.
use ebb_tests::conformance::{Rule, RuleFile, check::check, files};
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = match files() {
        Ok(files) => files.into_iter().flat_map(trials).collect(),
        Err(error) => vec![broken("conformance".to_owned(), &error)],
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The scenarios of a rule; one test that fails where the file cannot be read.
fn trials(file: RuleFile) -> Vec<Trial> {
    let prefix = format!("{}::{}", identifier(&file.section), identifier(&file.name));
    let scenarios = match file.read() {
        Ok(Rule { scenarios, .. }) => scenarios,
        Err(error) => return vec![broken(prefix, &error)],
    };
    let is_the_kubelets = file.is_the_kubelets();
    let trial = |scenario: ebb_tests::conformance::Scenario| {
        let name = format!("{prefix}::{}", identifier(&scenario.name));
        Trial::test(name, move || check(&scenario, is_the_kubelets).map_err(failed))
    };
    scenarios.into_iter().map(trial).collect()
}

fn broken(name: String, error: &anyhow::Error) -> Trial {
    let said = format!("{error:#}");
    Trial::test(name, move || Err(said.into()))
}

fn failed(error: anyhow::Error) -> Failed {
    format!("{error:#}").into()
}

/// A name as tests have it: words with underscores in between.
fn identifier(name: &str) -> String {
    name.replace(|letter: char| !letter.is_alphanumeric(), "_")
}
