//! Removing pods' logs: a directory as a whole, or a link that points nowhere.
//!
//! Everything is reached from a descriptor of the directory above, by one plain name at a time, without following a link and without entering another mount:
//! whoever can write below `/var/log` cannot lead ebb out of it.

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::fstatat;
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

/// Directories below a pod's log directory go this deep at most; the kubelet makes two levels.
const DEEPEST: usize = 32;

/// What a removal did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Files, links and directories that went.
    pub entries: u64,
    /// Bytes that they took up on disk.
    pub bytes: u64,
}

/// Removes the directory `path` and everything in it that is on the same mount.
///
/// # Errors
/// What the kernel says, for the first entry that does not go; what went before it is gone.
pub fn remove_dir(path: &Path) -> io::Result<Removed> {
    let (parent, name) = open_parent(path)?;
    let mut removed = Removed::default();
    match open_dir(&parent, &name) {
        Ok(dir) => empty(dir, &mut removed, 0)?,
        Err(Errno::ENOENT) => return Ok(removed),
        Err(error) => return Err(error.into()),
    }
    unlink(&parent, &name, UnlinkatFlags::RemoveDir, &mut removed)?;
    Ok(removed)
}

/// Removes the link `path` if it still is one and still points nowhere.
///
/// # Errors
/// What the kernel says; that it is no longer a dangling link is [`io::ErrorKind::InvalidInput`].
pub fn remove_link(path: &Path) -> io::Result<Removed> {
    let (parent, name) = open_parent(path)?;
    let mut removed = Removed::default();
    let about = match fstatat(&parent, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(about) => about,
        Err(Errno::ENOENT) => return Ok(removed),
        Err(error) => return Err(error.into()),
    };
    let is_link = about.st_mode & libc::S_IFMT == libc::S_IFLNK;
    let points_nowhere = fstatat(&parent, name.as_c_str(), AtFlags::empty()) == Err(Errno::ENOENT);
    if !is_link || !points_nowhere {
        let what = "it is no longer a link to nothing";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    unlink(&parent, &name, UnlinkatFlags::NoRemoveDir, &mut removed)?;
    Ok(removed)
}

/// The directory above `path`, held, and the last name of `path`. The directory itself is the operator's word: links in its path are followed.
fn open_parent(path: &Path) -> io::Result<(OwnedFd, CString)> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    let Some(Component::Normal(name)) = path.components().next_back() else {
        return Err(bad("it does not end in a plain name"));
    };
    let parent = path.parent().ok_or_else(|| bad("there is no directory above it"))?;
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
    let parent = nix::fcntl::open(parent, flags, nix::sys::stat::Mode::empty())?;
    Ok((parent, c_name(name)?))
}

fn c_name(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_encoded_bytes()).map_err(io::Error::other)
}

/// Opens a directory right below `parent`: no link is followed, no mount entered.
fn open_dir(parent: impl AsFd, name: &CString) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY)
        .resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_XDEV,
        );
    openat2(parent, name.as_c_str(), how)
}

fn empty(dir: OwnedFd, removed: &mut Removed, depth: usize) -> io::Result<()> {
    if depth > DEEPEST {
        return Err(io::Error::other(format!("directories are nested deeper than {DEEPEST}")));
    }
    let mut dir = Dir::from_fd(dir)?;
    let entries: Vec<(CString, Option<Type>)> = dir
        .iter()
        .map(|entry| entry.map(|e| (e.file_name().to_owned(), e.file_type())))
        .collect::<Result<_, _>>()?;
    for (name, kind) in entries {
        if [b".".as_slice(), b".."].contains(&name.as_bytes()) {
            continue;
        }
        let is_dir = match kind {
            Some(kind) => kind == Type::Directory,
            None => {
                let about = fstatat(&dir, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW)?;
                about.st_mode & libc::S_IFMT == libc::S_IFDIR
            }
        };
        if is_dir {
            let below = open_dir(&dir, &name)?;
            empty(below, removed, depth + 1)?;
            unlink(&dir, &name, UnlinkatFlags::RemoveDir, removed)?;
        } else {
            unlink(&dir, &name, UnlinkatFlags::NoRemoveDir, removed)?;
        }
    }
    Ok(())
}

fn unlink(
    parent: impl AsFd,
    name: &CString,
    flags: UnlinkatFlags,
    removed: &mut Removed,
) -> io::Result<()> {
    let about = fstatat(&parent, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
    match unlinkat(&parent, name.as_c_str(), flags) {
        Ok(()) => {
            removed.entries += 1;
            // A file with another name keeps its blocks.
            let freed = about.ok().filter(|about| about.st_nlink == 1);
            let blocks = freed.and_then(|about| u64::try_from(about.st_blocks).ok()).unwrap_or(0);
            removed.bytes = removed.bytes.saturating_add(blocks.saturating_mul(512));
            Ok(())
        }
        Err(Errno::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_directory_goes_with_everything_in_it_and_nothing_that_it_points_to() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        let pod = dir.path().join("ns_pod_uid");
        fs::create_dir_all(pod.join("main")).unwrap();
        fs::write(pod.join("main/0.log"), vec![b'x'; 100_000]).unwrap();
        symlink(&kept, pod.join("main/out")).unwrap();
        symlink("/", pod.join("root")).unwrap();
        let removed = remove_dir(&pod).unwrap();
        assert!(!pod.exists());
        assert!(kept.join("file").exists());
        assert_eq!(removed.entries, 5);
        assert!(removed.bytes >= 100_000, "{removed:?}");
        assert_eq!(remove_dir(&pod).unwrap(), Removed::default(), "already gone is fine");
    }

    #[test]
    fn a_link_in_the_place_of_the_directory_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        let pod = dir.path().join("ns_pod_uid");
        symlink(&kept, &pod).unwrap();
        assert!(remove_dir(&pod).is_err());
        assert!(kept.join("file").exists());
        assert!(remove_dir(&dir.path().join("..")).is_err());
    }

    #[test]
    fn only_a_link_that_points_nowhere_goes() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("0.log"), dir.path().join("a.log"));
        symlink(&target, &link).unwrap();
        fs::write(&target, "x").unwrap();
        assert_eq!(remove_link(&link).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(remove_link(&target).is_err(), "not a link");
        fs::remove_file(&target).unwrap();
        assert_eq!(remove_link(&link).unwrap().entries, 1);
        assert_eq!(remove_link(&link).unwrap().entries, 0);
    }
}
