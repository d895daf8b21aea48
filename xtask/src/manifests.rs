//! The manifests of `deploy/`, built as `kubectl apply -k` builds them, for the tests on a real API server.
//!
//! kustomize is that of Debian's package of this name, unpacked and not installed.

use crate::debs::{self, Suite};
use crate::{alone, sh};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const SUITE: &str = "trixie";
const PACKAGE: &str = "kustomize";
const OVERLAYS: &str = "deploy/kustomize/overlays";

/// Builds every overlay into a directory below the target directory, a file for each, and returns it.
pub(crate) fn build() -> Result<PathBuf> {
    let package = Suite::open(SUITE)?.fetch(&[PACKAGE.to_owned()])?;
    let tools = alone::partial(&sh::cache()?.join("kustomize"))?;
    let built = package.iter().try_for_each(|deb| debs::unpack(deb, &tools));
    let built = built.and_then(|()| build_with(&tools.join("usr/bin/kustomize")));
    alone::remove(&tools)?;
    built
}

fn build_with(kustomize: &std::path::Path) -> Result<PathBuf> {
    let to = sh::target().join("manifests");
    fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
    let overlays = sh::root().join(OVERLAYS);
    let entries =
        fs::read_dir(&overlays).with_context(|| format!("cannot list {}", overlays.display()))?;
    for entry in entries {
        let overlay = entry.context("cannot list overlays")?.path();
        let name = overlay.file_name().context("an overlay without a name")?;
        let text = sh::read(Command::new(kustomize).arg("build").arg(&overlay))?;
        let file = to.join(name).with_extension("yaml");
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(to)
}
