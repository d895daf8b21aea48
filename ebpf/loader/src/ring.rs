//! Reading one ring: bytes to events, in order, as many as there are.
//!
//! Works on a map's file descriptor, whichever loader created the map.
use crate::event::KernelEvent;
use aya::maps::{Map, MapData, MapError, RingBuf};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

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

    /// Take what is there, up to a batch. Takes nothing only when there is nothing.
    pub(crate) fn drain(&mut self, events: &mut Vec<KernelEvent>) {
        for _ in 0..BATCH {
            let Some(bytes) = self.ring.next() else { return };
            take(&bytes, &mut self.corrupt, events);
        }
    }

    /// Drop what is there, and say how much that was: for a ring whose records say nothing but that there is one.
    pub(crate) fn discard(&mut self) -> usize {
        let mut dropped = 0;
        while self.ring.next().is_some() {
            dropped += 1;
        }
        dropped
    }

    /// Wait until the kernel says that there is something new. Safe to cancel.
    ///
    /// To be called when [`Ring::drain`] has taken nothing: the kernel reports a record to a reader that has caught up, so
    /// what was left behind would never be reported. What it reports while the ring is being drained is not lost
    /// either, because the report is taken back before and not after.
    pub(crate) async fn ready(&mut self) -> Result<(), RingError> {
        wait(self.name, &self.fd).await
    }
}

/// Wait until a watched descriptor can be read, and watch on.
pub(crate) async fn wait(name: &'static str, fd: &AsyncFd<OwnedFd>) -> Result<(), RingError> {
    let guard = fd.readable().await;
    guard.map_err(|source| RingError::Wait { name, source })?.clear_ready();
    Ok(())
}

/// Have the runtime watch a descriptor for reading.
pub(crate) fn watch(name: &'static str, fd: BorrowedFd<'_>) -> Result<AsyncFd<OwnedFd>, RingError> {
    let wait = |source| RingError::Wait { name, source };
    let fd = fd.try_clone_to_owned().map_err(wait)?;
    // SAFETY: an `OwnedFd` is open, names the same file for as long as it lives, and always returns that descriptor.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    watched.map_err(|error| wait(error.into()))
}

/// One record: an event, or counted.
fn take(bytes: &[u8], corrupt: &mut u64, events: &mut Vec<KernelEvent>) {
    match ebb_wire::decode(bytes) {
        Ok(record) => events.push(record.into()),
        Err(error) => {
            *corrupt += 1;
            tracing::debug!("a record was dropped: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_wire::{Header, KswapdWake, kind};
    use zerocopy::IntoBytes;

    #[test]
    fn a_corrupt_record_is_counted_and_the_next_one_is_still_read() {
        let wake = KswapdWake {
            header: Header { kind: kind::KSWAPD_WAKE, len: 24, cpu: 0, ts_ns: 1 },
            node: 0,
            folded: 0,
        };
        let (mut corrupt, mut events) = (0, Vec::new());
        for bytes in [&[][..], &[0xff; 16], &wake.as_bytes()[..20], wake.as_bytes()] {
            take(bytes, &mut corrupt, &mut events);
        }
        assert_eq!(corrupt, 3);
        assert_eq!(events, [KernelEvent::KswapdWake { ts_ns: 1, node: 0, folded: 0 }]);
    }
}
