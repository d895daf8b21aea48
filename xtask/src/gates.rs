//! `cargo xtask gates`: everything that is checked without running the program.

use crate::{bpf, imports, proto, sh};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// Options of `cargo xtask gates`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// The versions that the project is checked with; another may know other licences or rules.
const CARGO_DENY: (&str, &str) = ("cargo-deny", "0.20.2");
const CARGO_SHEAR: (&str, &str) = ("cargo-shear", "1.9.0");

/// Crates that `ebb-policy` may have below it when it is built for JSON: (de)serialisation and nothing that reads the world.
const POLICY_MAY_HAVE: [&str; 17] = [
    "ebb-model",
    "ebb-policy",
    "serde",
    "serde_core",
    "serde_derive",
    "serde_derive_internals",
    "serde_json",
    "schemars",
    "schemars_derive",
    "dyn-clone",
    "ref-cast",
    "ref-cast-impl",
    "itoa",
    "memchr",
    "zmij",
    "proc-macro2",
    "quote",
];
/// What records and their sinks need nothing of: they are read elsewhere than on the node, and made where nothing may wait.
const NOT_BELOW_JOURNAL: [&str; 12] = [
    "aya",
    "ebb-agent",
    "ebb-cri",
    "ebb-kube",
    "ebb-probes",
    "k8s-openapi",
    "kube",
    "libbpf-rs",
    "redb",
    "tokio",
    "tonic",
    "zbus",
];
const PROC_MACRO_ONLY: [&str; 2] = ["syn", "unicode-ident"];

/// One check: passed, or why not.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) run: fn() -> Result<()>,
}

/// The gates, in the order in which they are run.
pub(crate) const ALL: [Step; 11] = [
    Step { name: "format", run: format },
    Step { name: "lock files", run: locks },
    Step { name: "lints", run: lints },
    Step { name: "lints of the kernel side", run: bpf::lint },
    Step { name: "documentation", run: documentation },
    Step { name: "wire protocols", run: proto::verify },
    Step { name: "crate boundaries", run: boundaries },
    Step { name: "imports", run: imports::check },
    Step { name: "who reads and changes the node", run: imports::hands },
    Step { name: "licences and sources", run: licences },
    Step { name: "unused dependencies", run: unused },
];

pub(crate) fn run(_: &Args) -> Result<()> {
    // The agent is built with the programs inside.
    bpf::ensure()?;
    for gate in ALL {
        println!("== {}", gate.name);
        (gate.run)().context(gate.name)?;
    }
    Ok(())
}

fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(sh::root());
    cargo
}

fn format() -> Result<()> {
    sh::run(cargo().args(["fmt", "--all", "--check"]))
}

/// Every lock file of the repository agrees with its manifests: a build with `--locked` must not find out first.
fn locks() -> Result<()> {
    let listed =
        sh::read(Command::new("git").current_dir(sh::root()).args(["ls-files", "*Cargo.lock"]))?;
    for lock in listed.lines() {
        let manifest = sh::root().join(lock).with_file_name("Cargo.toml");
        sh::read(
            cargo()
                .args(["metadata", "--locked", "--format-version", "1", "--manifest-path"])
                .arg(manifest),
        )
        .with_context(|| format!("{lock} does not agree with its manifests"))?;
    }
    Ok(())
}

fn lints() -> Result<()> {
    sh::run(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--features",
        "ebb-tests/prometheus",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]))
}

fn documentation() -> Result<()> {
    let mut doc = cargo();
    doc.env("RUSTDOCFLAGS", "-D warnings");
    sh::run(doc.args(["doc", "--workspace", "--no-deps", "--quiet", "--document-private-items"]))
}

/// Invariants 1 and 4 of ARCHITECTURE.md: who may depend on what; and what an edit of the agent does not rebuild.
fn boundaries() -> Result<()> {
    for (name, may_have) in [
        ("ebb-model", &["ebb-model"][..]),
        ("ebb-policy", &["ebb-model", "ebb-policy"]),
        ("ebb-policy-cluster", &["ebb-policy-cluster"]),
    ] {
        let bare = below(name, &[])?;
        let is_alone = bare.iter().all(|found| may_have.contains(&found.as_str()));
        ensure!(is_alone, "{name} may have only {may_have:?} below it, and has {bare:?}");
    }
    let allowed: BTreeSet<&str> = POLICY_MAY_HAVE.into_iter().chain(PROC_MACRO_ONLY).collect();
    for name in below("ebb-policy", &["--features", "json"])? {
        ensure!(allowed.contains(name.as_str()), "ebb-policy with JSON depends on {name}");
    }
    for name in ["aya", "aya-log", "libbpf-rs", "libbpf-sys"] {
        let users = users_of(name)?;
        let loader_only = users.iter().all(|user| {
            user == "ebb-probes" || user.starts_with("libbpf") || user.starts_with("aya")
        });
        ensure!(loader_only, "only ebb-probes may name {name}, but so do {users:?}");
    }
    // Tests fake a runtime, and so serve what ebb-cri asks for; they ask what ebb-api serves in ways that its client does not.
    let users = users_of("tonic")?;
    let client_only = users.iter().all(|user| {
        ["ebb-api", "ebb-cri", "ebb-tests"].contains(&user.as_str()) || user.starts_with("tonic-")
    });
    ensure!(client_only, "only ebb-cri and ebb-api may name tonic, but so do {users:?}");
    for name in ["kube", "k8s-openapi"] {
        let users = users_of(name)?;
        let client_only = users
            .iter()
            .all(|user| user == "ebb-kube" || user.starts_with("kube-") || user == "kube");
        ensure!(client_only, "only ebb-kube may name {name}, but so do {users:?}");
    }
    let agent = below("ebb-agent", &[])?;
    for name in ["ebb-api", "ebb-kube"] {
        ensure!(!agent.contains(name), "the node's loop is built without {name}");
    }
    ensure!(!below("ebb-api", &[])?.contains("ebb-agent"), "the API is built without the agent");
    let journal = below("ebb-journal", &[])?;
    for name in NOT_BELOW_JOURNAL {
        ensure!(!journal.contains(name), "whoever reads records back is built without {name}");
    }
    let files = mentions("libbpf_rs", "ebpf/loader/src")?;
    let modules: BTreeSet<PathBuf> =
        files.iter().map(|f| f.with_extension("")).map(module).collect();
    let on_the_bus = mentions("zbus", "agent/src")?;
    ensure!(
        on_the_bus.iter().all(|file| file.ends_with("cgroups/systemd.rs")),
        "only cgroups/systemd.rs may name zbus, but these do: {on_the_bus:?}"
    );
    ensure!(modules.len() == 1, "one module may name libbpf-rs, but these do: {files:?}");
    Ok(())
}

/// Names of a crate and everything it needs at run time, with the given options.
fn below(package: &str, options: &[&str]) -> Result<BTreeSet<String>> {
    let mut tree = cargo();
    tree.args([
        "tree",
        "--package",
        package,
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]);
    Ok(names(&sh::read(tree.args(options))?))
}

/// Crates that depend directly on `package`.
fn users_of(package: &str) -> Result<BTreeSet<String>> {
    let mut tree = cargo();
    tree.args(["tree", "--workspace", "--invert", package, "--depth", "1", "--edges", "normal"]);
    let mut users = names(&sh::read(tree.args(["--prefix", "none", "--format", "{p}"]))?);
    users.remove(package);
    Ok(users)
}

fn names(tree: &str) -> BTreeSet<String> {
    tree.lines().filter_map(|l| l.split_whitespace().next()).map(str::to_owned).collect()
}

/// Files below `dir` that contain `word`.
fn mentions(word: &str, dir: &str) -> Result<Vec<PathBuf>> {
    let mut grep = Command::new("grep");
    grep.current_dir(sh::root()).args(["-rlw", "--include=*.rs", word, dir]);
    Ok(sh::read(&mut grep)?.lines().map(PathBuf::from).collect())
}

/// The module that a file belongs to: files of a folder belong to the module of that name.
fn module(file: PathBuf) -> PathBuf {
    let folder = file.parent().filter(|p| !p.ends_with("src"));
    folder.map_or(file.clone(), ToOwned::to_owned)
}

/// Advisories are not among the checks: see CONTRIBUTING.md.
fn licences() -> Result<()> {
    let mut deny = Command::new(tool(CARGO_DENY)?);
    deny.current_dir(sh::root());
    sh::run(deny.args(["--log-level", "error", "check", "licenses", "bans", "sources"]))
}

/// Dependencies that no source file names, those of the workspace's own table included.
fn unused() -> Result<()> {
    sh::run(Command::new(tool(CARGO_SHEAR)?).arg(sh::root()))
}

/// A program of the registry in exactly this version, installed into the cache when it is not there.
fn tool((name, version): (&str, &str)) -> Result<PathBuf> {
    // Not every program tells its version, so the directory does.
    let root = sh::cache()?.join("tools").join(format!("{name}-{version}"));
    let tool = root.join("bin").join(name);
    if !tool.exists() {
        println!("gates: installing {name} {version}");
        let mut install = cargo();
        // It works for a second, and optimising it takes minutes.
        install.args(["install", name, "--locked", "--quiet", "--debug", "--version", version]);
        install.arg("--root");
        sh::run(install.arg(&root))?;
    }
    Ok(tool)
}
