//! `cargo xtask bpf`: both halves of the kernel side, reproducibly.
//!
//! ```text
//!  toolchain: rust-src, bpf-linker, clang, libelf      found or installed, once
//!      │
//!  compile:   ebpf/probes ──cargo, bpf-linker──► probes.o        ebpf/core/X.bpf.c ──clang──► X.o
//!      │
//!  target/bpf/*.o (or $EBB_BPF_DIR)                              embedded by the build script of `ebb-probes`
//! ```
//! Everything about the BPF toolchain is solved here and nowhere else. The rest of the workspace builds without it.
mod compile;
mod packages;
mod toolchain;

use crate::alone::Lock;
use crate::sh;
use anyhow::{Context, Result, ensure};
use compile::Sources;
use std::fs;
use std::path::{Path, PathBuf};
use toolchain::Toolchain;

pub(crate) use packages::install_missing;
pub(crate) use toolchain::RustSource;

/// Options of `cargo xtask bpf`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build twice in different directories and compare.
    #[arg(long)]
    verify: bool,
    /// Check format and lints of the Rust half.
    #[arg(long)]
    lint: bool,
    /// Build even when nothing has changed.
    #[arg(long)]
    force: bool,
    /// Where the sources of Rust's core library come from.
    #[arg(long, value_enum, default_value_t)]
    rust_source: RustSource,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let tools = Toolchain::find_or_install(args.rust_source)?;
    let dir = bring_up_to_date(&tools, args.force)?;
    if args.lint {
        Sources::in_tree(sh::root()).lint(&tools, &scratch())?;
    }
    if args.verify {
        compare_builds(&tools)?;
    }
    for object in objects(&dir)? {
        println!("{}", object.display());
    }
    Ok(())
}

/// Make the objects if they are not there or not of these sources and tools; returns where they are.
pub(crate) fn ensure() -> Result<PathBuf> {
    bring_up_to_date(&Toolchain::find_or_install(RustSource::default())?, false)
}

/// Build twice in different directories and fail when the objects differ.
pub(crate) fn verify() -> Result<()> {
    compare_builds(&Toolchain::find_or_install(RustSource::default())?)
}

/// Check format and lints of the Rust half, which is not part of the workspace.
pub(crate) fn lint() -> Result<()> {
    let tools = Toolchain::find_or_install(RustSource::default())?;
    Sources::in_tree(sh::root()).lint(&tools, &scratch())
}

/// Where the objects go: `$EBB_BPF_DIR`, else `target/bpf` of the repository, whatever cargo's target directory is, so
/// that every build of the workspace finds the same ones.
fn output() -> PathBuf {
    std::env::var_os("EBB_BPF_DIR").map_or_else(|| sh::root().join("target/bpf"), PathBuf::from)
}

/// Where they are compiled.
fn scratch() -> PathBuf {
    sh::root().join("target/bpf-build")
}

fn bring_up_to_date(tools: &Toolchain, force: bool) -> Result<PathBuf> {
    let (out, scratch) = (output(), scratch());
    for dir in [&out, &scratch] {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    // Whoever comes second finds the work done. Not beside the objects: cargo takes every new file there for a change.
    let _lock = Lock::take(&scratch.join("lock"), "the BPF objects of this checkout")?;
    let sources = Sources::in_tree(sh::root());
    let made_from = sources.fingerprint(tools)?;
    let stamp = out.join("made-from");
    if !force && fs::read_to_string(&stamp).is_ok_and(|text| text == made_from) {
        return Ok(out);
    }
    let made = sources.compile(tools, &scratch)?;
    for object in &made {
        let to = out.join(object.file_name().context("an object has no name")?);
        // In one step, because a build of the workspace may be reading.
        let new = to.with_extension("new");
        fs::copy(object, &new).with_context(|| format!("cannot write {}", new.display()))?;
        fs::rename(&new, &to).with_context(|| format!("cannot write {}", to.display()))?;
    }
    for object in objects(&out)? {
        if !made.iter().any(|made| made.file_name() == object.file_name()) {
            fs::remove_file(&object)
                .with_context(|| format!("cannot remove {}", object.display()))?;
        }
    }
    fs::write(&stamp, made_from).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(out)
}

/// Two builds from clean copies of the sources, in directories with names of different lengths.
fn compare_builds(tools: &Toolchain) -> Result<()> {
    let scratch = sh::root().join("target/bpf-verify");
    let _lock = Lock::take(&scratch.with_extension("lock"), "the comparison of BPF objects")?;
    let mut builds = Vec::new();
    for place in ["a", "another/place"] {
        let tree = scratch.join(place);
        if tree.exists() {
            fs::remove_dir_all(&tree)
                .with_context(|| format!("cannot empty {}", tree.display()))?;
        }
        let copy = Sources::in_tree(sh::root()).copy_to(&tree)?;
        builds.push(copy.compile(tools, &tree.join("build"))?);
    }
    for (first, second) in builds[0].iter().zip(&builds[1]) {
        let read =
            |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        ensure!(
            read(first)? == read(second)?,
            "{} and {} are built from the same sources and differ",
            first.display(),
            second.display()
        );
    }
    println!("bpf: {} objects are the same when built twice", builds[0].len());
    fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))
}

/// The objects in a directory, by name.
fn objects(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut objects = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry.with_context(|| format!("cannot list {}", dir.display()))?.path();
        if path.extension().is_some_and(|ext| ext == "o") {
            objects.push(path);
        }
    }
    objects.sort();
    Ok(objects)
}
