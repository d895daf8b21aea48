//! From a container's end to the end of its removal, for `cargo xtask bench`, on a real containerd.
use super::figures::{ms, percentile};
use super::measure;
use anyhow::{Context, Result};

/// Measure, and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When it could not be measured.
pub(crate) fn run() -> Result<String> {
    let measured = measure::all("removal", &[])?;
    let ebb = measured.contenders.first().context("nothing was measured")?;
    let mut times = Vec::new();
    for line in ebb.read("times")?.lines() {
        times.push(line.parse::<u64>().context("a time is no number")?);
    }
    times.sort_unstable();
    render(&times, &measured.conditions, ebb.read("containerd")?.trim())
}

fn render(times: &[u64], conditions: &str, containerd: &str) -> Result<String> {
    let shown = |percent| percentile(times, percent).map(ms).context("no times");
    Ok(format!(
        "## From a container's end to its removal\n\n\
         Conditions: {conditions}; guest with 2 CPUs and 1536 MiB, containerd {containerd}; {} containers, one after the other, each killed by SIGKILL; the clock stops when ebb tells that it is removed.\n\
         No dead container is to be kept (`maximumDeadContainersPerContainer: 0`).\n\n\
         | | p50 | p99 | at worst |\n|---|---|---|---|\n\
         | ebb | {} | {} | {} |\n\
         | the kubelet's collector, by its beat of a minute (not measured) | 30 s | 60 s | 60 s |\n\n\
         (What is more than one dead container of a name the kubelet removes as soon as it has listed the runtime, once a second; the last one waits for the beat.)\n",
        times.len(),
        shown(50)?,
        shown(99)?,
        shown(100)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_a_row() {
        let times: Vec<u64> = (1..=100).map(|n| n * 1000).collect();
        let text = render(&times, "here", "1.7").unwrap();
        assert!(text.contains("| ebb | 50.0 ms | 99.0 ms | 100.0 ms |"), "{text}");
        assert!(render(&[], "here", "1.7").is_err());
    }
}
