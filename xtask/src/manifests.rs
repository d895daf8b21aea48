//! The manifests of `deploy/`, for the tests on a real API server: built as `kubectl apply -k` builds them, and the kubectl that does so.
//!
//! kustomize and kubectl are those of Debian's packages of these names, unpacked and not installed.

use crate::{alone, debs, sh};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SUITE: &str = "trixie";
const KUSTOMIZE: &str = "kustomize";
/// The one of `cargo xtask kube` is as old as its API server, and has no kustomize that reads the overlays.
const KUBECTL: &str = "kubectl";
const OVERLAYS: &str = "deploy/kustomize/overlays";
/// What is applied beside an overlay.
const ALERTS: [&str; 2] = ["deploy/kustomize/node-alerts", "deploy/kustomize/controller-alerts"];

/// The kubectl that users are told to have.
pub(crate) fn kubectl() -> Result<PathBuf> {
    debs::program(SUITE, KUBECTL)
}

/// Builds all that users apply into a directory below the target directory, a file for each, and returns it.
pub(crate) fn build() -> Result<PathBuf> {
    let kustomize = debs::program(SUITE, KUSTOMIZE)?;
    let to = sh::target().join("manifests");
    fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
    let mut sources = listed(&sh::root().join(OVERLAYS))?;
    sources.extend(ALERTS.map(|alerts| sh::root().join(alerts)));
    let mut files = BTreeSet::new();
    for source in sources {
        let name = source.file_name().context("an overlay without a name")?;
        let text = sh::read(Command::new(&kustomize).arg("build").arg(&source))?;
        let file = to.join(name).with_extension("yaml");
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        files.insert(file);
    }
    // Of an overlay that is no more.
    listed(&to)?
        .iter()
        .filter(|file| !files.contains(*file))
        .try_for_each(|old| alone::remove(old))?;
    Ok(to)
}

fn listed(dir: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot list {}", dir.display());
    let entries = fs::read_dir(dir).with_context(cannot)?;
    entries.map(|entry| Ok(entry.with_context(cannot)?.path())).collect()
}
