//! Container images for guests, built without a network or a registry: one OCI layout as a tar that `ctr` imports.
//!
//! ```text
//! recipe (ebb-vm-protocol) ─► layers (tar) ─► config ─► manifest ─► index    blobs by digest, all of it deterministic
//! ```
use anyhow::{Context, Result};
use ebb_vm_protocol::images::{IMAGES, Layer, TestImage};
use oci_spec::image::{
    Arch, ConfigBuilder, Descriptor, DescriptorBuilder, Digest, ImageConfigurationBuilder,
    ImageIndexBuilder, ImageManifestBuilder, MediaType, OciLayoutBuilder, Os, PlatformBuilder,
    RootFsBuilder,
};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use tar::{Builder, EntryType, Header};

/// Where guests find the images, below the root.
pub(crate) const PATH: &str = "opt/images.tar";
/// What containerd takes for an image's name on import.
const NAME: &str = "io.containerd.image.name";
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
    let mut manifests = Vec::new();
    for image in IMAGES {
        manifests.push(blobs.image(image, busybox).with_context(|| image.name.to_owned())?);
    }
    let index = ImageIndexBuilder::default()
        .schema_version(2u32)
        .media_type(MediaType::ImageIndex)
        .manifests(manifests)
        .build()?;
    let version = OciLayoutBuilder::default().image_layout_version("1.0.0").build()?;
    let mut archive = Builder::new(Vec::new());
    append(&mut archive, "oci-layout", 0o644, version.to_string()?.as_bytes())?;
    append(&mut archive, "index.json", 0o644, index.to_string()?.as_bytes())?;
    for (digest, bytes) in &blobs.all {
        append(&mut archive, &format!("blobs/sha256/{digest}"), 0o644, bytes)?;
    }
    Ok(archive.into_inner()?)
}

/// Content by the hexadecimal part of its digest; what two images share is there once.
#[derive(Default)]
struct Blobs {
    all: BTreeMap<String, Vec<u8>>,
}

impl Blobs {
    /// Add an image; returns what the index says of it.
    fn image(&mut self, image: &TestImage, busybox: &[u8]) -> Result<Descriptor> {
        let mut layers = Vec::new();
        for layer in image.layers {
            layers.push(self.add(MediaType::ImageLayer, archive(*layer, busybox)?)?);
        }
        // Uncompressed, so the digest of the blob is that of its content.
        let unpacked = layers.iter().map(|layer| layer.digest().to_string()).collect::<Vec<_>>();
        let config = ConfigBuilder::default()
            .entrypoint(vec!["/bin/busybox".to_owned()])
            .cmd(vec!["sleep".to_owned(), "1000000".to_owned()])
            .env(vec!["PATH=/bin".to_owned()])
            // An image without layers of its own is still an image of its own.
            .labels(HashMap::from([("name".to_owned(), image.name.to_owned())]))
            .build()?;
        let configuration = ImageConfigurationBuilder::default()
            .architecture(Arch::Amd64)
            .os(Os::Linux)
            .config(config)
            .rootfs(RootFsBuilder::default().typ("layers").diff_ids(unpacked).build()?)
            .build()?;
        let config = self.add(MediaType::ImageConfig, configuration.to_string()?.into_bytes())?;
        let manifest = ImageManifestBuilder::default()
            .schema_version(2u32)
            .media_type(MediaType::ImageManifest)
            .config(config)
            .layers(layers)
            .build()?;
        let manifest = self.add(MediaType::ImageManifest, manifest.to_string()?.into_bytes())?;
        let platform =
            PlatformBuilder::default().architecture(Arch::Amd64).os(Os::Linux).build()?;
        Ok(DescriptorBuilder::default()
            .media_type(manifest.media_type().clone())
            .digest(manifest.digest().clone())
            .size(manifest.size())
            .platform(platform)
            .annotations(HashMap::from([(NAME.to_owned(), image.name.to_owned())]))
            .build()?)
    }

    fn add(&mut self, kind: MediaType, bytes: Vec<u8>) -> Result<Descriptor> {
        let sum: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
        let digest: Digest = format!("sha256:{sum}").parse()?;
        let size = u64::try_from(bytes.len())?;
        self.all.insert(sum, bytes);
        Ok(Descriptor::new(kind, size, digest))
    }
}

fn archive(layer: Layer, busybox: &[u8]) -> Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    match layer {
        Layer::Programs => {
            directory(&mut archive, "bin")?;
            append(&mut archive, "bin/busybox", 0o755, busybox)?;
            for name in PROGRAMS {
                let mut link = header(EntryType::Link, 0o755, 0);
                archive.append_link(&mut link, format!("bin/{name}"), "bin/busybox")?;
            }
            // Runtimes mount onto these.
            for name in ["dev", "etc", "proc", "sys", "tmp"] {
                directory(&mut archive, name)?;
            }
        }
        Layer::Random { seed, kib } => {
            directory(&mut archive, "data")?;
            append(&mut archive, &format!("data/{seed}"), 0o644, &noise(seed, kib))?;
        }
        Layer::Files { count } => {
            directory(&mut archive, "data")?;
            for file in 0..count {
                append(&mut archive, &format!("data/{file}"), 0o644, &[])?;
            }
        }
    }
    Ok(archive.into_inner()?)
}

fn directory(archive: &mut Builder<Vec<u8>>, name: &str) -> Result<()> {
    let mut header = header(EntryType::Directory, 0o755, 0);
    archive.append_data(&mut header, format!("{name}/"), &[][..]).context("cannot add a directory")
}

fn append(archive: &mut Builder<Vec<u8>>, name: &str, mode: u32, bytes: &[u8]) -> Result<()> {
    let mut header = header(EntryType::Regular, mode, u64::try_from(bytes.len())?);
    archive.append_data(&mut header, name, bytes).with_context(|| format!("cannot add {name}"))
}

/// Nothing of this machine or this moment in it.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
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
            blobs.image(image, b"program").unwrap();
        }
        let mut layers: Vec<_> = IMAGES.iter().flat_map(|image| image.layers).collect();
        layers.sort_by_key(|layer| format!("{layer:?}"));
        layers.dedup();
        assert_eq!(blobs.all.len(), layers.len() + 2 * IMAGES.len());
    }
}
