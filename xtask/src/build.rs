//! `cargo xtask build` and `cargo xtask run`: the agent with its BPF programs inside, for this machine or another architecture.
//!
//! Another architecture takes a C compiler for it and rustc's library, both installed where they are missing, and static
//! libraries of Debian, which are unpacked into the cache. BPF programs are the same for all.

use crate::arch::Arch;
use crate::debs::Suite;
use crate::{alone, bpf, debs, sh};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// What libbpf is linked with.
const LIBRARIES: [&str; 3] = ["libelf-dev", "zlib1g-dev", "libzstd-dev"];

/// Options of `cargo xtask build`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// For which architecture; without it, for that of this machine.
    #[arg(long, value_enum, default_value_t)]
    arch: Arch,
}

/// Options of `cargo xtask run`.
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// Arguments of `ebb`, after `--`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    println!("{}", agent(args.arch)?.display());
    Ok(())
}

/// Builds the agent, then becomes it, on this host.
pub(crate) fn run_agent(args: &RunArgs) -> Result<()> {
    use std::os::unix::process::CommandExt as _;
    let agent = agent(Arch::HOST)?;
    // Only returns when the program could not be started.
    let error = Command::new(&agent).args(&args.arguments).exec();
    Err(anyhow::Error::new(error).context(format!("cannot start {}", agent.display())))
}

/// Builds the agent as it is shipped: optimised, static, with its BPF programs; returns where it is.
pub(crate) fn agent(arch: Arch) -> Result<PathBuf> {
    Ok(release(arch, &["ebb"])?.join("ebb"))
}

/// Builds packages of the workspace in the same way; returns the directory with their programs.
pub(crate) fn release(arch: Arch, packages: &[&str]) -> Result<PathBuf> {
    bpf::ensure()?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(sh::root()).env("RUSTFLAGS", "-C target-feature=+crt-static");
    cargo.args(["build", "--release", "--quiet", "--target", arch.target()]);
    cargo.args(packages.iter().flat_map(|package| ["--package", package]));
    if arch != Arch::HOST {
        cross(&mut cargo, arch)?;
    }
    sh::run(&mut cargo).with_context(|| format!("cannot build for {}", arch.debian()))?;
    Ok(sh::target().join(arch.target()).join("release"))
}

/// Gives a build what it takes for an architecture that is not this machine's.
fn cross(cargo: &mut Command, arch: Arch) -> Result<()> {
    let (target, gnu) = (arch.target(), arch.gnu());
    sh::run(Command::new("rustup").args(["--quiet", "target", "add", target]))
        .with_context(|| format!("cannot add rustc's library for {target}"))?;
    let compiler = format!("{gnu}-gcc");
    if sh::find_program(&compiler).is_none() {
        let package = format!("gcc-{}", gnu.replace('_', "-"));
        let headers = format!("libc6-dev-{}-cross", arch.debian());
        bpf::install_missing("build", &[&package, &headers])?;
    }
    let libraries = libraries(arch)?;
    let include = libraries.join("usr/include");
    let own = target.replace('-', "_");
    cargo.env(format!("CC_{own}"), &compiler);
    cargo.env(
        format!("CFLAGS_{own}"),
        format!("-I{} -I{}", include.display(), include.join(gnu).display()),
    );
    cargo.env(format!("CARGO_TARGET_{}_LINKER", own.to_uppercase()), &compiler);
    cargo.env(format!("LIBBPF_SYS_LIBRARY_PATH_{own}"), libraries.join("usr/lib").join(gnu));
    Ok(())
}

/// The version of one of the static libraries that a build for another architecture is linked with.
pub(crate) fn library(arch: Arch, package: &str) -> Result<String> {
    let versions = debian(arch)?.versions(package)?;
    versions.into_iter().next().with_context(|| format!("there is no {package}"))
}

/// The static libraries, of the Debian whose compiler this machine has: they fit its C library.
fn libraries(arch: Arch) -> Result<PathBuf> {
    let files = debian(arch)?.fetch(&LIBRARIES.map(str::to_owned))?;
    let names: Vec<_> = files.iter().filter_map(|file| file.file_name()).collect();
    let key = sh::sha256(format!("{names:?}").as_bytes())?;
    let dir = sh::cache()?.join(format!("libraries-{}-{key}", arch.debian()));
    alone::once(&dir, |to| files.iter().try_for_each(|deb| debs::unpack(deb, to)))?;
    Ok(dir)
}

/// The suite of this machine, for another architecture.
fn debian(arch: Arch) -> Result<Suite> {
    let release = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.context("/etc/os-release names no release of Debian")?;
    Suite::open_for(codename.trim_matches('"'), arch)
}
