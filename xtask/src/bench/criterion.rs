//! Benchmarks that criterion runs: it is started, and what it has found is read from its files.
use super::figure::{Figure, time};
use crate::sh;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs that are one of many may be short: what a longer one would gain, the others give.
const SHORT: [&str; 6] =
    ["--warm-up-time", "0.5", "--measurement-time", "1", "--sample-size", "50"];

/// Criterion's `benchmark.json`.
#[derive(Debug, Deserialize)]
pub(super) struct Benchmark {
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

/// Criterion's `sample.json`: how often something was done in each sample, and the nanoseconds of all together.
#[derive(Debug, Deserialize)]
struct Samples {
    iters: Vec<f64>,
    times: Vec<f64>,
}

impl Samples {
    /// Nanoseconds each, in the fastest of the samples.
    fn fastest(&self) -> f64 {
        let each = self.times.iter().zip(&self.iters).map(|(time, count)| time / count);
        each.fold(f64::INFINITY, f64::min)
    }
}

/// What criterion has found of one benchmark.
#[derive(Debug)]
pub(super) struct Found {
    benchmark: Benchmark,
    median: Estimate,
    /// Nanoseconds.
    fastest: f64,
}

/// Cargo, to run one benchmark of a package.
pub(super) fn cargo_bench(package: &str, bench: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(sh::root()).args(["bench", "--quiet", "--package", package]);
    command.args(["--bench", bench]);
    command
}

/// The same for a benchmark that is criterion's.
pub(super) fn bench(package: &str, bench: &str, is_short: bool) -> Command {
    let mut command = cargo_bench(package, bench);
    command.args(["--", "--noplot"]).args(is_short.then_some(SHORT).into_iter().flatten());
    command
}

/// Removes what criterion found: what an earlier tree measured is no result of this one.
pub(super) fn forget() -> Result<()> {
    let found = sh::target().join("criterion");
    if found.exists() {
        fs::remove_dir_all(&found).with_context(|| format!("cannot remove {}", found.display()))?;
    }
    Ok(())
}

/// What criterion has found since, by name.
pub(super) fn found() -> Result<Vec<Found>> {
    let mut found = Vec::new();
    collect(&sh::target().join("criterion"), &mut found)?;
    found.sort_by(|a, b| a.benchmark.full_id.cmp(&b.benchmark.full_id));
    Ok(found)
}

/// Adds each benchmark whose latest result is below `dir`.
fn collect(dir: &Path, found: &mut Vec<Found>) -> Result<()> {
    let new = dir.join("new");
    if new.join("estimates.json").exists() {
        let read = |name: &str| {
            let path = new.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let benchmark = serde_json::from_str(&read("benchmark.json")?)?;
        let Estimates { median } = serde_json::from_str(&read("estimates.json")?)?;
        let samples: Samples = serde_json::from_str(&read("sample.json")?)?;
        found.push(Found { benchmark, median, fastest: samples.fastest() });
        return Ok(());
    }
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry.context("cannot read a result")?.path();
        if path.is_dir() {
            collect(&path, found)?;
        }
    }
    Ok(())
}

/// Rows of a table: name, median with its interval, records a second.
pub(super) fn rows(found: &[Found]) -> String {
    found.iter().map(row).collect::<Vec<_>>().join("\n")
}

fn row(Found { benchmark, median, .. }: &Found) -> String {
    let Estimate { point_estimate: ns, confidence_interval: between } = median;
    let elements = benchmark.throughput.as_ref().and_then(|throughput| throughput.elements);
    let rate = |elements| format!("{:.2} million", elements as f64 / (ns / 1e9) / 1e6);
    format!(
        "| {} | {} ({} to {}) | {} |",
        benchmark.full_id,
        time(*ns),
        time(between.lower_bound),
        time(between.upper_bound),
        elements.map(rate).unwrap_or_default(),
    )
}

/// Every median; of a short run the fastest samples: what else the machine does only adds to them, and it moves medians as it likes.
pub(super) fn figures(found: &[Found], is_short: bool) -> Vec<Figure> {
    let figure = |Found { benchmark, median, fastest }: &Found| {
        let ns = if is_short { *fastest } else { median.point_estimate };
        Figure::lower(&benchmark.full_id, "ns", ns).main_if(true)
    };
    found.iter().map(figure).collect()
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
        let found = [Found { benchmark, median, fastest: 98_000.0 }];
        assert_eq!(
            rows(&found),
            "| decode/exit | 100.0 µs (99.0 µs to 102.0 µs) | 10.00 million |"
        );
        let figure = |ns| [Figure::lower("decode/exit", "ns", ns).main_if(true)];
        assert_eq!(figures(&found, false), figure(100_000.0));
        assert_eq!(figures(&found, true), figure(98_000.0));
    }

    #[test]
    fn what_criterion_left_is_read_from_its_files() {
        let dir = tempfile::tempdir().unwrap();
        for (name, median) in [("b", 2.5), ("a", 1.5)] {
            let new = dir.path().join(name).join("10/new");
            fs::create_dir_all(&new).unwrap();
            let id = format!(r#"{{"full_id":"{name}/10","throughput":null}}"#);
            fs::write(new.join("benchmark.json"), id).unwrap();
            let estimate = format!(
                r#"{{"median":{{"point_estimate":{median},"confidence_interval":{{"lower_bound":1,"upper_bound":3}}}}}}"#
            );
            fs::write(new.join("estimates.json"), estimate).unwrap();
            let samples = r#"{"sampling_mode":"Flat","iters":[1,2,3],"times":[9,2.2,6]}"#;
            fs::write(new.join("sample.json"), samples).unwrap();
        }
        let mut found = Vec::new();
        collect(dir.path(), &mut found).unwrap();
        let mut medians: Vec<_> =
            found.iter().map(|f| (f.benchmark.full_id.as_str(), f.median.point_estimate)).collect();
        medians.sort_by(|a, b| a.0.cmp(b.0));
        assert_eq!(medians, [("a/10", 1.5), ("b/10", 2.5)]);
        assert_eq!(found[0].fastest, 1.1);
    }
}
