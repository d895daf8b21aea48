//! `cargo xtask proto`: the wire protocols that ebb speaks, from our `.proto` files to committed Rust.
//!
//! ```text
//! cri/proto ──protox──► descriptors ──tonic──► cri/src/generated/*.rs                  committed, compared by the gates
//! api/proto ──protox──► descriptors ──tonic──► api/src/generated/*.rs, and themselves   the same
//!
//! published protocols (k8s-cri, containerd-client) ──► every name, number and type of cri/proto is held against them
//! ```
//! `cri/proto` holds the part of each runtime's protocol that ebb uses; `api/proto` is ebb's own.
//! No compiler beside rustc is needed, and a build needs none of this.

mod upstream;

use crate::sh;
use anyhow::{Context, Result, ensure};
use prost_types::FileDescriptorSet;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Options of `cargo xtask proto`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing: fail when what is committed is not what the .proto files say.
    #[arg(long)]
    check: bool,
}

/// One crate's protocols.
struct Protocol {
    /// The crate's folder, with `proto` and `src/generated` in it.
    crate_dir: &'static str,
    /// The files, below `proto`.
    files: &'static [&'static str],
    /// Where imports are looked for, below `proto`.
    imports: &'static [&'static str],
    kind: Kind,
}

/// Whose protocols they are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Published by others, who serve them: held against what they publish.
    OfRuntimes,
    /// Ebb's own: clients ask the server for the descriptors, so they are kept as well.
    Own,
}

const ALL: [Protocol; 2] = [
    Protocol {
        crate_dir: "cri",
        files: &[
            "runtime.proto",
            "containerd/images.proto",
            "containerd/snapshots.proto",
            "containerd/content.proto",
            "containerd/events.proto",
            "containerd/tasks.proto",
        ],
        imports: &["", "containerd"],
        kind: Kind::OfRuntimes,
    },
    Protocol { crate_dir: "api", files: &["ebb/v1/ebb.proto"], imports: &[""], kind: Kind::Own },
];

/// The file of the descriptors of ebb's own protocol.
const DESCRIPTORS: &str = "ebb.v1.bin";

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.check {
        return verify();
    }
    ALL.iter().try_for_each(Protocol::write)
}

/// What is committed is what the files say, and they say what the published protocols say.
pub(crate) fn verify() -> Result<()> {
    ALL.iter().try_for_each(Protocol::verify)
}

impl Protocol {
    fn write(&self) -> Result<()> {
        let dir = self.generated();
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let fresh = self.generate()?;
        for (name, text) in &fresh {
            let path = dir.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            println!("{}", path.display());
        }
        for stale in names(&dir)?.iter().filter(|name| !fresh.contains_key(*name)) {
            fs::remove_file(dir.join(stale)).with_context(|| format!("cannot remove {stale}"))?;
        }
        Ok(())
    }

    fn verify(&self) -> Result<()> {
        let fresh = self.generate()?;
        let dir = self.generated();
        let kept = names(&dir)?;
        ensure!(
            kept.iter().eq(fresh.keys()),
            "{} holds {kept:?}, but the .proto files make {:?}: run cargo xtask proto",
            dir.display(),
            fresh.keys()
        );
        for (name, text) in &fresh {
            let committed = fs::read(dir.join(name));
            let committed = committed.with_context(|| format!("cannot read {name}"))?;
            ensure!(
                committed == *text,
                "{name} is not what the .proto files say: run cargo xtask proto"
            );
        }
        Ok(())
    }

    fn source(&self) -> PathBuf {
        sh::root().join(self.crate_dir).join("proto")
    }

    fn generated(&self) -> PathBuf {
        sh::root().join(self.crate_dir).join("src/generated")
    }

    /// What is to be committed, by file name.
    fn generate(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        let ours = self.describe()?;
        let mut files = BTreeMap::new();
        match self.kind {
            Kind::OfRuntimes => upstream::hold(&ours)?,
            Kind::Own => {
                files.insert(DESCRIPTORS.to_owned(), prost::Message::encode_to_vec(&bare(&ours)));
            }
        }
        files.extend(self.rust(ours)?);
        Ok(files)
    }

    fn describe(&self) -> Result<FileDescriptorSet> {
        let dir = self.source();
        let files = self.files.iter().map(|file| dir.join(file));
        protox::compile(files, self.imports.iter().map(|import| dir.join(import)))
            .map_err(|error| anyhow::anyhow!("cannot compile the .proto files: {error:?}"))
    }

    /// Rust for the descriptors, by file name.
    fn rust(&self, ours: FileDescriptorSet) -> Result<BTreeMap<String, Vec<u8>>> {
        let dir = sh::target().join(format!("proto.{}", std::process::id()));
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let configured = tonic_prost_build::configure()
            .out_dir(&dir)
            .build_transport(false)
            .emit_rerun_if_changed(false)
            .btree_map(".");
        let configured = match self.kind {
            // Only tests serve.
            Kind::OfRuntimes => {
                configured.server_mod_attribute(".", "#[cfg(feature = \"server\")]")
            }
            Kind::Own => configured,
        };
        let result = configured.compile_fds(ours).context("cannot generate Rust");
        let banner = format!(
            "// Generated by `cargo xtask proto` from {}/proto: change those files, not this one.\n",
            self.crate_dir
        );
        let read = || -> Result<BTreeMap<String, Vec<u8>>> {
            let mut files = BTreeMap::new();
            for name in names(&dir)? {
                let text =
                    fs::read_to_string(dir.join(&name)).context("cannot read generated code")?;
                files.insert(name, format!("{banner}{text}").into_bytes());
            }
            Ok(files)
        };
        let files = result.and_then(|()| read());
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        files
    }
}

/// The descriptors without what only says where a thing stands in its file.
fn bare(descriptors: &FileDescriptorSet) -> FileDescriptorSet {
    let mut bare = descriptors.clone();
    bare.file.iter_mut().for_each(|file| file.source_code_info = None);
    bare
}

/// Names of the files in a directory, sorted.
fn names(dir: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", dir.display()))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
