//! ebb's own probes, attached by a test: the events they send are collected and asked about.
use anyhow::{Context, Result, bail};
use ebb_probes::{
    Cost, KernelEvent, Lost, Options, ProbeSet, ProbeState, ProbeStatus, Probes, Totals,
};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Attached probes with everything they have sent so far.
pub(crate) struct Probing {
    runtime: Runtime,
    probes: Probes,
    pub(crate) events: Vec<KernelEvent>,
}

impl Probing {
    /// Attach what this kernel offers.
    pub(crate) fn start(options: &Options) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start a runtime")?;
        let set = ProbeSet::for_host(&ebb_probes::survey(), options);
        let probes = runtime.block_on(async { Probes::attach(&set, options) });
        Ok(Self { runtime, probes: probes.context("cannot attach")?, events: Vec::new() })
    }

    pub(crate) fn status(&self) -> &[ProbeStatus] {
        self.probes.status()
    }

    /// Names of the attached programs, sorted.
    pub(crate) fn attached(&self) -> Vec<&'static str> {
        let live = self.status().iter().filter(|probe| probe.state == ProbeState::Attached);
        let mut names: Vec<_> = live.map(|probe| probe.name).collect();
        names.sort_unstable();
        names
    }

    /// Collect until `enough` says so; it is shown each event once, and what has been lost so far.
    pub(crate) fn until(
        &mut self,
        limit: Duration,
        what: &str,
        mut enough: impl FnMut(&[KernelEvent], &Lost) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + limit;
        let mut seen = 0;
        loop {
            let new = self.events.get(seen..).unwrap_or_default();
            if enough(new, &self.lost()?) {
                return Ok(());
            }
            seen = self.events.len();
            if Instant::now() > deadline {
                bail!("waited {} s in vain until {what}", limit.as_secs());
            }
            let Self { runtime, probes, events } = self;
            let wait = Duration::from_millis(200);
            let next =
                runtime.block_on(async { tokio::time::timeout(wait, probes.next(events)).await });
            if let Ok(result) = next {
                result.context("cannot read the rings")?;
            }
        }
    }

    /// Collect until `find` finds something in an event.
    pub(crate) fn find<T>(
        &mut self,
        limit: Duration,
        what: &str,
        find: impl Fn(&KernelEvent) -> Option<T>,
    ) -> Result<T> {
        let mut found = None;
        self.until(limit, what, |new, _| {
            found = new.iter().find_map(&find);
            found.is_some()
        })?;
        found.with_context(|| format!("{what} came and went"))
    }

    pub(crate) fn lost(&self) -> Result<Lost> {
        self.probes.lost().context("cannot read what was lost")
    }

    /// What each attached program has cost while a meter was held.
    pub(crate) fn costs(&self) -> Result<Vec<Cost>> {
        self.probes.costs().context("cannot read what programs cost")
    }

    /// Run the programs of direct reclaim as if somebody reclaimed.
    pub(crate) fn play_direct_reclaim(&self) -> Result<()> {
        self.probes.play_direct_reclaim().context("cannot play a direct reclaim")
    }

    pub(crate) fn totals(&self) -> Result<Totals> {
        self.probes.totals().context("cannot read the totals")
    }
}
