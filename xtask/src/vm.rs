//! `cargo xtask vm`: the kernel matrix.
/// Options of `cargo xtask vm`.
#[derive(clap::Args)]
pub(crate) struct Args {}
pub(crate) fn run(_: &Args) -> anyhow::Result<()> {
    Ok(())
}
