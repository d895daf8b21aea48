//! What it costs to know every cgroup's memory: one sweep, beside the same values from files, in one run.
//!
//! Files are read in two ways: opened, read and closed each time, which is what reading thousands of cgroups comes to, and
//! through descriptors kept open, which is the best that files can do and takes as many descriptors as there are files.
use crate::cgroup::Cgroup;
use crate::checks::sweep::crowd;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use anyhow::{Context, Result, ensure};
use ebb_probes::{Sweep, Swept, survey};
use nix::sys::resource::{Resource, setrlimit};
use nix::time::{ClockId, clock_gettime};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

/// The files that hold what a sweep tells everywhere.
const COUNTERS: [&str; 8] = [
    "memory.current",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.swap.current",
    "memory.events",
    "pids.current",
];
/// The file that holds the rest, where a sweep tells it.
const STATISTICS: &str = "memory.stat";

pub(crate) fn five_hundred(test: &TestContext) -> Result<Outcome> {
    compare(test, 500, 20)
}

pub(crate) fn five_thousand(test: &TestContext) -> Result<Outcome> {
    compare(test, 5000, 5)
}

/// Leaves rows `WAY MICROSECONDS` of CPU time per pass over all cgroups.
fn compare(test: &TestContext, count: usize, rounds: u32) -> Result<Outcome> {
    let top = Cgroup::create("work.slice/many")?;
    let cgroups = crowd(&top, count)?;
    let mut sweep = match Sweep::open(top.path(), &survey()) {
        Ok(sweep) => sweep,
        Err(refused) => return Ok(Outcome::Skipped(refused.to_string())),
    };
    let mut swept: Vec<Swept> = Vec::new();
    sweep.read(&mut swept)?;
    let files: Vec<&str> = match sweep.stat() {
        Some(_) => COUNTERS.into_iter().chain([STATISTICS]).collect(),
        None => COUNTERS.to_vec(),
    };
    let by_sweep = cost(rounds, || {
        sweep.read(&mut swept)?;
        ensure!(swept.len() > count, "{} cgroups were swept", swept.len());
        black_box(&swept);
        Ok(())
    })?;
    let paths: Vec<PathBuf> =
        cgroups.iter().flat_map(|dir| files.iter().map(|file| dir.join(file))).collect();
    let mut buffer = vec![0; 16 << 10];
    let opened = cost(rounds, || {
        for path in &paths {
            let file =
                File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            take(&file, &mut buffer)?;
        }
        Ok(())
    })?;
    setrlimit(Resource::RLIMIT_NOFILE, 100_000, 100_000).context("cannot have many files")?;
    let open = paths.iter().map(File::open).collect::<std::io::Result<Vec<_>>>();
    let open = open.context("cannot keep the files open")?;
    let kept = cost(rounds, || open.iter().try_for_each(|file| take(file, &mut buffer)))?;
    let mut rows = format!("program {}\nfiles {}\ncgroups {count}\n", sweep.program(), files.len());
    for (way, cost) in [("sweep", by_sweep), ("opened", opened), ("kept", kept)] {
        writeln!(rows, "{way} {}", cost.as_micros()).context("cannot write to memory")?;
    }
    let dir = runner::out_dir(test)?;
    fs::write(dir.join("costs"), &rows).context("cannot leave the costs")?;
    runner::note(test, &rows.replace('\n', ", "))?;
    Ok(Outcome::Passed)
}

/// What a reader does with a file: take its text and the numbers in it.
fn take(file: &File, buffer: &mut [u8]) -> Result<()> {
    let length = file.read_at(buffer, 0).context("cannot read a file")?;
    let text = std::str::from_utf8(buffer.get(..length).unwrap_or_default())?;
    for line in text.lines() {
        let number = line.rsplit(' ').next().unwrap_or(line);
        black_box(number.parse::<u64>().unwrap_or(u64::MAX));
    }
    Ok(())
}

/// CPU time of one pass, the kernel's share included: the mean of some after one that is not counted.
fn cost(rounds: u32, mut pass: impl FnMut() -> Result<()>) -> Result<Duration> {
    pass()?;
    let before = cpu()?;
    for _ in 0..rounds {
        pass()?;
    }
    Ok((cpu()? - before) / rounds)
}

fn cpu() -> Result<Duration> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).context("cannot read a clock")?;
    Ok(Duration::from(time))
}
