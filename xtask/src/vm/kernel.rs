//! A kernel of the matrix, resolved to today's package and taken out of it.
use super::matrix::Kernel;
use crate::debs::Suite;
use crate::sh;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A bootable kernel image.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    /// What `uname -r` will say.
    pub(crate) release: String,
    pub(crate) vmlinuz: PathBuf,
}

/// Fetch the newest package that fits and take the image out of it.
/// Modules stay behind: everything the guest needs (NVMe, ext4, serial, cgroups, BPF) is built in.
pub(crate) fn fetch(kernel: &Kernel) -> Result<Image> {
    let suite = Suite::open(&kernel.suite)?;
    let package = suite.newest(&kernel.package)?;
    let release = package.splitn(3, '-').nth(2).context("the package name holds no release")?;
    let deb = suite.fetch(std::slice::from_ref(&package))?.remove(0);
    let dir = sh::cache()?.join("kernels");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    // The package file's own name holds its version: a rebuilt package is another image.
    let stem = deb.file_stem().context("a package file without a name")?;
    let vmlinuz = dir.join(stem);
    if !vmlinuz.exists() {
        extract(&deb, release, &vmlinuz)?;
    }
    println!("vm: {} is {package} of {}", kernel.name, kernel.suite);
    Ok(Image { release: release.to_owned(), vmlinuz })
}

fn extract(deb: &Path, release: &str, to: &Path) -> Result<()> {
    let dir = to.with_extension(format!("unpack.{}", std::process::id()));
    crate::debs::unpack(deb, &dir)?;
    let places = [
        dir.join("boot").join(format!("vmlinuz-{release}")),
        dir.join("usr/lib/modules").join(release).join("vmlinuz"),
    ];
    let found = places.iter().find(|place| place.exists());
    let found = found.with_context(|| format!("no kernel image in {}", deb.display()))?;
    fs::rename(found, to).with_context(|| format!("cannot store {}", to.display()))?;
    sh::run(Command::new("rm").arg("-rf").arg(&dir))
}
