//! Measurements of listing and planning on this host, with a runtime in the benchmark's own process.
use super::criterion;
use super::figure::{Figure, Finding};
use super::host::conditions;
use crate::sh;
use anyhow::{Context, Result};

/// What the benchmark prints before what the agent has resident.
const RESIDENT: &str = "resident: ";

/// Run it and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When it cannot be run.
pub(super) fn run(is_short: bool) -> Result<Finding> {
    criterion::forget()?;
    let told = sh::read(&mut criterion::bench("ebb-tests", "inventory", is_short))?;
    let resident = told.lines().find_map(|line| line.strip_prefix(RESIDENT));
    let resident = resident.context("the benchmark does not say what is resident")?;
    let found = criterion::found()?;
    let conditions = conditions()?;
    let text = format!(
        "## Listing and planning\n\n\
         Conditions: {conditions}. Medians of criterion with their 95 % interval.\n\
         110 pods with three containers each, one of them dead, and 1,000 images of ten layers, half of them shared; the runtime is in the benchmark's process and answers over its socket, so that what a real one takes to find its answers is not in these figures.\n\n\
         | | time | |\n|---|---|---|\n{}\n\n\
         The agent beside it, as a process of its own without BPF: {resident}.\n",
        criterion::rows(&found),
    );
    let mut figures = criterion::figures(&found, is_short);
    figures.extend(memory(resident)?);
    Ok(Finding { conditions, text, figures })
}

/// `34 MiB, 35 MiB at its peak`, as the benchmark says it.
fn memory(resident: &str) -> Result<[Figure; 2]> {
    let mut numbers = resident.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
    let mut figure = |name| {
        let value = numbers.next().with_context(|| format!("no {name} in {resident:?}"))?;
        Ok::<_, anyhow::Error>(Figure::lower(name, "MiB", value).main_if(true))
    };
    Ok([figure("resident")?, figure("resident at its peak")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_resident_becomes_two_figures() {
        let [now, peak] = memory("34 MiB, 35 MiB at its peak").unwrap();
        assert_eq!((now.value, peak.value), (34.0, 35.0));
        assert!(memory("much").is_err());
    }
}
