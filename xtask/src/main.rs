//! `cargo xtask`: the list of ebb's developer commands, one file each.
use clap::{Parser, Subcommand};
use std::process::ExitCode;

mod ahead;
mod alerts;
mod alone;
mod arch;
mod archive;
mod bench;
mod bpf;
mod build;
mod cluster;
mod dashboards;
mod debs;
mod demo;
mod fuzz;
mod gates;
mod image;
mod imports;
mod kernels;
mod kube;
mod manifests;
mod oci;
mod package;
mod pages;
mod proto;
mod seed;
mod sh;
mod soak;
mod test;
mod vm;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "ebb's build, test, demo and benchmark commands")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure, and keep the results in docs/benchmarks.md; or say what a change moved (`--compare`).
    Bench(bench::Args),
    /// Build the BPF objects (Rust and C) into target/bpf, installing the toolchain they need.
    Bpf(bpf::Args),
    /// Build the agent as it is shipped: optimised, static, with its BPF programs.
    Build(build::Args),
    /// Check the alert rules, when each alert fires, and the expressions of the dashboards.
    Alerts(alerts::Args),
    /// Run the cluster collector and kube-controller-manager on a real control plane, on this host.
    Cluster(cluster::Args),
    /// Make the Grafana dashboards in deploy/grafana.
    Dashboards(dashboards::Args),
    /// Show ebb's main job on a real kernel: a leak beside services, ended in time.
    Demo(demo::Args),
    /// Run each fuzz target for a bounded time.
    Fuzz(fuzz::Args),
    /// Check format, lints, documentation, crate boundaries and licences.
    Gates(gates::Args),
    /// Put the agent as it is shipped into a container image: an OCI layout as one tar, made without a daemon.
    Image(image::Args),
    /// Ask each kernel of the matrix which way is live for what ebb does, and keep the answers in docs/kernels.md.
    Kernels,
    /// Make the Kubernetes that guests and the tests of the cluster collector run, from Debian's source package; `$KUBEBUILDER_ASSETS` names another one.
    Kube(kube::Args),
    /// Make what operators install: packages for Debian and for rpm, a tarball, the bill of materials and checksums.
    Package(package::Args),
    /// Open what ebb writes as pages in a headless Chromium: nothing said, nothing asked for, every text readable.
    Pages(pages::Args),
    /// Regenerate the code of the wire protocols from cri/proto.
    Proto(proto::Args),
    /// Build the agent and run it on this host: `cargo xtask run -- check`.
    Run(build::RunArgs),
    /// Let ebb enforce on a real kernel while leaks come at random among everything else that happens on nodes.
    Soak(soak::Args),
    /// Everything: gates, tests on this host, the matrix of real kernels. CI runs this.
    Test(test::Args),
    /// Boot real kernels under QEMU and run the guest tests on each.
    Vm(vm::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Bpf(args) => bpf::run(&args),
        Command::Build(args) => build::run(&args),
        Command::Alerts(args) => alerts::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Dashboards(args) => dashboards::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Gates(args) => gates::run(&args),
        Command::Image(args) => image::run(&args),
        Command::Kernels => kernels::run(),
        Command::Kube(args) => kube::run(&args),
        Command::Package(args) => package::run(&args),
        Command::Pages(args) => pages::run(&args),
        Command::Proto(args) => proto::run(&args),
        Command::Run(args) => build::run_agent(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Vm(args) => vm::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line with the causes; where in xtask it came up helps nobody.
            eprintln!("cargo xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
