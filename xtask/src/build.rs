//! `cargo xtask build` and `cargo xtask run`: the agent with its BPF programs inside.

use crate::{bpf, sh};
use anyhow::Result;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// The one target that ebb is built for; named, because a static build must not be applied to build scripts.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Options of `cargo xtask build`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Options of `cargo xtask run`.
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// Arguments of `ebb`, after `--`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(_: &Args) -> Result<()> {
    println!("{}", agent()?.display());
    Ok(())
}

/// Builds the agent, then becomes it, on this host.
pub(crate) fn run_agent(args: &RunArgs) -> Result<()> {
    use std::os::unix::process::CommandExt as _;
    let agent = agent()?;
    // Only returns when the program could not be started.
    let error = Command::new(&agent).args(&args.arguments).exec();
    Err(anyhow::Error::new(error).context(format!("cannot start {}", agent.display())))
}

/// Builds the agent as it is shipped: optimised, static, with its BPF programs; returns where it is.
pub(crate) fn agent() -> Result<PathBuf> {
    bpf::ensure()?;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(sh::root()).env("RUSTFLAGS", "-C target-feature=+crt-static");
    sh::run(cargo.args(["build", "--release", "--quiet", "--package", "ebb", "--target", TARGET]))?;
    Ok(sh::target().join(TARGET).join("release/ebb"))
}
