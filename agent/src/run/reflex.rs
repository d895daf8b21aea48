//! Keeping the reflex armed: whom the policy would end now is named to the kernel, which acts when this loop cannot.
//!
//! ```text
//!  pass ─► near the hard threshold ─► name the first of the ranking, for one lease
//!      └─► not near                ─► name nobody
//!  look ─► it has fired ─► report, begin the termination, finish with the means of every other eviction
//!      └─► below the threshold and it has not ─► both look once more ─► below ─► it fires now, from here
//!                                                                  └─► not below ─► nothing, for both
//! ```
//! Nobody is named below the threshold or while something is on its way out: the kernel would end the next before the last has given anything back.
//! The lease is renewed while the threshold is near, so a loop that has stopped leaves a reflex that soon ends nobody.

use super::Agent;
use super::baseline::Baseline;
use super::watch::Watch;
use crate::act::{self, LastResort, Mode, Need, Step, Target};
use crate::clock::Boot;
use crate::sense::Roots;
use crate::sense::cgroup::id_at;
use crate::sense::meminfo::Measure;
use crate::sense::node::NodeSensor;
use crate::state::{Cause, UNEXPLAINED};
use ebb_journal::incident::{About, Decision};
use ebb_journal::text::amount;
use ebb_journal::{Part, Record};
use ebb_policy::Signal;
use ebb_policy::snapshot::WorkloadKey;
use ebb_probes::{ArmError, Armament, Gauge, HostSupport, MOST_PROCESSES, Reflex, Shot};
use std::io;
use std::time::Duration;

/// The reflex of this host and how it is used.
pub struct Arming {
    reflex: Reflex,
    lease: Duration,
    named: Option<Named>,
    /// Whom it was told last that it would end.
    told: Option<Target>,
    /// The reason told last why nobody could be named.
    trouble: Option<String>,
}

/// Who is named to the kernel.
struct Named {
    target: Target,
    key: WorkloadKey,
    /// What it was chosen on.
    decision: Decision,
    /// At the moment in which it was named last.
    baseline: Baseline,
}

impl Arming {
    /// Uses `reflex`, and names somebody for `lease` at a time.
    #[must_use]
    pub fn new(reflex: Reflex, lease: Duration) -> Self {
        Self { reflex, lease, named: None, told: None, trouble: None }
    }

    /// Names nobody to the kernel any more; returns whether the reflex has fired just now, by itself: then who was named is known on until that is taken in.
    fn take_back_name(&mut self) -> bool {
        let has_fired = matches!(self.reflex.disarm(), Err(ArmError::Fired));
        if !has_fired {
            self.named = None;
        }
        has_fired
    }
}

impl Agent {
    /// How soon somebody who is named has to be named again.
    pub(super) fn renew_within(&self) -> Option<Duration> {
        let arming = self.arming.as_ref()?;
        arming.named.is_some().then(|| arming.lease / 2)
    }

    /// Names the first of the ranking while the hard threshold is near, and nobody otherwise.
    pub(super) fn arm_reflex(
        &mut self,
        resort: Option<(&LastResort, &WorkloadKey)>,
        decision: impl FnOnce() -> Decision,
    ) {
        let Some(arming) = &mut self.arming else { return };
        let is_near = self.watches.of(Signal::MemoryAvailable).is_some_and(Watch::is_near);
        let is_quiet = !self.state.awaits_terminations();
        let swap_left = self.state.available(Signal::SwapAvailable);
        let first = resort.filter(|_| is_near && is_quiet).and_then(|(resort, key)| {
            let bytes = match resort.need {
                Need::MemoryBelow { bytes } => bytes,
                // The kernel looks at memory alone: it may as long as swap is short already, for as long as a lease lasts.
                Need::MemoryAndSwapBelow { bytes, swap }
                    if swap_left.is_none_or(|left| left < swap) =>
                {
                    bytes
                }
                _ => return None,
            };
            Some((bytes, &resort.candidates.first()?.target, key))
        });
        let result = match first {
            Some((line, target, key)) => {
                let measure = self.policy.measure;
                let armed = name(arming, target, line, measure, &mut self.node.sensor, &self.roots);
                let stands = arming.named.as_ref().is_some_and(|named| named.target == *target);
                if stands && matches!(armed, Err(Trouble::Moment)) {
                    // Taking the name back would leave neither to act, if this loop is held up now.
                    return;
                }
                if armed.is_ok() {
                    if arming.told.as_ref() != Some(target) {
                        self.reporter.tell(Record::ReflexArmed { workload: key.clone() });
                        arming.told = Some(target.clone());
                    }
                    let baseline = Baseline::now(&mut self.state, Some(target));
                    let (target, key) = (target.clone(), key.clone());
                    arming.named = Some(Named { target, key, decision: decision(), baseline });
                    return;
                }
                armed
            }
            None => {
                arming.told = None;
                Ok(())
            }
        };
        // Whoever was named before is not to be ended any more, unless that has just happened: the next look takes it in.
        arming.take_back_name();
        let trouble = match result {
            Ok(()) | Err(Trouble::Passing | Trouble::Moment) => return,
            Err(Trouble::Lasting(trouble)) => trouble,
        };
        if arming.trouble.as_ref() != Some(&trouble) {
            self.reporter.tell_degraded(Part::Reflex, format!("the reflex: {trouble}"));
            arming.trouble = Some(trouble);
        }
    }

    /// Names nobody to the kernel any more, as another configuration takes the place of the one by which who is named was chosen.
    ///
    /// Where the reflex has fired already its decision keeps that configuration, and the next look takes it in.
    pub(super) fn disarm_reflex(&mut self) {
        let Some(arming) = &mut self.arming else { return };
        if !arming.take_back_name() {
            arming.told = None;
        } else if let Some(named) = &mut arming.named {
            named.decision.keep_config(&self.policy.text);
        }
    }

    /// Below the hard threshold has the reflex fire now, so that one of the two decides and not both; returns whether it did.
    ///
    /// The node is read once more for that, and both go by what is read: a node that is not below the threshold any more is
    /// so for the loop too, and whoever is named stays so. Where it cannot be read in peace and the reflex does not fire,
    /// nobody is named any more and the loop decides; so where who is named has not taken what memory has fallen by since,
    /// as somebody may have come who has.
    pub(super) fn pull_reflex(&mut self) -> bool {
        let available = self.state.memory_available();
        let watch = self.watches.of(Signal::MemoryAvailable);
        let swap = self.state.available(Signal::SwapAvailable);
        let Some(watch) = watch.filter(|watch| watch.is_below_hard(available, swap)) else {
            return false;
        };
        let Some(arming) = &mut self.arming else { return false };
        let Some(named) = &arming.named else { return false };
        if !named.baseline.still_explains(&mut self.state, Some(&named.target)) {
            return self.take_back_name();
        }
        let measure = self.policy.measure;
        let mut last = None;
        let pulled = arming.reflex.pull(|| {
            let reading = last.insert(self.node.sensor.read_headroom()?);
            reading.memory.available_by(measure).ok_or_else(|| unknown().into())
        });
        if let Ok(Some(shot)) = pulled {
            let Some(named) = arming.named.take() else { return false };
            self.take_shot(&shot, named);
            return true;
        }
        if let Some(reading) = last {
            let (memory, swap) =
                (reading.memory.available_by(measure), reading.memory.swap_available());
            let is_below = watch.is_below_hard(memory, swap);
            self.state.observe_node(reading);
            if pulled.is_ok() && !is_below {
                return false;
            }
        }
        self.take_back_name()
    }

    /// Names nobody to the kernel any more; returns whether the reflex has fired just now, by itself.
    fn take_back_name(&mut self) -> bool {
        self.arming.as_mut().is_some_and(Arming::take_back_name) && self.take_in_shot()
    }

    /// Takes in what the reflex did by itself; returns whether it did anything.
    pub(super) fn take_in_shot(&mut self) -> bool {
        // Before anybody was named there is nothing to see, and the look is a system call.
        let Some(arming) = self.arming.as_mut().filter(|arming| arming.named.is_some()) else {
            return false;
        };
        let shot = match arming.reflex.shot() {
            Ok(Some(shot)) => shot,
            Ok(None) => return false,
            Err(error) => {
                tracing::warn!(%error, "the reflex could not be looked at");
                return false;
            }
        };
        let Some(named) = arming.named.take() else { return false };
        self.take_shot(&shot, named);
        true
    }

    fn take_shot(&mut self, shot: &Shot, named: Named) {
        let at = Boot(u64::try_from(shot.at.as_nanos()).unwrap_or(u64::MAX));
        let available = u64::try_from(shot.available).unwrap_or(0);
        let Named { target, key, decision, baseline: _ } = named;
        let workload = decision.snapshot.workloads.iter().find(|workload| workload.key == key);
        let memory = workload.and_then(|workload| workload.stats.as_ref()?.memory);
        let free = memory.and_then(|memory| memory.working_set());
        let watch = self.watches.of_mut(Signal::MemoryAvailable);
        if watch.as_ref().is_some_and(|watch| watch.episode.is_none()) {
            let about = About::Signal(Signal::MemoryAvailable);
            self.reporter.episode_begins(about, self.state.clock().unix_ms(at));
        }
        // The kernel counts in pages.
        let hard = watch.as_ref().and_then(|watch| watch.hard());
        let decided = decision.plan.decided_at;
        let record = Record::ReflexFired {
            workload: key.clone(),
            killed: shot.killed.clone(),
            skipped: shot.doubted.clone(),
            available,
            threshold: hard.or(u64::try_from(shot.line).ok()).unwrap_or(0),
            took_us: u64::try_from(shot.took.as_micros()).unwrap_or(u64::MAX),
            seen_after_ms: ebb_journal::ms(Boot::now().since(at)),
            decision: Some(decided),
        };
        self.reporter.tell_at(at, record);
        if let Some(watch) = watch {
            let episode = watch.episode.get_or_insert_with(|| super::episode::Episode::begin(at));
            let what = if shot.killed.is_empty() {
                "the reflex held back"
            } else {
                "killed by the reflex"
            };
            let left = amount(Signal::MemoryAvailable, available);
            episode.note(what, at, Some(format!("{}, with {left} left", key.name)));
            episode.keep(|| decision);
        }
        if shot.killed.is_empty() {
            return;
        }
        self.decisions.history.note_eviction(self.state.clock().time(at));
        // What it may have left alive (those beyond the most it can name, those born meanwhile) goes the usual way.
        if let Target::Pod { uid, .. } = &target {
            self.state.note_evicted(uid);
        }
        let signal = Some(Signal::MemoryAvailable);
        let cause = Cause { signal, expected_free: free, decision: Some(decided) };
        self.state.terminations().begin(key, target.clone(), Duration::ZERO, cause);
        self.state.terminations().note_told(&target);
        self.give(target, Step::Kill, None, Some(decided));
    }
}

/// Why nobody is named.
enum Trouble {
    /// It is the way of things: they have ended, are protected, or it has fired.
    Passing,
    /// It is the moment, not whom: the threshold is crossed, or memory comes and goes too fast to say.
    Moment,
    /// It will not be better next time.
    Lasting(String),
}

impl From<ArmError> for Trouble {
    fn from(error: ArmError) -> Self {
        match error {
            ArmError::Nobody | ArmError::Protected | ArmError::Fired => Self::Passing,
            ArmError::Crossed | ArmError::Disturbed => Self::Moment,
            ArmError::Unknown | ArmError::Failed(_) => Self::Lasting(format!("{error:#}")),
        }
    }
}

/// Names the processes of `target` to the kernel.
fn name(
    arming: &mut Arming,
    target: &Target,
    line: u64,
    measure: Measure,
    sensor: &mut NodeSensor,
    roots: &Roots,
) -> Result<(), Trouble> {
    let cgroup = match target {
        Target::Cgroup { id, .. } => *id,
        // Its containers are side by side in the pod's own.
        Target::Pod { payloads, .. } => {
            let pod = payloads.first().and_then(|payload| payload.path.parent());
            pod.and_then(id_at).ok_or(Trouble::Passing)?
        }
        Target::Process { .. } => {
            let why = "it kills cgroups, and workloads are processes here";
            return Err(Trouble::Lasting(why.into()));
        }
    };
    let processes = act::members(target, roots, MOST_PROCESSES).map_err(|_| Trouble::Passing)?;
    let armament = Armament {
        cgroup,
        processes: processes.into_iter().map(|p| (p.pid_t(), p.start_time)).collect(),
        gauge: gauge(measure),
        line,
        unexplained: Some(UNEXPLAINED),
        lease: arming.lease,
    };
    let available = || sensor.read_memory()?.available_by(measure).ok_or_else(|| unknown().into());
    arming.reflex.arm(&armament, available)?;
    Ok(())
}

/// The node does not tell how much memory is available.
fn unknown() -> io::ErrorKind {
    io::ErrorKind::Unsupported
}

/// What available memory goes up and down with, by its meaning.
pub(super) fn gauge(measure: Measure) -> Gauge {
    match measure {
        Measure::WorkingSet => Gauge { anon: -1, file: -1, inactive_file: 1, ..Gauge::default() },
        Measure::MemAvailable => Gauge {
            free: 1,
            inactive_file: 1,
            active_file: 1,
            slab_reclaimable: 1,
            ..Gauge::default()
        },
    }
}

/// Puts the reflex into the kernel; says why there is none, where the configuration asks for one.
///
/// # Errors
/// What is missing, for people.
pub fn open(lease: Duration, mode: Mode, host: &HostSupport) -> Result<Arming, String> {
    if mode == Mode::DryRun {
        return Err("the reflex: a dry run evicts nobody".into());
    }
    let reflex = Reflex::open(host).map_err(|why| format!("the reflex: {why}"))?;
    Ok(Arming::new(reflex, lease))
}
