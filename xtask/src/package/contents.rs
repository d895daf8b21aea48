//! What a package installs: one list for every format, from the program itself and from `deploy/`.
//!
//! ```text
//! program ──► manual and completions, by its own definition of its commands  ┐
//! deploy/ ──► unit, configuration, presets                                   ├─► paths, modes, bytes
//! docs/, CHANGELOG.md, Cargo.lock ──► what an operator reads, and the SBOM   ┘
//! ```
//! How a list becomes an archive is not here: `deb.rs`, `rpm.rs`, `tarball.rs`.
use super::gzip::gzip;
use crate::sh;
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where the configuration is, below the root.
pub(crate) const CONFIGURATION: &str = "etc/ebb/ebb.yaml";
/// What an operator may read on a machine without a network.
pub(crate) const DOCUMENTS: &str = "usr/share/doc/ebb";

/// From the repository as it is: where to, and where from.
const COPIED: [(&str, &str); 12] = [
    (CONFIGURATION, "deploy/ebb.yaml"),
    ("usr/lib/systemd/system/ebb.service", "deploy/systemd/ebb.service"),
    ("usr/lib/systemd/user/ebb-notify.service", "deploy/systemd/ebb-notify.service"),
    ("usr/share/doc/ebb/concepts.md", "docs/concepts.md"),
    ("usr/share/doc/ebb/first-incident.md", "docs/first-incident.md"),
    ("usr/share/doc/ebb/incidents.md", "docs/incidents.md"),
    ("usr/share/doc/ebb/operating.md", "docs/operating.md"),
    ("usr/share/doc/ebb/options.md", "docs/options.md"),
    ("usr/share/doc/ebb/troubleshooting.md", "docs/troubleshooting.md"),
    ("usr/share/ebb/presets/desktop.yaml", "deploy/presets/desktop.yaml"),
    ("usr/share/ebb/presets/kubernetes.yaml", "deploy/presets/kubernetes.yaml"),
    ("usr/share/ebb/presets/server.yaml", "deploy/presets/server.yaml"),
];

/// What a shell takes completions from, and what `ebb complete` calls it.
const COMPLETIONS: [(&str, &str); 2] = [
    ("usr/share/bash-completion/completions/ebb", "bash"),
    ("usr/share/fish/vendor_completions.d/ebb.fish", "fish"),
];

/// Where zsh looks: Debian has a directory of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Zsh {
    Debian,
    Others,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) mode: u32,
    pub(crate) bytes: Vec<u8>,
}

/// Files by their paths below the root, in the order of these.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    files: BTreeMap<String, File>,
}

impl Contents {
    /// What every format has, from a stripped program; another that runs here tells of its commands.
    pub(crate) fn gather(program: &Path, teller: &Path) -> Result<Self> {
        let mut all = Self::default();
        let bytes = fs::read(program);
        let bytes = bytes.with_context(|| format!("cannot read {}", program.display()))?;
        all.add_with_mode("usr/bin/ebb", 0o755, bytes);
        for (to, from) in COPIED {
            all.add(to, of_repository(from)?);
        }
        all.add(&format!("{DOCUMENTS}/changelog.gz"), gzip(&of_repository("CHANGELOG.md")?)?);
        for (to, shell) in COMPLETIONS {
            all.add(to, completions(teller, shell)?);
        }
        all.add_manual(teller)?;
        Ok(all)
    }

    /// Adds zsh's completions.
    pub(crate) fn complete_zsh(&mut self, teller: &Path, place: Zsh) -> Result<()> {
        let directory = match place {
            Zsh::Debian => "vendor-completions",
            Zsh::Others => "site-functions",
        };
        self.add(&format!("usr/share/zsh/{directory}/_ebb"), completions(teller, "zsh")?);
        Ok(())
    }

    /// Adds what everybody may read.
    pub(crate) fn add(&mut self, path: &str, bytes: Vec<u8>) {
        self.add_with_mode(path, 0o644, bytes);
    }

    fn add_with_mode(&mut self, path: &str, mode: u32, bytes: Vec<u8>) {
        self.files.insert(path.to_owned(), File { mode, bytes });
    }

    /// A page for each command, compressed as the manuals of distributions are.
    fn add_manual(&mut self, teller: &Path) -> Result<()> {
        let directory = sh::target().join("package/man");
        // Pages of commands that are no more would stay.
        let _ = fs::remove_dir_all(&directory);
        sh::run(Command::new(teller).args(["complete", "man", "--dir"]).arg(&directory))?;
        let pages = fs::read_dir(&directory).context("cannot list the manual")?;
        for page in pages {
            let path = page.context("cannot list the manual")?.path();
            let name = path.file_name().context("a page without a name")?.to_string_lossy();
            let page =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            self.add(&format!("usr/share/man/man1/{name}.gz"), gzip(&page)?);
        }
        Ok(())
    }

    /// Every file, by its path.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// Every directory above a file, the outer before the inner.
    pub(crate) fn directories(&self) -> BTreeSet<&str> {
        let above = |path| Path::new(path).ancestors().skip(1).filter_map(Path::to_str);
        self.files
            .keys()
            .map(String::as_str)
            .flat_map(above)
            .filter(|path| !path.is_empty())
            .collect()
    }

    /// Bytes of all files.
    pub(crate) fn size(&self) -> usize {
        self.files.values().map(|file| file.bytes.len()).sum()
    }
}

fn of_repository(path: &str) -> Result<Vec<u8>> {
    fs::read(sh::root().join(path)).with_context(|| format!("cannot read {path}"))
}

fn completions(program: &Path, shell: &str) -> Result<Vec<u8>> {
    let out = Command::new(program)
        .args(["complete", shell])
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(out.status.success(), "there are no completions for {shell}: {}", out.status);
    Ok(out.stdout)
}

/// As [`Contents::gather`], with a program that is none: nothing of it is asked.
#[cfg(test)]
pub(crate) fn sample() -> Contents {
    let mut all = Contents::default();
    all.add_with_mode("usr/bin/ebb", 0o755, b"program".to_vec());
    for (to, from) in COPIED {
        all.add(to, of_repository(from).unwrap());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_directories_come_before_inner_ones() {
        let mut all = Contents::default();
        all.add("usr/share/doc/ebb/operating.md", Vec::new());
        all.add(CONFIGURATION, Vec::new());
        let directories: Vec<_> = all.directories().into_iter().collect();
        assert_eq!(
            directories,
            ["etc", "etc/ebb", "usr", "usr/share", "usr/share/doc", "usr/share/doc/ebb"]
        );
    }

    #[test]
    fn only_the_program_can_be_executed() {
        for (path, file) in sample().files() {
            let expected = if path.starts_with("usr/bin/") { 0o755 } else { 0o644 };
            assert_eq!(file.mode, expected, "{path}");
        }
    }

    #[test]
    fn what_is_installed_observes() {
        let all = sample();
        let observing = all.files().filter(|(path, _)| path.ends_with(".yaml"));
        let observing: Vec<_> = observing
            .map(|(path, file)| (path, String::from_utf8_lossy(&file.bytes)))
            .inspect(|(path, text)| assert!(text.contains("\n  enforce: false\n"), "{path}"))
            .collect();
        assert_eq!(observing.len(), 4, "the configuration and three presets");
    }
}
