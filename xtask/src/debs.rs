//! Debian packages as build inputs: kernels, QEMU, the guest's userland, the compiler's own sources.
//!
//! ```text
//! suite ──private apt (own lists, status and cache)──► signed index ──► name and version ──► hash-checked .deb in the cache
//! ```
//! Versions vanish from an archive, so callers name a suite and a pattern and are told what that was today.
//! Nothing here installs anything or changes the machine's own apt state; the machine's apt is asked only which
//! mirror and which proxy it uses. Unpacking and what the files are for belong to the callers. Source packages are in
//! `debs/source.rs`.
use crate::alone::{self, Lock};
use crate::arch::Arch;
use crate::sh;
use anyhow::{Context, Result, bail, ensure};
use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

mod source;

pub(crate) use source::{SourceSuite, Upstream};

/// How old the index of a suite may be before it is fetched again.
const INDEX_MAX_AGE: Duration = Duration::from_secs(12 * 3600);
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Unpack a package into a directory: files only, no maintainer script is run.
pub(crate) fn unpack(deb: &Path, into: &Path) -> Result<()> {
    fs::create_dir_all(into).with_context(|| format!("cannot create {}", into.display()))?;
    sh::run(Command::new("dpkg-deb").arg("-x").arg(deb).arg(into))
}

/// The program that a package is named after, unpacked into the cache once; it may need no other package.
pub(crate) fn program(suite: &str, package: &str) -> Result<PathBuf> {
    let debs = Suite::open(suite)?.fetch(&[package.to_owned()])?;
    let deb = debs.first().with_context(|| format!("no package of {package}"))?;
    let dir = sh::cache()?.join(deb.file_stem().context("a package without a name")?);
    alone::once(&dir, |to| unpack(deb, to))?;
    Ok(dir.join("usr/bin").join(package))
}

/// One Debian suite, seen through a private apt configuration.
#[derive(Debug)]
pub(crate) struct Suite {
    name: String,
    dir: PathBuf,
    index: Index,
}

/// What of a suite is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Index {
    Packages(Arch),
    Sources,
}

impl Index {
    /// Its directory, for a suite.
    fn directory(self, suite: &str) -> String {
        match self {
            Self::Packages(Arch::Amd64) => suite.to_owned(),
            Self::Packages(arch) => format!("{suite}.{}", arch.debian()),
            Self::Sources => format!("{suite}.sources"),
        }
    }

    /// apt's line for it, from a mirror.
    fn line(self, mirror: &str, suite: &str) -> String {
        match self {
            Self::Packages(arch) => {
                let arch = arch.debian();
                format!("deb [arch={arch} signed-by={KEYRING}] {mirror} {suite} main\n")
            }
            Self::Sources => format!("deb-src [signed-by={KEYRING}] {mirror} {suite} main\n"),
        }
    }

    /// Of what architecture apt believes to be.
    fn arch(self) -> Arch {
        match self {
            Self::Packages(arch) => arch,
            Self::Sources => Arch::Amd64,
        }
    }
}

impl Suite {
    /// Prepare the private configuration and fetch the suite's index unless a recent one is there.
    ///
    /// # Errors
    /// When apt or the archive keyring is missing, or when the index can neither be fetched nor found in the cache.
    pub(crate) fn open(name: &str) -> Result<Self> {
        Self::open_for(name, Arch::Amd64)
    }

    /// The same for packages of an architecture.
    pub(crate) fn open_for(name: &str, arch: Arch) -> Result<Self> {
        Self::open_index(name, Index::Packages(arch))
    }

    fn open_index(name: &str, index: Index) -> Result<Self> {
        ensure!(
            Path::new(KEYRING).exists(),
            "{KEYRING} is missing: install the package debian-archive-keyring"
        );
        let dir = sh::cache()?.join("apt").join(index.directory(name));
        for sub in ["lists/partial", "archives/partial", "parts"] {
            fs::create_dir_all(dir.join(sub))
                .with_context(|| format!("cannot create {}", dir.join(sub).display()))?;
        }
        let suite = Self { name: name.to_owned(), dir, index };
        // Another cargo xtask may be doing the same: whoever comes second finds a fresh index.
        let _lock = Lock::take(&suite.dir.join("lock"), &format!("the index of {name}"))?;
        suite.configure()?;
        if !suite.is_fresh() {
            suite.update()?;
        }
        Ok(suite)
    }

    /// The newest package whose name matches `pattern`, in which one `*` stands for anything.
    /// Numbers inside names are compared as numbers: `6.18.15` is newer than `6.18.9`.
    pub(crate) fn newest(&self, pattern: &str) -> Result<String> {
        let (prefix, suffix) = pattern.split_once('*').unwrap_or((pattern, ""));
        let names = sh::read(self.apt("apt-cache").arg("pkgnames").arg(prefix))?;
        let fits = |name: &&str| match pattern.contains('*') {
            true => name.len() >= pattern.len() && name.ends_with(suffix),
            false => *name == pattern,
        };
        // pkgnames also lists names that others only mention; those have no version.
        let mut candidates: Vec<&str> = names.lines().filter(fits).collect();
        candidates.sort_by(|a, b| by_number(b, a));
        for name in candidates {
            if self.describe(name)?.is_some() {
                return Ok(name.to_owned());
            }
        }
        bail!("no package in {} matches {pattern}", self.name)
    }

    /// All versions of one package, newest first.
    pub(crate) fn versions(&self, package: &str) -> Result<Vec<String>> {
        // "rust-src | 1.95.0+dfsg1-2~bpo13+1 | http://... Packages"
        let table = sh::read(self.apt("apt-cache").args(["madison", package]))?;
        Ok(table
            .lines()
            .filter_map(|row| row.split('|').nth(1))
            .map(|v| v.trim().to_owned())
            .collect())
    }

    /// Everything `packages` need, themselves included, each as `name=version`; recommendations left out.
    pub(crate) fn closure(&self, packages: &[impl AsRef<str>]) -> Result<Vec<String>> {
        let mut command = self.apt("apt-get");
        command.args(["-q", "--simulate", "--no-install-recommends", "install"]);
        command.args(packages.iter().map(AsRef::as_ref));
        let plan = sh::read(&mut command)?;
        // "Inst libc6 (2.41-12 Debian:13/stable [amd64]) []"
        let mut all: Vec<String> = plan
            .lines()
            .filter_map(|line| line.strip_prefix("Inst "))
            .filter_map(|rest| {
                let (name, rest) = rest.split_once(" (")?;
                Some(format!("{name}={}", rest.split_whitespace().next()?))
            })
            .collect();
        ensure!(!all.is_empty(), "apt plans to install nothing in {}", self.name);
        all.sort();
        Ok(all)
    }

    /// Fetch packages given as `name` or `name=version`; the files come back in the same order.
    pub(crate) fn fetch(&self, packages: &[String]) -> Result<Vec<PathBuf>> {
        let store = sh::cache()?.join("debs");
        fs::create_dir_all(&store).with_context(|| format!("cannot create {}", store.display()))?;
        let mut wanted = Vec::new();
        for package in packages {
            let found = self.describe(package)?;
            wanted.push(found.with_context(|| format!("{} has no package {package}", self.name))?);
        }
        let missing: Vec<&Deb> = wanted.iter().filter(|deb| !deb.is_intact(&store)).collect();
        if !missing.is_empty() {
            self.download(&missing, &store)?;
        }
        let files = wanted.iter().map(|deb| {
            ensure!(deb.is_intact(&store), "{} does not have the hash its index gives", deb.file);
            Ok(store.join(&deb.file))
        });
        files.collect()
    }

    /// What the index says about a package; `None` when the suite does not have it.
    fn describe(&self, package: &str) -> Result<Option<Deb>> {
        let out = self
            .apt("apt-cache")
            .args(["show", "--no-all-versions", package])
            .output()
            .with_context(|| format!("cannot ask apt about {package}"))?;
        Ok(Deb::parse(&String::from_utf8_lossy(&out.stdout)))
    }

    fn download(&self, debs: &[&Deb], store: &Path) -> Result<()> {
        let partial = alone::partial(&store.join("new"))?;
        fs::create_dir_all(&partial)
            .with_context(|| format!("cannot create {}", partial.display()))?;
        for deb in debs {
            println!("debs: {} {} from {}", deb.name, deb.version, self.name);
        }
        let mut command = self.apt("apt-get");
        command.current_dir(&partial).args(["-qq", "download"]);
        command.args(debs.iter().map(|deb| format!("{}={}", deb.name, deb.version)));
        if sh::run(&mut command).is_err() {
            // The usual cause: the archive has moved on since the index was fetched.
            self.update()?;
            bail!("cannot download from {}; its index was renewed, so try again", self.name);
        }
        for entry in fs::read_dir(&partial).context("cannot list downloaded packages")? {
            let from = entry.context("cannot list downloaded packages")?.path();
            // apt names the file from name, version and architecture; the index has the archive's own name.
            let deb = debs.iter().find(|deb| deb.hash_is(&from));
            let deb = deb.with_context(|| format!("apt delivered {} unasked", from.display()))?;
            fs::rename(&from, store.join(&deb.file))
                .with_context(|| format!("cannot store {}", deb.file))?;
        }
        fs::remove_dir_all(&partial).context("cannot remove the download directory")
    }

    fn configure(&self) -> Result<()> {
        let mirror = mirror_for(&self.name)?;
        let sources = self.index.line(&mirror, &self.name);
        let list = self.dir.join("sources.list");
        if fs::read_to_string(&list).ok().as_deref() != Some(&sources) {
            fs::write(&list, &sources)
                .with_context(|| format!("cannot write {}", list.display()))?;
            // Another mirror: what was fetched from the last one says nothing about it.
            let _ = fs::remove_file(self.dir.join("updated"));
        }
        fs::write(self.dir.join("status"), "").context("cannot write apt's empty status file")?;
        let (dir, arch) = (self.dir.display(), self.index.arch().debian());
        // Only the settings that say how to reach the network are taken over from the machine:
        // its hooks and pins are about its own packages.
        let network: String = sh::read(Command::new("apt-config").arg("dump"))?
            .lines()
            .filter(|line| line.starts_with("Acquire::http"))
            .map(|line| format!("{line}\n"))
            .collect();
        let conf = format!(
            "Dir::Etc::main \"/dev/null\";\nDir::Etc::parts \"{dir}/parts\";\n\
             Dir::Etc::sourcelist \"{dir}/sources.list\";\nDir::Etc::sourceparts \"{dir}/parts\";\n\
             Dir::Etc::preferences \"/dev/null\";\nDir::Etc::preferencesparts \"{dir}/parts\";\n\
             Dir::State \"{dir}\";\nDir::State::status \"{dir}/status\";\nDir::Cache \"{dir}\";\n\
             APT::Architecture \"{arch}\";\nAPT::Architectures \"{arch}\";\nAPT::Install-Recommends \"false\";\n\
             APT::Sandbox::User \"\";\nAcquire::Languages \"none\";\nDebug::NoLocking \"true\";\n\
             # An old suite's index is never renewed; it is still signed.\nAcquire::Check-Valid-Until \"false\";\n{network}"
        );
        fs::write(self.dir.join("apt.conf"), conf).context("cannot write the private apt.conf")
    }

    fn is_fresh(&self) -> bool {
        let stamp = fs::metadata(self.dir.join("updated")).and_then(|meta| meta.modified());
        stamp.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < INDEX_MAX_AGE))
    }

    fn update(&self) -> Result<()> {
        let stamp = self.dir.join("updated");
        let updated = sh::run(self.apt("apt-get").args(["-qq", "--error-on=any", "update"]));
        match updated {
            Ok(()) => fs::write(&stamp, "").context("cannot write apt's time stamp"),
            Err(error) if stamp.exists() => {
                eprintln!("debs: using the old index of {}: {error:#}", self.name);
                Ok(())
            }
            Err(error) => Err(error.context(format!("cannot fetch the index of {}", self.name))),
        }
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.dir.join("apt.conf")).env("LC_ALL", "C");
        command
    }
}

/// What an index says about one version of one package.
#[derive(Debug)]
struct Deb {
    name: String,
    version: String,
    file: String,
    sha256: String,
}

impl Deb {
    fn parse(stanza: &str) -> Option<Self> {
        let field = |key: &str| {
            let value = stanza.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
            value.map(str::to_owned)
        };
        let file = field("Filename")?;
        Some(Self {
            name: field("Package")?,
            version: field("Version")?,
            file: file.rsplit('/').next()?.to_owned(),
            sha256: field("SHA256")?,
        })
    }

    fn is_intact(&self, store: &Path) -> bool {
        let file = store.join(&self.file);
        file.exists() && self.hash_is(&file)
    }

    fn hash_is(&self, file: &Path) -> bool {
        has_sha256(file, &self.sha256)
    }
}

/// Whether a file that can be read has this SHA-256, in hexadecimal.
fn has_sha256(file: &Path, sha256: &str) -> bool {
    let sum = sh::read(Command::new("sha256sum").arg("--").arg(file));
    sum.is_ok_and(|sum| sum.trim_start_matches('\\').starts_with(sha256))
}

/// The mirror that serves `suite`: `$EBB_DEBIAN_MIRROR` (with or without a last `/debian`), else the one in this machine's apt sources.
fn mirror_for(suite: &str) -> Result<String> {
    let archive = if suite.ends_with("-security") { "debian-security" } else { "debian" };
    if let Ok(mirror) = std::env::var("EBB_DEBIAN_MIRROR") {
        let base = mirror.trim_end_matches('/').trim_end_matches("/debian");
        return Ok(format!("{base}/{archive}"));
    }
    let targets = sh::read(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
    ]))
    .context("cannot ask apt for this machine's mirror (is this a Debian-like machine?)")?;
    let uri =
        targets.lines().find(|uri| uri.trim_end_matches('/').rsplit('/').next() == Some(archive));
    let uri = uri.with_context(|| {
        format!("this machine's apt sources name no {archive} mirror: set EBB_DEBIAN_MIRROR")
    })?;
    Ok(uri.trim_end_matches('/').to_owned())
}

/// Compare names as people read versions: runs of digits by value, everything else by character.
fn by_number(a: &str, b: &str) -> Ordering {
    let parts = |name: &str| -> Vec<(u64, char)> {
        let mut parts = Vec::new();
        let mut number: Option<u64> = None;
        for c in name.chars() {
            if let Some(digit) = c.to_digit(10) {
                number = Some(number.unwrap_or(0).saturating_mul(10).saturating_add(digit.into()));
            } else {
                parts.extend(number.take().map(|n| (n, '0')));
                parts.push((0, c));
            }
        }
        parts.extend(number.map(|n| (n, '0')));
        parts
    };
    parts(a).cmp(&parts(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_number_is_newer() {
        assert_eq!(by_number("linux-6.18.15-x", "linux-6.18.9-x"), Ordering::Greater);
        assert_eq!(by_number("linux-7.2.12+deb13", "linux-7.10.1+deb13"), Ordering::Less);
        assert_eq!(by_number("linux-6.1.0-50", "linux-6.1.0-50"), Ordering::Equal);
    }

    #[test]
    fn a_package_without_a_file_is_not_there() {
        assert!(Deb::parse("Package: linux\nVersion: 1\n").is_none());
        let deb = Deb::parse("Package: a\nVersion: 1:2\nFilename: pool/a_2.deb\nSHA256: ff\n");
        assert_eq!(deb.map(|deb| deb.file).as_deref(), Some("a_2.deb"));
    }
}
