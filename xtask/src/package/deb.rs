//! A package of Debian (deb(5)): two compressed tars in an ar archive.
//!
//! ```text
//! debian-binary │ control.tar.gz: control, conffiles, md5sums, maintainer scripts │ data.tar.gz: the files
//! ```
//! What is in `deploy/debian` goes in as it is. dpkg itself keeps a configuration that was changed (`conffiles`).
use super::contents::{CONFIGURATION, Contents, DOCUMENTS};
use super::gzip::gzip;
use super::release::{DESCRIPTION, Release, SUMMARY};
use crate::archive::Archive;
use anyhow::{Context, Result};
use ar::{Builder, Header};
use md5::{Digest as _, Md5};
use std::fmt::Write as _;

/// The maintainer scripts, which dpkg runs as root.
const SCRIPTS: [(&str, &str); 3] = [
    ("postinst", include_str!("../../../deploy/debian/postinst")),
    ("postrm", include_str!("../../../deploy/debian/postrm")),
    ("prerm", include_str!("../../../deploy/debian/prerm")),
];

/// The name that a repository of packages expects.
pub(crate) fn file_name(release: &Release) -> String {
    format!("ebb_{}_{}.deb", release.full(), release.arch.debian())
}

/// The package with these contents and what Debian wants beside them.
pub(crate) fn pack(release: &Release, contents: &Contents) -> Result<Vec<u8>> {
    let mut contents = contents.clone();
    let copyright = include_bytes!("../../../deploy/debian/copyright");
    let overrides = include_bytes!("../../../deploy/debian/lintian-overrides");
    contents.add(&format!("{DOCUMENTS}/copyright"), copyright.to_vec());
    contents.add("usr/share/lintian/overrides/ebb", overrides.to_vec());
    let history = gzip(history(release)?.as_bytes())?;
    contents.add(&format!("{DOCUMENTS}/changelog.Debian.gz"), history);

    let mut ar = Builder::new(Vec::new());
    let mut member = |name: &str, bytes: &[u8]| -> Result<()> {
        let mut header = Header::new(name.into(), u64::try_from(bytes.len())?);
        header.set_mtime(release.time);
        header.set_mode(0o100_644);
        ar.append(&header, bytes).with_context(|| format!("cannot add {name}"))
    };
    // dpkg reads them in this order.
    member("debian-binary", b"2.0\n")?;
    member("control.tar.gz", &gzip(&control_archive(release, &contents)?)?)?;
    member("data.tar.gz", &gzip(&data_archive(release, &contents)?)?)?;
    ar.into_inner().context("cannot end the package")
}

fn control_archive(release: &Release, contents: &Contents) -> Result<Vec<u8>> {
    let mut archive = Archive::of_debian(release.time);
    archive.directory("")?;
    archive.file("conffiles", 0o644, format!("/{CONFIGURATION}\n").as_bytes())?;
    archive.file("control", 0o644, control(release, contents)?.as_bytes())?;
    archive.file("md5sums", 0o644, sums(contents)?.as_bytes())?;
    for (name, script) in SCRIPTS {
        archive.file(name, 0o755, script.as_bytes())?;
    }
    archive.finish()
}

fn data_archive(release: &Release, contents: &Contents) -> Result<Vec<u8>> {
    let mut archive = Archive::of_debian(release.time);
    archive.directory("")?;
    for directory in contents.directories() {
        archive.directory(directory)?;
    }
    for (path, file) in contents.files() {
        archive.file(path, file.mode, &file.bytes)?;
    }
    archive.finish()
}

/// There is no Depends: the program is static, and what the scripts call is in every Debian system (init-system-helpers is essential).
fn control(release: &Release, contents: &Contents) -> Result<String> {
    let paragraphs = DESCRIPTION.map(wrapped);
    let installed = contents.size().div_ceil(1024) + contents.directories().len();
    let mut text = String::new();
    write!(
        text,
        "Package: ebb\nVersion: {}\nArchitecture: {}\nMaintainer: {}\nInstalled-Size: {installed}\n\
         Section: admin\nPriority: optional\nDescription: {SUMMARY}\n{}",
        release.full(),
        release.arch.debian(),
        release.maintainer,
        paragraphs.join(" .\n"),
    )?;
    Ok(text)
}

/// Lines of a description, each behind a blank.
fn wrapped(paragraph: &str) -> String {
    let mut lines = vec![String::new()];
    for word in paragraph.split_whitespace() {
        let is_full = lines.last().is_some_and(|line| line.len() + 1 + word.len() > 78);
        if is_full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// What debsums(1) compares an installation with. dpkg itself knows the configuration's.
fn sums(contents: &Contents) -> Result<String> {
    let mut text = String::new();
    for (path, file) in contents.files().filter(|(path, _)| *path != CONFIGURATION) {
        for byte in Md5::digest(&file.bytes) {
            write!(text, "{byte:02x}")?;
        }
        writeln!(text, "  {path}")?;
    }
    Ok(text)
}

/// Of the package, not of what is in it.
fn history(release: &Release) -> Result<String> {
    Ok(format!(
        "ebb ({}) unstable; urgency=medium\n\n  * ebb {}. What changed for operators is in changelog.gz.\n\n -- {}  {}\n",
        release.full(),
        release.version,
        release.maintainer,
        release.date("+%a, %d %b %Y %H:%M:%S +0000")?,
    ))
}

#[cfg(test)]
#[path = "deb_tests.rs"]
mod tests;
