//! Writing a page: whole or not at all, and never over what is not the same incident's page.

use crate::Failure;
use anyhow::{Context as _, anyhow};
use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The name of the element that says whose page it is.
pub(super) const MARK: &str = "ebb-incident";

/// Where in a page that element is: among the first ones.
const HEAD: u64 = 4096;

/// Writes a page of the incident `id` to `out`.
///
/// # Errors
/// Something else is there, or it cannot be written; then nothing of it is left.
pub(super) fn write(out: &Path, page: &str, id: &str, force: bool) -> Result<(), Failure> {
    let shown = out.display();
    let is_there = match fs::symlink_metadata(out) {
        Ok(about) if !about.is_file() => {
            return Err(Failure::Input(anyhow!(
                "{shown}: it is there and no regular file; name a file, or `-` for standard output"
            )));
        }
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => {
            return Err(Failure::Input(anyhow!("{shown}: cannot be written: {error}")));
        }
    };
    let may_replace =
        force || !is_there || is_page_of(out, id).with_context(|| shown.to_string())?;
    if !may_replace {
        return Err(Failure::Input(anyhow!(
            "{shown}: it is there, and is not the page of incident {id}; name another file with -o, or replace it with --force"
        )));
    }
    let directory = out.parent().filter(|parent| !parent.as_os_str().is_empty());
    let written = || {
        let mut partial = tempfile::Builder::new()
            .prefix(".ebb-incident-")
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(directory.unwrap_or(Path::new(".")))?;
        partial.write_all(page.as_bytes())?;
        partial.as_file().sync_all()?;
        // What has come to be there meanwhile is nobody's page.
        let stored = if is_there { partial.persist(out) } else { partial.persist_noclobber(out) };
        stored.map_err(|error| error.error)
    };
    written().with_context(|| format!("{shown}: cannot be written"))?;
    Ok(())
}

fn is_page_of(file: &Path, id: &str) -> io::Result<bool> {
    let mut head = Vec::new();
    File::open(file)?.take(HEAD).read_to_end(&mut head)?;
    let own = format!("<meta name=\"{MARK}\" content=\"{id}\">");
    Ok(String::from_utf8_lossy(&head).contains(&own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(id: &str) -> String {
        format!("<!DOCTYPE html><meta name=\"{MARK}\" content=\"{id}\"><p>")
    }

    #[test]
    fn a_page_replaces_its_own_and_nothing_else_unless_forced() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("a.html");
        write(&out, &page("1-a"), "1-a", false).unwrap();
        write(&out, &page("1-a"), "1-a", false).unwrap();
        let refused = write(&out, &page("2-b"), "2-b", false).unwrap_err();
        let said = format!("{:#}", refused.error().unwrap());
        assert!(
            said.contains("a.html: it is there, and is not the page of incident 2-b"),
            "{said}"
        );
        assert!(matches!(refused, Failure::Input(_)));
        assert_eq!(fs::read_to_string(&out).unwrap(), page("1-a"));
        write(&out, &page("2-b"), "2-b", true).unwrap();
        assert_eq!(fs::read_to_string(&out).unwrap(), page("2-b"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_link_or_a_device_is_never_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link.html"));
        fs::write(&target, page("1-a")).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        for out in [&link, Path::new("/dev/null")] {
            assert!(write(out, &page("1-a"), "1-a", true).is_err(), "{}", out.display());
        }
        let nowhere = dir.path().join("no/such/a.html");
        assert!(write(&nowhere, "", "1-a", false).is_err());
    }
}
