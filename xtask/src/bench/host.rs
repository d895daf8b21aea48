//! Measurements on this host: what criterion found, and the storm of exits.
use crate::{bpf, sh};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Benchmarks that criterion runs, as package and target.
const CRITERION: [(&str, &str); 4] =
    [("ebb-policy", "pass"), ("ebb-probes", "decode"), ("ebb", "observe"), ("ebb", "cgroups")];

/// Criterion's `benchmark.json`.
#[derive(Debug, Deserialize)]
struct Benchmark {
    full_id: String,
    throughput: Option<Throughput>,
}

/// What one iteration handles.
#[derive(Debug, Deserialize)]
struct Throughput {
    #[serde(rename = "Elements")]
    elements: Option<u64>,
}

/// Criterion's `estimates.json`.
#[derive(Debug, Deserialize)]
struct Estimates {
    median: Estimate,
}

/// Nanoseconds.
#[derive(Debug, Deserialize)]
struct Estimate {
    point_estimate: f64,
    confidence_interval: Interval,
}

#[derive(Debug, Deserialize)]
struct Interval {
    lower_bound: f64,
    upper_bound: f64,
}

/// Run them all and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When one cannot be run; the storm needs root and a kernel that loads the exit program.
pub(crate) fn run() -> Result<String> {
    bpf::ensure()?;
    forget_results()?;
    for (package, bench) in CRITERION {
        sh::run(cargo_bench(package, bench).args(["--", "--noplot"]))?;
    }
    let rows = results()?;
    let storm = sh::read(&mut cargo_bench("ebb-probes", "exit_storm"))?;
    let reflex = sh::read(&mut cargo_bench("ebb-probes", "reflex"))?;
    Ok(format!(
        "## On one machine, without a guest\n\n\
         Conditions: {}. Medians of criterion with their 95 % interval; one core.\n\n\
         | | time | records a second |\n|---|---|---|\n{}\n\n\
         Processes that end at once, made as fast as all CPUs can, beside the reader of the ring; the agent's own ring for exits and OOM kills has 512 KiB. Direct reclaims are played by request.\n\n{storm}\n\n\
         The reflex at a line that is crossed on purpose, 200 times: two huge pages are touched, and a process that was named dies. The last row is what user space does where the reflex looks at counters.\n\n{reflex}\n",
        conditions()?,
        rows,
    ))
}

/// Removes what criterion found: what an earlier tree measured is no result of this one.
pub(super) fn forget_results() -> Result<()> {
    let found = sh::target().join("criterion");
    if found.exists() {
        fs::remove_dir_all(&found).with_context(|| format!("cannot remove {}", found.display()))?;
    }
    Ok(())
}

/// What criterion has found since, as rows of a table.
pub(super) fn results() -> Result<String> {
    let mut rows = Vec::new();
    collect(&sh::target().join("criterion"), &mut rows)?;
    rows.sort();
    Ok(rows.join("\n"))
}

/// This host, for the reader of the numbers.
pub(super) fn conditions() -> Result<String> {
    let cpus = std::thread::available_parallelism().context("how many CPUs are there?")?;
    let release = sh::read(Command::new("uname").arg("-r"))?;
    Ok(format!("Linux {release}, {cpus} CPUs shared with others"))
}

pub(super) fn cargo_bench(package: &str, bench: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(sh::root()).args(["bench", "--quiet", "--package", package]);
    command.args(["--bench", bench]);
    command
}

/// A row for each benchmark whose latest result is below `dir`.
fn collect(dir: &Path, rows: &mut Vec<String>) -> Result<()> {
    let new = dir.join("new");
    if new.join("estimates.json").exists() {
        let read = |name: &str| {
            let path = new.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let benchmark: Benchmark = serde_json::from_str(&read("benchmark.json")?)?;
        let estimates: Estimates = serde_json::from_str(&read("estimates.json")?)?;
        rows.push(row(&benchmark, &estimates)?);
        return Ok(());
    }
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry.context("cannot read a result")?.path();
        if path.is_dir() {
            collect(&path, rows)?;
        }
    }
    Ok(())
}

fn row(benchmark: &Benchmark, estimates: &Estimates) -> Result<String> {
    let Estimate { point_estimate: ns, confidence_interval: between } = &estimates.median;
    let elements = benchmark.throughput.as_ref().and_then(|throughput| throughput.elements);
    let mut row = format!(
        "| {} | {} ({} to {}) | ",
        benchmark.full_id,
        time(*ns),
        time(between.lower_bound),
        time(between.upper_bound),
    );
    if let Some(elements) = elements {
        #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
        let rate = elements as f64 / (ns / 1e9);
        write!(row, "{:.2} million", rate / 1e6)?;
    }
    row.push_str(" |");
    Ok(row)
}

/// Nanoseconds for people.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.1} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_how_many_a_second() {
        let benchmark = Benchmark {
            full_id: "decode/exit".into(),
            throughput: Some(Throughput { elements: Some(1000) }),
        };
        let interval = Interval { lower_bound: 99_000.0, upper_bound: 102_000.0 };
        let median = Estimate { point_estimate: 100_000.0, confidence_interval: interval };
        let row = row(&benchmark, &Estimates { median }).unwrap();
        assert_eq!(row, "| decode/exit | 100.0 µs (99.0 µs to 102.0 µs) | 10.00 million |");
    }
}
