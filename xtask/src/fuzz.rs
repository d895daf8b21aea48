//! `cargo xtask fuzz`: build the fuzz targets with coverage counters and run each for a bounded time.
//!
//! The targets are in cargo-fuzz's layout and `cargo fuzz run` works on them too, but neither it nor a nightly compiler is needed:
//! coverage counters are an LLVM pass that a stable compiler offers. What only a nightly offers is AddressSanitizer,
//! which has nothing to look for in crates without `unsafe`. Seeds are the scenarios of the conformance suite.
use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fuzz targets and what their seeds are called in the scenario folders.
const TARGETS: [(&str, &str); 3] =
    [("config", "config.yaml"), ("quantity", ""), ("snapshot", "snapshot.json")];

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
    /// Only this target: config, quantity or snapshot.
    #[arg(value_parser = ["config", "quantity", "snapshot"])]
    target: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let triple = host()?;
    let built = sh::target().join("fuzz");
    let mut cargo = Command::new("cargo");
    cargo.current_dir(sh::root().join("fuzz")).args(["build", "--release", "--bins"]);
    // With an explicit target the flags reach what is fuzzed and spare build scripts and macros.
    cargo.args(["--target", &triple]).env("CARGO_TARGET_DIR", &built).env("RUSTFLAGS", COVERAGE);
    sh::run(&mut cargo).context("cannot build the fuzz targets")?;
    let mut failed = Vec::new();
    for (target, seeds) in TARGETS {
        if args.target.as_ref().is_some_and(|only| only != target) {
            continue;
        }
        println!("==== {target}: {} s", args.seconds);
        let program = built.join(&triple).join("release").join(target);
        if let Err(error) = fuzz(&program, target, seeds, args.seconds, &built) {
            println!("{target}: {error:#}");
            failed.push(target);
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        bail!("inputs were found that break {}", failed.join(", "))
    }
}

/// Runs one target; what it finds is kept below the target directory and named by its last lines.
fn fuzz(program: &Path, target: &str, seeds: &str, seconds: u32, built: &Path) -> Result<()> {
    let corpus = built.join("corpus").join(target);
    let seeded = built.join("seeds").join(target);
    let found = built.join("found").join(target);
    for dir in [&corpus, &seeded, &found] {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    if !seeds.is_empty() {
        let mut files = Vec::new();
        collect(&sh::root().join("tests/conformance"), seeds, &mut files)?;
        for (number, file) in files.iter().enumerate() {
            let seed = seeded.join(number.to_string());
            std::fs::copy(file, &seed)
                .with_context(|| format!("cannot copy {}", file.display()))?;
        }
    }
    let mut command = Command::new(program);
    command.arg(&corpus).arg(&seeded);
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={LONGEST}"));
    command.args(["-print_final_stats=1", "-rss_limit_mb=2048", "-timeout=10", "-verbosity=0"]);
    command.arg(format!("-artifact_prefix={}/", found.display()));
    sh::run(&mut command)
}

/// Files whose names end in `name`, below a folder.
fn collect(folder: &Path, name: &str, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, name, files)?;
        } else if path.file_name().is_some_and(|file| file.to_string_lossy().ends_with(name)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

/// The compiler's own target.
fn host() -> Result<String> {
    let about = sh::read(Command::new("rustc").arg("-vV"))?;
    let line = about.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).context("rustc -vV names no host")
}
