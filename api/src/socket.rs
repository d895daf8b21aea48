//! The socket's file: made for root alone or for a group as well, in the place of one that was left behind, and of nothing else.
//!
//! ```text
//!  nothing there ─────────────────────────────┐
//!  a socket on which nobody listens ─► removed ┴─► bound 0600 ─► its group and 0660, when one is named
//!  a socket on which somebody listens, a link, any other file, a directory that others may write to ─► refused
//! ```

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::fs::Permissions;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Bits of a directory's mode by which others than its owner may write to it, and the one that keeps them from what is not theirs.
const WRITABLE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum NotBound {
    /// Something else has the name.
    #[error("{}: it is there and is no socket; nothing was changed", .0.display())]
    NotASocket(PathBuf),
    /// Another server has it.
    #[error("{}: somebody listens there already", .0.display())]
    InUse(PathBuf),
    /// Somebody else could put another file in its place.
    #[error("{}: others may write to its directory; give one that only its owner may write to", .0.display())]
    OpenDirectory(PathBuf),
    /// The kernel refused.
    #[error("{}: {what}: {why}", path.display())]
    Failed {
        /// The socket's path.
        path: PathBuf,
        /// What was attempted.
        what: &'static str,
        /// What the kernel said.
        why: io::Error,
    },
}

/// A socket that is listened on, and its file.
#[derive(Debug)]
pub struct Bound {
    pub(crate) listener: UnixListener,
}

/// The file of a socket, which is removed with this value, unless it is another by then.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            // One that stays is replaced by the next.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Listens at `path`, which only this user may connect to, and the members of `group` where one is named.
///
/// # Errors
/// Why not; then nothing was changed but that a socket may be gone on which nobody listened.
pub fn bind(path: &Path, group: Option<u32>) -> Result<(Bound, SocketFile), NotBound> {
    let failed = |what| move |why| NotBound::Failed { path: path.to_owned(), what, why };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mode = std::fs::metadata(directory).map_err(failed("its directory"))?.mode();
    if mode & WRITABLE != 0 && mode & STICKY == 0 {
        return Err(NotBound::OpenDirectory(path.to_owned()));
    }
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed("cannot look at it")(error)),
        Ok(about) if !about.file_type().is_socket() => {
            return Err(NotBound::NotASocket(path.to_owned()));
        }
        Ok(_) if !is_deserted(path) => return Err(NotBound::InUse(path.to_owned())),
        Ok(_) => std::fs::remove_file(path).map_err(failed("cannot remove what was left of it"))?,
    }
    // Whoever connects before its mode is set is asked for who it is, as everybody.
    let listener = match UnixListener::bind(path) {
        // Somebody came in between.
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            return Err(NotBound::InUse(path.to_owned()));
        }
        bound => bound.map_err(failed("cannot listen"))?,
    };
    let identity = identity(path).map_err(failed("cannot look at it"))?;
    let file = SocketFile { path: path.to_owned(), identity };
    let mode = if group.is_some() { 0o660 } else { 0o600 };
    std::os::unix::fs::lchown(path, None, group).map_err(failed("cannot give it to its group"))?;
    std::fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(failed("cannot set its mode"))?;
    listener.set_nonblocking(true).map_err(failed("cannot listen"))?;
    Ok((Bound { listener }, file))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|about| (about.dev(), about.ino()))
}

/// Whether the kernel refuses connections: the listener has gone and left the file. Whatever else it answers, somebody may be there.
fn is_deserted(path: &Path) -> bool {
    let open = || -> io::Result<()> {
        // Without waiting: a full backlog answers at once that it is full.
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(())
    };
    open().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn directory() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        (directory, path)
    }

    #[test]
    fn it_is_closed_to_others_open_to_a_group_that_is_named_and_goes_with_its_guard() {
        let (_directory, path) = directory();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        let (_listening, file) = bind(&path, None).unwrap();
        assert_eq!(mode(&path), 0o600);
        drop(file);
        assert!(!path.exists());
        let group = nix::unistd::getegid().as_raw();
        let (_listening, _file) = bind(&path, Some(group)).unwrap();
        assert_eq!((mode(&path), std::fs::metadata(&path).unwrap().gid()), (0o660, group));
    }

    #[test]
    fn what_was_left_behind_is_replaced_and_one_that_is_served_is_not() {
        let (_directory, path) = directory();
        drop(UnixListener::bind(&path).unwrap());
        let (_listening, _file) = bind(&path, None).unwrap();
        assert!(matches!(bind(&path, None), Err(NotBound::InUse(_))));
        assert!(path.exists());
    }

    #[test]
    fn a_file_or_a_link_in_its_place_stays_as_it_is() {
        let (directory, path) = directory();
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(bind(&path, None), Err(NotBound::NotASocket(_))));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        let (link, target) = (directory.path().join("link"), directory.path().join("target"));
        drop(UnixListener::bind(&target).unwrap());
        symlink(&target, &link).unwrap();
        assert!(matches!(bind(&link, None), Err(NotBound::NotASocket(_))));
        assert!(target.exists() && link.is_symlink());
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused_unless_they_may_not_take_it_away() {
        let (directory, path) = directory();
        let set = |mode| std::fs::set_permissions(directory.path(), Permissions::from_mode(mode));
        set(0o777).unwrap();
        assert!(matches!(bind(&path, None), Err(NotBound::OpenDirectory(_))));
        set(0o1777).unwrap();
        assert!(bind(&path, None).is_ok());
    }

    #[test]
    fn the_guard_leaves_what_has_taken_its_place() {
        let (_directory, path) = directory();
        let (_listening, file) = bind(&path, None).unwrap();
        let aside = path.with_extension("aside");
        std::fs::rename(&path, &aside).unwrap();
        std::fs::write(&path, "another's").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"another's");
    }
}
