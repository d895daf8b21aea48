//! What the machine itself has to bring: clang, and what libbpf and libFuzzer are built from. Installed as root, else named.
use crate::sh;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Clang versions that are known to do, newest last.
const CLANGS: std::ops::RangeInclusive<u32> = 19..=23;

/// What is needed of the machine itself, each with how to see that it is there and the package that brings it.
pub(super) fn install() -> Result<()> {
    let mut missing = Vec::new();
    let mut need = |there: bool, packages: &[&'static str]| {
        if !there {
            missing.extend_from_slice(packages);
        }
    };
    need(
        newest_clang().is_some_and(|clang| llvm_strip(&clang).is_some()),
        &["clang-19", "llvm-19"],
    );
    need(is_program("cc"), &["gcc", "libc6-dev"]);
    // libFuzzer.
    need(is_program("c++"), &["g++"]);
    need(is_program("make"), &["make"]);
    need(is_program("pkg-config"), &["pkg-config"]);
    need(Path::new("/usr/include/gelf.h").exists(), &["libelf-dev"]);
    need(Path::new("/usr/include/zlib.h").exists(), &["zlib1g-dev"]);
    if missing.is_empty() {
        return Ok(());
    }
    install_missing("bpf", &missing)
}

/// Installs packages of Debian that are missing on this machine; `what` needs them.
pub(crate) fn install_missing(what: &str, missing: &[&str]) -> Result<()> {
    let names = missing.join(" ");
    ensure!(
        may_install(),
        "these are missing and can only be installed by root on a Debian-like machine: {names}"
    );
    println!("{what}: installing {names}");
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        sh::run(command.args(["-qq"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    let install = [&["install", "--no-install-recommends"], missing].concat();
    if apt(&install).is_err() {
        // A new machine's lists are empty or name versions that are gone.
        println!("{what}: reading the lists of packages anew");
        apt(&["update"])?;
        apt(&install).with_context(|| format!("cannot install {names}"))?;
    }
    Ok(())
}

/// Whether this process may install packages of Debian.
fn may_install() -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    is_root && is_program("apt-get")
}

fn is_program(name: &str) -> bool {
    sh::find_program(name).is_some()
}

pub(super) fn newest_clang() -> Option<PathBuf> {
    CLANGS.rev().find_map(|version| sh::find_program(&format!("clang-{version}")))
}

/// The strip of the same LLVM as a clang: another one may not know what it sees.
pub(super) fn llvm_strip(clang: &Path) -> Option<PathBuf> {
    let version = clang.file_name()?.to_str()?.strip_prefix("clang-")?;
    sh::find_program(&format!("llvm-strip-{version}"))
}
