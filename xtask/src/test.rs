//! `cargo xtask test`: everything, and the same in CI. Goes on after a failure, so that one run tells all there is to tell.

use crate::gates::{self, Step};
use crate::{alerts, bpf, cluster, fuzz, seed, sh, vm};
use anyhow::{Context, Result, bail};
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
    let mut steps: Vec<Step> = gates::ALL.into_iter().collect();
    steps.push(Step { name: "BPF objects are reproducible", run: bpf::verify });
    steps.push(Step { name: "tests on this host", run: host_tests });
    steps.push(Step { name: "alert rules", run: alerts::check });
    steps
        .push(Step { name: "cluster collector beside kube-controller-manager", run: cluster::all });
    steps.push(Step { name: "fuzz targets", run: fuzz::briefly });
    if !args.no_vm {
        steps.push(Step { name: "kernel matrix", run: vm::all });
    }
    let mut failed = Vec::new();
    let mut lines = Vec::new();
    for Step { name, run } in &steps {
        println!("\n==== {name}");
        let begun = Instant::now();
        let result = run();
        let seconds = begun.elapsed().as_secs();
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        lines.push(format!("{verdict:<6} {seconds:>5} s  {name}"));
        if let Err(error) = result {
            println!("{name}: {error:#}");
            failed.push(*name);
        }
    }
    println!("\n==== summary");
    for line in &lines {
        println!("{line}");
    }
    println!("{} passed, {} failed", steps.len() - failed.len(), failed.len());
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

fn host_tests() -> Result<()> {
    let seed = seed::of_commit()?.to_string();
    let mut cargo = Command::new("cargo");
    cargo.current_dir(sh::root());
    cargo.env(seed::VARIABLE, &seed).env("PROPTEST_RNG_SEED", &seed);
    sh::run(cargo.args(["test", "--workspace", "--quiet", "--no-fail-fast"]))
}
