//! From a container's end to the end of its removal, for `cargo xtask bench`, on a real containerd.
use super::figures::{ms, percentile};
use super::measure;
use crate::bench::figure::{Figure, Finding};
use anyhow::{Context, Result};

/// Measure, and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When it could not be measured.
pub(crate) fn run() -> Result<Finding> {
    let measured = measure::all("removal", &[])?;
    let ebb = measured.contenders.first().context("nothing was measured")?;
    let text = ebb.read("times")?;
    let times = text.lines().map(exit).collect::<Result<Vec<_>>>()?;
    let containerd = ebb.read("containerd")?;
    let text = render(&times, &measured.conditions, containerd.trim())?;
    let conditions = format!("{}, containerd {}", measured.conditions, containerd.trim());
    Ok(Finding { conditions, text, figures: figures(&times) })
}

fn figures(exits: &[(u64, u64)]) -> Vec<Figure> {
    let sorted = |of: fn(&(u64, u64)) -> u64| {
        let mut times: Vec<u64> = exits.iter().map(of).collect();
        times.sort_unstable();
        times
    };
    let removed = sorted(|(removed, _)| *removed);
    let after = sorted(|(removed, cleared)| removed.saturating_sub(*cleared));
    let mut figures = Vec::new();
    for (what, times) in [("removed", removed), ("removed once containerd lists its end", after)] {
        for percent in [50, 99, 100] {
            let figure = |micros| Figure::ms(format!("{what}, p{percent}"), micros);
            figures.extend(percentile(&times, percent).map(|p| figure(p).main_if(percent < 100)));
        }
    }
    figures
}

/// Microseconds until the removal, and until containerd had cleared away what ended.
fn exit(line: &str) -> Result<(u64, u64)> {
    let (removed, cleared) = line.split_once(' ').context("a line without two times")?;
    let number = |word: &str| word.parse::<u64>().context("a time is no number");
    Ok((number(removed)?, number(cleared)?))
}

fn render(exits: &[(u64, u64)], conditions: &str, containerd: &str) -> Result<String> {
    let row = |name: &str, of: fn(&(u64, u64)) -> u64| {
        let mut times: Vec<u64> = exits.iter().map(of).collect();
        times.sort_unstable();
        let shown = |percent| percentile(&times, percent).map(ms).context("no times");
        Ok::<_, anyhow::Error>(format!(
            "| {name} | {} | {} | {} |",
            shown(50)?,
            shown(99)?,
            shown(100)?
        ))
    };
    Ok(format!(
        "## From a container's end to its removal\n\n\
         Conditions: {conditions}; guest with 2 CPUs and 1536 MiB, containerd {containerd}; {} containers, one after the other, each killed by SIGKILL; the clock stops when ebb tells that it is removed.\n\
         No dead container is to be kept (`maximumDeadContainersPerContainer: 0`).\n\n\
         | | p50 | p99 | at worst |\n|---|---|---|---|\n\
         {}\n{}\n{}\n\
         | the kubelet's collector, by its beat of a minute (not measured) | 30 s | 60 s | 60 s |\n\n\
         (What is more than one dead container of a name the kubelet removes as soon as it has listed the runtime, once a second; the last one waits for the beat.)\n",
        exits.len(),
        row("ebb", |(removed, _)| *removed)?,
        row("of which containerd deletes the task, and lists no end before", |(_, cleared)| {
            *cleared
        })?,
        row("and from there on", |(removed, cleared)| removed.saturating_sub(*cleared))?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_a_row() {
        let exits: Vec<_> = (1..=100).map(|n| (n * 1000, n * 900)).collect();
        let text = render(&exits, "here", "1.7").unwrap();
        assert!(text.contains("| ebb | 50.0 ms | 99.0 ms | 100.0 ms |"), "{text}");
        assert!(text.contains("| and from there on | 5.0 ms | 9.9 ms | 10.0 ms |"), "{text}");
        let after = Figure::ms("removed once containerd lists its end, p99", 9900).main_if(true);
        assert!(figures(&exits).contains(&after), "{:?}", figures(&exits));
        assert_eq!(exit("1250 900").unwrap(), (1250, 900));
        assert!(exit("1250").is_err());
        assert!(render(&[], "here", "1.7").is_err());
    }
}
