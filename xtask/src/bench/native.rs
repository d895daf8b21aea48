//! How long the way through user space is on this host: a benchmark (`tests/benches/native`) measures it; here its numbers become tables.
use super::criterion::cargo_bench;
use super::figure::{Figure, Finding};
use super::host::conditions;
use crate::sh;
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;

/// All hogs together.
const ANY: &str = "any of these";

/// Measure, and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When it could not be measured.
pub(super) fn run() -> Result<Finding> {
    let measured = Measured::parse(&sh::read(&mut cargo_bench("ebb-tests", "native"))?)?;
    let conditions = conditions()?;
    let text = render(&conditions, &measured);
    Ok(Finding { conditions, text, figures: measured.figures() })
}

/// What the benchmark says.
struct Measured {
    cases: Vec<Case>,
    /// MiB that are left, nanoseconds of a processor in a second, waits in a minute.
    idle: Vec<(u64, u64, u64)>,
    /// Whether the kernel tells of falls, and the same of this machine's own memory.
    calm: Vec<(bool, u64, u64, u64)>,
}

impl Measured {
    fn parse(text: &str) -> Result<Self> {
        let (mut cases, mut idle, mut calm) = (Vec::new(), Vec::new(), Vec::new());
        for line in text.lines() {
            let Some((kind, numbers)) = line.split_once(' ') else { continue };
            let numbers = numbers.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>();
            let numbers = numbers.with_context(|| format!("not numbers: {line}"))?;
            match (kind, numbers.as_slice()) {
                ("run", numbers) => cases.push(Case::parse(numbers)?),
                ("idle", &[_, headroom, used, wakes]) => idle.push((headroom, used, wakes)),
                ("calm", &[_, is_told, headroom, used, wakes]) => {
                    calm.push((is_told > 0, headroom, used, wakes));
                }
                _ => bail!("the benchmark says {line:?}"),
            }
        }
        let is_whole = !cases.is_empty() && !idle.is_empty() && !calm.is_empty();
        ensure!(is_whole, "the benchmark says {text:?}");
        Ok(Self { cases, idle, calm })
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures: Vec<Figure> = self.cases.iter().flat_map(Case::figures).collect();
        for (headroom, used, _) in &self.idle {
            let name = format!("idle with {} left, of one core", mib(*headroom));
            figures.push(Figure::lower(name, "%", *used as f64 / 1e7));
        }
        for (is_told, _, used, _) in &self.calm {
            let name = format!("calm, {}, of one core", looker(*is_told));
            figures.push(Figure::lower(name, "%", *used as f64 / 1e7).main_if(*is_told));
        }
        figures
    }
}

/// What the benchmark says of one case; times are in nanoseconds.
struct Case {
    runs: u64,
    rate: String,
    is_beside_busy: bool,
    /// Whether ebb's threads go before whatever is not real-time.
    is_first: bool,
    in_fact: u64,
    ahead: u64,
    /// Acted on within a millisecond.
    soon: u64,
    lost: u64,
    gap: u64,
    reading: u64,
    times: [u64; 8],
}

impl Case {
    fn parse(numbers: &[u64]) -> Result<Self> {
        let mut rest = numbers.iter().copied().skip(1);
        let mut next = || rest.next().with_context(|| format!("too few numbers: {numbers:?}"));
        let rate = match (next()?, next()?) {
            (0, 0) => ANY.to_owned(),
            (0, 1) => "as fast as it can".to_owned(),
            (0, threads) => format!("as fast as {threads} threads can"),
            (rate, _) => format!("{} GiB/s", rate / 1024),
        };
        // In the order of the line.
        let case = Self {
            rate,
            is_beside_busy: next()? > 0,
            is_first: next()? > 0,
            runs: next()?,
            in_fact: next()?,
            ahead: next()?,
            soon: next()?,
            lost: next()?,
            gap: next()?,
            reading: next()?,
            times: [next()?, next()?, next()?, next()?, next()?, next()?, next()?, next()?],
        };
        ensure!(rest.next().is_none(), "too many numbers: {numbers:?}");
        Ok(case)
    }

    fn beside(&self) -> &'static str {
        if self.is_beside_busy { "a busy core" } else { "nothing" }
    }

    fn scheduled(&self) -> &'static str {
        if self.is_first { "first" } else { "in turns" }
    }

    fn figures(&self) -> Vec<Figure> {
        let [.., p50, p99, _, bare] = self.times;
        let figure = |what: &str, ns: u64| {
            let first = if self.is_first { ", real-time" } else { "" };
            let name = format!("acted {what}, {} beside {}{first}", self.rate, self.beside());
            Figure::ms(name, ns / 1000).main_if(self.rate == ANY)
        };
        vec![figure("p50", p50), figure("p99", p99), figure("by two bare threads p99", bare)]
    }

    fn row(&self) -> String {
        let (beside, scheduled) = (self.beside(), self.scheduled());
        let rate = mib(self.in_fact);
        let mut row = format!("| {} | {rate} | {beside} | {scheduled} |", self.rate);
        for time in self.times {
            let _ = write!(row, " {} |", ms(time));
        }
        let Self { runs, soon, ahead, lost, .. } = self;
        let _ = write!(row, " {runs} | {soon} | {ahead} | {lost} |");
        row
    }
}

fn render(conditions: &str, measured: &Measured) -> String {
    let Measured { cases, idle, calm } = measured;
    let most = |of: fn(&Case) -> u64| cases.iter().map(of).max().unwrap_or(0);
    let rows: Vec<String> = cases.iter().map(Case::row).collect();
    let of_files: Vec<String> = idle
        .iter()
        .map(|(headroom, used, wakes)| idle_row(&mib(*headroom), *used, *wakes))
        .collect();
    let here: Vec<String> = calm
        .iter()
        .map(|(is_told, _, used, wakes)| idle_row(looker(*is_told), *used, *wakes))
        .collect();
    let room = calm.first().map_or_else(String::new, |(_, headroom, ..)| mib(*headroom));
    format!(
        "## From a crossed threshold to the kill, natively\n\n\
         Conditions: {conditions}. `ebb run` in a dry run, without BPF. The workloads are the processes of this host (the memory controller is on cgroup v1). Up to {} runs of each case, each with an agent of its own.\n\
         In turns: as a dry run is, which asks for no real-time priority. First: the benchmark gives the loop and the thread that kills what an agent that enforces has near a threshold (`SCHED_RR` 2, `SCHED_FIFO` 4).\n\
         The threshold is 128, 256 or 512 MiB below what is available, and a hog, in a session of its own as another service is, goes 512 MiB past it without a pause; at 1 GiB/s in small pages, else in huge ones, without which one thread is not that fast. It begins at another moment of ebb's waits in every run.\n\
         The hog itself reads `MemAvailable` right before each piece that it touches, so nothing samples beside it: a reading takes it {}. The crossing is its last reading that was not below: at most {} early, and never late. A run in which others used the machine too much to tell is repeated, and left out after ten times; so is one in which what is available moves by more than 32 MiB between two readings, as it does when a virtual machine tells its host which pages are free; so is one in which a real-time thread on each processor, which goes before ebb's, did not run for 1 ms about the crossing: the host of a virtual machine gives its processors to others.\n\
         Seen is the look that finds the threshold crossed; decided is when it is known whom to end; acted is where an agent that enforces has killed. In fact: the rate, by the median. Of fewer than 100 runs p99 is the worst.\n\
         Two bare threads are what this machine allows: they do nothing but that one looks every 0.25 ms and wakes the other, with the same priority and turns as ebb's in that case, beside ebb and the hog. The time is that from the same crossing until the other is awake.\n\n\
         | the hog takes | in fact | beside it | ebb's threads | seen p50 | p99 | decided p50 | p99 | acted p50 | p99 | two bare threads p50 | p99 | runs | acted within 1 ms | decided ahead | lost |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n{}\n\n\
         What looking costs while nothing happens, by what is left above the threshold: processor time of all of ebb's threads over a minute (`schedstat`), on nodes made of files with 20 cgroups. There no kernel tells of a fall, and ebb looks as often as the headroom asks.\n\n\
         | left | of one core | waits a minute |\n|---|---|---|\n{}\n\n\
         The same of two agents that watch this machine's own memory with {room} left above the threshold: one that sleeps until a timer of the kernel's tells it of a fall, and one that is run with `--leave-out fall`. Both have the other BPF programs, and so wake for what ends on this machine.\n\n\
         | who looks | of one core | waits a minute |\n|---|---|---|\n{}\n",
        cases.iter().filter(|case| case.rate != ANY).map(|case| case.runs).max().unwrap_or(0),
        us(most(|case| case.reading)),
        us(most(|case| case.gap)),
        rows.join("\n"),
        of_files.join("\n"),
        here.join("\n"),
    )
}

fn idle_row(what: &str, used: u64, wakes: u64) -> String {
    format!("| {what} | {} | {wakes} |", percent(used))
}

fn looker(is_told: bool) -> &'static str {
    if is_told { "the kernel's timer" } else { "ebb by itself" }
}

fn mib(mib: u64) -> String {
    if mib < 1024 {
        format!("{mib} MiB")
    } else {
        format!("{}.{} GiB", mib / 1024, mib % 1024 * 10 / 1024)
    }
}

fn ms(ns: u64) -> String {
    format!("{}.{:02} ms", ns / 1_000_000, ns % 1_000_000 / 10_000)
}

fn us(ns: u64) -> String {
    format!("{} µs", ns / 1000)
}

/// Nanoseconds of a second as a part of it, cut off.
fn percent(nanos: u64) -> String {
    format!("{}.{:03} %", nanos / 10_000_000, nanos % 10_000_000 / 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_benchmark_prints_becomes_three_tables() {
        let measured = "run 0 4096 1 0 0 60 4011 59 58 1 520000 2900 310000 820000 330000 840000 410000 990000 150000 700000\n\
                        run 0 0 2 1 0 60 9000 60 55 0 300000 2000 1 2 3 4 5 6000000 7 8\n\
                        run 0 0 0 0 1 120 9000 60 119 0 300000 2000 1 2 3 4 5 990000 7 8\n\
                        idle 0 2048 123456 300\n\
                        calm 0 1 5632 45678 30\n\
                        calm 0 0 5632 345678 200\n";
        let measured = Measured::parse(measured).unwrap();
        let text = render("here", &measured);
        assert!(
            text.contains("| 4 GiB/s | 3.9 GiB | nothing | in turns | 0.31 ms | 0.82 ms | 0.33 ms | 0.84 ms | 0.41 ms | 0.99 ms | 0.15 ms | 0.70 ms | 60 | 58 | 59 | 1 |\n"),
            "{text}"
        );
        assert!(
            text.contains("| as fast as 2 threads can | 8.7 GiB | a busy core | in turns |"),
            "{text}"
        );
        assert!(text.contains("| any of these | 8.7 GiB | nothing | first |"), "{text}");
        assert!(text.contains("| 2.0 GiB | 0.012 % | 300 |\n"), "{text}");
        assert!(text.contains("| the kernel's timer | 0.004 % | 30 |\n"), "{text}");
        assert!(text.contains("with 5.5 GiB left") && text.contains("| ebb by itself |"), "{text}");
        assert!(text.contains("at most 520 µs early") && text.contains(" 60 runs of"), "{text}");
        assert!(Measured::parse("run 1 2 3\n").is_err() && Measured::parse("").is_err());
        let figures = measured.figures();
        let acted =
            Figure::ms("acted p99, any of these beside nothing, real-time", 990).main_if(true);
        assert!(figures.contains(&acted), "{figures:?}");
    }
}
