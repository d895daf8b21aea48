//! What it costs ebb to be watched: a benchmark on this host (`tests/benches/observers.rs`) measures what it uses, a guest the race (`vm-tests/src/bench/observers.rs`); here they become tables.
use super::criterion::cargo_bench;
use super::figure::{Figure, Finding};
use super::host::conditions;
use crate::sh;
use crate::vm::race::{HEAD, Runs, observed};
use anyhow::{Context, Result, bail};

/// Measure, and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When it could not be measured.
pub(super) fn run() -> Result<Finding> {
    let used = sh::read(&mut cargo_bench("ebb-tests", "observers"))?;
    let here = conditions()?;
    let (there, [alone, watched]) = observed()?;
    let used = Used::parse(&used)?;
    let mut figures = used.figures();
    figures.extend(alone.figures("alone", false));
    figures.extend(watched.figures("watched", true));
    let text = render(&here, &used, &there, &alone, &watched);
    Ok(Finding { conditions: format!("{here}; {there}"), text, figures })
}

/// What a calm node's agent took of a core, in nanoseconds of a second.
struct Used {
    alone: u64,
    watched: u64,
    clients: u64,
    scrapes: u64,
}

impl Used {
    /// What the benchmark prints.
    fn parse(text: &str) -> Result<Self> {
        let numbers: Vec<u64> = text
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .context("not numbers")?;
        let &[alone, watched, clients, scrapes] = numbers.as_slice() else {
            bail!("the benchmark says {text:?}");
        };
        Ok(Self { alone, watched, clients, scrapes })
    }

    fn figures(&self) -> Vec<Figure> {
        let of_a_core = [("ebb alone", self.alone), ("ebb watched", self.watched)];
        let figure = |(name, nanos): (&str, u64)| {
            Figure::lower(format!("{name}, of one core"), "%", nanos as f64 / 1e7).main_if(true)
        };
        of_a_core.map(figure).into()
    }
}

fn render(here: &str, used: &Used, there: &str, alone: &Runs, watched: &Runs) -> String {
    let Used { alone: own, watched: observed, clients, scrapes } = used;
    let runs = alone.kill.len() + alone.lost.len();
    format!(
        "## Being watched\n\n\
         Watched is: scraped once a second, three `ebb watch`, and an `ebb top` of 140 columns that draws once a second.\n\n\
         Conditions: {here}. A calm node made of files, with 500 cgroups of a process each; two minutes after all had settled, in which {scrapes} scrapes were answered (`schedstat`). The agent has no BPF there.\n\n\
         | | ebb, of one core | its clients |\n|---|---|---|\n\
         | alone | {} | – |\n| watched | {} | {} |\n\n\
         Conditions: {there}; guest with 2 CPUs and 1536 MiB. {runs} runs of the race above of each kind, alternating, with one agent.\n\n\
         {HEAD}| alone | {} |\n| watched | {} |\n",
        percent(*own),
        percent(*observed),
        percent(*clients),
        alone.cells(),
        watched.cells(),
    )
}

/// Nanoseconds of a second as a part of it, cut off.
fn percent(nanos: u64) -> String {
    let hundredths = nanos / 100_000;
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_stand_below_each_other() {
        let runs = |rows: &str| Runs::parse(rows).unwrap();
        let (alone, watched) = (runs("won 1500 2500 900\n"), runs("lost why\n"));
        let used = Used::parse("6800000 8100000 12000000 77\n").unwrap();
        let text = render("here", &used, "there", &alone, &watched);
        assert!(text.contains("| alone | 0.68 % | – |\n| watched | 0.81 % | 1.20 % |\n"), "{text}");
        assert!(
            text.contains("| alone | 1.5 ms | 1.5 ms | 2.5 ms | 2.5 ms | 0.9 ms | 0.9 ms | 0 |\n"),
            "{text}"
        );
        assert!(text.contains("| watched | – | – | – | – | – | – | 1 |\n"), "{text}");
        assert!(text.contains("77 scrapes") && text.contains(" 1 runs of"), "{text}");
        assert_eq!(
            used.figures()[0],
            Figure::lower("ebb alone, of one core", "%", 0.68).main_if(true)
        );
        assert!(Used::parse("1 2 3").is_err());
    }
}
