//! `cargo xtask fuzz`: build the fuzz targets with coverage counters and run each for a bounded time.
//!
//! The targets are in cargo-fuzz's layout and `cargo fuzz run` works on them too, but neither it nor a nightly compiler is needed:
//! coverage counters are an LLVM pass that a stable compiler offers. What only a nightly offers is AddressSanitizer,
//! which has nothing to look for in crates without `unsafe`.
//! Seeds are in `fuzz/seeds`, by target, and for two of them the scenarios of the conformance suite; what a run finds beside them is kept below the target directory.
//! `cargo xtask fuzz TARGET --input FILE` runs one input, which is how a failure is seen again.
use crate::alone::Lock;
use crate::{ahead, seed, sh};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

/// Fuzz targets.
const TARGETS: [&str; 9] =
    ["config", "cri", "files", "history", "incident", "manifest", "quantity", "record", "snapshot"];

/// Targets for which the scenarios are seeds.
const SEEDED: [&str; 2] = ["config", "snapshot"];

/// Counters on edges and comparisons, which libFuzzer follows into code that it has not seen yet.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1";

/// The longest input, bytes: the largest scenario and some more.
const LONGEST: u32 = 16_384;

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds for each target.
    #[arg(long, default_value_t = 30)]
    seconds: u32,
    /// Targets at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Begin as another run has begun; another beginning each time when nothing is said.
    #[arg(long)]
    seed: Option<u64>,
    /// Run this one input instead of looking for more.
    #[arg(long, value_name = "FILE", requires = "target")]
    input: Option<PathBuf>,
    /// Build the targets, and run none.
    #[arg(long)]
    no_run: bool,
    /// Only this target.
    #[arg(value_parser = TARGETS)]
    target: Option<String>,
}

/// Every target for 15 seconds, behind whatever else the machine does meanwhile: part of the check.
pub(crate) struct Behind {
    child: Child,
    log: PathBuf,
}

impl Behind {
    /// Begins; what it says goes to a file.
    pub(crate) fn begin() -> Result<Self> {
        let log = sh::target().join("fuzz.log");
        let out =
            fs::File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let seed = seed::of_commit()?.to_string();
        let mut command = ahead::behind(&out, &["fuzz", "--seconds", "15", "--seed", &seed])?;
        let child = command.spawn().context("cannot start nice")?;
        Ok(Self { child, log })
    }

    /// Waits for its end, and shows what it said.
    pub(crate) fn end(mut self) -> Result<()> {
        let status = self.child.wait().context("cannot wait for the fuzz targets")?;
        let said = fs::read_to_string(&self.log)
            .with_context(|| format!("cannot read {}", self.log.display()))?;
        print!("{said}");
        ensure!(status.success(), "cargo xtask fuzz failed: {status}");
        Ok(())
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let triple = host()?;
    let built = sh::target().join("fuzz");
    let _lock = Lock::take(&built.join("lock"), "the fuzz targets of this checkout")?;
    // The agent has the programs inside.
    crate::bpf::ensure()?;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(sh::root().join("fuzz"));
    cargo.args(["build", "--quiet", "--release", "--bins", "--locked"]);
    // With an explicit target the flags reach what is fuzzed and spare build scripts and macros.
    cargo.args(["--target", &triple]).env("CARGO_TARGET_DIR", &built).env("RUSTFLAGS", COVERAGE);
    sh::run(&mut cargo).context("cannot build the fuzz targets")?;
    if args.no_run {
        return Ok(());
    }
    let programs = built.join(&triple).join("release");
    if let (Some(input), Some(target)) = (&args.input, &args.target) {
        return sh::run(Command::new(programs.join(target)).arg(input).arg("-timeout=10"));
    }
    let mut seeds = Command::new("cargo");
    seeds.current_dir(sh::root()).args(["run", "--quiet", "--locked", "--package", "ebb-tests"]);
    seeds.args(["--example", "seeds", "--"]).arg(built.join("seeds"));
    sh::run(&mut seeds).context("cannot write the scenarios as seeds")?;
    let is_wanted = |name: &str| args.target.as_ref().is_none_or(|only| only == name);
    let queue =
        Mutex::new(TARGETS.into_iter().filter(|name| is_wanted(name)).rev().collect::<Vec<_>>());
    let failed = Mutex::new(Vec::new());
    let work = || {
        loop {
            let next = queue.lock().ok().and_then(|mut queue| queue.pop());
            let Some(target) = next else { return };
            match fuzz(&programs.join(target), target, args, &built) {
                Ok(done) => println!("{target}: {done}"),
                Err(error) => {
                    println!("{target}: {error:#}");
                    failed.lock().iter_mut().for_each(|failed| failed.push(target));
                }
            }
        }
    };
    std::thread::scope(|scope| (0..args.jobs.max(1)).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().ok().context("a thread that fuzzes panicked")?;
    if failed.is_empty() {
        Ok(())
    } else {
        bail!("inputs were found that break {}", failed.join(", "))
    }
}

/// Runs one target; says how much it did. An input that breaks it is kept below the target directory, and how to run it again is said.
fn fuzz(program: &Path, target: &str, args: &Args, built: &Path) -> Result<String> {
    let corpus = built.join("corpus").join(target);
    let found = built.join("found").join(target);
    for dir in [&corpus, &found] {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    let log = built.join(format!("{target}.log"));
    let out = fs::File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
    let mut command = Command::new(program);
    command.arg(&corpus);
    command.args(SEEDED.contains(&target).then(|| built.join("seeds").join(target)));
    // Kept in the repository; a target may have none.
    let kept = sh::root().join("fuzz/seeds").join(target);
    command.args(kept.is_dir().then_some(kept));
    let seconds = args.seconds;
    // libFuzzer takes 32 bits, and 0 for none.
    command.args(args.seed.map(|seed| format!("-seed={}", seed % u64::from(u32::MAX) + 1)));
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={LONGEST}"));
    command.args(["-print_final_stats=1", "-rss_limit_mb=2048", "-timeout=10", "-verbosity=1"]);
    command.arg(format!("-artifact_prefix={}/", found.display()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(out);
    let mut child = command.spawn().with_context(|| format!("cannot start {target}"))?;
    let status = child.wait().with_context(|| format!("cannot wait for {target}"))?;
    remove_scratch(child.id());
    let text = fs::read_to_string(&log).unwrap_or_default();
    if status.success() {
        let runs =
            text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
        return Ok(format!("{} inputs in {seconds} s", runs.unwrap_or("?").trim()));
    }
    let told = text.lines().rev().take(40).collect::<Vec<_>>();
    told.iter().rev().for_each(|line| println!("{line}"));
    let input = text
        .lines()
        .rev()
        .find_map(|line| line.split_once("Test unit written to "))
        .map(|(_, path)| path);
    bail!("{status}; again by `cargo xtask fuzz {target} --input {}`", input.unwrap_or("FILE"))
}

/// Targets that read files leave a directory in memory behind, named by their process.
fn remove_scratch(pid: u32) {
    let prefix = format!("ebb-fuzz-{pid}-");
    for base in [PathBuf::from("/dev/shm"), std::env::temp_dir()] {
        for entry in fs::read_dir(base).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                // Nothing depends on it.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// The compiler's own target.
fn host() -> Result<String> {
    let about = sh::read(Command::new("rustc").arg("-vV"))?;
    let line = about.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).context("rustc -vV names no host")
}
