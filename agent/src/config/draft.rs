//! A configuration on its way: what the text says, before the limits are checked and everything is put together.
use super::{
    BeforeEviction, Config, ConfigErrors, Contract, INCIDENTS_KEPT, Incidents, MEASURES, MODES,
    MemoryMeasure, Mode, Patterns, REFLEX_LEASE, REFLEXES, Reflex, Seccomp,
    cgroups::{self, CgroupsDraft},
    contract,
    defaults::{also_below, defaults, hard_memory, standalone_thresholds},
    eviction, hooks, meant, memory_pressure, options, patterns,
    section::{Mistakes, Section, TextMaps},
    tree::Placed,
};
use ebb_policy::limits::{ConfigError, Limits, Options, RawEviction, RawMemoryPressure};
use std::path::PathBuf;
use std::time::Duration;

/// A configuration whose limits are not checked yet.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) mode: Mode,
    pub(super) enforce: bool,
    pub(super) memory_available: MemoryMeasure,
    pub(super) patterns: Patterns,
    pub(super) contract: Contract,
    pub(super) incidents: Option<Incidents>,
    pub(super) before_eviction: Option<BeforeEviction>,
    pub(super) reflex: Option<Duration>,
    pub(super) seccomp: Seccomp,
    pub(super) has_api_server: bool,
    pub(super) options: Option<Options>,
    pub(super) also_below: Option<TextMaps>,
    pub(super) memory_pressure: Vec<RawMemoryPressure>,
    pub(super) cgroups: CgroupsDraft,
    pub(super) unused: Vec<String>,
    pub(super) slips: Vec<String>,
}

impl Draft {
    /// Checks a configuration that was read as `root`.
    ///
    /// # Errors
    /// Every mistake in it.
    pub(super) fn parse(mut self, root: &Placed) -> Result<Config, ConfigErrors> {
        let mistakes = Mistakes::default();
        let mut top = Section::top(root, &mistakes);
        let mut eviction = eviction::read(&mut top);
        self.cgroups.raw = cgroups::read(&mut top);
        if let Some(ebb) = top.section("ebb") {
            self.read(ebb);
        }
        top.finish();
        self.cgroups.raw.eviction_hard_memory = hard_memory(&eviction, self.mode);
        if eviction.eviction_hard.is_none() && self.mode == Mode::Standalone {
            eviction.eviction_hard = Some(standalone_thresholds());
        }
        eviction.also_below = self.also_below.take().or_else(|| also_below(&eviction, self.mode));
        eviction.memory_pressure = std::mem::take(&mut self.memory_pressure);
        eviction.options = Some(self.options.clone().unwrap_or_else(|| self.defaults()));
        self.finish(eviction, root, mistakes)
    }

    /// ebb's options where the text says nothing; what an API server feeds is on where there is one.
    pub(super) fn defaults(&self) -> Options {
        let defaults = defaults(self.mode);
        let has = self.has_api_server;
        Options {
            preferences: has || defaults.preferences,
            spread_owners: has || defaults.spread_owners,
            disruption_budgets: has || defaults.disruption_budgets,
            ..defaults
        }
    }

    /// Reads ebb's own section.
    fn read(&mut self, mut section: Section<'_>) {
        self.mode = section.choice("mode", &MODES).unwrap_or(self.mode);
        self.enforce = section.flag("enforce").unwrap_or_default();
        self.memory_available = section.choice("memoryAvailable", &MEASURES).unwrap_or_default();
        self.patterns = patterns::read(&mut section);
        self.contract = contract::read(&mut section);
        self.also_below = section.text_maps("alsoBelow");
        self.memory_pressure = memory_pressure::read(&mut section);
        self.incidents = section.section("incidents").and_then(incidents);
        self.before_eviction = section.section("hooks").and_then(hooks::read);
        let lease = section.duration("reflexLease");
        let lease = lease.map_or(REFLEX_LEASE, |lease| Duration::from_millis(lease.0));
        let reflex = section.choice("reflex", &REFLEXES).unwrap_or(Reflex::Disabled);
        self.reflex = (reflex == Reflex::Enabled).then_some(lease);
        self.seccomp = section.choice("seccomp", &Seccomp::WORDS).unwrap_or_default();
        self.options = Some(options::read(&mut section, self.defaults()));
        if let Some(cgroups) = section.section("cgroups") {
            self.cgroups.read_own(cgroups);
        }
        section.finish();
    }

    /// Checks the limits and puts everything together, unless there were mistakes.
    pub(super) fn finish(
        mut self,
        mut eviction: RawEviction,
        root: &Placed,
        mistakes: Mistakes,
    ) -> Result<Config, ConfigErrors> {
        let mut mistakes = mistakes.into_inner();
        let place = |error: ConfigError| meant::placed(root, error);
        let limits = Limits::new(&eviction).map_err(|errors| {
            mistakes.extend(errors.into_iter().map(place));
        });
        let raw = &mut self.cgroups.raw;
        raw.enforce_node_allocatable.clone_from(&eviction.enforce_node_allocatable);
        let cgroups = ebb_policy::cgroups::Options::new(raw).map_err(|errors| {
            mistakes.extend(errors.into_iter().map(place));
        });
        // What the kubelet lets pass although it can never take effect is refused where no kubelet has to be matched.
        if let (Ok(limits), Mode::Standalone) = (&limits, self.mode) {
            mistakes.extend(limits.warnings().iter().cloned().map(place));
        }
        mistakes.sort();
        match (limits, cgroups) {
            (Ok(limits), Ok(options)) if mistakes.is_empty() => {
                let rules = limits.memory_pressure().iter();
                eviction.memory_pressure = rules.map(memory_pressure::written).collect();
                Ok(Config {
                    mode: self.mode,
                    enforce: self.enforce,
                    memory_available: self.memory_available,
                    patterns: self.patterns,
                    contract: self.contract,
                    incidents: self.incidents,
                    before_eviction: self.before_eviction,
                    cgroups: self.cgroups.finish(options),
                    reflex: self.reflex,
                    seccomp: self.seccomp,
                    has_api_server: self.has_api_server,
                    eviction,
                    limits,
                    unused: self.unused,
                    slips: self.slips,
                    guard_band: None,
                })
            }
            _ => Err(ConfigErrors { file: None, mistakes }),
        }
    }
}

fn incidents(mut section: Section<'_>) -> Option<Incidents> {
    let directory = section.text("directory").map(PathBuf::from);
    let keep = section.number("keep", "from 0 on").unwrap_or(INCIDENTS_KEPT);
    section.finish();
    Some(Incidents { directory: directory?, keep })
}
