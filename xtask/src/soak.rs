//! `cargo xtask soak`: ebb enforces on a node for half an hour, while leaks and full disks come at random among everything else that happens on nodes.
//!
//! Boots one virtual machine and shows each round as it ends. What happens is made from a seed, which is told: the same seed plays the same again.
//! The soak itself is a guest test (`vm-tests/src/soak`); it fails, and so does this command, when somebody else is evicted, the kernel's OOM killer is needed, ebb grows, or its records do not account for an episode.
//! `cargo xtask test` has three minutes of it.
use crate::vm::lab::{Lab, Soak};
use crate::vm::machine::Verdict;
use anyhow::{Context, Result, bail};

/// On top of the soak's own time: the last round, its beginning and its end, on a loaded host under TCG.
const BESIDE: u64 = 900;

/// Options of `cargo xtask soak`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernel of vm-tests/matrix.toml.
    #[arg(default_value = "6.12")]
    kernel: String,
    /// For how long rounds begin.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
    /// Play what another soak has played; it says its seed.
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut lab = Lab::open(std::slice::from_ref(&args.kernel))?;
    lab.soak = Soak::new(args.minutes * 60, args.seed);
    let mut tests = lab.payload.soak()?;
    for test in &mut tests {
        test.timeout = test.timeout.min(args.minutes * 60 + BESIDE);
    }
    let (kernel, image) = lab.kernels.first().context("no kernel to soak")?.clone();
    let mut jobs = lab.jobs(&kernel, &image, &tests, 0)?;
    for job in &mut jobs {
        job.live = true;
        println!("soak: booting under {}; logs in {}\n", lab.conditions(), job.dir.display());
    }
    let reports = lab.run(jobs, 1, |_, _| {})?;
    let (_, report) = reports.first().context("this kernel has no machine for a soak")?;
    match report.verdicts.first().context("the soak has no verdict")? {
        (_, Verdict::Pass) => {
            println!("\nsoak: passed, {} s in the virtual machine", report.took.as_secs());
            Ok(())
        }
        (_, Verdict::Fail(why) | Verdict::Skip(why)) => bail!("the soak failed: {why}"),
    }
}
