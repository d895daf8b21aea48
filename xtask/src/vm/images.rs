//! Container images for guests, built without a network or a registry from a recipe (ebb-vm-protocol): one OCI layout as a tar that `ctr` imports.
use crate::arch::Arch;
use crate::archive::Archive;
use crate::oci::Blobs;
use anyhow::{Context, Result};
use ebb_vm_protocol::images::{IMAGES, Layer, TestImage};
use oci_spec::image::{ConfigBuilder, Descriptor};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Where guests find the images, below the root.
pub(crate) const PATH: &str = "opt/images.tar";
/// Names of busybox in images: what tests run.
const PROGRAMS: [&str; 7] = ["cat", "dd", "false", "sh", "sleep", "tail", "true"];

/// What the images are made of, as a part of a cache key.
pub(crate) fn recipe() -> String {
    format!("images 1 {IMAGES:?} {PROGRAMS:?}")
}

/// Write all images into a root directory whose busybox they take.
pub(crate) fn write(root: &Path) -> Result<()> {
    let busybox = root.join("usr/bin/busybox");
    let busybox =
        fs::read(&busybox).with_context(|| format!("cannot read {}", busybox.display()))?;
    let path = root.join(PATH);
    fs::create_dir_all(root.join("opt")).context("cannot make a directory for images")?;
    fs::write(&path, layout(&busybox)?).with_context(|| format!("cannot write {}", path.display()))
}

/// The whole layout.
fn layout(busybox: &[u8]) -> Result<Vec<u8>> {
    let mut blobs = Blobs::default();
    let mut images = Vec::new();
    for image in IMAGES {
        images.push(add(&mut blobs, image, busybox).with_context(|| image.name.to_owned())?);
    }
    blobs.layout(images)
}

/// Adds an image; returns what the index says of it.
fn add(blobs: &mut Blobs, image: &TestImage, busybox: &[u8]) -> Result<Descriptor> {
    let mut layers = Vec::new();
    for layer in image.layers {
        layers.push(blobs.layer(archive(*layer, busybox)?)?);
    }
    let config = ConfigBuilder::default()
        .entrypoint(vec!["/bin/busybox".to_owned()])
        .cmd(vec!["sleep".to_owned(), "1000000".to_owned()])
        .env(vec!["PATH=/bin".to_owned()])
        // An image without layers of its own is still an image of its own.
        .labels(HashMap::from([("name".to_owned(), image.name.to_owned())]))
        .build()?;
    blobs.image(image.name, Arch::Amd64, layers, config)
}

fn archive(layer: Layer, busybox: &[u8]) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    match layer {
        Layer::Programs => {
            archive.directory("bin")?;
            archive.file("bin/busybox", 0o755, busybox)?;
            for name in PROGRAMS {
                archive.link(&format!("bin/{name}"), "bin/busybox")?;
            }
            // Runtimes mount onto these.
            for name in ["dev", "etc", "proc", "sys", "tmp"] {
                archive.directory(name)?;
            }
        }
        Layer::Random { seed, kib } => {
            archive.directory("data")?;
            archive.file(&format!("data/{seed}"), 0o644, &noise(seed, kib))?;
        }
        Layer::Files { count } => {
            archive.directory("data")?;
            for file in 0..count {
                archive.file(&format!("data/{file}"), 0o644, &[])?;
            }
        }
    }
    archive.finish()
}

/// xorshift64: incompressible, and the same on every machine.
fn noise(seed: u32, kib: u32) -> Vec<u8> {
    let mut state = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = (0..u64::from(kib) * 128).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_recipe_is_the_same_bytes() {
        assert!(layout(b"program").unwrap() == layout(b"program").unwrap());
        assert!(layout(b"program").unwrap() != layout(b"another").unwrap());
    }

    #[test]
    fn a_layer_that_images_share_is_there_once() {
        let mut blobs = Blobs::default();
        for image in IMAGES {
            add(&mut blobs, image, b"program").unwrap();
        }
        let mut layers: Vec<_> = IMAGES.iter().flat_map(|image| image.layers).collect();
        layers.sort_by_key(|layer| format!("{layer:?}"));
        layers.dedup();
        assert_eq!(blobs.len(), layers.len() + 2 * IMAGES.len());
    }
}
