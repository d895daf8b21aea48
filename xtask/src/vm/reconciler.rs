//! How soon new and changed cgroups have their values, on each kernel, for `cargo xtask bench`.
use super::figures::{ms, percentile};
use super::measure;
use crate::bench::figure::{Figure, Finding};
use anyhow::{Context, Result};
use std::fmt::Write as _;

/// What one guest left: microseconds, sorted.
#[derive(Debug)]
struct Times {
    /// mkdir itself, of a new pod's cgroup.
    making: Vec<u64>,
    /// From its return to the last value.
    born: Vec<u64>,
    /// From a change until the file is right again.
    repaired: Vec<u64>,
    /// From ebb's notice to the end of its round.
    noticed: Vec<u64>,
}

/// Measure, and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When it could not be measured.
pub(crate) fn run() -> Result<Finding> {
    let measured = measure::everywhere(&["reconciler_times"])?;
    let mut rows = Vec::new();
    for one in &measured.contenders {
        let read = |name: &str| micros(&one.read(name)?);
        let times = Times {
            making: read("making")?,
            born: read("born")?,
            repaired: read("repaired")?,
            noticed: read("noticed")?,
        };
        rows.push((one.kernel.clone(), times));
    }
    let text = render(&rows, &measured.conditions)?;
    let figures = rows.iter().flat_map(|(kernel, times)| times.figures(kernel)).collect();
    Ok(Finding { conditions: measured.conditions, text, figures })
}

impl Times {
    fn figures(&self, kernel: &str) -> Vec<Figure> {
        let Self { making, born, repaired, noticed } = self;
        let all = [("mkdir", making), ("new", born), ("changed", repaired), ("noticed", noticed)];
        let mut figures = Vec::new();
        for (what, times) in all {
            for (percent, is_main) in [(50, false), (99, true), (100, false)] {
                let name = format!("{kernel}, {what} p{percent}");
                let figure = |micros| Figure::ms(name, micros).main_if(is_main);
                figures.extend(percentile(times, percent).map(figure));
            }
        }
        figures
    }
}

fn micros(text: &str) -> Result<Vec<u64>> {
    let times = text.lines().map(|line| line.parse().context("a time is no number"));
    let mut times: Vec<u64> = times.collect::<Result<_>>()?;
    times.sort_unstable();
    Ok(times)
}

fn render(rows: &[(String, Times)], conditions: &str) -> Result<String> {
    let mut text = format!(
        "## From a new or changed cgroup to its values\n\n\
         Conditions: {conditions}; guest with 2 CPUs and 1536 MiB. `ebb run` with `cgroups.mode: enforce` holds pods to their manifests; whoever watches reads the files once a millisecond.\n\
         New: 100 cgroups of pods are made, one as soon as the one before has every value; mkdir itself, and from its return to the last value. \
         Changed: each enforced file of a small tree is given another value; from the write, and from ebb's notice of it to the end of the round. The kubelet's beat for the same is a minute.\n\n\
         | kernel | mkdir p50 | p99 | at worst | new p50 | p99 | at worst | changed p50 | p99 | at worst | noticed p50 | p99 | at worst |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
    );
    for (kernel, Times { making, born, repaired, noticed }) in rows {
        let mut cells = vec![kernel.clone()];
        for times in [making, born, repaired, noticed] {
            for percent in [50, 99, 100] {
                cells.push(percentile(times, percent).map(ms).context("no times")?);
            }
        }
        writeln!(text, "| {} |", cells.join(" | "))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_a_row() {
        let times = |from: u64| (from..from + 100).map(|n| n * 1000).collect();
        let all =
            Times { making: times(1), born: times(1), repaired: times(101), noticed: times(201) };
        let p99 = Figure::ms("7, mkdir p99", 99_000).main_if(true);
        assert!(all.figures("7").contains(&p99), "{:?}", all.figures("7"));
        let rows = [("7".to_owned(), all)];
        let text = render(&rows, "here").unwrap();
        let row = "| 7 | 50.0 ms | 99.0 ms | 100.0 ms | 50.0 ms | 99.0 ms | 100.0 ms | 150.0 ms | 199.0 ms | 200.0 ms | 250.0 ms | 299.0 ms | 300.0 ms |";
        assert!(text.contains(row), "{text}");
        assert!(micros("12\nx\n").is_err());
    }
}
