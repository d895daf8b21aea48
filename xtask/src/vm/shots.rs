//! The reflex beside user space, and what every program costs, on each kernel: the guest measures (`vm-tests/src/bench/{reflex,programs}.rs`), here it becomes two tables.
use super::figures::{ms, percentile, tenths};
use super::lab::Lab;
use super::machine::Verdict;
use super::matrix::Matrix;
use super::payload::Test;
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

/// The measurements, by name.
const SHOTS: &str = "reflex_beside_user_space";
const PROGRAMS: &str = "programs_costs";

/// What was measured on each kernel, by its name.
#[derive(Debug, Default)]
struct Found {
    /// Microseconds to SIGKILL and the sender, by condition and way, in the order in which they were measured.
    shots: Vec<(String, Vec<Shot>)>,
    /// Nanoseconds a run, by program.
    programs: BTreeMap<String, BTreeMap<String, u64>>,
}

/// A condition and a way.
type Key = (String, String);

/// When SIGKILL was sent, and by whom.
type Shot = (Key, u64, String);

/// Measure on every kernel of the matrix and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When one could not be measured.
pub(crate) fn run() -> Result<String> {
    let names: Vec<String> =
        Matrix::load()?.select(&[])?.into_iter().map(|kernel| kernel.name).collect();
    let mut lab = Lab::open(&names)?;
    let benches = lab.payload.benches()?;
    let wanted = |test: &Test| test.name == SHOTS || test.name == PROGRAMS;
    let tests: Vec<Test> = benches.into_iter().filter(wanted).collect();
    let mut jobs = Vec::new();
    for (kernel, image) in lab.kernels.clone() {
        jobs.extend(lab.jobs(&kernel, &image, &tests, 0)?);
    }
    // One at a time: two guests on two cores would measure each other.
    let reports = lab.run(jobs, 1, super::summary::progress)?;
    let mut found = Found::default();
    for name in &names {
        for (job, report) in reports.iter().filter(|(job, _)| job.kernel == *name) {
            for (test, verdict) in &report.verdicts {
                match verdict {
                    Verdict::Pass => {}
                    Verdict::Skip(_) => continue,
                    Verdict::Fail(why) => bail!("{test} could not be measured on {name}: {why}"),
                }
                let file = if test == SHOTS { "shots" } else { "programs" };
                let path = job.unpack_files()?.join(test).join(file);
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                if test == SHOTS {
                    found.shots.push((name.clone(), shots(&text)?));
                } else {
                    found.programs.insert(name.clone(), programs(&text)?);
                }
            }
        }
    }
    ensure!(!found.programs.is_empty(), "nothing was measured");
    Ok(render(&names, &found, &lab.conditions()))
}

fn shots(text: &str) -> Result<Vec<Shot>> {
    let line = |line: &str| {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let [condition, way, micros, sender] = words.as_slice() else {
            bail!("the guest reports a shot as {line:?}")
        };
        let micros = micros.parse().context("a time is no number")?;
        Ok((((*condition).to_owned(), (*way).to_owned()), micros, (*sender).to_owned()))
    };
    text.lines().map(line).collect()
}

fn programs(text: &str) -> Result<BTreeMap<String, u64>> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, runs, each] = words.as_slice() else {
            bail!("the guest reports a program as {line:?}")
        };
        // The share stands where other lines have the number of runs.
        let value = if *name == "share" { runs } else { each };
        Ok(((*name).to_owned(), value.parse().context("a cost is no number")?))
    };
    text.lines().map(line).collect()
}

fn render(names: &[String], found: &Found, conditions: &str) -> String {
    let rounds = found.shots.iter().flat_map(|(_, shots)| shots.iter().map(|(key, ..)| key));
    let mut each: BTreeMap<&Key, usize> = BTreeMap::new();
    rounds.for_each(|key| *each.entry(key).or_default() += 1);
    let kernels = found.shots.len().max(1);
    let rounds = each.values().max().map_or(0, |count| count / kernels);
    let mut text = format!(
        "## Without waiting for ebb\n\n\
         Conditions: {conditions}; guest with 2 CPUs and 1536 MiB; {rounds} leaks of 100 MiB/s in each case, after one that is not counted; hard threshold at 15 % `MemAvailable`.\n\
         From the crossing (sampled every 2 ms, interpolated) to SIGKILL, by the same agent without and with `reflex: enabled`. \
         Without memory: `memory.high` of ebb's cgroup is 0 from just before the leak on. Without processor: its `cpu.max` is 1 ms in 100 ms.\n\
         Where the OOM killer was faster, its moment counts for ebb's.\n\n\
         | kernel | ebb is | user space p50 | p99 | OOM killer | reflex p50 | p99 | OOM killer | ratio of p99 |\n|---|---|---|---|---|---|---|---|---|\n"
    );
    for (kernel, shots) in &found.shots {
        for (condition, name) in [
            ("idle", "well"),
            ("without-memory", "without memory"),
            ("without-processor", "without processor"),
        ] {
            let user = Times::of(shots, condition, "user-space");
            let reflex = Times::of(shots, condition, "reflex");
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| {kernel} | {name} | {} | {} | {} × |",
                user.shown(),
                reflex.shown(),
                tenths(user.at(99) * 10 / reflex.at(99).max(1))
            );
        }
    }
    text.push_str("\nWhat each program costs, in nanoseconds a run by the kernel's own measure, under the emulated CPU. Direct reclaims are played by request.\n\n| program |");
    let kernels: Vec<&String> = names.iter().filter(|n| found.programs.contains_key(*n)).collect();
    let names: Vec<&str> = kernels.iter().map(|name| name.as_str()).collect();
    let all = found.programs.values().flat_map(BTreeMap::keys).filter(|name| *name != "share");
    let all: BTreeSet<&String> = all.collect();
    let of = |kernel: &String, name: &str| found.programs.get(kernel)?.get(name).copied();
    let row = |name: &str, shown: fn(u64) -> String| {
        let cell = |kernel: &&String| of(kernel, name).map_or_else(|| "–".to_owned(), shown);
        kernels.iter().map(cell).collect::<Vec<_>>().join(" | ")
    };
    let _ = writeln!(text, " {} |\n|---|{}", names.join(" | "), "---|".repeat(kernels.len()));
    for program in all {
        let _ = writeln!(text, "| `{program}` | {} |", row(program, |each| each.to_string()));
    }
    let percent = |share| format!("{}.{:02} %", share / 10_000, share / 100 % 100);
    let what = "of one core at 10,000 forks and 1,000 direct reclaims a second";
    let _ = writeln!(text, "| {what} | {} |", row("share", percent));
    text
}

/// Times of one way in one condition, sorted.
struct Times {
    micros: Vec<u64>,
    by_oom_killer: usize,
}

impl Times {
    fn of(shots: &[Shot], condition: &str, way: &str) -> Self {
        let mine = shots.iter().filter(|((c, w), ..)| c == condition && w == way);
        let mut micros: Vec<u64> = mine.clone().map(|(_, micros, _)| *micros).collect();
        micros.sort_unstable();
        // The reflex fires in whose turn it is, mostly the leak's; the OOM killer counts its victims.
        let by_oom_killer = mine.filter(|(.., sender)| sender == "oom").count();
        Self { micros, by_oom_killer }
    }

    fn at(&self, percent: usize) -> u64 {
        percentile(&self.micros, percent).unwrap_or(0)
    }

    fn shown(&self) -> String {
        format!("{} | {} | {}", ms(self.at(50)), ms(self.at(99)), self.by_oom_killer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_guests_left_becomes_rows() {
        let left = "idle user-space 4000 ebb\nidle reflex 400 actor\nidle user-space 9000 oom\n";
        let found = Found {
            shots: vec![("7".into(), shots(left).unwrap())],
            programs: BTreeMap::from([(
                "7".to_owned(),
                programs("fork 10 250\nshare 4321 0\n").unwrap(),
            )]),
        };
        let text = render(&["7".into()], &found, "here");
        let row = "| 7 | well | 4.0 ms | 9.0 ms | 1 | 0.4 ms | 0.4 ms | 0 | 22.5 × |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| `fork` | 250 |"), "{text}");
        assert!(text.contains("a second | 0.43 % |"), "{text}");
        assert!(shots("idle user-space x ebb").is_err());
    }
}
