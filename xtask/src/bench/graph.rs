//! The cluster collector's graph by itself: how it grows.
use super::figure::{Figure, Finding};
use super::host::conditions;
use crate::sh;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::process::Command;

const COUNTS: [&str; 3] = ["100000", "300000", "1000000"];
/// The first is the number of objects.
const COLUMNS: usize = 7;
/// What the graph has done with each object, by column.
const DONE: [&str; 4] = ["observed", "changed", "judged", "forgotten"];

/// Build what is run.
pub(super) fn build() -> Result<()> {
    sh::run(&mut example("build"))
}

/// Cargo, to build or run the example that measures.
fn example(what: &str) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(sh::root()).args([what, "--quiet", "--release", "--package"]);
    cargo.args(["ebb-policy-cluster", "--example", "size"]);
    cargo
}

/// Run it for each size in a process of its own, and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When it cannot be run.
pub(super) fn run() -> Result<Finding> {
    let conditions = conditions()?;
    let mut figures = Vec::new();
    let mut text = format!(
        "## The graph of the cluster collector\n\n\
         Conditions: {conditions}. Each Deployment owns a ReplicaSet, and each ReplicaSet eight Pods; no cluster.\n\
         Bytes are what the kernel counts as resident, names included; the rates are objects a second on one core.\n\n\
         | objects | bytes each | of which name | observed | changed | judged | forgotten |\n|---|---|---|---|---|---|---|\n"
    );
    for count in COUNTS {
        let told = sh::read(example("run").args(["--", count]))?;
        let row: Vec<&str> = told.lines().last().unwrap_or_default().split_whitespace().collect();
        let row: &[&str; COLUMNS] =
            row[..].try_into().ok().context("the example does not print its columns")?;
        // Writing into a String cannot fail.
        _ = writeln!(text, "| {} |", row.join(" | "));
        figures.extend(of_row(row)?);
    }
    Ok(Finding { conditions, text, figures })
}

fn of_row(row: &[&str; COLUMNS]) -> Result<Vec<Figure>> {
    let [count, bytes, _, rates @ ..] = row;
    let number = |word: &str| word.parse::<f64>().with_context(|| format!("{word:?} is no number"));
    let mut figures = vec![
        Figure::lower(format!("{count} objects, each"), "bytes", number(bytes)?).main_if(true),
    ];
    for (done, rate) in DONE.iter().zip(rates) {
        let name = format!("{count} objects, {done}");
        figures.push(Figure::higher(name, "/s", number(rate)?).main_if(true));
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_size_and_four_rates() {
        let figures = of_row(&["1000", "228", "23", "350877", "362318", "1694915", "781250"]);
        let figures = figures.unwrap();
        assert_eq!(figures[0], Figure::lower("1000 objects, each", "bytes", 228.0).main_if(true));
        let forgotten = Figure::higher("1000 objects, forgotten", "/s", 781_250.0).main_if(true);
        assert_eq!(figures[1..].last(), Some(&forgotten));
        assert_eq!(figures.len(), 5);
    }
}
