//! `cargo xtask`: the list of ebb's developer commands, one file each.
use clap::{Parser, Subcommand};

mod bench;
mod bpf;
mod debs;
mod sh;
mod vm;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "ebb's build, test, demo and benchmark commands")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure, and keep the results in docs/benchmarks.md.
    Bench(bench::Args),
    /// Build the BPF objects (Rust and C) into target/bpf, installing the toolchain they need.
    Bpf(bpf::Args),
    /// Boot real kernels under QEMU and run the guest tests on each.
    Vm(vm::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Bpf(args) => bpf::run(&args),
        Command::Vm(args) => vm::run(&args),
    }
}
