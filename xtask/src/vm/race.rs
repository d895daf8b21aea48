//! The race of `cargo xtask bench`: ebb and its peers against the same hog, each in a guest of its own.
//!
//! The guest measures (`vm-tests/src/bench`); here the runs become percentiles and the percentiles a table.
use super::figures::{ms, percentile};
use super::measure::{self, Measurement};
use crate::bench::figure::{Figure, Finding};
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;

/// The head of a table whose rows are a name and [`Runs::cells`].
pub(crate) const HEAD: &str = "| | to SIGKILL p50 | p99 | to memory back p50 | p99 | others waited p50 | p99 | lost |\n|---|---|---|---|---|---|---|---|\n";

/// What came of runs. Times are in microseconds since the crossing, sorted.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    pub(crate) kill: Vec<u64>,
    pub(crate) back: Vec<u64>,
    /// How long others waited for a processor at most, in microseconds.
    pub(crate) waited: Vec<u64>,
    /// Why, of each that was lost.
    pub(crate) lost: Vec<String>,
}

/// One contender.
#[derive(Debug, Default)]
struct Contender {
    name: String,
    settings: String,
    runs: Runs,
}

/// Run the race, with the contenders named or all of them, and return its section of `docs/benchmarks.md`.
///
/// # Errors
/// When a contender could not be measured at all; one that loses every run is a result.
pub(crate) fn run(names: &[String]) -> Result<Finding> {
    let measured = measure::all("race", names)?;
    let contenders = measured.contenders.iter().map(contender).collect::<Result<Vec<_>>>()?;
    let figures = contenders.iter().flat_map(|c| c.runs.figures(&c.name, c.name == "ebb"));
    let (figures, text) = (figures.collect(), render(&contenders, &measured.conditions)?);
    Ok(Finding { conditions: measured.conditions, text, figures })
}

/// Runs the race of an agent that is watched in every second run; says under which conditions, and what came of those alone and of those watched.
///
/// # Errors
/// When it could not be measured.
pub(crate) fn observed() -> Result<(String, [Runs; 2])> {
    let measured = measure::all("observers", &[])?;
    let own = measured.contenders.first().context("nothing was measured")?;
    let of = |kind| own.read(kind).and_then(|rows| Runs::parse(&rows));
    Ok((measured.conditions, [of("alone")?, of("watched")?]))
}

fn contender(measured: &Measurement) -> Result<Contender> {
    Ok(Contender {
        name: measured.name.clone(),
        settings: measured.read("settings")?,
        runs: Runs::parse(&measured.read("runs")?)?,
    })
}

impl Runs {
    /// What the guest left: a line for each run.
    pub(crate) fn parse(rows: &str) -> Result<Self> {
        let mut runs = Self::default();
        for row in rows.lines() {
            let words: Vec<&str> = row.splitn(4, ' ').collect();
            match words.as_slice() {
                ["won", kill, back, waited] => {
                    runs.kill.push(kill.parse().context("a run's kill is no number")?);
                    runs.back.push(back.parse().context("a run's recovery is no number")?);
                    runs.waited.push(waited.parse().context("what others waited is no number")?);
                }
                ["lost", why @ ..] => runs.lost.push(why.join(" ")),
                _ => bail!("the guest reports a run as {row:?}"),
            }
        }
        runs.kill.sort_unstable();
        runs.back.sort_unstable();
        runs.waited.sort_unstable();
        Ok(runs)
    }

    /// The cells of a table: to the kill, to the memory's return, what others waited, and how many were lost.
    pub(crate) fn cells(&self) -> String {
        let Self { kill, back, waited, lost } = self;
        let of = |times: &[u64]| [shown(times, 50), shown(times, 99)];
        let cells = [of(kill), of(back), of(waited)].concat();
        format!("{} | {}", cells.join(" | "), lost.len())
    }

    /// The same as numbers. Where every run was lost, there are no times.
    pub(crate) fn figures(&self, who: &str, is_main: bool) -> Vec<Figure> {
        let Self { kill, back, waited, lost } = self;
        let mut figures = Vec::new();
        for (until, times) in
            [("to SIGKILL", kill), ("to memory back", back), ("others waited", waited)]
        {
            for percent in [50, 99] {
                let name = format!("{who}, {until} p{percent}");
                figures.extend(percentile(times, percent).map(|micros| Figure::ms(name, micros)));
            }
        }
        figures.push(Figure::lower(format!("{who}, lost"), "runs", lost.len() as f64));
        figures.into_iter().map(|figure| figure.main_if(is_main)).collect()
    }
}

fn render(contenders: &[Contender], conditions: &str) -> Result<String> {
    let runs = contenders.iter().map(|c| c.runs.kill.len() + c.runs.lost.len()).max().unwrap_or(0);
    let mut text = format!(
        "## Time from a crossed threshold to the kill\n\n\
         Conditions: {conditions}; guest with 2 CPUs and 1536 MiB, no swap; {runs} runs each, after one that is not counted because the emulator then translates what runs for the first time.\n\
         Three idle cgroups of 60 MiB; a hog rushes to 200 MiB above the threshold and then leaks 100 MiB/s.\n\
         The clock starts when `MemAvailable` falls below 10 % of `MemTotal` (sampled every 2 ms, interpolated).\n\
         It is read when the kernel sends the hog SIGKILL (tracepoint `signal_generate`) and when `MemAvailable` is back above the threshold.\n\
         A kill before any sample below the threshold counts as 0 ms when a sample within 4 ms of it is less than 1 MiB above; otherwise it came too early, and the run is lost.\n\
         A run is also lost when the kernel's OOM killer acts, an innocent dies, or nobody kills within 20 s.\n\
         What others waited is the longest that an ordinary thread, which naps for a millisecond at a time, had no processor in a run.\n\n\
         {HEAD}"
    );
    for c in contenders {
        writeln!(text, "| {} | {} |", c.name, c.runs.cells())?;
    }
    text.push_str("\nSettings:\n");
    for c in contenders {
        writeln!(text, "- {}: {}.", c.name, c.settings.trim())?;
    }
    for c in contenders.iter().filter(|c| !c.runs.lost.is_empty()) {
        let mut reasons = c.runs.lost.clone();
        reasons.sort_unstable();
        reasons.dedup();
        writeln!(text, "- {} lost because: {}.", c.name, reasons.join("; "))?;
    }
    Ok(text)
}

/// Nearest rank of sorted microseconds, in milliseconds.
fn shown(sorted: &[u64], percent: usize) -> String {
    percentile(sorted, percent).map_or_else(|| "–".to_owned(), ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_times_there_is_a_dash() {
        assert_eq!(shown(&[1550], 99), "1.5 ms");
        assert_eq!(shown(&[], 50), "–");
    }

    #[test]
    fn runs_become_percentiles_and_their_losses_a_number() {
        let runs = Runs::parse("won 1500 2500 900\nlost why\n").unwrap();
        let figures = runs.figures("ebb", true);
        assert_eq!(figures[0], Figure::ms("ebb, to SIGKILL p50", 1500).main_if(true));
        assert_eq!(figures[6], Figure::lower("ebb, lost", "runs", 1.0).main_if(true));
        assert_eq!(Runs::parse("lost why\n").unwrap().figures("ebb", true).len(), 1);
    }

    #[test]
    fn a_contender_that_lost_says_why() {
        let loser = Contender {
            name: "slow".into(),
            settings: "as shipped".into(),
            runs: Runs { lost: vec!["nobody killed the hog".into(); 2], ..Runs::default() },
        };
        let text = render(&[loser], "here").unwrap();
        assert!(text.contains("| slow | – | – | – | – | – | – | 2 |"));
        assert!(text.contains("slow lost because: nobody killed the hog."));
    }
}
