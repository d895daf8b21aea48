//! Who is at the other end of a connection, and who may be.

use nix::libc;
use std::io;
use std::os::fd::AsRawFd as _;
use tokio::net::UnixStream;

/// Supplementary groups of a client that are looked at; the kernel allows 65536.
const GROUPS: usize = 65_536;

/// The other end of a connection, as the kernel noted it when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) pid: Option<i32>,
}

/// Who may connect: root, the user that ebb runs as, and the members of a group.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// The user that ebb runs as.
    pub uid: u32,
    /// The group, if one is named.
    pub group: Option<u32>,
}

impl Allowed {
    /// Looks at the other end of `stream`; `Err` has who it is when it may not connect.
    pub(crate) fn admit(self, stream: &UnixStream) -> io::Result<Result<Peer, Peer>> {
        let credentials = stream.peer_cred()?;
        let peer = Peer { uid: credentials.uid(), pid: credentials.pid() };
        let is_member = || {
            self.group.is_some_and(|group| {
                credentials.gid() == group
                    || groups(stream).is_ok_and(|groups| groups.contains(&group))
            })
        };
        let may = peer.uid == 0 || peer.uid == self.uid || is_member();
        Ok(if may { Ok(peer) } else { Err(peer) })
    }
}

/// The supplementary groups of the other end.
fn groups(stream: &UnixStream) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let room = groups.len() * size_of::<libc::gid_t>();
        let mut length = libc::socklen_t::try_from(room).map_err(io::Error::other)?;
        // SAFETY: the descriptor is open; the kernel writes at most `length` bytes to the buffer, which has as many, and any bytes are group ids.
        let done = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if done == 0 {
            groups.truncate(usize::try_from(length).unwrap_or(0) / size_of::<libc::gid_t>());
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || groups.len() >= GROUPS {
            return Err(error);
        }
        groups.resize(groups.len() * 4, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_groups_of_the_other_end_are_those_of_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let mut own: Vec<u32> =
            nix::unistd::getgroups().unwrap().into_iter().map(nix::unistd::Gid::as_raw).collect();
        let mut seen = groups(&one).unwrap();
        own.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, own);
    }

    #[tokio::test]
    async fn root_and_its_own_user_may_and_another_may_by_its_group_alone() {
        let (one, _other) = UnixStream::pair().unwrap();
        let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        let own = Allowed { uid, group: None };
        assert!(own.admit(&one).unwrap().is_ok());
        let others = Allowed { uid: uid + 1, group: None };
        // Root may whoever runs ebb.
        assert_eq!(others.admit(&one).unwrap().is_ok(), uid == 0);
        let of_group = Allowed { uid: uid + 1, group: Some(gid) };
        assert!(of_group.admit(&one).unwrap().is_ok());
    }
}
