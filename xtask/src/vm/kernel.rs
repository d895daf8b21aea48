//! A kernel of the matrix, resolved to today's package and taken out of it.
use super::matrix::Kernel;
use crate::debs::Suite;
use crate::{alone, sh};
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
    /// What containers, swap on zram and a balloon want and the image does not have built in, uncompressed.
    pub(crate) modules: Vec<PathBuf>,
}

/// Below a kernel's directory of modules. None needs one that stands behind it.
const MODULES: [&str; 4] = [
    "kernel/fs/overlayfs/overlay.ko",
    "kernel/drivers/block/loop.ko",
    "kernel/fs/quota/quota_tree.ko",
    "kernel/fs/quota/quota_v2.ko",
];

/// For swap on compressed memory, and for a balloon: a kernel that lacks one of them has it built in, or has no machine that wants it. In the order in which they are inserted.
const OPTIONAL: [&str; 5] = [
    "kernel/mm/zsmalloc.ko",
    "kernel/lib/lz4/lz4_compress.ko",
    "kernel/lib/lz4/lz4hc_compress.ko",
    "kernel/drivers/block/zram/zram.ko",
    "kernel/drivers/virtio/virtio_balloon.ko",
];

/// Says in a store that it was looked for them.
const LOOKED_FOR: &str = "looked-for-zram-and-balloon";

/// Fetch the newest package that fits and take the image out of it, with the modules that containers want; everything
/// else the guest needs (NVMe, ext4, serial, cgroups, BPF) is built in.
pub(crate) fn fetch(kernel: &Kernel) -> Result<Image> {
    let suite = Suite::open_for(&kernel.suite, kernel.arch)?;
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
    // From 7.0 on modules have a package of their own.
    let of_modules = package.replacen("linux-binary-", "linux-modules-", 1);
    let store = dir.join(format!("{}.modules", stem.to_string_lossy()));
    let name = |path: &&str| path.rsplit('/').next().map(|name| store.join(name));
    let mut modules: Vec<PathBuf> = MODULES.iter().filter_map(name).collect();
    // One that an older version of this program has filled may lack some.
    if !modules.iter().all(|module| module.exists()) || !store.join(LOOKED_FOR).exists() {
        let deb = suite.fetch(&[of_modules])?.remove(0);
        extract_modules(&deb, release, &store)?;
    }
    modules.extend(OPTIONAL.iter().filter_map(name).filter(|module| module.exists()));
    println!("vm: {} is {package} of {}", kernel.name, kernel.suite);
    Ok(Image { release: release.to_owned(), vmlinuz, modules })
}

fn extract_modules(deb: &Path, release: &str, to: &Path) -> Result<()> {
    let partial = alone::partial(to)?;
    let dir = alone::partial(&to.with_extension("unpack"))?;
    fs::create_dir_all(&partial).with_context(|| format!("cannot create {}", partial.display()))?;
    crate::debs::unpack(deb, &dir)?;
    fs::write(partial.join(LOOKED_FOR), "").context("cannot store a mark")?;
    for path in MODULES.into_iter().chain(OPTIONAL) {
        let trees = [dir.join("lib/modules"), dir.join("usr/lib/modules")];
        let plain = trees.map(|tree| tree.join(release).join(path));
        let packed = plain.clone().map(|path| path.with_extension("ko.xz"));
        if let Some(packed) = packed.iter().find(|path| path.exists()) {
            sh::run(Command::new("xz").arg("--decompress").arg(packed))?;
        }
        let found = plain.iter().find(|path| path.exists());
        if found.is_none() && OPTIONAL.contains(&path) {
            continue;
        }
        let found = found.with_context(|| format!("no {path} in {}", deb.display()))?;
        let name = found.file_name().context("a module without a name")?;
        fs::rename(found, partial.join(name)).with_context(|| format!("cannot store {path}"))?;
    }
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for module in fs::read_dir(&partial).context("cannot list the modules")? {
        let module = module.context("cannot list the modules")?;
        // Whoever was faster made the same.
        fs::rename(module.path(), to.join(module.file_name())).context("cannot store a module")?;
    }
    sh::run(Command::new("rm").arg("-rf").args([&partial, &dir]))
}

fn extract(deb: &Path, release: &str, to: &Path) -> Result<()> {
    let dir = alone::partial(&to.with_extension("unpack"))?;
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
