//! `cargo xtask alerts`: whether Prometheus reads the alert rules of the controller and of the agents, and when each alert fires; and whether it reads what the dashboards ask.
//!
//! promtool is that of Debian's package of this name, unpacked and not installed. The cases are in `alerts/`.

use crate::{alone, dashboards, debs, sh};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SUITE: &str = "trixie";
const PROMTOOL: &str = "promtool";
const PROMETHEUS: &str = "prometheus";
/// Rules, and the cases that each file of them is tested by.
const RULES: [(&str, &str); 2] = [
    ("deploy/kustomize/controller-alerts/rules.yaml", include_str!("alerts/controller.yaml")),
    ("deploy/kustomize/node-alerts/rules.yaml", include_str!("alerts/node.yaml")),
];

/// Options of `cargo xtask alerts`.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<()> {
    check()
}

/// The program of Prometheus itself, for the tests that it has a part in.
pub(crate) fn prometheus() -> Result<PathBuf> {
    debs::program(SUITE, PROMETHEUS).context("cannot get Debian's Prometheus")
}

/// What the check runs.
pub(crate) fn check() -> Result<()> {
    let promtool = debs::program(SUITE, PROMTOOL)?;
    let dir = alone::partial(&sh::cache()?.join("alerts"))?;
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let checked = check_in(&dir, &promtool).and_then(|()| dashboards::check_in(&dir, &promtool));
    alone::remove(&dir)?;
    checked
}

fn check_in(dir: &Path, promtool: &Path) -> Result<()> {
    for (rules, cases) in RULES {
        let path = sh::root().join(rules);
        let manifest =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        println!("{rules}");
        for (name, text) in [("rules.yaml", &*spec(&manifest)?), ("cases.yaml", cases)] {
            fs::write(dir.join(name), text).with_context(|| format!("cannot write {name}"))?;
        }
        for (what, file) in [("check", "rules.yaml"), ("test", "cases.yaml")] {
            sh::run(Command::new(promtool).current_dir(dir).args([what, "rules", file]))?;
        }
    }
    Ok(())
}

/// The rules file in a PrometheusRule: its `spec`, which comes last.
fn spec(manifest: &str) -> Result<String> {
    let (_, spec) = manifest.split_once("\nspec:\n").context("a PrometheusRule without spec")?;
    let lines = spec.lines().map(|line| {
        let line = line.strip_prefix("  ").with_context(|| format!("after spec: {line}"))?;
        Ok(line.to_owned() + "\n")
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_what_is_below_spec_and_nothing_may_follow_it() {
        assert_eq!(spec("kind: A\nspec:\n  groups:\n    - b\n").unwrap(), "groups:\n  - b\n");
        assert!(spec("kind: A\nspec:\n  groups: []\nstatus: {}\n").is_err());
        assert!(spec("kind: A\n").is_err());
    }
}
