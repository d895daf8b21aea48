//! The configuration while the agent runs: watched, read and checked on a thread of its own, so that a mount that hangs stops nothing else.
//!
//! ```text
//!  loop ──read now (SIGHUP)──► thread ebb-config: stat, and when it has changed read and check ──Reloaded──► loop
//! ```
//! What a new configuration changes is the loop's part.

use super::{Agent, Policy};
use crate::clock::Boot;
use crate::config::CgroupMode;
use ebb_journal::{InForce, Part, Record, Worded};
use ebb_policy::Limits;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// A configuration that takes this long to be looked at or read hangs.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// How long a new configuration that wants no reconciler of cgroups waits for it: the kernel may block a write, and the loop is needed.
const LAST_WRITE: Duration = Duration::from_millis(100);

/// How the configuration is read anew.
pub struct Reload {
    /// Between two looks at whether it has changed; `None` where there is no file to look at.
    pub every: Option<Duration>,
    /// Looks, and reads when it has changed; told whether the operator has asked.
    pub read: ReadAnew,
}

impl Reload {
    /// Where there is nothing to read.
    #[must_use]
    pub fn never() -> Self {
        Self { every: None, read: Box::new(|_| Ok(None)) }
    }
}

/// Reads the configuration anew: `Ok(None)` when nothing has changed; the errors name file, key and value. May block for as long as the filesystem does.
pub type ReadAnew = Box<dyn FnMut(bool) -> Result<Option<Policy>, Vec<String>> + Send>;

/// What a look at the configuration found.
pub(super) struct Reloaded {
    /// The operator has asked for it.
    asked: bool,
    /// A new one that was checked, that there is none, or what is wrong with it.
    found: Result<Option<Policy>, Vec<String>>,
}

/// The loop's side of the thread that reads the configuration.
#[derive(Debug)]
pub(super) struct ConfigWatch {
    asks: SyncSender<()>,
    /// Nanoseconds since boot at which the present look began; 0 between two.
    busy_since: Arc<AtomicU64>,
    told_stuck: bool,
}

impl ConfigWatch {
    /// Starts the thread; it ends when this is dropped.
    pub(super) fn start(reload: Reload, found: Sender<Reloaded>) -> io::Result<Self> {
        let (asks, asked) = sync_channel(1);
        let busy_since = Arc::new(AtomicU64::new(0));
        let busy = Arc::clone(&busy_since);
        crate::threads::spawn("ebb-config", move || watch(reload, &asked, &busy, &found))?;
        Ok(Self { asks, busy_since, told_stuck: false })
    }

    /// Asks for a look now. While one is waiting already, that one is the answer.
    fn ask(&self) {
        let _ = self.asks.try_send(());
    }

    /// Whether the present look hangs at `now`.
    fn is_stuck(&self, now: Boot) -> bool {
        let since = self.busy_since.load(Ordering::Acquire);
        since != 0 && now.since(Boot(since)) > STUCK_AFTER
    }
}

fn watch(mut reload: Reload, asked: &Receiver<()>, busy: &AtomicU64, found: &Sender<Reloaded>) {
    loop {
        let next = match reload.every {
            Some(every) => asked.recv_timeout(every),
            None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let asked = match next {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        busy.store(Boot::now().0.max(1), Ordering::Release);
        let answer = (reload.read)(asked);
        busy.store(0, Ordering::Release);
        if !asked && matches!(answer, Ok(None)) {
            continue;
        }
        if found.blocking_send(Reloaded { asked, found: answer }).is_err() {
            return;
        }
    }
}

impl Agent {
    /// Has the configuration looked at now.
    pub(super) fn ask_for_configuration(&mut self) {
        self.config.ask();
        self.look_for_a_stuck_configuration();
    }

    /// Says once that the configuration cannot be had, until it can.
    pub(super) fn look_for_a_stuck_configuration(&mut self) {
        let is_stuck = self.config.is_stuck(Boot::now());
        if is_stuck && !self.config.told_stuck {
            let what = "the configuration file does not answer (does its mount hang?): the configuration read last stays in force";
            self.reporter.tell_degraded(Part::Configuration, what);
        }
        self.config.told_stuck = is_stuck;
    }

    /// Takes in what a look at the configuration found.
    pub(super) fn on_reloaded(&mut self, reloaded: Reloaded) {
        let (accepted, errors) = match reloaded.found {
            Ok(Some(policy)) => {
                self.state.set_rules(policy.rules.clone(), policy.measure);
                self.state.pods_mut().set_pods_only(policy.pods_only);
                if policy.cgroups.mode == CgroupMode::Off
                    && let Some(reconciler) = self.reconciling.running.take()
                {
                    // Once it is said that nothing is written any more, nothing is.
                    reconciler.end(LAST_WRITE);
                }
                // Before the reconciler has a word: what it tells from here on is by the new configuration.
                let thresholds = configured(&policy.limits);
                self.reporter.tell(Record::Reloaded {
                    accepted: true,
                    errors: Vec::new(),
                    thresholds,
                });
                if let Some(guard_band) = &policy.guard_band
                    && policy.guard_band != self.policy.guard_band
                {
                    self.reporter.tell(Record::KubeletThresholds(guard_band.clone()));
                }
                self.configure_reconciler(&policy.cgroups);
                self.watch_memory_pressure(policy.limits.memory_pressure());
                self.leave_policy();
                self.policy = policy;
                self.configure_hook();
                self.judge_pods_anew();
                for what in self.pressures.tell_of_missing() {
                    self.reporter.tell_degraded(Part::Pressure, what);
                }
                if let Some(what) = self.why_nobody_is_ended() {
                    self.reporter.tell_degraded(Part::Workloads, what);
                }
                // The look is by the new thresholds: by the old ones it would find no crossing, and the pass would evict without one.
                self.resolve_thresholds(Boot::now());
                self.look(true);
                return;
            }
            Ok(None) if reloaded.asked => (true, Vec::new()),
            Ok(None) => return,
            Err(errors) => (false, errors),
        };
        let thresholds = configured(&self.policy.limits);
        self.reporter.tell(Record::Reloaded { accepted, errors, thresholds });
    }
}

impl Agent {
    /// Takes back what was chosen by the present configuration and not done yet, as another takes its place; what was decided by it keeps it.
    ///
    /// The new one may protect who is held or named, and the look that follows on it acts on both before it decides.
    fn leave_policy(&mut self) {
        self.decisions.ahead = None;
        self.standby.leave(None);
        self.disarm_reflex();
        let (at, config) = (Boot::now(), &self.policy.text);
        let open = self.watches.episodes_mut().chain(self.pressures.episodes_mut());
        open.for_each(|episode| episode.reload(at, config));
    }
}

/// Thresholds as they are configured: those given as percentages are resolved when the node is next decided on.
fn configured(limits: &Limits) -> Vec<Worded<InForce>> {
    let thresholds = limits.thresholds().iter().copied().map(InForce::Configured);
    let pressures = limits.memory_pressure().iter().cloned().map(InForce::MemoryPressure);
    thresholds.chain(pressures).map(Worded::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_look_that_hangs_is_seen_and_holds_up_nobody_who_asks() {
        let (let_go, hangs) = channel::<()>();
        let (began, begun) = channel();
        let read = Box::new(move |_| {
            began.send(()).unwrap();
            let _ = hangs.recv();
            Ok(None)
        });
        let (found, mut inbox) = tokio::sync::mpsc::channel(1);
        let config = ConfigWatch::start(Reload { every: None, read }, found).unwrap();
        assert!(!config.is_stuck(Boot(u64::MAX)), "nothing was asked for yet");
        config.ask();
        begun.recv().unwrap();
        (0..100).for_each(|_| config.ask());
        let now = Boot::now();
        assert!(!config.is_stuck(now), "it has not had its time");
        assert!(config.is_stuck(now.plus(STUCK_AFTER * 2)));
        drop(let_go);
        let answer = inbox.blocking_recv().unwrap();
        assert!(answer.asked && matches!(answer.found, Ok(None)));
    }
}
