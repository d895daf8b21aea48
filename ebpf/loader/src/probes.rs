//! The attached programs: what they send, what they count, what was lost and how each of them stands.
use crate::attach::{self, AttachError, Attached, ProbeState, ProbeStatus, Running};
use crate::catalogue::Fact;
use crate::core_tier::{self, CoreTier};
use crate::costs::Cost;
use crate::event::KernelEvent;
use crate::polling::Polling;
use crate::ring::{self, Ring, RingError};
use crate::rust_tier::{Forward, RustTier};
use crate::shared_maps::{EVENTS, SharedMaps, VITAL};
use crate::totals::{self, Lost, Totals, TotalsError};
use crate::{Options, ProbeSet};
use aya_log::EbpfLogger;
use nix::unistd::{SysconfVar, sysconf};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;
use tokio::io::unix::AsyncFd;

/// Drains that empty full rings of the default size; more would be what is told meanwhile.
const MOST_DRAINS: usize = 3;

/// ebb's programs at work. Dropping it detaches them all.
pub struct Probes {
    status: Vec<ProbeStatus>,
    vital: Option<Ring>,
    events: Option<Ring>,
    messages: Option<Messages>,
    maps: SharedMaps,
    polling: Polling,
    /// Held for their links, which live as long as these.
    tiers: (Option<RustTier>, CoreTier),
}

impl Probes {
    /// Attach what the set offers, best first. To be called on a tokio runtime with I/O and time enabled.
    ///
    /// # Errors
    /// Only for options that no kernel would accept and for rings that exist but cannot be waited for. What the kernel
    /// refuses is in [`Probes::status`].
    pub fn attach(set: &ProbeSet, options: &Options) -> Result<Self, AttachError> {
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        let page = page.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(4096);
        if let Some(mistake) = options.mistake(page) {
            return Err(AttachError::Options(mistake));
        }
        let Attached { mut rust, core, maps, status } = attach::attach(set, options);
        let ring = |name| maps.get(name).map(|map| Ring::open(name, map)).transpose();
        let logger = rust.as_mut().and_then(RustTier::logger);
        Ok(Self {
            vital: ring(VITAL)?,
            events: ring(EVENTS)?,
            messages: logger.map(Messages::open).transpose()?,
            polling: Polling::new(options.drain_every),
            tiers: (rust, core),
            maps,
            status,
        })
    }

    /// Every program of the catalogue and how it stands.
    pub fn status(&self) -> &[ProbeStatus] {
        &self.status
    }

    /// Takes the programs out of the kernel that tell one of these, for this reason. What they have told by now is still to be taken.
    ///
    /// Only programs of the C half can be taken out by themselves.
    pub fn detach(&mut self, facts: &[Fact], why: &str) {
        let (_, core) = &mut self.tiers;
        core.detach(facts);
        let is_left = |probe: &ProbeStatus| core.programs().iter().any(|p| p.name == probe.name);
        for probe in self.status.iter_mut().filter(|probe| facts.contains(&probe.feeds)) {
            if probe.state == ProbeState::Attached && !is_left(probe) {
                probe.state = ProbeState::Absent(why.to_owned());
            }
        }
    }

    /// Whether something is attached that tells this.
    pub fn tells(&self, fact: Fact) -> bool {
        self.status.iter().any(|probe| probe.feeds == fact && probe.state == ProbeState::Attached)
    }

    /// Wait until the kernel has told something and append it, in the order in which it happened: at most some thousands at once.
    ///
    /// Waits for ever when nothing is attached. Safe to cancel: what was taken is in `batch`.
    ///
    /// # Errors
    /// When the runtime cannot wait for a ring; that does not pass by itself.
    pub async fn next(&mut self, batch: &mut Vec<KernelEvent>) -> Result<(), RingError> {
        let before = batch.len();
        loop {
            // Before any waiting: some programs do not wake the reader, and a full batch leaves records behind.
            self.drain(batch);
            if batch.len() > before {
                return Ok(());
            }
            let look_in = self.polling.look_in(Instant::now());
            let Self { vital, events, messages, .. } = self;
            tokio::select! {
                biased;
                result = ready(vital) => result?,
                result = ready(events) => result?,
                result = forward(messages) => result?,
                () = tokio::time::sleep(look_in.unwrap_or_default()), if look_in.is_some() => {}
            }
        }
    }

    /// Append what the kernel has told by now, without waiting: whatever was told before this is called is in `batch` after it.
    pub fn take_told(&mut self, batch: &mut Vec<KernelEvent>) {
        for _ in 0..MOST_DRAINS {
            let before = batch.len();
            self.drain(batch);
            if batch.len() == before {
                return;
            }
        }
    }

    /// Take what the rings hold now, without waiting.
    fn drain(&mut self, batch: &mut Vec<KernelEvent>) {
        let before = batch.len();
        for ring in [&mut self.vital, &mut self.events].into_iter().flatten() {
            ring.drain(batch);
        }
        // The rings are two: a cgroup is made before the process in it is killed, and is to be known by then.
        batch[before..].sort_by_key(KernelEvent::ts_ns);
        self.polling.saw(&batch[before..], Instant::now());
    }

    /// What was lost since attaching.
    ///
    /// # Errors
    /// When the counters exist but cannot be read: then it is unknown whether anything was lost.
    pub fn lost(&self) -> Result<Lost, TotalsError> {
        let rings = [&self.vital, &self.events].into_iter().flatten();
        let mut lost = totals::lost(&self.maps, self.running())?;
        lost.corrupt = rings.map(Ring::corrupt).sum();
        Ok(lost)
    }

    /// What each attached program has cost while a [`Meter`](crate::Meter) was held.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn costs(&self) -> io::Result<Vec<Cost>> {
        self.running().map(|program| core_tier::cost(program.name, program.fd.as_fd())).collect()
    }

    /// Run the programs of direct reclaim once, as a task that reclaims runs into them: for measuring without a shortage. The calling task's cgroup counts it.
    ///
    /// # Errors
    /// When the kernel would not run one of them.
    pub fn play_direct_reclaim(&self) -> io::Result<()> {
        let programs = self.running().filter(|program| program.fact == Fact::DirectReclaim);
        let mut programs: Vec<_> = programs.collect();
        // The begin before the end.
        programs.sort_by_key(|program| program.name);
        programs.into_iter().try_for_each(|program| core_tier::play(program.fd.as_fd()))
    }

    fn running(&self) -> impl Iterator<Item = &Running> {
        let (rust, core) = &self.tiers;
        rust.as_ref().map_or(&[][..], RustTier::programs).iter().chain(core.programs())
    }

    /// What was counted since attaching: a few system calls for all cgroups together.
    ///
    /// # Errors
    /// When the counters exist but cannot be read.
    pub fn totals(&self) -> Result<Totals, TotalsError> {
        totals::read(&self.maps, |fact| self.tells(fact))
    }
}

async fn ready(ring: &mut Option<Ring>) -> Result<(), RingError> {
    match ring {
        Some(ring) => ring.ready().await,
        None => std::future::pending().await,
    }
}

/// The kernel side's own messages: rare, and for people.
struct Messages {
    logger: EbpfLogger<Forward>,
    fd: AsyncFd<OwnedFd>,
}

/// Name of the map behind [`Messages`].
const MESSAGES: &str = "AYA_LOGS";

impl Messages {
    fn open(logger: EbpfLogger<Forward>) -> Result<Self, RingError> {
        Ok(Self { fd: ring::watch(MESSAGES, logger.as_fd())?, logger })
    }
}

/// Wait for messages and pass them on.
async fn forward(messages: &mut Option<Messages>) -> Result<(), RingError> {
    let Some(Messages { logger, fd }) = messages else { return std::future::pending().await };
    ring::wait(MESSAGES, fd).await?;
    logger.flush();
    Ok(())
}
