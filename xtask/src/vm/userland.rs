//! Directories and disk images made of Debian packages, unpacked and never installed.
//!
//! Both QEMU and the guest's root file system are made this way, from one suite with all they need, so that neither
//! depends on what the machine has. Each is kept in the cache under a name that is the hash of its inputs.
use super::images;
use super::matrix::Userland;
use crate::arch::Arch;
use crate::debs::Suite;
use crate::{alone, kube, sh};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The suite that QEMU and the guests' programs come from.
pub(crate) const SUITE: &str = "trixie";

/// A directory with `packages` and everything they need, built once per set of versions.
pub(crate) fn tree(name: &str, packages: &[impl AsRef<str>]) -> Result<PathBuf> {
    let closure = Suite::open(SUITE)?.closure(packages)?;
    build(name, &closure, &[], &Extras::default(), Arch::Amd64)
}

/// What a machine's root disk holds.
pub(crate) fn root(name: &str, userland: &Userland, arch: Arch) -> Result<PathBuf> {
    let closure = Suite::open_for(SUITE, arch)?.closure(&userland.packages)?;
    if arch != Arch::Amd64 {
        let is_plain = userland.more.is_empty() && !userland.images && !userland.kubernetes;
        ensure!(is_plain, "the userland {name} is made for amd64 alone");
        let name = format!("{name}-{}", arch.debian());
        return build(&name, &closure, &[], &Extras::default(), arch);
    }
    let mut more = Vec::new();
    for (package, suite) in &userland.more {
        let versions = Suite::open(suite)?.versions(package)?;
        let newest = versions.first();
        let newest = newest.with_context(|| format!("{suite} has no package {package}"))?;
        more.push((suite.clone(), format!("{package}={newest}")));
    }
    let kubernetes = userland.kubernetes.then(|| kube::assets(kube::For::Guests)).transpose()?;
    build(name, &closure, &more, &Extras { images: userland.images, kubernetes }, arch)
}

/// What is in a tree beside packages.
#[derive(Debug, Default)]
struct Extras {
    /// Whether the container images are.
    images: bool,
    /// The directory with the programs of a Kubernetes.
    kubernetes: Option<PathBuf>,
}

/// `closure` from [`SUITE`], then `more` (suite, `name=version`) over it, then the extras.
fn build(
    name: &str,
    closure: &[String],
    more: &[(String, String)],
    extras: &Extras,
    arch: Arch,
) -> Result<PathBuf> {
    let mut made_from = closure.join("\n");
    for (_, package) in more {
        made_from.push('\n');
        made_from.push_str(package);
    }
    if extras.images {
        made_from.push_str(&images::recipe());
    }
    if let Some(programs) = &extras.kubernetes {
        made_from.push_str(&kube::sums(programs)?);
    }
    let key = sh::sha256(made_from.as_bytes())?;
    let dir = sh::cache()?.join(format!("{name}-{key}"));
    if dir.exists() {
        return Ok(dir);
    }
    println!("vm: building {name} from {} packages of {SUITE}", closure.len());
    let mut debs = Suite::open_for(SUITE, arch)?.fetch(closure)?;
    for (suite, package) in more {
        println!("vm: {name} has {package} of {suite}");
        debs.extend(Suite::open(suite)?.fetch(std::slice::from_ref(package))?);
    }
    alone::once(&dir, |partial| unpack_all(&debs, extras, partial))?;
    Ok(dir)
}

fn unpack_all(debs: &[PathBuf], extras: &Extras, partial: &Path) -> Result<()> {
    fs::create_dir_all(partial.join("usr"))
        .with_context(|| format!("cannot create {}", partial.display()))?;
    // Packages of a merged-usr suite may still ship files under /lib: give them the links a system has.
    for merged in ["bin", "sbin", "lib", "lib64"] {
        let target = partial.join("usr").join(merged);
        fs::create_dir_all(&target)
            .with_context(|| format!("cannot create {}", target.display()))?;
        symlink(format!("usr/{merged}"), partial.join(merged))
            .with_context(|| format!("cannot link /{merged}"))?;
    }
    for deb in debs {
        unpack(deb, partial)?;
    }
    if extras.images {
        images::write(partial)?;
    }
    if let Some(programs) = &extras.kubernetes {
        kube::install(programs, partial)?;
    }
    Ok(())
}

/// Run a program of a [`tree`] with the tree's own loader and libraries: what the host has does not matter.
pub(crate) fn program(tree: &Path, program: &str) -> Command {
    let mut command = Command::new(tree.join("usr/lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(tree.join("usr/lib/x86_64-linux-gnu"));
    command.arg(tree.join(program));
    command
}

/// An ext4 image of a directory, built once per tree and extra files. Sparse, `mib` MiB large, no journal: it is thrown away after each run.
pub(crate) fn image(tree: &Path, tools: &Path, mib: u32) -> Result<PathBuf> {
    // Appended: a version in the tree's name has dots of its own.
    let image = PathBuf::from(format!("{}.{mib}m.ext4", tree.display()));
    if image.exists() {
        return Ok(image);
    }
    let partial = alone::partial(&image)?;
    let mut command = program(tools, "usr/sbin/mke2fs");
    command.args([
        "-q",
        "-t",
        "ext4",
        "-O",
        "^has_journal",
        "-E",
        "lazy_itable_init=1,root_owner=0:0",
    ]);
    command.arg("-d").arg(tree).arg(&partial).arg(format!("{mib}M"));
    sh::run(&mut command)?;
    fs::rename(&partial, &image).with_context(|| format!("cannot store {}", image.display()))?;
    Ok(image)
}

fn unpack(deb: &Path, into: &Path) -> Result<()> {
    let mut files = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(deb)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start dpkg-deb (install the package dpkg)")?;
    let pipe = files.stdout.take().context("dpkg-deb has no output")?;
    let mut tar = Command::new("tar");
    tar.args(["-x", "--keep-directory-symlink", "--no-same-owner"]);
    for bulk in ["./usr/share/doc", "./usr/share/man", "./usr/share/locale", "./usr/share/info"] {
        tar.arg(format!("--exclude={bulk}"));
    }
    sh::run(tar.arg("-C").arg(into).stdin(pipe))?;
    let status = files.wait().context("cannot wait for dpkg-deb")?;
    anyhow::ensure!(status.success(), "cannot unpack {}: {status}", deb.display());
    Ok(())
}
