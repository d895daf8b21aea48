//! The same files for everybody else: one directory that is unpacked over the root.
use super::contents::Contents;
use super::gzip::gzip;
use super::release::Release;
use crate::archive::Archive;
use anyhow::Result;

/// Name of the file.
pub(crate) fn file_name(release: &Release) -> String {
    format!("{}.tar.gz", directory(release))
}

/// The one directory in it.
fn directory(release: &Release) -> String {
    format!("ebb-{}-{}-linux", release.version, release.arch.machine())
}

/// The whole tarball.
pub(crate) fn pack(release: &Release, contents: &Contents) -> Result<Vec<u8>> {
    let mut archive = Archive::at(release.time);
    let top = directory(release);
    archive.directory(&top)?;
    for directory in contents.directories() {
        archive.directory(&format!("{top}/{directory}"))?;
    }
    for (path, file) in contents.files() {
        archive.file(&format!("{top}/{path}"), file.mode, &file.bytes)?;
    }
    gzip(&archive.finish()?)
}
