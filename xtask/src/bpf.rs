//! `cargo xtask bpf`: both halves of the kernel side, reproducibly.
/// Options of `cargo xtask bpf`.
#[derive(clap::Args)]
pub(crate) struct Args {}
pub(crate) fn run(_: &Args) -> anyhow::Result<()> {
    Ok(())
}
