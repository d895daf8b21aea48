//! What it costs ebb to be watched: the guest measures (`vm-tests/src/bench/observers.rs`), here it becomes a table.
use super::measure;
use super::race::Runs;
use anyhow::{Context, Result, bail};

/// Measure, and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When it could not be measured.
pub(crate) fn run() -> Result<String> {
    let measured = measure::all("observers", &[])?;
    let own = measured.contenders.first().context("nothing was measured")?;
    let [alone, watched] =
        ["alone", "watched"].map(|kind| own.read(kind).and_then(|rows| Runs::parse(&rows)));
    render(&measured.conditions, &own.read("idle")?, &alone?, &watched?)
}

fn render(conditions: &str, idle: &str, alone: &Runs, watched: &Runs) -> Result<String> {
    let numbers: Vec<u64> =
        idle.split_whitespace().map(str::parse).collect::<Result<_, _>>().context("not numbers")?;
    let &[own, observed, clients, scrapes] = numbers.as_slice() else {
        bail!("the guest reports {idle:?}");
    };
    let runs = alone.kill.len() + alone.lost.len();
    Ok(format!(
        "## Being watched\n\n\
         Conditions: {conditions}; guest with 2 CPUs and 1536 MiB. Watched is: scraped once a second, three `ebb watch`, and an `ebb top` of 140 columns that draws once a second.\n\
         Idle beside 500 cgroups with a sleeping process each, over a minute after all had settled (`schedstat`; {scrapes} scrapes from their start on); then {runs} runs of the race above of each kind, alternating, with one agent.\n\n\
         | | ebb idle, of one core | its clients | to SIGKILL p50 | p99 | to memory back p50 | p99 | lost |\n|---|---|---|---|---|---|---|---|\n\
         | alone | {} | – | {} |\n| watched | {} | {} | {} |\n",
        percent(own),
        alone.cells(),
        percent(observed),
        percent(clients),
        watched.cells(),
    ))
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
        let (alone, watched) = (runs("won 1500 2500\n"), runs("lost why\n"));
        let text = render("here", "6800000 8100000 12000000 77\n", &alone, &watched).unwrap();
        assert!(text.contains("| alone | 0.68 % | – | 1.5 ms | 1.5 ms | 2.5 ms | 2.5 ms | 0 |\n"));
        assert!(text.contains("| watched | 0.81 % | 1.20 % | – | – | – | – | 1 |\n"), "{text}");
        assert!(text.contains("77 scrapes") && text.contains("then 1 runs"), "{text}");
        assert!(render("here", "1 2 3", &alone, &watched).is_err());
    }
}
