//! Being woken when available memory has fallen by so much: a timer in the kernel looks at its counters, which costs less than to get up and read a file.
//!
//! What is watched are the counters that available memory is made of, and how far they fall from the call on. How much is
//! available, and what follows from a fall, is the caller's to know. It says for how long it relies on being woken, and
//! looks for itself by then.
use crate::attach::Refusal;
use crate::core_tier::{FALL_OBJECT, Fall};
use crate::host::{HostSupport, Lockdown, Presence};
use crate::numa::possible_nodes;
use crate::ring::{Ring, RingError};
use ebb_wire::{FallAsked, Gauge, answer};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

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
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        let page = page.and_then(|page| u64::try_from(page).ok()).filter(|page| *page > 0);
        let page = page.ok_or("the size of a page is unknown")?;
        let nodes = possible_nodes().ok_or("the number of NUMA nodes is unknown")?;
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
        let now: Duration = clock_gettime(ClockId::CLOCK_BOOTTIME)?.into();
        let until = now.saturating_add(within).as_nanos();
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
    if !host.objects.iter().any(|object| object == FALL_OBJECT) {
        return Err(Refusal::no_object(FALL_OBJECT).0);
    }
    if !host.capabilities.allow_tracing() {
        return Err("CAP_BPF and CAP_PERFMON are missing".to_owned());
    }
    if let Presence::Absent(reason) = &host.btf {
        return Err(reason.clone());
    }
    if host.lockdown >= Some(Lockdown::Confidentiality) {
        return Err("lockdown forbids reading kernel memory".to_owned());
    }
    Fall::open().map_err(|Refusal(reason)| reason)
}
