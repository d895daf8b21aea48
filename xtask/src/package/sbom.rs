//! What the program is made of, as CycloneDX: the crates that are linked into it and into its BPF programs, and the C libraries.
//!
//! ```text
//! cargo tree (this target, nothing that only builds) ─► components, who depends on whom
//! Cargo.lock                                         ─► checksums
//! dpkg                                               ─► versions of the C libraries that are linked in
//! ```
use super::release::Release;
use crate::arch::Arch;
use crate::{build, sh};
use anyhow::{Context, Result, anyhow, ensure};
use cyclonedx_bom::models::bom::{Bom, SpecVersion};
use cyclonedx_bom::models::component::{Classification, Component, Components};
use cyclonedx_bom::models::dependency::{Dependencies, Dependency};
use cyclonedx_bom::models::hash::{Hash, HashAlgorithm, HashValue, Hashes};
use cyclonedx_bom::models::license::{LicenseChoice, Licenses};
use cyclonedx_bom::models::metadata::Metadata;
use cyclonedx_bom::validation::Validate as _;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

const SPEC: SpecVersion = SpecVersion::V1_5;
const PROGRAM: &str = "ebb";

/// What is linked in beside crates, by Debian's packages (docs/decisions/0002).
const C_LIBRARIES: [(&str, &str); 3] = [
    ("libc6-dev", "LGPL-2.1-or-later"),
    ("libelf-dev", "LGPL-3.0-or-later OR GPL-2.0-or-later"),
    ("zlib1g-dev", "Zlib"),
];

/// Name of the file.
pub(crate) fn file_name(release: &Release) -> String {
    format!("ebb-{}.cdx.json", release.version)
}

/// The bill of materials of this program.
pub(crate) fn write(release: &Release, program: &[u8]) -> Result<Vec<u8>> {
    let mut parts = Parts::default();
    let sums = Sums::read("Cargo.lock")?;
    parts.take(&tree(&["--package", PROGRAM, "--target", release.arch.target()])?, &sums)?;
    // The BPF machine is no target that cargo knows without its toolchain; nothing there depends on one.
    let kernel_side = tree(&["--manifest-path", "ebpf/probes/Cargo.toml"])?;
    parts.take(&kernel_side, &Sums::read("ebpf/probes/Cargo.lock")?)?;
    for (name, licence) in C_LIBRARIES {
        if let Some(version) = linked(name, release.arch)? {
            parts.add_library(name, &version, licence)?;
        }
    }
    parts.bill(release, program)
}

/// cargo's own words about what is linked in: depth, name, version, licence.
fn tree(options: &[&str]) -> Result<String> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(sh::root()).args(["tree", "--locked", "--edges", "normal,no-proc-macro"]);
    sh::read(cargo.args(["--prefix", "depth", "--format", "{p}\t{l}"]).args(options))
}

/// The version of a C library that is linked in; `None` where nobody knows.
fn linked(name: &str, arch: Arch) -> Result<Option<String>> {
    match (arch, name) {
        (Arch::HOST, _) => Ok(installed(name)),
        (_, "libc6-dev") => Ok(installed(&format!("libc6-dev-{}-cross", arch.debian()))),
        _ => build::library(arch, name).map(Some),
    }
}

/// The version of a package of this machine, `None` where dpkg knows none.
fn installed(package: &str) -> Option<String> {
    let mut query = Command::new("dpkg-query");
    let out = query.args(["--show", "--showformat=${Version}", package]).output().ok()?;
    let version = String::from_utf8(out.stdout).ok()?;
    (out.status.success() && !version.is_empty()).then_some(version)
}

/// Checksums by name and version.
struct Sums(BTreeMap<(String, String), String>);

#[derive(Deserialize)]
struct LockFile {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

impl Sums {
    fn read(path: &str) -> Result<Self> {
        let text = fs::read_to_string(sh::root().join(path));
        let text = text.with_context(|| format!("cannot read {path}"))?;
        let lock: LockFile =
            toml::from_str(&text).with_context(|| format!("cannot understand {path}"))?;
        let sums = lock.package.into_iter();
        Ok(Self(sums.filter_map(|p| Some(((p.name, p.version), p.checksum?))).collect()))
    }
}

/// What was found so far, by reference.
#[derive(Default)]
struct Parts {
    components: BTreeMap<String, Component>,
    needs: BTreeMap<String, BTreeSet<String>>,
}

impl Parts {
    fn take(&mut self, tree: &str, sums: &Sums) -> Result<()> {
        // References of those above the present line.
        let mut above: Vec<String> = Vec::new();
        for line in tree.lines() {
            let (depth, found) = Crate::parse(line).with_context(|| format!("cargo: {line:?}"))?;
            let reference = found.reference();
            above.truncate(depth);
            if let Some(user) = above.last() {
                self.needs.entry(user.clone()).or_default().insert(reference.clone());
            }
            let sum = sums.0.get(&(found.name.to_owned(), found.version.to_owned()));
            self.components.entry(reference.clone()).or_insert(found.component(sum)?);
            above.push(reference);
        }
        Ok(())
    }

    fn add_library(&mut self, name: &str, version: &str, licence: &str) -> Result<()> {
        let reference = format!("pkg:deb/debian/{name}@{version}?arch=amd64");
        let mut component =
            Component::new(Classification::Library, name, version, Some(reference.clone()));
        component.licenses = Some(Licenses(vec![LicenseChoice::expression(licence)]));
        component.purl = Some(reference.parse().map_err(|()| anyhow!("{reference} is no purl"))?);
        let program = Crate { name: PROGRAM, version: env!("CARGO_PKG_VERSION"), ..Crate::NONE };
        self.needs.entry(program.reference()).or_default().insert(reference.clone());
        self.components.insert(reference, component);
        Ok(())
    }

    fn bill(mut self, release: &Release, program: &[u8]) -> Result<Vec<u8>> {
        let this = Crate { name: PROGRAM, version: release.version, ..Crate::NONE }.reference();
        let mut main = self.components.remove(&this).context("cargo names no ebb")?;
        main.component_type = Classification::Application;
        main.hashes = Some(sha256(Sha256::digest(program).iter().map(|b| format!("{b:02x}"))));
        let references = self.components.keys().chain([&this]);
        let needs = |reference: &String| Dependency {
            dependency_ref: reference.clone(),
            dependencies: self.needs.get(reference).into_iter().flatten().cloned().collect(),
        };
        let bom = Bom {
            // It names one document among many; this one is known by what it describes.
            serial_number: None,
            dependencies: Some(Dependencies(references.map(needs).collect())),
            metadata: Some(Metadata {
                timestamp: Some(release.date("+%Y-%m-%dT%H:%M:%SZ")?.try_into()?),
                component: Some(main),
                ..Metadata::default()
            }),
            components: Some(Components(self.components.into_values().collect())),
            spec_version: SPEC,
            ..Bom::default()
        };
        let verdict = bom.validate_version(SPEC);
        ensure!(verdict.passed(), "the bill of materials is none: {verdict:?}");
        let mut bytes = Vec::new();
        bom.output_as_json(&mut bytes, SPEC).context("cannot write the bill of materials")?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

fn sha256(hexadecimal: impl IntoIterator<Item = String>) -> Hashes {
    let content = HashValue(hexadecimal.into_iter().collect());
    Hashes(vec![Hash { alg: HashAlgorithm::SHA_256, content }])
}

/// A line of cargo's tree.
struct Crate<'a> {
    name: &'a str,
    version: &'a str,
    licence: &'a str,
    /// It comes from a registry, not from this repository.
    is_foreign: bool,
}

impl<'a> Crate<'a> {
    const NONE: Crate<'static> = Crate { name: "", version: "", licence: "", is_foreign: false };

    /// `2libc v0.2.191<tab>MIT OR Apache-2.0`, behind it ` (*)` where what it needs was shown before.
    fn parse(line: &'a str) -> Option<(usize, Self)> {
        let (package, licence) = line.split_once('\t')?;
        let name = package.find(|c: char| !c.is_ascii_digit())?;
        let (depth, package) = package.split_at_checked(name)?;
        let mut words = package.split_whitespace();
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        let is_foreign = words.next().is_none_or(|place| !place.starts_with("(/"));
        let licence = licence.strip_suffix(" (*)").unwrap_or(licence);
        Some((depth.parse().ok()?, Self { name, version, licence, is_foreign }))
    }

    /// Says nothing of where the repository was checked out.
    fn reference(&self) -> String {
        let kind = if self.is_foreign { "pkg:cargo/" } else { "workspace:" };
        format!("{kind}{}@{}", self.name, self.version.replace('+', "%2B"))
    }

    fn component(&self, sum: Option<&String>) -> Result<Component> {
        let reference = self.reference();
        let mut component = Component::new(
            Classification::Library,
            self.name,
            self.version,
            Some(reference.clone()),
        );
        // Older manifests have a slash where SPDX has a word.
        let licence = self.licence.replace(" / ", "/").replace('/', " OR ");
        component.licenses = Some(Licenses(vec![LicenseChoice::expression(&licence)]));
        component.hashes = sum.cloned().map(|sum| sha256([sum]));
        if self.is_foreign {
            component.purl =
                Some(reference.parse().map_err(|()| anyhow!("{reference} is no purl"))?);
        }
        Ok(component)
    }
}

#[cfg(test)]
#[path = "sbom_tests.rs"]
mod tests;
