//! A standard stream, past the locks and buffers of the standard library: a thread that hangs in a write holds up nobody else who has something to say there.

use nix::errno::Errno;
use nix::libc::PIPE_BUF;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// A stream of this process, for a thread that may wait for whoever reads it.
#[derive(Debug)]
pub struct Stream<F>(F);

impl<F: AsFd> Stream<F> {
    /// Writes to `to`, as standard output or standard error.
    pub fn new(to: F) -> Self {
        Self(to)
    }
}

impl<F: AsFd> Write for Stream<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let to = self.0.as_fd();
        loop {
            match nix::unistd::write(to, bytes) {
                // Whoever has the other end of a pipe, or shares it, may have had it not wait.
                Err(Errno::EAGAIN) => has_room(to, PollTimeout::NONE)?,
                other => return Ok(other?),
            };
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes as long as there is a reader with room, and for no longer than `patience`; returns whether all of it was written.
///
/// It allocates nothing and takes no lock, so that a signal handler may call it.
pub fn write_within(to: BorrowedFd<'_>, mut bytes: &[u8], patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        if !has_room(to, timeout).unwrap_or(false) {
            return false;
        }
        // No more than a pipe takes without waiting once it has told of room.
        let (piece, _) = bytes.split_at(bytes.len().min(PIPE_BUF));
        match nix::unistd::write(to, piece) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(_) => return false,
        }
    }
    true
}

/// Waits for room; an end that nobody reads any more has some, and the write says so.
fn has_room(to: BorrowedFd<'_>, timeout: PollTimeout) -> nix::Result<bool> {
    poll(&mut [PollFd::new(to, PollFlags::POLLOUT)], timeout).map(|ready| ready > 0)
}
