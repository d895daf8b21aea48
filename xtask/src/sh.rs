//! Running other programs: one place that says what was run and how it failed.
use anyhow::{Context, Result, bail};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// Names another checkout that this program works on: `cargo xtask bench --compare` measures two trees by one recipe.
pub(crate) const ROOT: &str = "EBB_ROOT";

/// The repository root: `$EBB_ROOT`, else where xtask was built, which is always inside it.
pub(crate) fn root() -> &'static Path {
    static FOUND: LazyLock<PathBuf> = LazyLock::new(|| {
        let own = || Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(1);
        let named = std::env::var_os(ROOT).map(PathBuf::from);
        named.unwrap_or_else(|| own().unwrap_or(Path::new("/")).to_owned())
    });
    &FOUND
}

/// Where downloads and built tools live between runs, outside the tree: `$EBB_CACHE`, else the user's cache directory.
pub(crate) fn cache() -> Result<PathBuf> {
    let dir = if let Some(dir) = std::env::var_os("EBB_CACHE") {
        PathBuf::from(dir)
    } else if let Some(dir) = std::env::var_os("XDG_CACHE_HOME") {
        PathBuf::from(dir).join("ebb")
    } else {
        let home = std::env::var_os("HOME").context("neither EBB_CACHE nor HOME is set")?;
        PathBuf::from(home).join(".cache/ebb")
    };
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}

/// Takes away what cargo tells this program of its own package: build scripts that read it would run again for nothing, and half of the build with them.
fn without_own_package(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Run to the end, output passed through; a non-zero exit is an error that shows the command line.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = format!("{command:?}");
    let status =
        without_own_package(command).status().with_context(|| format!("cannot start {line}"))?;
    if !status.success() {
        bail!("{line} failed: {status}");
    }
    Ok(())
}

/// Run to the end and return standard output, trimmed; standard error is passed through.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let line = format!("{command:?}");
    let out = without_own_package(command)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {line}"))?;
    if !out.status.success() {
        bail!("{line} failed: {}", out.status);
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// SHA-256 in hexadecimal, shortened to 16 digits: a name for "made from exactly this".
pub(crate) fn sha256(bytes: &[u8]) -> Result<String> {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start sha256sum (install the package coreutils)")?;
    let mut stdin = child.stdin.take().context("sha256sum has no input")?;
    stdin.write_all(bytes).context("cannot write to sha256sum")?;
    drop(stdin);
    let out = child.wait_with_output().context("cannot read from sha256sum")?;
    let sum = String::from_utf8_lossy(&out.stdout);
    sum.get(..16).map(str::to_owned).context("sha256sum printed no sum")
}

/// Where cargo puts what it builds: `$CARGO_TARGET_DIR`, else `target` in the repository.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Where a program is, by the search path.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}
