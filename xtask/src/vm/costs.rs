//! What a sweep costs beside files, on every kernel that has one: the guest measures (`vm-tests/src/bench/sweep.rs`), here it becomes a table.
use super::figures::{ms, tenths};
use super::measure;
use crate::bench::figure::{Figure, Finding};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What one guest found, in microseconds of processor time for one pass over all cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Costs {
    program: String,
    files: u64,
    cgroups: u64,
    sweep: u64,
    opened: u64,
    kept: u64,
}

/// Measure on every kernel of the matrix and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When one could not be measured.
pub(crate) fn run() -> Result<Finding> {
    let measured = measure::everywhere(&["sweep_500", "sweep_5000"])?;
    let rows =
        measured.contenders.iter().map(|one| Ok((one.kernel.clone(), costs(&one.read("costs")?)?)));
    let rows: Vec<_> = rows.collect::<Result<_>>()?;
    let text = render(&rows, &measured.conditions);
    let figures = rows.iter().flat_map(|(kernel, costs)| costs.figures(kernel)).collect();
    Ok(Finding { conditions: measured.conditions, text, figures })
}

impl Costs {
    fn figures(&self, kernel: &str) -> [Figure; 3] {
        let figure = |what, micros| {
            Figure::ms(format!("{kernel}, {} cgroups, {what}", self.cgroups), micros)
        };
        [
            figure("sweep", self.sweep).main_if(true),
            figure("files opened", self.opened),
            figure("files kept open", self.kept),
        ]
    }
}

fn costs(text: &str) -> Result<Costs> {
    let values: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once(' ')).collect();
    let value = |key: &str| values.get(key).with_context(|| format!("the guest left no {key}"));
    let number = |key: &str| -> Result<u64> {
        value(key)?.parse().with_context(|| format!("{key} is no number"))
    };
    Ok(Costs {
        program: (*value("program")?).to_owned(),
        files: number("files")?,
        cgroups: number("cgroups")?,
        sweep: number("sweep")?,
        opened: number("opened")?,
        kept: number("kept")?,
    })
}

fn render(rows: &[(String, Costs)], conditions: &str) -> String {
    let mut text = format!(
        "## Knowing every cgroup's memory\n\n\
         Conditions: {conditions}; guest with 2 CPUs and 1536 MiB; cgroups without processes, two levels below one; kernels without a cgroup iterator are left out.\n\
         Processor time of one pass over all of them, mean of several: one sweep; the same values from files that are opened, read and closed; the same from files kept open.\n\
         In brackets: how many times the sweep's.\n\n\
         | kernel | cgroups | program | sweep | files each | opened | kept open |\n|---|---|---|---|---|---|---|\n"
    );
    for (kernel, costs) in rows {
        let Costs { program, files, cgroups, sweep, opened, kept } = costs;
        let times =
            |other: u64| format!("{} ({} ×)", ms(other), tenths(other * 10 / (*sweep).max(1)));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {kernel} | {cgroups} | `{program}` | {} | {files} | {} | {} |",
            ms(*sweep),
            times(*opened),
            times(*kept)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_left_becomes_a_row_with_ratios() {
        let left =
            "program sweep_kfuncs\nfiles 9\ncgroups 500\nsweep 1000\nopened 25300\nkept 9000\n";
        let costs_of_7 = costs(left).unwrap();
        let sweep = Figure::ms("7, 500 cgroups, sweep", 1000).main_if(true);
        assert_eq!(costs_of_7.figures("7")[0], sweep);
        let text = render(&[("7".into(), costs_of_7)], "here");
        let row = "| 7 | 500 | `sweep_kfuncs` | 1.0 ms | 9 | 25.3 ms (25.3 ×) | 9.0 ms (9.0 ×) |";
        assert!(text.contains(row), "{text}");
        assert!(costs("program x\n").is_err());
    }
}
