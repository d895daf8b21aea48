//! Reading one ring: bytes to events, in order, as many as there are.
//!
//! Works on a map's file descriptor, whichever loader created the map.
use crate::event::KernelEvent;
use aya::maps::{Map, MapData, MapError, RingBuf};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// Most events taken from a ring at once, so that a flood in one cannot keep its reader from everything else.
const BATCH: usize = 4096;

/// A ring cannot be opened or waited for.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The map behind it cannot be opened as a ring.
    #[error("cannot open the ring {name}")]
    Open {
        /// Its name.
        name: &'static str,
        /// What the kernel answered.
        source: MapError,
    },
    /// The runtime cannot wait for it.
    #[error("cannot wait for the ring {name}")]
    Wait {
        /// Its name.
        name: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
}

/// One ring, waited for by the runtime.
pub(crate) struct Ring {
    name: &'static str,
    ring: RingBuf<MapData>,
    fd: AsyncFd<OwnedFd>,
    corrupt: u64,
}

/// Whether a ring has more than was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// It is empty.
    Empty,
    /// There may be more.
    Full,
}

impl Ring {
    pub(crate) fn open(name: &'static str, map: BorrowedFd<'_>) -> Result<Self, RingError> {
        let open = |source| RingError::Open { name, source };
        let fd = map.try_clone_to_owned().map_err(|source| RingError::Wait { name, source })?;
        let data = MapData::from_fd(fd).map_err(open)?;
        let ring = RingBuf::try_from(Map::RingBuf(data)).map_err(open)?;
        Ok(Self { name, ring, fd: watch(name, map)?, corrupt: 0 })
    }

    /// Records that could not be read.
    pub(crate) fn corrupt(&self) -> u64 {
        self.corrupt
    }

    /// Take what is there, up to a batch.
    pub(crate) fn drain(&mut self, events: &mut Vec<KernelEvent>) -> Drained {
        drain(&mut self.ring, &mut self.corrupt, events)
    }

    /// Wait until the kernel says that there is something. Safe to cancel.
    pub(crate) async fn ready(&mut self) -> Result<Ready<'_>, RingError> {
        let Self { name, ring, fd, corrupt } = self;
        let guard = fd.readable().await.map_err(|source| RingError::Wait { name, source })?;
        Ok(Ready { guard, ring, corrupt })
    }
}

/// A ring that the kernel has reported to hold something.
pub(crate) struct Ready<'a> {
    guard: AsyncFdReadyGuard<'a, OwnedFd>,
    ring: &'a mut RingBuf<MapData>,
    corrupt: &'a mut u64,
}

impl Ready<'_> {
    /// Take what is there, up to a batch. Only an empty ring is waited for again: the kernel reports a record to a
    /// reader that had caught up, so what is left behind would never be reported.
    pub(crate) fn drain(mut self, events: &mut Vec<KernelEvent>) {
        if drain(self.ring, self.corrupt, events) == Drained::Empty {
            self.guard.clear_ready();
        }
    }
}

/// Have the runtime watch a descriptor for reading.
pub(crate) fn watch(name: &'static str, fd: BorrowedFd<'_>) -> Result<AsyncFd<OwnedFd>, RingError> {
    let wait = |source| RingError::Wait { name, source };
    let fd = fd.try_clone_to_owned().map_err(wait)?;
    // SAFETY: an `OwnedFd` is open, names the same file for as long as it lives, and always returns that descriptor.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    watched.map_err(|error| wait(error.into()))
}

fn drain(ring: &mut RingBuf<MapData>, corrupt: &mut u64, events: &mut Vec<KernelEvent>) -> Drained {
    for _ in 0..BATCH {
        let Some(bytes) = ring.next() else { return Drained::Empty };
        match ebb_wire::decode(&bytes) {
            Ok(record) => events.push(record.into()),
            Err(error) => {
                *corrupt += 1;
                tracing::debug!("a record was dropped: {error}");
            }
        }
    }
    Drained::Full
}
