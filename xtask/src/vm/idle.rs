//! What ebb and its peers cost while nothing happens: the guest measures (`vm-tests/src/bench`), here it becomes a table.
use super::measure::{self, Measurement};
use crate::bench::figure::{Figure, Finding};
use anyhow::{Context, Result};
use std::fmt::Write as _;

/// What one process used while it was watched.
#[derive(Debug, Clone, Copy)]
struct Usage {
    wall_ns: u64,
    cpu_ns: u64,
    wakes: u64,
    resident_kib: u64,
}

/// Measure the contenders named, or all, and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When one could not be measured.
pub(crate) fn run(names: &[String]) -> Result<Finding> {
    let measured = measure::all("idle", names)?;
    let mut figures = Vec::new();
    let mut text = format!(
        "## While nothing happens\n\n\
         Conditions: {}; guest with 2 CPUs and 1536 MiB; 500 cgroups with a sleeping process each; memory far from every threshold.\n\
         Each daemon at the settings of the race, over a minute after it had settled: processor time (`schedstat`) and voluntary context switches of all its threads, `VmRSS` at the end.\n\n\
         | | of one core | wake-ups a second | resident |\n|---|---|---|---|\n",
        measured.conditions
    );
    for contender in &measured.contenders {
        let usage = usage(contender)?;
        writeln!(text, "{}", row(&contender.name, usage))?;
        figures.extend(usage.figures(&contender.name));
    }
    Ok(Finding { conditions: measured.conditions, text, figures })
}

fn usage(measured: &Measurement) -> Result<Usage> {
    let text = measured.read("idle")?;
    let numbers: Vec<u64> =
        text.split_whitespace().map(str::parse).collect::<Result<_, _>>().context("not numbers")?;
    match numbers.as_slice() {
        &[wall_ns, cpu_ns, wakes, resident_kib] => {
            Ok(Usage { wall_ns, cpu_ns, wakes, resident_kib })
        }
        _ => anyhow::bail!("the guest reports {text:?}"),
    }
}

impl Usage {
    /// Of one core in percent, wake-ups a second, MiB resident.
    fn each(self) -> [f64; 3] {
        let wall = self.wall_ns as f64;
        [
            100.0 * self.cpu_ns as f64 / wall,
            self.wakes as f64 / (wall / 1e9),
            self.resident_kib as f64 / 1024.0,
        ]
    }

    fn figures(self, who: &str) -> [Figure; 3] {
        let [core, wakes, resident] = self.each();
        let figure = |what: &str, unit, value| {
            Figure::lower(format!("{who}, {what}"), unit, value).main_if(who == "ebb")
        };
        [
            figure("of one core", "%", core),
            figure("wake-ups", "/s", wakes),
            figure("resident", "MiB", resident),
        ]
    }
}

fn row(name: &str, usage: Usage) -> String {
    let [core, wakes, resident] = usage.each();
    format!("| {name} | {core:.2} % | {wakes:.2} | {resident:.1} MiB |")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_part_of_a_core_was_used() {
        let usage = Usage {
            wall_ns: 60_000_000_000,
            cpu_ns: 300_000_000,
            wakes: 120,
            resident_kib: 12_800,
        };
        assert_eq!(row("ebb", usage), "| ebb | 0.50 % | 2.00 | 12.5 MiB |");
        let [core, wakes, _] = usage.figures("ebb");
        assert_eq!(core, Figure::lower("ebb, of one core", "%", 0.5).main_if(true));
        assert_eq!(wakes, Figure::lower("ebb, wake-ups", "/s", 2.0).main_if(true));
    }
}
