//! `cargo xtask kube`: a real Kubernetes for the guests and for the tests of the cluster collector, from Debian's archive alone.
//!
//! ```text
//! $KUBEBUILDER_ASSETS ──────────────────────────────────────────────────────────┐
//! bookworm, source kubernetes ─► orig.tar ─┐                                    ├─► one directory of programs
//! bullseye, golang-1.15 ───────────────────┴─► kube-apiserver, kubelet, … ──────┤
//! trixie, etcd-server; bookworm, kubernetes-client ─► etcd, kubectl ────────────┘
//! ```
//! What is made is kept in the cache below the hash of everything that it was made from; how it is made is in
//! `kube/recipe.rs`. Nothing of it is installed, and nothing of it is ever part of this repository.
use crate::alone::{self, Lock};
use crate::debs::{self, SourceSuite, Suite};
use crate::sh;
use anyhow::{Context, Result, bail, ensure};
use recipe::Sources;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod recipe;

/// Whom the programs are for. Fewer are made sooner.
#[derive(Clone, Copy)]
pub(crate) enum For {
    /// The tests of the cluster collector.
    Cluster,
    /// Guests with a kubelet.
    Guests,
}

impl For {
    /// What they cannot do without. The cluster's tests can without a kube-controller-manager.
    fn needed(self) -> &'static [&'static str] {
        match self {
            Self::Cluster => &["etcd", "kube-apiserver"],
            Self::Guests => &GUESTS,
        }
    }

    /// What is compiled for them.
    fn compiled(self) -> &'static [&'static str] {
        match self {
            Self::Cluster => &["kube-apiserver", "kube-controller-manager"],
            Self::Guests => {
                &["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"]
            }
        }
    }
}

/// What guests with a kubelet run.
const GUESTS: [&str; 6] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet"];
/// The ecosystem's name for a directory with the programs of a control plane.
const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// Where the source package is, and the compiler that still makes programs of it that run: with what newer ones make,
/// the API server dies in a map iteration as soon as there are custom resources.
const SOURCE: (&str, &str) = ("bookworm", "kubernetes");
const COMPILER: (&str, [&str; 2]) = ("bullseye", ["golang-1.15-go", "golang-1.15-src"]);
/// Programs that Debian has built: suite, package, file in it.
const BUILT: [(&str, &str, &str); 2] = [
    ("trixie", "etcd-server", "usr/bin/etcd"),
    ("bookworm", "kubernetes-client", "usr/bin/kubectl"),
];
/// The series that the recipe is for.
const SERIES: &str = "1.20.";

/// Options of `cargo xtask kube`.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<()> {
    let dir = assets(For::Guests)?;
    println!("kube: {}", dir.display());
    Ok(())
}

/// The directory with the programs that are needed: the one that `$KUBEBUILDER_ASSETS` names, else the one in the cache, which is made
/// when it is not there.
///
/// # Errors
/// When a program is missing in `$KUBEBUILDER_ASSETS`, the archive has no such source package any more, or the build
/// fails.
pub(crate) fn assets(whom: For) -> Result<PathBuf> {
    let needed = whom.needed();
    if let Some(dir) = std::env::var_os(ASSETS) {
        let dir = PathBuf::from(dir);
        let missing = missing(&dir, needed);
        ensure!(
            missing.is_empty(),
            "{ASSETS} is {}, which lacks {}: put them there, or unset {ASSETS} to have all of them made from Debian's source package",
            dir.display(),
            missing.join(", ")
        );
        println!("kube: {} of {ASSETS}, {}", needed.join(", "), dir.display());
        return Ok(dir);
    }
    let inputs = Inputs::resolve()?;
    let home = sh::cache()?.join("kube");
    let whole = home.join(sh::sha256(inputs.describe().as_bytes())?);
    // It takes minutes: whoever comes second waits, and finds it made.
    let _lock = Lock::take(&home.join("lock"), "the Kubernetes of the tests")?;
    let dir = match whom {
        For::Cluster if !whole.exists() => {
            PathBuf::from(format!("{}.control-plane", whole.display()))
        }
        _ => whole,
    };
    if !dir.exists() {
        inputs.make(whom, &dir)?;
    }
    print!("{}", inputs.describe());
    Ok(dir)
}

/// What the programs that guests run are, as a part of a cache key.
pub(crate) fn sums(dir: &Path) -> Result<String> {
    sh::read(Command::new("sha256sum").current_dir(dir).args(GUESTS))
}

/// Copy the programs that guests run to where guests look for them, below a root directory.
pub(crate) fn install(dir: &Path, root: &Path) -> Result<()> {
    let to = root.join(ebb_vm_protocol::KUBERNETES.trim_start_matches('/'));
    fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
    for name in GUESTS {
        let from = dir.join(name);
        fs::copy(&from, to.join(name))
            .with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

/// What is needed and this directory does not have.
fn missing<'a>(dir: &Path, needed: &[&'a str]) -> Vec<&'a str> {
    needed.iter().copied().filter(|name| !dir.join(name).is_file()).collect()
}

/// Everything that the programs are made from, by exact version.
struct Inputs {
    source: debs::Upstream,
    /// What the programs will say they are: `1.20.2`.
    version: String,
    compiler: [String; 2],
    /// In the order of [`BUILT`].
    built: [String; 2],
}

impl Inputs {
    fn resolve() -> Result<Self> {
        let (suite, package) = SOURCE;
        let source = SourceSuite::open(suite)?.upstream(package)?.with_context(|| {
            format!(
                "{suite} has no source package {package} any more: set {ASSETS} to a directory with {}",
                GUESTS.join(", ")
            )
        })?;
        let version = upstream_version(&source.version);
        if !version.starts_with(SERIES) {
            bail!(
                "the source package {package} of {suite} is {}, and the recipe is for {SERIES}x: set {ASSETS} to a directory with {}",
                source.version,
                GUESTS.join(", ")
            );
        }
        let newest = |suite: &str, package: &str| -> Result<String> {
            let versions = Suite::open(suite)?.versions(package)?;
            let newest = versions.first();
            let newest = newest.with_context(|| format!("{suite} has no package {package}"))?;
            Ok(format!("{package}={newest}"))
        };
        let (suite, [go, library]) = COMPILER;
        let compiler = [newest(suite, go)?, newest(suite, library)?];
        let [etcd, kubectl] = BUILT.map(|(suite, package, _)| newest(suite, package));
        Ok(Self { version: version.to_owned(), source, compiler, built: [etcd?, kubectl?] })
    }

    /// A line for each input: what is printed, and what the cache knows the result by.
    fn describe(&self) -> String {
        let (suite, package) = SOURCE;
        let mut text = format!(
            "kube: Kubernetes {} is the source package {package} {} of {suite}, SHA-256 {}\n",
            self.version, self.source.version, self.source.sha256
        );
        for package in &self.compiler {
            text.push_str(&format!(
                "kube: built with {package} of {}, {}\n",
                COMPILER.0,
                recipe::ID
            ));
        }
        for (package, (suite, _, file)) in self.built.iter().zip(BUILT) {
            text.push_str(&format!("kube: {file} is of {package} of {suite}\n"));
        }
        text
    }

    /// Fetch, build, and put the result where it belongs in one step.
    fn make(&self, whom: For, dir: &Path) -> Result<()> {
        // What an interrupted build has compiled is used by the next one.
        let work = PathBuf::from(format!("{}.work", dir.display()));
        let archive = SourceSuite::open(SOURCE.0)?.fetch(SOURCE.1, &self.source)?;
        let compiler = Suite::open(COMPILER.0)?.fetch(&self.compiler)?;
        let sources = Sources { archive, compiler, version: self.version.clone() };
        alone::once(dir, |partial| {
            self.take_built(partial)?;
            let programs = whom.compiled();
            println!(
                "kube: building {} of Kubernetes {}, some minutes of all cores, once",
                programs.join(", "),
                self.version
            );
            recipe::build(&sources, programs, &work, partial)?;
            let missing = missing(partial, programs);
            ensure!(missing.is_empty(), "the build made no {}", missing.join(", "));
            fs::write(partial.join("inputs"), self.describe()).context("cannot note the inputs")
        })?;
        alone::remove(&work)
    }

    /// Put the programs that Debian has built into a directory.
    fn take_built(&self, into: &Path) -> Result<()> {
        for (package, (suite, _, file)) in self.built.iter().zip(BUILT) {
            let deb = Suite::open(suite)?.fetch(std::slice::from_ref(package))?.remove(0);
            let unpacked = into.join("unpacked");
            debs::unpack(&deb, &unpacked)?;
            let name = Path::new(file).file_name().context("a program without a name")?;
            fs::rename(unpacked.join(file), into.join(name))
                .with_context(|| format!("no {file} in {}", deb.display()))?;
            alone::remove(&unpacked)?;
        }
        Ok(())
    }
}

/// Upstream's version in Debian's: `1.20.5+really1.20.2-1.1` is 1.20.2.
fn upstream_version(version: &str) -> &str {
    let upstream = version.rsplit_once('-').map_or(version, |(upstream, _)| upstream);
    upstream.rsplit_once("really").map_or(upstream, |(_, really)| really)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_was_taken_back_is_what_it_really_is() {
        assert_eq!(upstream_version("1.20.5+really1.20.2-1.1+deb12u1"), "1.20.2");
        assert_eq!(upstream_version("1.18.3-1"), "1.18.3");
        assert_eq!(upstream_version("1.18.3"), "1.18.3");
    }

    #[test]
    fn a_directory_without_a_program_is_told_which() {
        let dir = std::env::temp_dir().join(format!("ebb-assets-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for name in GUESTS.into_iter().filter(|name| *name != "kubelet") {
            fs::write(dir.join(name), "").unwrap();
        }
        let lacking = missing(&dir, &GUESTS);
        fs::write(dir.join("kubelet"), "").unwrap();
        let complete = missing(&dir, &GUESTS);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(lacking, ["kubelet"]);
        assert!(complete.is_empty());
    }
}
