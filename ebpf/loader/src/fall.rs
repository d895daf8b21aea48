//! Being woken when available memory has fallen by so much: a timer in the kernel looks at its counters, which costs less than to get up and read a file.
//!
//! What is watched are the counters that available memory is made of, and how far they fall from the call on. How much is
//! available, and what follows from a fall, is the caller's to know. It says for how long it relies on being woken, and
//! looks for itself by then.
use crate::attach::Refusal;
use crate::core_tier::{FALL_OBJECT, Fall};
use crate::host::HostSupport;
use crate::machine::{boot_time, page_size, possible_nodes};
use crate::ring::{Ring, RingError};
use ebb_wire::{FallAsked, Gauge, answer};
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

/// The youngest part of the kernel that the program takes; timers are older.
const CALLS: [&str; 1] = ["bpf_loop"];

/// A watch in the kernel. Dropping it takes it out.
pub struct FallWatch {
    fall: Fall,
    ring: Ring,
    page: u64,
    nodes: u32,
}

impl FallWatch {
    /// Put it into the kernel, with nothing watched. To be called on a tokio runtime with I/O enabled.
    ///
    /// # Errors
    /// Says why this host has none: it takes Linux 5.17.
    pub fn open(host: &HostSupport) -> Result<Self, String> {
        let fall = load(host)?;
        let (page, nodes) = (page_size()?.unsigned_abs(), possible_nodes()?);
        let ring = Ring::open("falls", fall.falls().as_fd()).map_err(|error| error.to_string())?;
        Ok(Self { fall, ring, page, nodes })
    }

    /// Whether it could be put into the kernel; nothing stays there.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn try_out(host: &HostSupport) -> Result<(), String> {
        load(host).map(drop)
    }

    /// From now on until `within` is over, wakes whoever waits in [`Self::fallen`] once what `gauge` measures has fallen by more than `by` bytes. Nothing takes more than `per_second` bytes a second. In place of what was watched before; false when the kernel's counters cannot be read.
    ///
    /// # Errors
    /// When the kernel would not run the program.
    pub fn watch(
        &mut self,
        gauge: Gauge,
        by: u64,
        per_second: u64,
        within: Duration,
    ) -> io::Result<bool> {
        let until = boot_time()?.saturating_add(within).as_nanos();
        let asked = FallAsked {
            until_ns: u64::try_from(until).unwrap_or(u64::MAX),
            page_ns: (self.page * 1_000_000_000).checked_div(per_second).unwrap_or(0).max(1),
            pages: i64::try_from(by / self.page).unwrap_or(i64::MAX),
            gauge,
            nodes: self.nodes,
            reserved: 0,
        };
        Ok(self.fall.watch(&asked)? == answer::ARMED)
    }

    /// Waits for a fall. Safe to cancel.
    ///
    /// # Errors
    /// When the ring can no longer be waited for.
    pub async fn fallen(&mut self) -> Result<(), RingError> {
        while self.ring.discard() == 0 {
            self.ring.ready().await?;
        }
        Ok(())
    }
}

fn load(host: &HostSupport) -> Result<Fall, String> {
    if let Some(reason) = host.obstacle(FALL_OBJECT, CALLS, true) {
        return Err(reason);
    }
    Fall::open().map_err(|Refusal(reason)| reason)
}
