//! `cargo xtask demo`: ebb's main job in one minute, on a real kernel.
//!
//! Builds everything, boots one virtual machine, lets several services run beside a leaking one, and shows ebb's own
//! timeline of the rescue. The play itself is a guest test (`vm-tests/src/checks/demo.rs`); it fails, and so does this
//! command, when the leak lives or anybody else dies.
use crate::vm::lab::Lab;
use crate::vm::machine::Verdict;
use anyhow::{Context, Result, bail};

/// Options of `cargo xtask demo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernel of vm-tests/matrix.toml.
    #[arg(default_value = "6.12")]
    kernel: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut lab = Lab::open(std::slice::from_ref(&args.kernel))?;
    let play = lab.payload.demo()?;
    let (kernel, image) = lab.kernels.first().context("no kernel to play on")?.clone();
    let mut jobs = lab.jobs(&kernel, &image, &play, 0)?;
    for job in &mut jobs {
        job.live = true;
        println!("demo: booting under {}; logs in {}\n", lab.conditions(), job.dir.display());
    }
    let reports = lab.run(jobs, 1, |_, _| {})?;
    let (_, report) = reports.first().context("nothing was played")?;
    match report.verdicts.first().context("the play has no verdict")? {
        (_, Verdict::Pass) => {
            println!("\ndemo: passed, {} s in the virtual machine", report.took.as_secs());
            Ok(())
        }
        (_, Verdict::Fail(why) | Verdict::Skip(why)) => bail!("the demo failed: {why}"),
    }
}
