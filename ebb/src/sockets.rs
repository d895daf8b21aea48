//! The sockets on which container runtimes usually listen, and when one that is found there is used.
//!
//! Found is not the same as wanted: with pods as workloads `ebb run` evicts others than without (decision 0015).

use super::{Failure, warn};
use anyhow::anyhow;
use ebb_cri::Endpoint;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where runtimes listen: containerd, containerd of k3s and rke2, CRI-O, cri-dockerd.
pub(super) const USUAL: [&str; 4] = [
    "run/containerd/containerd.sock",
    "run/k3s/containerd/containerd.sock",
    "run/crio/crio.sock",
    "run/cri-dockerd.sock",
];

/// What `--cri` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cri {
    /// No runtime is asked, wherever one listens.
    None,
    /// This one.
    At(Endpoint),
}

impl FromStr for Cri {
    type Err = <Endpoint as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" { Ok(Self::None) } else { text.parse().map(Self::At) }
    }
}

/// The sockets that are there below `root` and on which somebody listens; one that was left behind is told.
pub(super) fn found(root: &Path) -> Vec<PathBuf> {
    let is_socket =
        |path: &PathBuf| std::fs::metadata(path).is_ok_and(|about| about.file_type().is_socket());
    let (deserted, found): (Vec<_>, Vec<_>) = USUAL
        .iter()
        .map(|usual| root.join(usual))
        .filter(is_socket)
        .partition(|path| is_deserted(path));
    for socket in deserted {
        let what = format!(
            "nobody listens on {}, so no container runtime is looked for there; if one is to start later, name it with --cri {}",
            socket.display(),
            socket.display()
        );
        warn("note", &what);
    }
    found
}

/// Whether the kernel refuses connections to this socket: its listener has gone and left the file. Whatever else it answers, a runtime that is busy or not ebb's to reach, is one.
fn is_deserted(path: &Path) -> bool {
    let refused = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
    open(path).is_err_and(refused)
}

/// Connects without waiting: a full backlog answers at once that it is full.
fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket)
}

/// The one socket that is there; `None` when there is none.
///
/// # Errors
/// Several are there: which of them has the pods cannot be told.
pub(super) fn the_one(root: &Path) -> Result<Option<Endpoint>, Failure> {
    let sockets = found(root);
    match sockets.as_slice() {
        [] => Ok(None),
        [one] => {
            let endpoint = one.display().to_string().parse();
            endpoint.map(Some).map_err(|error| Failure::Input(anyhow!("{error}")))
        }
        several => {
            let names: Vec<String> =
                several.iter().map(|path| path.display().to_string()).collect();
            Err(Failure::Input(anyhow!(
                "several container runtimes have their sockets here ({}): name the one that has the pods with --cri SOCKET, or --cri none",
                names.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_socket_whose_listener_has_gone_is_none_and_one_that_is_only_busy_is() {
        let root = tempfile::tempdir().unwrap();
        let [left, busy, file, _] = USUAL.map(|usual| root.path().join(usual));
        for path in [&left, &busy, &file] {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        drop(UnixListener::bind(&left).unwrap());
        std::fs::write(&file, "").unwrap();
        let _listener = UnixListener::bind(&busy).unwrap();
        let mut waiting = Vec::new();
        // Nobody accepts, so its backlog is full at last.
        let full = loop {
            match open(&busy) {
                Ok(connection) => waiting.push(connection),
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        assert_eq!(found(root.path()), std::slice::from_ref(&busy));
        let one = the_one(root.path()).ok().flatten().map(|endpoint| endpoint.path().to_owned());
        assert_eq!(one, Some(busy));
    }
}
