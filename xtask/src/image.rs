//! `cargo xtask image`: ebb as a container image with nothing in it but the one static program.
use crate::archive::Archive;
use crate::oci::Blobs;
use crate::{build, sh};
use anyhow::{Context, Result};
use oci_spec::image::ConfigBuilder;
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

/// Where the program is in the image.
const PROGRAM: &str = "usr/bin/ebb";
/// The name by which `deploy/` asks for it, in the form in which the kubelet and containerd know it.
const NAME: &str = concat!("docker.io/library/ebb:", env!("CARGO_PKG_VERSION"));

/// Options of `cargo xtask image`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to write it; below the target directory unless this is given.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let program = build::agent()?;
    let program =
        fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
    let path = args.output.clone().unwrap_or_else(|| sh::target().join("ebb-image.tar"));
    let layout = layout(&program)?;
    fs::write(&path, &layout).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}: {NAME}, {} bytes", path.display(), layout.len());
    Ok(())
}

/// The image as an OCI layout.
pub(crate) fn layout(program: &[u8]) -> Result<Vec<u8>> {
    let mut layer = Archive::default();
    for directory in ["usr", "usr/bin"] {
        layer.directory(directory)?;
    }
    layer.file(PROGRAM, 0o755, program)?;
    let mut blobs = Blobs::default();
    let layer = blobs.layer(layer.finish()?)?;
    let labels = [
        ("title", "ebb"),
        ("version", env!("CARGO_PKG_VERSION")),
        ("description", "Node reclaimer for Linux and Kubernetes"),
        ("licenses", "Apache-2.0"),
    ];
    let labels =
        labels.map(|(key, value)| (format!("org.opencontainers.image.{key}"), value.to_owned()));
    let config = ConfigBuilder::default()
        .entrypoint(vec![format!("/{PROGRAM}")])
        .labels(HashMap::from(labels))
        .build()?;
    let image = blobs.image(NAME, vec![layer], config)?;
    blobs.layout(vec![image])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_program_is_the_same_image() {
        assert!(layout(b"program").unwrap() == layout(b"program").unwrap());
        assert!(layout(b"program").unwrap() != layout(b"another").unwrap());
    }
}
