//! Our protocol files held against the published ones, so that a number typed wrong is found here and not on a node.
//!
//! The published files come inside the source packages of two crates, fetched by cargo and never built. Messages are
//! compared by their full name: a subset may leave fields out, but what it has must be the same.

use crate::sh;
use anyhow::{Context, Result, ensure};
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Crates with the published files, and the files that ours are parts of.
const CRI: (&str, &str) = ("k8s-cri", "0.11.0");
const CONTAINERD: (&str, &str) = ("containerd-client", "0.9.0");
const API: &str = "github.com/containerd/containerd/api";
const CONTAINERD_FILES: [&str; 8] = [
    "services/images/v1/images.proto",
    "services/snapshots/v1/snapshots.proto",
    "services/content/v1/content.proto",
    "services/events/v1/events.proto",
    "events/image.proto",
    "events/task.proto",
    "events/container.proto",
    "types/event.proto",
];

/// What identifies things on the wire: `message.field` to number, type and label; `enum.VALUE` to number; `service.Rpc` to its types.
type Facts = BTreeMap<String, String>;

/// Fail on the first thing of ours that is not published so.
pub(crate) fn hold(ours: &FileDescriptorSet) -> Result<()> {
    let published = published()?;
    let ours = facts(ours);
    ensure!(ours.len() > 100, "our protocol files describe next to nothing");
    for (name, fact) in &ours {
        let theirs = published.get(name);
        let theirs = theirs.with_context(|| format!("no published protocol has {name}"))?;
        ensure!(fact == theirs, "{name} is {fact} in our files, but published as {theirs}");
    }
    Ok(())
}

fn published() -> Result<Facts> {
    let dirs = sources()?;
    let cri = dirs[0].join("proto");
    let vendor = dirs[1].join("vendor");
    let mut facts_of = Facts::new();
    let failed = |error: protox::Error| anyhow::anyhow!("cannot read a published file: {error:?}");
    facts_of.extend(facts(&protox::compile([cri.join("v1.proto")], [cri]).map_err(failed)?));
    for file in CONTAINERD_FILES {
        let path = vendor.join(API).join(file);
        facts_of.extend(facts(&protox::compile([path], [&vendor]).map_err(failed)?));
    }
    Ok(facts_of)
}

/// Where cargo keeps the unpacked sources, fetched through a manifest of their own so that nothing of ours depends on them.
fn sources() -> Result<[PathBuf; 2]> {
    let dir = sh::cache()?.join("protocols");
    fs::create_dir_all(dir.join("src")).context("cannot create the directory for protocols")?;
    let manifest = format!(
        "[package]\nname = \"protocols\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n\
         [dependencies]\n{} = \"={}\"\n{} = \"={}\"\n",
        CRI.0, CRI.1, CONTAINERD.0, CONTAINERD.1
    );
    let path = dir.join("Cargo.toml");
    if fs::read_to_string(&path).ok().as_deref() != Some(&manifest) {
        fs::write(&path, manifest).context("cannot write the manifest for protocols")?;
    }
    fs::write(dir.join("src/lib.rs"), "").context("cannot write the manifest for protocols")?;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&dir).args(["metadata", "--format-version", "1", "--quiet"]);
    let text = sh::read(&mut cargo)?;
    let metadata: Metadata =
        serde_json::from_str(&text).context("cannot understand cargo metadata")?;
    let find = |(name, version): (&str, &str)| -> Result<PathBuf> {
        let found = metadata.packages.iter().find(|p| p.name == name && p.version == version);
        let found = found.with_context(|| format!("cargo did not fetch {name} {version}"))?;
        Ok(found.manifest_path.parent().context("a manifest without a directory")?.to_owned())
    };
    Ok([find(CRI)?, find(CONTAINERD)?])
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    manifest_path: PathBuf,
}

fn facts(set: &FileDescriptorSet) -> Facts {
    let mut facts = Facts::new();
    for file in &set.file {
        let package = file.package();
        // The compiler's own; both sides mean the same.
        if package == "google.protobuf" {
            continue;
        }
        for message in &file.message_type {
            facts.extend(message_facts(package, message));
        }
        for values in &file.enum_type {
            facts.extend(enum_facts(package, values));
        }
        for service in &file.service {
            for method in &service.method {
                let fact = format!(
                    "{}({}{}) -> {}{}",
                    method.name(),
                    method.input_type(),
                    if method.client_streaming() { " stream" } else { "" },
                    method.output_type(),
                    if method.server_streaming() { " stream" } else { "" },
                );
                facts.insert(format!("{package}.{}.{}", service.name(), method.name()), fact);
            }
        }
    }
    facts
}

fn message_facts(scope: &str, message: &DescriptorProto) -> Facts {
    let name = format!("{scope}.{}", message.name());
    let mut facts = Facts::from([(name.clone(), "message".to_owned())]);
    for field in &message.field {
        let fact = format!(
            "{:?} {:?} {} = {}",
            field.label(),
            field.r#type(),
            field.type_name(),
            field.number()
        );
        facts.insert(format!("{name}.{}", field.name()), fact);
    }
    for nested in &message.nested_type {
        facts.extend(message_facts(&name, nested));
    }
    facts
}

fn enum_facts(scope: &str, values: &EnumDescriptorProto) -> Facts {
    let name = format!("{scope}.{}", values.name());
    let facts = values.value.iter();
    facts.map(|v| (format!("{name}.{}", v.name()), v.number().to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_types::field_descriptor_proto::Type;
    use prost_types::{FieldDescriptorProto, FileDescriptorProto};

    #[test]
    fn a_field_with_another_number_is_another_fact() {
        let set = |number| FileDescriptorSet {
            file: vec![FileDescriptorProto {
                package: Some("p".into()),
                message_type: vec![DescriptorProto {
                    name: Some("M".into()),
                    field: vec![FieldDescriptorProto {
                        name: Some("f".into()),
                        number: Some(number),
                        r#type: Some(Type::String.into()),
                        ..Default::default()
                    }],
                    ..Default::default()
                }],
                ..Default::default()
            }],
        };
        assert_eq!(facts(&set(1)).len(), 2);
        assert_ne!(facts(&set(1))["p.M.f"], facts(&set(2))["p.M.f"]);
    }
}
