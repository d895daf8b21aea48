//! Measurements on this host: what criterion found, and the storm of exits.
use super::criterion::{self, cargo_bench};
use super::figure::{Finding, apart};
use crate::{bpf, sh};
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::process::Command;

/// Benchmarks that criterion runs, as package and target.
const CRITERION: [(&str, &str); 5] = [
    ("ebb-policy", "pass"),
    ("ebb-probes", "decode"),
    ("ebb-agent", "observe"),
    ("ebb-agent", "cgroups"),
    ("ebb-tests", "start"),
];

/// Those that print their own tables, with what stands above them. They need root.
const TABLES: [(&str, &str); 2] = [
    (
        "exit_storm",
        "Processes that end at once, made as fast as all CPUs can, beside the reader of the ring; the agent's own ring for exits and OOM kills has 512 KiB. Direct reclaims are played by request.",
    ),
    (
        "reflex",
        "The reflex at a line that is crossed on purpose, 200 times: two huge pages are touched, and a process that was named dies. The last row is what user space does where the reflex looks at counters.",
    ),
];

/// Every benchmark of this section, by package and name.
pub(super) fn benches() -> impl Iterator<Item = (&'static str, &'static str)> {
    CRITERION.into_iter().chain(TABLES.map(|(name, _)| ("ebb-probes", name)))
}

/// Build the benchmarks named, or all, and run none.
pub(super) fn build(only: &[String]) -> Result<()> {
    for (package, name) in wanted(only)? {
        sh::run(cargo_bench(package, name).arg("--no-run"))?;
    }
    Ok(())
}

/// The benchmarks named, or all, once what they need is there.
fn wanted(only: &[String]) -> Result<Vec<(&'static str, &'static str)>> {
    let names: Vec<&str> = benches().map(|(_, name)| name).collect();
    for name in only {
        ensure!(names.contains(&name.as_str()), "no benchmark {name} here: there are {names:?}");
    }
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|wanted| wanted == name);
    let wanted: Vec<_> = benches().filter(|(_, name)| is_wanted(name)).collect();
    if wanted.iter().any(|(package, _)| *package != "ebb-policy") {
        // The agent is built with the programs inside.
        bpf::ensure()?;
    }
    Ok(wanted)
}

/// Run the benchmarks named, or all, and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When one cannot be run; the storm needs root and a kernel that loads the exit program.
pub(super) fn run(only: &[String], is_short: bool) -> Result<Finding> {
    let wanted = wanted(only)?;
    let conditions = conditions()?;
    let mut figures = Vec::new();
    let mut text = format!(
        "## On one machine, without a guest\n\n\
         Conditions: {conditions}. Medians of criterion with their 95 % interval; one core.\n"
    );
    criterion::forget()?;
    let (criterion, tables): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|bench| CRITERION.contains(bench));
    for (package, name) in &criterion {
        sh::run(&mut criterion::bench(package, name, is_short))?;
    }
    if !criterion.is_empty() {
        let found = criterion::found()?;
        let rows = criterion::rows(&found);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n| | time | records a second |\n|---|---|---|\n{rows}");
        figures.extend(criterion::figures(&found, is_short));
    }
    for (package, name) in tables {
        let (table, found) = apart(&sh::read(&mut cargo_bench(package, name))?)?;
        let above = TABLES.iter().find(|(table, _)| *table == name).map_or("", |(_, above)| above);
        let _ = writeln!(text, "\n{above}\n\n{table}");
        figures.extend(found);
    }
    Ok(Finding { conditions, text, figures })
}

/// This host, for the reader of the numbers.
pub(super) fn conditions() -> Result<String> {
    let cpus = std::thread::available_parallelism().context("how many CPUs are there?")?;
    let release = sh::read(Command::new("uname").arg("-r"))?;
    Ok(format!("Linux {release}, {cpus} CPUs shared with others"))
}
