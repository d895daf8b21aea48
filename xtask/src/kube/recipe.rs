//! How Kubernetes 1.20 is made from its release archive with Go 1.15, without a network and without upstream's makefiles.
//!
//! ```text
//! go/          the compiler, unpacked            src/k8s.io/kubernetes   the tree, where Go looks for packages by path
//! go-build/    what the compiler keeps           openapi-gen ─► the one generated file that the archive lacks
//! ```
//! The programs are static. They are the same wherever they are built: no path of the machine gets into them.
use crate::{alone, debs, sh};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names what is done here: another recipe makes other programs of the same sources.
pub(super) const ID: &str = "recipe 3, static, stripped, without paths, clouds and Docker";
/// Upstream's own words for leaving out clouds' and Docker's interfaces, which nobody here has.
const TAGS: &str = "providerless dockerless";
/// The tree's import path.
const KUBERNETES: &str = "k8s.io/kubernetes";
/// Where packages that have a repository of their own are in the archive.
const STAGING: &str = "staging/src/";
/// The package whose source is generated; the API server serves it as its own description.
const OPENAPI: &str = "pkg/generated/openapi";
const OPENAPI_FILE: &str = "zz_generated.openapi";
const OPENAPI_TAG: &str = "+k8s:openapi-gen=true";
/// Packages with that tag which are no part of the API.
const NOT_API: [&str; 3] = ["code-generator", "sample-", "testdata"];

/// What it is made from.
pub(super) struct Sources {
    pub(super) archive: PathBuf,
    pub(super) compiler: Vec<PathBuf>,
    /// `1.20.2`.
    pub(super) version: String,
}

/// Build `programs` in `work`, which may hold what an interrupted build has left, and put them into `into`.
pub(super) fn build(sources: &Sources, programs: &[&str], work: &Path, into: &Path) -> Result<()> {
    let tree = work.join("src").join(KUBERNETES);
    alone::once(&work.join("go"), |to| {
        sources.compiler.iter().try_for_each(|deb| debs::unpack(deb, to))
    })?;
    alone::once(&tree, |to| unpack(&sources.archive, to))?;
    let go = Go { work, tree: &tree, version: &sources.version };
    let generated = tree.join(OPENAPI).join(format!("{OPENAPI_FILE}.go"));
    if !generated.exists() {
        generate(&go, &generated)?;
    }
    let packages: Vec<String> = programs.iter().map(|name| format!("./cmd/{name}")).collect();
    go.build(&packages, into)
}

fn unpack(archive: &Path, into: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(archive).args(["--strip-components=1", "--no-same-owner", "-C"]);
    sh::run(tar.arg(into))
}

/// The compiler in its own little world.
struct Go<'a> {
    work: &'a Path,
    tree: &'a Path,
    version: &'a str,
}

impl Go<'_> {
    fn build(&self, packages: &[String], into: &Path) -> Result<()> {
        // Behind whoever shares the machine; alone on it, that costs nothing.
        let mut command = Command::new("nice");
        command.arg(self.work.join("go/usr/lib/go-1.15/bin/go"));
        self.environment(&mut command);
        command.args(["build", "-trimpath", "-tags", TAGS, "-ldflags", &self.link_flags(), "-o"]);
        // With a slash at its end, it is a directory also for one package.
        command.arg(into.join("")).args(packages);
        sh::run(&mut command).context("cannot build Kubernetes")
    }

    fn environment(&self, command: &mut Command) {
        // What the machine's own Go is told is no matter here.
        let inherited = std::env::vars_os().map(|(name, _)| name);
        for name in inherited.filter(|name| name.to_string_lossy().starts_with("GO")) {
            command.env_remove(name);
        }
        command.current_dir(self.tree);
        command.env("GOROOT", self.work.join("go/usr/lib/go-1.15"));
        command.env("GOPATH", self.work).env("GOCACHE", self.work.join("go-build"));
        command.envs([
            ("GO111MODULE", "off"),
            ("GOPROXY", "off"),
            ("GOENV", "off"),
            ("CGO_ENABLED", "0"),
        ]);
    }

    /// The version is a variable of the vendored package: that is the path it is linked by.
    fn link_flags(&self) -> String {
        let package = format!("{KUBERNETES}/vendor/k8s.io/component-base/version");
        let mut numbers = self.version.split('.');
        let (major, minor) =
            (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let values = [
            ("gitVersion", format!("v{}", self.version)),
            ("gitMajor", major.to_owned()),
            ("gitMinor", minor.to_owned()),
            ("gitTreeState", "archive".to_owned()),
        ];
        let set = values.map(|(name, value)| format!(" -X {package}.{name}={value}"));
        format!("-s -w{}", set.concat())
    }
}

/// Make the description of the API from every package that is part of it.
fn generate(go: &Go<'_>, to: &Path) -> Result<()> {
    let tools = go.work.join("tools");
    fs::create_dir_all(&tools).with_context(|| format!("cannot create {}", tools.display()))?;
    go.build(&["./vendor/k8s.io/kube-openapi/cmd/openapi-gen".to_owned()], &tools)?;
    let packages = api_packages(go.tree)?;
    let output = go.work.join("generated");
    let mut command = Command::new(tools.join("openapi-gen"));
    go.environment(&mut command);
    // It calls the compiler by name.
    let mut path = std::ffi::OsString::from(go.work.join("go/usr/lib/go-1.15/bin"));
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    command.env("PATH", path);
    command.arg("-i").arg(packages.into_iter().collect::<Vec<_>>().join(","));
    command.arg("-p").arg(format!("{KUBERNETES}/{OPENAPI}")).args(["-O", OPENAPI_FILE]);
    command.args(["-h", "hack/boilerplate/boilerplate.generatego.txt"]);
    // Names that are not as upstream wants them are no matter here.
    command.arg("-r").arg(go.work.join("violations")).arg("--output-base").arg(&output);
    sh::run(&mut command).context("cannot generate the description of the API")?;
    let made = output.join(KUBERNETES).join(OPENAPI).join(format!("{OPENAPI_FILE}.go"));
    fs::rename(&made, to).with_context(|| format!("openapi-gen made no {}", made.display()))
}

/// Import paths of all packages that the description covers.
fn api_packages(tree: &Path) -> Result<BTreeSet<String>> {
    let mut grep = Command::new("grep");
    grep.current_dir(tree).args([
        "-rlF",
        "--include=*.go",
        OPENAPI_TAG,
        "staging/src/k8s.io",
        "pkg",
    ]);
    let files = sh::read(&mut grep)?;
    let packages: BTreeSet<String> = files.lines().filter_map(import_path).collect();
    ensure!(!packages.is_empty(), "no package is marked with {OPENAPI_TAG}");
    Ok(packages)
}

/// The import path of a file's package, `None` where it is no part of the API.
fn import_path(file: &str) -> Option<String> {
    if NOT_API.iter().any(|part| file.contains(part)) {
        return None;
    }
    let (directory, _) = file.rsplit_once('/')?;
    Some(match directory.strip_prefix(STAGING) {
        Some(staged) => format!("{KUBERNETES}/vendor/{staged}"),
        None => format!("{KUBERNETES}/{directory}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staged_package_is_imported_by_its_vendored_path() {
        let staged = import_path("staging/src/k8s.io/api/core/v1/doc.go");
        assert_eq!(staged.as_deref(), Some("k8s.io/kubernetes/vendor/k8s.io/api/core/v1"));
        let own = import_path("pkg/apis/abac/v1beta1/doc.go");
        assert_eq!(own.as_deref(), Some("k8s.io/kubernetes/pkg/apis/abac/v1beta1"));
        assert_eq!(import_path("staging/src/k8s.io/sample-apiserver/pkg/apis/a/v1/doc.go"), None);
    }
}
