//! `cargo xtask cluster`: the cluster collector and kube-controller-manager on a real control plane, on this host.
//!
//! The programs of the control plane are those of `cargo xtask kube`. Each case runs under kube-controller-manager and
//! under ebb; the cases and how they are played are in `cluster-tests`.
use crate::{bpf, kube, manifests, seed, sh};
use anyhow::Result;
use std::process::Command;

/// Tells the test binary where the programs are; without it, it has no tests.
const ASSETS: &str = "EBB_CLUSTER_ASSETS";

/// Tells it where the built manifests of `deploy/` are.
const MANIFESTS: &str = "EBB_MANIFESTS";

/// And the kubectl that applies them as users do.
const KUBECTL: &str = "EBB_KUBECTL";

/// Options of `cargo xtask cluster`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Of the sequences that were played at random, play those again; they say their seed.
    #[arg(long)]
    seed: Option<u64>,
    /// How many sequences are played at random; 500 when nothing is said.
    #[arg(long)]
    sequences: Option<usize>,
    /// For the test binary: words that names of tests contain, `--list`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    // The agent is built with the programs inside.
    bpf::ensure()?;
    let dir = kube::assets(kube::For::Cluster)?;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(sh::root()).env(ASSETS, dir);
    cargo.env(MANIFESTS, manifests::build()?).env(KUBECTL, manifests::kubectl()?);
    if let Some(seed) = args.seed {
        cargo.env(seed::VARIABLE, seed.to_string());
    }
    if let Some(sequences) = args.sequences {
        cargo.env("EBB_SEQUENCES", sequences.to_string());
    }
    cargo.args(["test", "--package", "ebb-cluster-tests", "--test", "cluster", "--"]);
    sh::run(cargo.args(&args.arguments))
}

/// Everything, as the check has it.
pub(crate) fn all() -> Result<()> {
    run(&Args { seed: Some(seed::of_commit()?), sequences: None, arguments: Vec::new() })
}
