//! OCI images as bytes: layers, configuration, manifest and index in one tar, which `ctr images import` and `podman load` take.
//!
//! ```text
//! layers (tar) ─► configuration ─► manifest ─► index    blobs by digest
//! ```
//! Nothing of the machine or the moment is in them: the same content is the same bytes.
use crate::arch::Arch;
use crate::archive::Archive;
use anyhow::Result;
use oci_spec::image::{
    Arch as OciArch, Config, Descriptor, DescriptorBuilder, Digest, ImageConfigurationBuilder,
    ImageIndexBuilder, ImageManifestBuilder, MediaType, OciLayoutBuilder, Os, PlatformBuilder,
    RootFsBuilder,
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};

/// What containerd takes for an image's name on import.
const NAME: &str = "io.containerd.image.name";

/// Content by the hexadecimal part of its digest; what two images share is there once.
#[derive(Default)]
pub(crate) struct Blobs {
    all: BTreeMap<String, Vec<u8>>,
}

impl Blobs {
    /// How many there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a layer: a tar, uncompressed.
    pub(crate) fn layer(&mut self, archive: Vec<u8>) -> Result<Descriptor> {
        self.add(MediaType::ImageLayer, archive)
    }

    /// Adds the image of these layers; returns what the index says of it.
    pub(crate) fn image(
        &mut self,
        name: &str,
        arch: Arch,
        layers: Vec<Descriptor>,
        config: Config,
    ) -> Result<Descriptor> {
        let arch = match arch {
            Arch::Amd64 => OciArch::Amd64,
            Arch::Arm64 => OciArch::ARM64,
        };
        // Uncompressed, so the digest of the blob is that of its content.
        let unpacked = layers.iter().map(|layer| layer.digest().to_string()).collect::<Vec<_>>();
        let configuration = ImageConfigurationBuilder::default()
            .architecture(arch.clone())
            .os(Os::Linux)
            .config(config)
            .rootfs(RootFsBuilder::default().typ("layers").diff_ids(unpacked).build()?)
            .build()?;
        let config = self.add(MediaType::ImageConfig, in_order(&configuration)?)?;
        let manifest = ImageManifestBuilder::default()
            .schema_version(2u32)
            .media_type(MediaType::ImageManifest)
            .config(config)
            .layers(layers)
            .build()?;
        let manifest = self.add(MediaType::ImageManifest, manifest.to_string()?.into_bytes())?;
        let platform = PlatformBuilder::default().architecture(arch).os(Os::Linux).build()?;
        Ok(DescriptorBuilder::default()
            .media_type(manifest.media_type().clone())
            .digest(manifest.digest().clone())
            .size(manifest.size())
            .platform(platform)
            .annotations(HashMap::from([(NAME.to_owned(), name.to_owned())]))
            .build()?)
    }

    /// The layout that has these images.
    pub(crate) fn layout(&self, images: Vec<Descriptor>) -> Result<Vec<u8>> {
        let index = ImageIndexBuilder::default()
            .schema_version(2u32)
            .media_type(MediaType::ImageIndex)
            .manifests(images)
            .build()?;
        let version = OciLayoutBuilder::default().image_layout_version("1.0.0").build()?;
        let mut archive = Archive::default();
        archive.file("oci-layout", 0o644, version.to_string()?.as_bytes())?;
        archive.file("index.json", 0o644, index.to_string()?.as_bytes())?;
        for (digest, bytes) in &self.all {
            archive.file(&format!("blobs/sha256/{digest}"), 0o644, bytes)?;
        }
        archive.finish()
    }

    fn add(&mut self, kind: MediaType, bytes: Vec<u8>) -> Result<Descriptor> {
        let sum: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
        let digest: Digest = format!("sha256:{sum}").parse()?;
        let size = u64::try_from(bytes.len())?;
        self.all.insert(sum, bytes);
        Ok(Descriptor::new(kind, size, digest))
    }
}

/// As JSON with keys in their order: labels come out of a hash map.
fn in_order(what: &impl Serialize) -> Result<Vec<u8>> {
    let mut value = serde_json::to_value(what)?;
    value.sort_all_objects();
    Ok(serde_json::to_vec(&value)?)
}
