//! The reflex beside user space, and what every program costs, on each kernel: the guest measures (`vm-tests/src/bench/{reflex,programs}.rs`), here it becomes two tables.
use super::figures::{ms, percentile, tenths};
use super::measure;
use crate::bench::figure::{Figure, Finding};
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The measurements, by name.
const SHOTS: &str = "reflex_beside_user_space";
const PROGRAMS: &str = "programs_costs";

/// How ebb is, as the guest and as people say it.
const CONDITIONS: [(&str, &str); 3] = [
    ("idle", "well"),
    ("without-memory", "without memory"),
    ("without-processor", "without processor"),
];

/// Who ends the leak, likewise.
const WAYS: [(&str, &str); 2] = [("user-space", "user space"), ("reflex", "reflex")];

/// What was measured on each kernel, in the order of the matrix.
#[derive(Debug, Default)]
struct Found {
    /// Microseconds to SIGKILL and the sender, by condition and way, in the order in which they were measured.
    shots: Vec<(String, Vec<Shot>)>,
    /// Nanoseconds a run, by program.
    programs: Vec<(String, BTreeMap<String, u64>)>,
}

/// A condition and a way.
type Key = (String, String);

/// When SIGKILL was sent, and by whom.
type Shot = (Key, u64, String);

/// Measure on every kernel of the matrix and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When one could not be measured.
pub(crate) fn run() -> Result<Finding> {
    let measured = measure::everywhere(&[SHOTS, PROGRAMS])?;
    let mut found = Found::default();
    for one in &measured.contenders {
        if one.name == SHOTS {
            found.shots.push((one.kernel.clone(), shots(&one.read("shots")?)?));
        } else {
            found.programs.push((one.kernel.clone(), programs(&one.read("programs")?)?));
        }
    }
    ensure!(!found.programs.is_empty(), "nothing was measured");
    let (text, figures) = (render(&found, &measured.conditions), found.figures());
    Ok(Finding { conditions: measured.conditions, text, figures })
}

impl Found {
    /// Percentiles of the shots, what each program costs, and the share of a core.
    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for (kernel, shots) in &self.shots {
            for ((condition, name), (way, by)) in
                CONDITIONS.iter().flat_map(|of| WAYS.iter().map(move |way| (of, way)))
            {
                let times = Times::of(shots, condition, way);
                for percent in [50, 99] {
                    let name = format!("{kernel}, ebb is {name}, {by} p{percent}");
                    let is_main = *way == "reflex" && percent == 99;
                    let figure = |micros| Figure::ms(name, micros).main_if(is_main);
                    figures.extend(percentile(&times.micros, percent).map(figure));
                }
            }
        }
        for (kernel, programs) in &self.programs {
            figures.extend(programs.iter().map(|(name, value)| match name.as_str() {
                "share" => {
                    let name = format!("{kernel}, all programs, of one core");
                    Figure::lower(name, "%", *value as f64 / 1e4).main_if(true)
                }
                name => Figure::lower(format!("{kernel}, {name}"), "ns", *value as f64),
            }));
        }
        figures
    }
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

fn render(found: &Found, conditions: &str) -> String {
    let rounds = found.shots.iter().flat_map(|(_, shots)| shots.iter().map(|(key, ..)| key));
    let mut each: BTreeMap<&Key, usize> = BTreeMap::new();
    rounds.for_each(|key| *each.entry(key).or_default() += 1);
    let kernels = found.shots.len().max(1);
    let most = |of: fn(&str) -> bool| {
        let own = each.iter().filter(|((condition, _), _)| of(condition));
        own.map(|(_, count)| count / kernels).max().unwrap_or(0)
    };
    let (well, otherwise) = (most(|one| one == "idle"), most(|one| one != "idle"));
    let mut text = format!(
        "## Without waiting for ebb\n\n\
         Conditions: {conditions}; guest with 2 CPUs and 1536 MiB; {well} leaks of 100 MiB/s in each case while ebb is well and {otherwise} otherwise, after one that is not counted; hard threshold at 15 % `MemAvailable`.\n\
         From the crossing (sampled every 2 ms, interpolated) to SIGKILL, by the same agent without and with `reflex: enabled`. \
         Without memory: `memory.high` of ebb's cgroup is 0 from just before the leak on. Without processor: its `cpu.max` is 1 ms in 100 ms.\n\
         Where the OOM killer was faster, its moment counts for ebb's.\n\n\
         | kernel | ebb is | user space p50 | p99 | OOM killer | reflex p50 | p99 | OOM killer | ratio of p99 |\n|---|---|---|---|---|---|---|---|---|\n"
    );
    for (kernel, shots) in &found.shots {
        for (condition, name) in CONDITIONS {
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
    let names: Vec<&str> = found.programs.iter().map(|(kernel, _)| kernel.as_str()).collect();
    let all = found.programs.iter().flat_map(|(_, programs)| programs.keys());
    let all: BTreeSet<&String> = all.filter(|name| *name != "share").collect();
    let row = |name: &str, shown: fn(u64) -> String| {
        let cells = found.programs.iter().map(|(_, programs)| programs.get(name).copied());
        let cells = cells.map(|cell| cell.map_or_else(|| "–".to_owned(), shown));
        cells.collect::<Vec<_>>().join(" | ")
    };
    let _ = writeln!(text, " {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
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
            programs: vec![("7".into(), programs("fork 10 250\nshare 4321 0\n").unwrap())],
        };
        let figures = found.figures();
        let well = Figure::ms("7, ebb is well, reflex p99", 400).main_if(true);
        assert!(figures.contains(&well), "{figures:?}");
        assert!(figures.contains(&Figure::lower("7, fork", "ns", 250.0)), "{figures:?}");
        let text = render(&found, "here");
        let row = "| 7 | well | 4.0 ms | 9.0 ms | 1 | 0.4 ms | 0.4 ms | 0 | 22.5 × |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| `fork` | 250 |"), "{text}");
        assert!(text.contains("a second | 0.43 % |"), "{text}");
        assert!(shots("idle user-space x ebb").is_err());
    }
}
