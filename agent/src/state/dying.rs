//! What is on its way out: chosen, told to end, not yet seen to be gone.
//!
//! ```text
//!  ordered ──SIGTERM, grace──► asked ──grace over──► killed ──empty──► gone
//!     └──────────kill now───────────────────────────────┘    └─deadline─► stuck: another may be chosen
//!                                                              └─ fewer processes or less memory than before: a new deadline
//! ```
//! Until its deadline a departure counts as memory that is coming back, so nothing more is chosen for the same need.
//! One that was chosen for want of task ids is gone when its zombies are: each has its id until its parent has waited for it.

use crate::act::Target;
use crate::clock::{Boot, Clock};
use crate::sense::cgroup::Cgroup;
use crate::sense::process::{Process, ProcessId};
use ebb_policy::snapshot::{Dying, Workload, WorkloadKey};
use ebb_policy::{Millis, Signal};
use std::path::Path;
use std::time::Duration;

/// How long a killed workload may take before it no longer counts as coming back: exiting under memory pressure takes reclaim of its own.
const KILLED_COUNTS_FOR: Duration = Duration::from_secs(3);

/// How long a dry run takes its own word for done.
const PRETENDED_COUNTS_FOR: Duration = Duration::from_secs(30);

/// How long a departure that missed its deadline is remembered, so that it is not chosen again at once.
const STUCK_FOR: Duration = Duration::from_secs(60);

/// How long a pod that has ended counts as giving back what it has on disk: its containers are removed after its end.
const REMAINS_COUNT_FOR: Duration = Duration::from_secs(30);

/// What of a departure is still there; both only ever fall once everything in it has been killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    processes: Option<u64>,
    memory: Option<u64>,
}

/// One workload on its way out.
#[derive(Clone, Debug)]
pub struct Departure {
    /// Who it is.
    pub key: WorkloadKey,
    /// By what identity it is ended.
    pub target: Target,
    /// When it was chosen.
    pub chosen: Boot,
    /// When it is killed if it has not ended by itself.
    pub kill_at: Option<Boot>,
    /// Until when it counts as coming back.
    pub deadline: Boot,
    /// What it was chosen for.
    pub signal: Option<Signal>,
    /// What its end should free, in the unit of the signal.
    pub expected_free: Option<u64>,
    /// It was seen to have missed its deadline, or could not be ended at all.
    pub stuck: bool,
    /// Nothing was done: a dry run.
    pub pretended: bool,
    /// What was left of it when that was last looked at.
    left: Option<Left>,
}

/// All departures; there are never more than there are workloads.
#[derive(Debug, Default)]
pub struct Departures {
    all: Vec<Departure>,
    /// Pods of which nothing runs any more, and since when: their memory is back, their disk comes back.
    ended: Vec<(WorkloadKey, Boot)>,
}

impl Departures {
    /// Notes that a workload was chosen: killed at once, or asked first when there is a grace period.
    ///
    /// `expected_free` is in the unit of the signal it was chosen for.
    pub fn begin(
        &mut self,
        key: WorkloadKey,
        target: Target,
        grace: Duration,
        (signal, expected_free): (Option<Signal>, Option<u64>),
    ) {
        let chosen = Boot::now();
        let kill_at = (!grace.is_zero()).then(|| chosen.plus(grace));
        let deadline = chosen.plus(grace).plus(KILLED_COUNTS_FOR);
        self.all.retain(|d| d.key != key);
        self.all.push(Departure {
            key,
            target,
            chosen,
            kill_at,
            deadline,
            signal,
            expected_free,
            stuck: false,
            pretended: false,
            // Not now: nothing is read between the choice and the kill that can be read after it.
            left: None,
        });
    }

    /// Takes a departure back: it was not carried out.
    pub fn cancel(&mut self, target: &Target) {
        self.all.retain(|d| &d.target != target);
    }

    /// Notes that nothing was done about `target` because of a dry run: it counts for a while as if it had been, so that the same is not decided again at every look.
    pub fn only_pretended(&mut self, target: &Target) {
        if let Some(departure) = self.all.iter_mut().find(|d| &d.target == target) {
            departure.pretended = true;
            departure.kill_at = None;
            departure.deadline = departure.chosen.plus(PRETENDED_COUNTS_FOR);
        }
    }

    /// Notes that `target` could not be ended: it counts for nothing, and is not chosen again for a while.
    pub fn fail(&mut self, target: &Target) {
        if let Some(departure) = self.all.iter_mut().find(|d| &d.target == target) {
            departure.stuck = true;
            departure.kill_at = None;
            departure.deadline = departure.chosen;
        }
    }

    /// Whether anything is on its way out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether [`Departures::look`] has anything to do: something is on its way out, or was a moment ago.
    #[must_use]
    pub fn are_remembered(&self) -> bool {
        !(self.all.is_empty() && self.ended.is_empty())
    }

    /// The departure by `target`, if it is on its way.
    #[must_use]
    pub fn get(&self, target: &Target) -> Option<&Departure> {
        self.all.iter().find(|d| &d.target == target)
    }

    /// Those whose grace is over at `now`, each returned once.
    pub fn take_overdue(&mut self, now: Boot) -> Vec<Target> {
        let overdue = self.all.iter_mut().filter(|d| d.kill_at.is_some_and(|at| at <= now));
        overdue
            .map(|d| {
                d.kill_at = None;
                d.target.clone()
            })
            .collect()
    }

    /// Looks which have gone since, and which have just missed their deadline; both are returned once.
    pub fn look(&mut self, proc: &Path, now: Boot) -> (Vec<Departure>, Vec<Departure>) {
        let (gone, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.all).into_iter().partition(|d| d.is_gone(proc));
        self.all = rest;
        self.ended.retain(|(_, at)| now.since(*at) < REMAINS_COUNT_FOR);
        let pods = gone.iter().filter(|d| matches!(d.target, Target::Pod { .. }));
        self.ended.extend(pods.map(|d| (d.key.clone(), now)));
        self.all.retain(|d| !(d.pretended && now > d.deadline));
        let mut stuck = Vec::new();
        for departure in &mut self.all {
            if departure.left.is_none() {
                departure.left = Left::of(&departure.target);
                if !departure.stuck && departure.left.is_some() && now > departure.deadline {
                    // It could not be looked at before, so nothing is known of how it goes.
                    departure.deadline = now.plus(KILLED_COUNTS_FOR);
                }
            }
            if !departure.stuck && now > departure.deadline {
                let left = Left::of(&departure.target);
                if left.zip(departure.left).is_some_and(|(now, before)| now.is_less_than(before)) {
                    departure.left = left;
                    departure.deadline = now.plus(KILLED_COUNTS_FOR);
                    continue;
                }
                departure.stuck = true;
                stuck.push(departure.clone());
            }
        }
        self.all.retain(|d| now.since(d.deadline) < STUCK_FOR);
        (gone, stuck)
    }

    /// When something about the departures changes by itself.
    #[must_use]
    pub fn next_change(&self) -> Option<Boot> {
        let times = self.all.iter().filter(|d| !d.stuck);
        times.map(|d| d.kill_at.unwrap_or(d.deadline)).min()
    }

    /// How policy sees the departure of `workload`.
    #[must_use]
    pub fn dying(&self, workload: &Workload, clock: &Clock) -> Option<Dying> {
        let key = &workload.key;
        let Some(departure) = self.all.iter().find(|d| &d.key == key) else {
            let (_, at) = self.ended.iter().find(|(ended, _)| ended == key)?;
            let deadline = clock.time(at.plus(REMAINS_COUNT_FOR));
            return Some(Dying { since: clock.time(*at), deadline, expected_free: Some(0) });
        };
        let mut deadline = clock.time(departure.deadline);
        if !departure.stuck {
            // It is looked at when the deadline has passed to the nanosecond, and may get another: until then it counts, also in the millisecond in which that is.
            deadline = deadline.plus(Millis(1));
        }
        let is_for_memory = departure.signal.is_none_or(Signal::is_memory);
        let expected_free = if is_for_memory {
            departure.expected_free
        } else {
            // What was expected is in another unit.
            workload.stats.as_ref().and_then(|stats| stats.memory?.working_set())
        };
        Some(Dying { since: clock.time(departure.chosen), deadline, expected_free })
    }

    /// The ids of cgroups that count although nothing runs in them any more: their zombies have task ids that are on their way back.
    #[must_use]
    pub fn being_reaped(&self) -> Vec<u64> {
        let for_ids = self.all.iter().filter(|d| d.is_for_ids() && !d.stuck);
        for_ids.flat_map(|d| cgroups_of(&d.target).map(|(id, _)| id)).collect()
    }
}

impl Departure {
    fn is_for_ids(&self) -> bool {
        self.signal == Some(Signal::PidAvailable)
    }

    /// Whether what it was chosen for is back, as far as its end gives it back.
    fn is_gone(&self, proc: &Path) -> bool {
        let has_zombies = || {
            cgroups_of(&self.target).any(|(id, path)| {
                let pids = Cgroup::open(path, id)
                    .ok()
                    .and_then(|mut c| c.read_usage(&mut Vec::new()).pids);
                pids.is_some_and(|left| left > 0)
            })
        };
        is_gone(&self.target, proc) && !(self.is_for_ids() && has_zombies())
    }
}

/// The cgroups that are ended with a target.
fn cgroups_of(target: &Target) -> impl Iterator<Item = (u64, &Path)> {
    let (own, payloads) = match target {
        Target::Cgroup { id, path } => (Some((*id, path.as_path())), &[][..]),
        Target::Pod { payloads, .. } => (None, &payloads[..]),
        Target::Process { .. } => (None, &[][..]),
    };
    own.into_iter().chain(payloads.iter().map(|payload| (payload.id, payload.path.as_path())))
}

impl Left {
    /// `None` for a single process: what it holds goes all at once.
    fn of(target: &Target) -> Option<Self> {
        let of = |(id, path): (u64, &Path)| {
            let usage = Cgroup::open(path, id).ok()?.read_usage(&mut Vec::new());
            Some(Self { processes: usage.pids, memory: usage.current })
        };
        cgroups_of(target).filter_map(of).reduce(Self::plus)
    }

    fn plus(self, other: Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        Self {
            processes: sum(self.processes, other.processes),
            memory: sum(self.memory, other.memory),
        }
    }

    fn is_less_than(self, before: Self) -> bool {
        let fell = |now: Option<u64>, before: Option<u64>| {
            now.zip(before).is_some_and(|(now, before)| now < before)
        };
        fell(self.processes, before.processes) || fell(self.memory, before.memory)
    }
}

/// Whether nothing of the target runs any more. A zombie holds no memory, and its parent's tardiness is not ours to wait for.
fn is_gone(target: &Target, proc: &Path) -> bool {
    let is_empty = |id: u64, path: &Path| match Cgroup::open(path, id) {
        Ok(cgroup) => cgroup.populated(&mut Vec::new()) != Some(true),
        Err(_) => true,
    };
    match target {
        Target::Cgroup { .. } | Target::Pod { .. } => {
            cgroups_of(target).all(|(id, path)| is_empty(id, path))
        }
        Target::Process { pid, start } => Process::read(proc, *pid).is_none_or(|process| {
            process.id != ProcessId { pid: *pid, start: *start } || process.state == 'Z'
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    fn cgroup(populated: u8) -> (tempfile::TempDir, Target) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.events"), format!("populated {populated}\n")).unwrap();
        let id = fs::metadata(dir.path()).unwrap().ino();
        let path = dir.path().to_owned();
        (dir, Target::Cgroup { id, path })
    }

    fn key(name: &str) -> WorkloadKey {
        WorkloadKey { name: name.into(), ..WorkloadKey::default() }
    }

    fn dying(departures: &Departures, clock: &Clock) -> Option<Dying> {
        departures.dying(&Workload { key: key("a"), ..Workload::default() }, clock)
    }

    const MEMORY: (Option<Signal>, Option<u64>) = (Some(Signal::MemoryAvailable), Some(7));

    #[test]
    fn a_departure_counts_until_it_is_seen_to_be_gone() {
        let (dir, target) = cgroup(1);
        let mut departures = Departures::default();
        departures.begin(key("a"), target, Duration::ZERO, MEMORY);
        let clock = Clock::anchored_now();
        assert_eq!(dying(&departures, &clock).unwrap().expected_free, Some(7));
        assert!(departures.look(Path::new("/proc"), Boot::now()).0.is_empty());
        fs::write(dir.path().join("cgroup.events"), "populated 0\n").unwrap();
        let (gone, stuck) = departures.look(Path::new("/proc"), Boot::now());
        assert_eq!((gone.len(), stuck.len()), (1, 0));
        assert!(departures.is_empty());
    }

    #[test]
    fn a_pod_that_has_ended_has_no_memory_to_give_but_counts_until_its_remains_can_be_gone() {
        let target = Target::Pod { uid: "u".into(), payloads: Vec::new() };
        let mut departures = Departures::default();
        departures.begin(key("a"), target, Duration::ZERO, MEMORY);
        let now = Boot::now();
        assert_eq!(departures.look(Path::new("/proc"), now).0.len(), 1);
        let clock = Clock::anchored_now();
        let seen = dying(&departures, &clock).unwrap();
        assert_eq!(seen.expected_free, Some(0));
        assert_eq!(seen.deadline, clock.time(now.plus(REMAINS_COUNT_FOR)));
        assert!(departures.is_empty(), "there is nothing to wait for");
        departures.look(Path::new("/proc"), now.plus(REMAINS_COUNT_FOR));
        assert!(dying(&departures, &clock).is_none());
    }

    #[test]
    fn a_departure_past_its_deadline_is_told_once_and_then_remembered_for_a_while() {
        let (_dir, target) = cgroup(1);
        let mut departures = Departures::default();
        departures.begin(key("a"), target, Duration::ZERO, MEMORY);
        departures.look(Path::new("/proc"), Boot::now());
        let late = Boot::now().plus(KILLED_COUNTS_FOR * 2);
        assert_eq!(departures.look(Path::new("/proc"), late).1.len(), 1);
        assert_eq!(departures.look(Path::new("/proc"), late).1.len(), 0);
        assert!(!departures.is_empty());
        departures.look(Path::new("/proc"), late.plus(STUCK_FOR));
        assert!(departures.is_empty());
    }

    #[test]
    fn a_departure_that_gets_smaller_is_not_stuck() {
        let (dir, target) = cgroup(1);
        let processes =
            |n: u32| fs::write(dir.path().join("pids.current"), format!("{n}\n")).unwrap();
        let mut departures = Departures::default();
        departures.begin(key("a"), target, Duration::ZERO, MEMORY);
        processes(900);
        let proc = Path::new("/proc");
        departures.look(proc, Boot::now());
        processes(400);
        let late = Boot::now().plus(KILLED_COUNTS_FOR * 2);
        assert!(departures.look(proc, late).1.is_empty(), "400 of 900 are left");
        let later = late.plus(KILLED_COUNTS_FOR * 2);
        assert_eq!(departures.look(proc, later).1.len(), 1, "still 400");
    }

    #[test]
    fn a_departure_that_could_not_be_looked_at_in_time_gets_time_to_be() {
        let (_dir, target) = cgroup(1);
        let mut departures = Departures::default();
        departures.begin(key("a"), target, Duration::ZERO, MEMORY);
        let late = Boot::now().plus(KILLED_COUNTS_FOR * 2);
        assert!(departures.look(Path::new("/proc"), late).1.is_empty(), "the first look");
        let later = late.plus(KILLED_COUNTS_FOR * 2);
        assert_eq!(departures.look(Path::new("/proc"), later).1.len(), 1);
    }

    /// Policy counts in milliseconds: in the one of the deadline it must not give up what a look would give more time.
    #[test]
    fn a_departure_counts_for_policy_until_a_look_says_otherwise() {
        let (_dir, target) = cgroup(1);
        let mut departures = Departures::default();
        departures.begin(key("a"), target, Duration::ZERO, MEMORY);
        let clock = Clock::anchored_now();
        let proc = Path::new("/proc");
        departures.look(proc, Boot::now());
        let deadline = departures.all[0].deadline;
        assert!(departures.look(proc, deadline).1.is_empty());
        assert!(dying(&departures, &clock).unwrap().deadline > clock.time(deadline));
        let late = deadline.plus(Duration::from_nanos(1));
        assert_eq!(departures.look(proc, late).1.len(), 1);
        assert!(dying(&departures, &clock).unwrap().deadline <= clock.time(late));
    }

    #[test]
    fn for_task_ids_the_dead_count_until_somebody_has_waited_for_them() {
        let (dir, target) = cgroup(0);
        let Target::Cgroup { id, .. } = target else { unreachable!() };
        let ids = |n: u32| fs::write(dir.path().join("pids.current"), format!("{n}\n")).unwrap();
        ids(900);
        let proc = Path::new("/proc");
        let mut departures = Departures::default();
        departures.begin(key("a"), target.clone(), Duration::ZERO, MEMORY);
        assert_eq!(departures.look(proc, Boot::now()).0.len(), 1, "they hold no memory");
        departures.begin(key("a"), target, Duration::ZERO, (Some(Signal::PidAvailable), Some(900)));
        assert!(departures.look(proc, Boot::now()).0.is_empty());
        assert_eq!(departures.being_reaped(), [id]);
        let late = Boot::now().plus(KILLED_COUNTS_FOR * 2);
        assert_eq!(departures.look(proc, late).1.len(), 1, "nobody waits for them");
        assert!(departures.being_reaped().is_empty());
        ids(0);
        assert_eq!(departures.look(proc, late).0.len(), 1);
    }

    #[test]
    fn what_another_resource_should_give_back_is_not_taken_for_memory() {
        let (_dir, target) = cgroup(1);
        let mut departures = Departures::default();
        departures.begin(
            key("a"),
            target,
            Duration::ZERO,
            (Some(Signal::NodeFsAvailable), Some(1 << 40)),
        );
        assert_eq!(dying(&departures, &Clock::anchored_now()).unwrap().expected_free, None);
    }

    #[test]
    fn what_was_asked_is_killed_once_when_its_grace_is_over() {
        let (_dir, target) = cgroup(1);
        let mut departures = Departures::default();
        departures.begin(key("a"), target.clone(), Duration::from_secs(5), MEMORY);
        assert!(departures.take_overdue(Boot::now()).is_empty());
        let after = Boot::now().plus(Duration::from_secs(6));
        assert_eq!(departures.take_overdue(after), [target]);
        assert!(departures.take_overdue(after).is_empty());
    }
}
