//! Measurements of listing and planning on this host, with a runtime in the benchmark's own process.
use super::host::{cargo_bench, conditions, forget_results, results};
use crate::sh;
use anyhow::{Context, Result};

/// What the benchmark prints before what the agent has resident.
const RESIDENT: &str = "resident: ";

/// Run it and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When it cannot be run.
pub(crate) fn run() -> Result<String> {
    forget_results()?;
    let told = sh::read(cargo_bench("ebb-tests", "inventory").args(["--", "--noplot"]))?;
    let resident = told.lines().find_map(|line| line.strip_prefix(RESIDENT));
    let resident = resident.context("the benchmark does not say what is resident")?;
    Ok(format!(
        "## Listing and planning\n\n\
         Conditions: {}. Medians of criterion with their 95 % interval.\n\
         110 pods with three containers each, one of them dead, and 1,000 images of ten layers, half of them shared; the runtime is in the benchmark's process and answers over its socket, so that what a real one takes to find its answers is not in these figures.\n\n\
         | | time | |\n|---|---|---|\n{}\n\n\
         The agent beside it, as a process of its own without BPF: {resident}.\n",
        conditions()?,
        results()?,
    ))
}
