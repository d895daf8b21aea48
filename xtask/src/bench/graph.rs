//! The cluster collector's graph by itself: how it grows.
use super::host::conditions;
use crate::sh;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::process::Command;

const COUNTS: [&str; 3] = ["100000", "300000", "1000000"];
/// The first is the number of objects.
const COLUMNS: usize = 7;

/// Run it for each size in a process of its own, and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When it cannot be run.
pub(crate) fn run() -> Result<String> {
    let mut text = format!(
        "## The graph of the cluster collector\n\n\
         Conditions: {}. Each Deployment owns a ReplicaSet, and each ReplicaSet eight Pods; no cluster.\n\
         Bytes are what the kernel counts as resident, names included; the rates are objects a second on one core.\n\n\
         | objects | bytes each | of which name | observed | changed | judged | forgotten |\n|---|---|---|---|---|---|---|\n",
        conditions()?
    );
    for count in COUNTS {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(sh::root()).args(["run", "--quiet", "--release", "--package"]);
        cargo.args(["ebb-policy-cluster", "--example", "size", "--", count]);
        let told = sh::read(&mut cargo)?;
        let row: Vec<&str> = told.lines().last().unwrap_or_default().split_whitespace().collect();
        let row: &[&str; COLUMNS] =
            row[..].try_into().ok().context("the example does not print its columns")?;
        // Writing into a String cannot fail.
        _ = writeln!(text, "| {} |", row.join(" | "));
    }
    Ok(text)
}
