//! `cargo xtask test`: everything, and the same in CI. Goes on after a failure, so that one run tells all there is to tell.

use crate::gates::{self, Step};
use crate::{ahead, alerts, bpf, cluster, fuzz, pages, seed, sh, vm};
use anyhow::{Context, Result, ensure};
use std::process::Command;
use std::time::Instant;

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leave out the virtual machines: what can be tested on this host alone.
    #[arg(long)]
    no_vm: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let seed = seed::of_commit()?;
    println!("what is played at random has seed {seed}; {}={seed} plays it again", seed::VARIABLE);
    // What comes later is built with these inside.
    bpf::ensure().context("cannot build the BPF programs")?;
    ahead::begin(!args.no_vm).context("cannot build ahead")?;
    let mut done = Done::default();
    for Step { name, run } in gates::ALL {
        done.step(name, run);
    }
    done.step("BPF objects are reproducible", bpf::verify);
    done.step("tests on this host", host_tests);
    done.step("alert rules and dashboards", alerts::check);
    done.step("pages in a browser", pages::check);
    // The cluster's tests wait as a rule: the fuzz targets, which compute, have the processors meanwhile.
    let fuzzing = fuzz::Behind::begin();
    done.step("cluster collector beside kube-controller-manager", cluster::all);
    done.step("fuzz targets", || fuzzing?.end());
    if !args.no_vm {
        done.step("kernel matrix", vm::check);
    }
    done.summary()
}

/// What has been run so far.
#[derive(Default)]
struct Done {
    /// Each with why.
    failed: Vec<(&'static str, String)>,
    lines: Vec<String>,
}

impl Done {
    /// Run one more, whatever became of those before it.
    fn step(&mut self, name: &'static str, run: impl FnOnce() -> Result<()>) {
        println!("\n==== {name}");
        let begun = Instant::now();
        let result = run();
        let seconds = begun.elapsed().as_secs();
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        self.lines.push(format!("{verdict:<6} {seconds:>5} s  {name}"));
        if let Err(error) = result {
            let why = format!("{error:#}");
            println!("{name}: {why}");
            self.failed.push((name, why));
        }
    }

    fn summary(&self) -> Result<()> {
        println!("\n==== summary");
        for line in &self.lines {
            println!("{line}");
        }
        // The end of the output is all that some have of it.
        for (name, why) in &self.failed {
            println!("{name}: {why}");
        }
        println!("{} passed, {} failed", self.lines.len() - self.failed.len(), self.failed.len());
        let failed: Vec<&str> = self.failed.iter().map(|(name, _)| *name).collect();
        ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
        Ok(())
    }
}

fn host_tests() -> Result<()> {
    let seed = seed::of_commit()?.to_string();
    // Those that take long run a whole agent and wait for it: a processor has time for two.
    let threads = 2 * std::thread::available_parallelism()?.get();
    let mut cargo = Command::new("cargo");
    cargo.current_dir(sh::root());
    cargo.env(seed::VARIABLE, &seed).env("PROPTEST_RNG_SEED", &seed);
    cargo.env("RUST_TEST_THREADS", threads.to_string());
    cargo.env("EBB_PROMETHEUS", alerts::prometheus()?);
    cargo.args(["test", "--workspace", "--features", "ebb-tests/prometheus"]);
    sh::run(cargo.args(["--quiet", "--no-fail-fast"]))
}
