//! `cargo xtask image`: ebb as a container image with nothing in it but the one static program.
use crate::arch::Arch;
use crate::archive::Archive;
use crate::oci::Blobs;
use crate::{build, sh};
use anyhow::{Context, Result, ensure};
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
    /// For which architecture; without it, for that of this machine.
    #[arg(long, value_enum, default_value_t)]
    arch: Arch,
    /// Make it twice and compare every byte.
    #[arg(long)]
    check: bool,
    /// Where to write it; below the target directory unless this is given.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let program = build::agent(args.arch)?;
    let read = || fs::read(&program).with_context(|| format!("cannot read {}", program.display()));
    let path = args.output.clone().unwrap_or_else(|| sh::target().join("ebb-image.tar"));
    let layout = layout(args.arch, &read()?)?;
    if args.check {
        ensure!(
            self::layout(args.arch, &read()?)? == layout,
            "the second time other bytes came out"
        );
        println!("made twice, and every byte is the same");
    }
    fs::write(&path, &layout).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}: {NAME}, {} bytes", path.display(), layout.len());
    Ok(())
}

/// The image as an OCI layout.
pub(crate) fn layout(arch: Arch, program: &[u8]) -> Result<Vec<u8>> {
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
    let image = blobs.image(NAME, arch, vec![layer], config)?;
    blobs.layout(vec![image])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::io::Read as _;

    #[test]
    fn the_same_program_is_the_same_image() {
        let layout = |program| layout(Arch::Amd64, program);
        let first = layout(b"program").unwrap();
        // Of two hash maps of labels one in a few has the order of the other.
        assert!((0..32).all(|_| layout(b"program").unwrap() == first));
        assert!(layout(b"another").unwrap() != first);
    }

    #[test]
    fn nothing_in_an_image_tells_of_a_machine_or_a_moment() {
        let files = unpacked(&layout(Arch::Arm64, b"program").unwrap());
        let names: Vec<&str> = files.iter().map(|(name, _, _)| &**name).collect();
        assert_eq!(names[..2], ["oci-layout", "index.json"]);
        assert!(names[2..].is_sorted(), "{names:?}");
        assert!(files.iter().all(|(_, mode, _)| *mode == 0o644), "{names:?}");
        let blob = |digest: &Value| {
            let path = digest.as_str().unwrap().replace("sha256:", "blobs/sha256/");
            &files.iter().find(|(name, _, _)| *name == path).unwrap().2
        };
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        let manifest = json(blob(&json(&files[1].2)["manifests"][0]["digest"]));
        let config = json(blob(&manifest["config"]["digest"]));
        assert_eq!(config["architecture"], "arm64");
        assert_eq!((&config["created"], &config["author"]), (&Value::Null, &Value::Null));
        let layer = unpacked(blob(&manifest["layers"][0]["digest"]));
        let layer: Vec<_> = layer.iter().map(|(name, mode, _)| (&**name, *mode)).collect();
        assert_eq!(layer, [("usr/", 0o755), ("usr/bin/", 0o755), ("usr/bin/ebb", 0o755)]);
    }

    /// Name, mode and content of each entry, all of which are of nobody and of no time.
    fn unpacked(tar: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut tar = tar::Archive::new(tar);
        let entries = tar.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let header = entry.header();
            let name = String::from_utf8(header.path_bytes().into_owned()).unwrap();
            let of = [header.mtime(), header.uid(), header.gid()].map(Result::unwrap);
            assert_eq!(of, [0; 3], "time, user and group of {name}");
            let names = (header.username_bytes(), header.groupname_bytes());
            assert_eq!(names, (Some(&b""[..]), Some(&b""[..])), "{name}");
            let mode = header.mode().unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (name, mode, bytes)
        });
        entries.collect()
    }
}
