//! The filesystems in the loop: when to have them read, and what follows from a reading.
//!
//! Disk fills more slowly than memory, and a decision about it may run for seconds, so a reading is asked for at a cadence of its own and never slows a look at memory down.

use super::Agent;
use super::watch::{Finding, Watch};
use super::watches::disk_signals;
use crate::clock::Boot;
use crate::sense::disk::{Ask, Asked, DiskReading};
use crate::sense::pod_dirs::PodRoots;
use crate::state::Depth;
use ebb_journal::Part;
use std::io;
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// Between two readings while a threshold is near or met.
const SHORTEST: Duration = Duration::from_millis(100);

/// With less time left until a filesystem is full no removal is waited for; policy's own bound.
const EVICTION_TAKES: Duration = Duration::from_millis(ebb_policy::EVICTION_TAKES.0);

/// A reading that takes this long means that a filesystem does not answer.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// The loop's side of the thread that reads filesystems.
#[derive(Debug)]
pub(super) struct DiskWatch {
    ask: Ask,
    /// When the next reading is to be asked for; `None` while one is awaited, or when filesystems are not watched.
    due: Option<Boot>,
    asked: Option<Boot>,
    told_stuck: bool,
    /// Something has changed since the awaited reading was asked for.
    again: bool,
    /// What could not be read, as last told.
    failing: Vec<String>,
    /// Where pods' directories are; `None` without a source of pods.
    dirs: Option<PodRoots>,
    /// The last reading was near a threshold: who fills the filesystem is looked at with the next.
    is_near: bool,
}

impl DiskWatch {
    /// Starts the thread.
    pub(super) fn start(readings: Sender<DiskReading>, dirs: Option<PodRoots>) -> io::Result<Self> {
        let ask = crate::sense::disk::start(readings)?;
        Ok(Self {
            ask,
            due: Some(Boot::default()),
            asked: None,
            told_stuck: false,
            again: false,
            failing: Vec::new(),
            dirs,
            is_near: false,
        })
    }

    /// When the loop has something to do here.
    pub(super) fn due(&self) -> Option<Boot> {
        self.due.or_else(|| self.asked.filter(|_| !self.told_stuck).map(|at| at.plus(STUCK_AFTER)))
    }
}

impl Agent {
    /// Asks for a reading when one is due.
    pub(super) fn ask_for_disk(&mut self) {
        let Some(places) = self.state.disk().places() else {
            self.disk.due = None;
            return;
        };
        let now = Boot::now();
        let is_due = self.disk.due.is_some_and(|due| due <= now);
        let dirs = self.disk.dirs.as_ref().filter(|_| self.disk.is_near);
        let asked = || Asked {
            places: places.clone(),
            pods: dirs.map(|dirs| (dirs.clone(), self.state.pods().names())),
        };
        if is_due && self.disk.ask.read(asked()) {
            self.disk.due = None;
            self.disk.again = false;
            self.disk.asked = Some(now);
        }
        let is_stuck = self.disk.asked.is_some_and(|at| now.since(at) > STUCK_AFTER);
        if is_stuck && !self.disk.told_stuck {
            self.disk.told_stuck = true;
            let what = "a filesystem does not answer; disk signals are not known until it does";
            self.reporter.tell_degraded(Part::Filesystems, what);
        }
    }

    /// Asks for a reading as soon as the loop comes round: something has just changed.
    pub(super) fn disk_has_changed(&mut self) {
        self.disk.again = true;
        if self.disk.due.is_some() {
            self.disk.due = Some(Boot::now());
        }
    }

    /// Takes in a reading, and decides when a threshold is near or met.
    pub(super) fn on_disk(&mut self, reading: DiskReading) {
        let at = reading.at;
        self.disk.asked = None;
        self.disk.told_stuck = false;
        self.tell_of_failures(&reading);
        self.state.disk_mut().observe(reading);
        if self.has_unknown_disk_thresholds() {
            self.resolve_thresholds(at);
        }
        let mut matters = false;
        let had_dirs = self.state.disk().reading().is_some_and(|reading| reading.pods.is_some());
        for signal in disk_signals() {
            matters |= match self.observe_signal(signal, at) {
                Finding::Clear => false,
                Finding::Near | Finding::Crossed(_) | Finding::Below => true,
            };
        }
        self.disk.is_near = matters;
        if matters {
            self.state.observe_writes();
            // Who fills it shows in two readings with the pods' directories in them.
            self.disk.again |= !had_dirs && self.disk.dirs.is_some();
        }
        let in_episode = self.watches.on_disk().any(|watch| watch.episode.is_some());
        let wait = self.watches.on_disk().filter_map(Watch::wait).min().unwrap_or(super::BACKSTOP);
        let wait = if in_episode { wait.min(SHORTEST * 5) } else { wait };
        let wait = if self.disk.again { Duration::ZERO } else { wait.max(SHORTEST) };
        self.disk.due = Some(Boot::now().plus(wait));
        self.disk_was_read(at);
        if matters || self.is_image_collection_due(at) {
            self.read_workloads(at, Depth::Full);
            let is_choosing = self.watches.quick().any(Watch::is_below);
            self.pass_or_wait(at, is_choosing);
        }
        self.close_episodes(at);
    }

    /// Whether a filesystem below its threshold is full before anything but an eviction could help.
    pub(super) fn is_disk_full_soon(&self) -> bool {
        let attributes = self.policy.limits.options().disk_attribution;
        let below = self.watches.on_disk().filter(|watch| watch.is_below());
        let mut left = below.filter_map(|watch| self.state.disk_time_left(watch.signal));
        attributes && left.any(|left| left < EVICTION_TAKES)
    }

    /// Whether thresholds are configured that are not known yet, on a filesystem that is.
    fn has_unknown_disk_thresholds(&self) -> bool {
        let configured = self.policy.limits.thresholds().iter();
        let on_disk = configured.filter(|threshold| threshold.signal.is_disk());
        let mut watches = on_disk.filter_map(|threshold| self.watches.of(threshold.signal));
        watches.any(|w| w.nearest.is_none() && self.state.available(w.signal).is_some())
    }

    /// Tells once of each filesystem that cannot be read, until that changes.
    fn tell_of_failures(&mut self, reading: &DiskReading) {
        let all = [Some(&reading.node), reading.images.as_ref(), reading.layers.as_ref()];
        let failing: Vec<String> =
            all.into_iter().flatten().filter_map(|fs| fs.as_ref().err().cloned()).collect();
        for what in failing.iter().filter(|what| !self.disk.failing.contains(what)) {
            let what = format!("filesystem not read, its signals are not known: {what}");
            self.reporter.tell_degraded(Part::Filesystems, what);
        }
        self.disk.failing = failing;
    }
}
