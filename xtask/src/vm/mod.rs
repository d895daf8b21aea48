//! `cargo xtask vm`: the guest tests on every kernel of the matrix.
//!
//! ```text
//! matrix.toml ─► kernel images (Debian, today's)          ┐
//! trixie      ─► QEMU, root disks (cached by their inputs)├─► machines, two at a time ─► verdicts ─► table
//! this tree   ─► agent + runner (static) ─► initramfs     ┘
//! ```
//! Tests say which machine they need; each kernel boots one guest per machine. Logs are in `target/vm/KERNEL/MACHINE/`.
use crate::arch::Arch;
use crate::seed;
use anyhow::{Result, bail};
use payload::Test;
use std::time::Instant;

pub(crate) mod costs;
pub(crate) mod idle;
pub(crate) mod lab;
pub(crate) mod machine;
pub(crate) mod race;
pub(crate) mod reconciler;
pub(crate) mod removal;
pub(crate) mod shots;

mod figures;
mod images;
mod kernel;
mod matrix;
mod measure;
pub(crate) mod payload;
mod qemu;
mod summary;
mod userland;

/// Options of `cargo xtask vm`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernels of vm-tests/matrix.toml, by name; all when none is named.
    kernels: Vec<String>,
    /// Only tests whose name contains one of these.
    #[arg(last = true)]
    filter: Vec<String>,
    /// Guests at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Run every chosen test this many times, to find one that fails now and then.
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// The tests that take minutes each, instead of those that `cargo xtask test` runs.
    #[arg(long)]
    long: bool,
    /// Build what the guests run, and boot none.
    #[arg(long)]
    no_run: bool,
}

/// Every test, on as many kernels as `cargo xtask test` has time for.
pub(crate) fn check() -> Result<()> {
    let mut lab = lab::Lab::for_check()?;
    lab.soak.seed = seed::of_commit()?;
    let (kernels, filter) = (Vec::new(), Vec::new());
    run_in(lab, &Args { kernels, filter, jobs: 2, repeat: 1, long: false, no_run: false })
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.no_run {
        return payload::Payload::build(Arch::Amd64).map(drop);
    }
    run_in(lab::Lab::open(&args.kernels)?, args)
}

fn run_in(mut lab: lab::Lab, args: &Args) -> Result<()> {
    let wanted = |test: &Test| {
        args.filter.is_empty() || args.filter.iter().any(|part| test.name.contains(part))
    };
    let tests = if args.long { lab.payload.long_tests()? } else { lab.payload.tests()? };
    let tests: Vec<Test> = tests.into_iter().filter(wanted).collect();
    if tests.is_empty() {
        bail!("no test matches {:?}", args.filter);
    }
    let kernels = lab.kernels.clone();
    let mut jobs = Vec::new();
    for round in 0..args.repeat {
        for (kernel, image) in &kernels {
            jobs.extend(lab.jobs(kernel, image, &tests, round)?);
        }
    }
    let began = Instant::now();
    let reports = lab.run(jobs, args.jobs, summary::progress)?;
    let on = |kernel: &_| lab.on(kernel, &tests).cloned().collect();
    let left_out = lab.left_out(&tests);
    summary::print(&kernels, &reports, on, left_out, began.elapsed())
}
