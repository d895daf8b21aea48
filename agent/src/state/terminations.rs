//! Victims that are terminating: chosen, told to terminate, not yet seen to be gone.
//!
//! ```text
//!  ordered ──SIGTERM, grace──► asked ──grace over──► killed ──empty──► gone
//!     └──────────kill now───────────────────────────────┘    └─deadline─► stuck: another may be chosen
//!                                                              └─ fewer processes or less memory than before: a new deadline
//! ```
//! Until its deadline a termination counts as memory that is coming back, so nothing more is chosen for the same need.
//! Once the node is no longer short, that need is met: for the next one it counts with what it holds still.
//! What terminates is the cgroups that were killed, never a pod's UID: what its kubelet starts under the same UID is a candidate at once.
//! In a dry run nothing terminates: the would-be victim counts with what it holds now, for as long as it runs.
//! One that was chosen for want of task ids is gone when its zombies are: each has its id until its parent has waited for it.

use crate::clock::{Boot, Clock};
use crate::sense::cgroup::{Cgroup, Usage};
use crate::sense::process::Process;
use ebb_journal::Target;
use ebb_policy::snapshot::{self, Workload, WorkloadKey};
use ebb_policy::{Millis, Signal};
use std::path::Path;
use std::time::Duration;

/// How long a killed workload may take before it no longer counts as coming back: exiting under memory pressure takes reclaim of its own.
const KILLED_COUNTS_FOR: Duration = Duration::from_secs(3);

/// How far ahead the deadline of a would-be victim of a dry run always is: it counts for as long as it runs.
const PRETENDED_COUNTS_FOR: Duration = Duration::from_secs(30);

/// How long a termination that missed its deadline is remembered, so that it is not chosen again at once.
const STUCK_FOR: Duration = Duration::from_secs(60);

/// How long a pod that has ended counts as giving back what it has on disk: its containers are removed after its end.
const REMAINS_COUNT_FOR: Duration = Duration::from_secs(30);

/// How long an eviction is remembered after its victim has terminated: what is started again in its place ranks first among equals.
const EVICTED_FOR: Duration = Duration::from_secs(600);

/// What of a termination is still there; both only ever fall once everything in it has been killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    processes: Option<u64>,
    memory: Option<u64>,
}

/// One workload on its way out.
#[derive(Clone, Debug, PartialEq)]
pub struct Termination {
    /// Who it is.
    pub key: WorkloadKey,
    /// By what identity it is ended.
    pub target: Target,
    /// When it was chosen.
    pub chosen: Boot,
    /// When it is killed if it has not ended by itself.
    pub kill_at: Option<Boot>,
    /// It is killed before its grace is over, which was to be then: where that is not done after all, the grace goes on.
    resumes: Option<Boot>,
    /// Until when it counts as coming back.
    pub deadline: Boot,
    /// What it was chosen for.
    pub signal: Option<Signal>,
    /// What it had been chosen for before, when it was chosen for that: its end is awaited there too.
    pub earlier: Vec<Signal>,
    /// What its end should free, in the unit of the signal; once that need was met, what is left of it.
    pub expected_free: Option<u64>,
    /// It was killed for want of memory, and since then there was enough.
    met: bool,
    /// It was seen to have missed its deadline, or could not be ended at all.
    pub stuck: bool,
    /// Nothing was done: a dry run.
    pub pretended: bool,
    /// It was told to end before somebody was sent to kill it: who finds nothing of it to kill has found its end.
    pub told: bool,
    /// What was left of it when that was last looked at.
    left: Option<Left>,
}

/// All terminations; there are never more than there are workloads.
#[derive(Debug, Default)]
pub struct Terminations {
    all: Vec<Termination>,
    /// Victims that have terminated, the oldest first.
    evicted: Vec<Evicted>,
}

/// A victim that has terminated.
#[derive(Debug)]
struct Evicted {
    key: WorkloadKey,
    /// When it was seen to have terminated.
    at: Boot,
    /// The cgroups of a pod that were killed.
    killed: Vec<u64>,
}

impl Evicted {
    /// Whether `workload` is what was evicted, or what was started again in its place.
    fn is_by(&self, workload: &WorkloadKey) -> bool {
        let WorkloadKey { name, uid, cgroup: _, process } = workload;
        process.is_none() && *name == self.key.name && *uid == self.key.uid
    }
}

impl Terminations {
    /// Notes that a workload was chosen: killed at once, or asked first when there is a grace period. Returns whether that cuts a grace short: then it is part of the eviction that gave it.
    ///
    /// `expected_free` is in the unit of the signal it was chosen for.
    pub fn begin(
        &mut self,
        key: WorkloadKey,
        target: Target,
        grace: Duration,
        (signal, expected_free): (Option<Signal>, Option<u64>),
    ) -> bool {
        let chosen = Boot::now();
        let is_cut =
            |d: &Termination| d.kill_at.is_some() && d.key == key && is_part_of(&target, &d.target);
        let resumes = self.all.iter().filter(|d| is_cut(d)).filter_map(|d| d.kill_at).max();
        let replaced = self.all.iter().filter(|d| d.target == target || is_cut(d));
        let mut earlier: Vec<Signal> = replaced.flat_map(Termination::signals).collect();
        earlier.retain(|one| Some(*one) != signal);
        earlier.dedup();
        let kill_at = (!grace.is_zero()).then(|| chosen.plus(grace));
        let deadline = chosen.plus(grace).plus(KILLED_COUNTS_FOR);
        self.all.retain(|d| d.target != target && !is_cut(d));
        self.all.push(Termination {
            key,
            target,
            chosen,
            kill_at,
            resumes,
            deadline,
            signal,
            earlier,
            expected_free,
            met: false,
            stuck: false,
            pretended: false,
            told: !grace.is_zero() || resumes.is_some(),
            // Not now: nothing is read between the choice and the kill that can be read after it.
            left: None,
        });
        resumes.is_some()
    }

    /// Notes that `target` was ended by other means than the job that is given for the rest of it.
    pub fn note_told(&mut self, target: &Target) {
        let termination = self.all.iter_mut().find(|d| &d.target == target);
        termination.into_iter().for_each(|termination| termination.told = true);
    }

    /// Notes that `target` was killed at `at`. Where the kill came through only after the deadline, because the kernel held it up, what it gives back is on its way from then on.
    pub fn note_killed(&mut self, target: &Target, at: Boot) {
        let late = self.all.iter_mut().find(|d| &d.target == target && d.stuck);
        if let Some(termination) = late {
            termination.stuck = false;
            termination.deadline = at.plus(KILLED_COUNTS_FOR);
            termination.left = None;
        }
    }

    /// Notes that available memory is above its threshold. Who was killed for want of it gives back from now on what it holds still, and no more: one of its processes may hang for as long as it likes, and what the others held is back.
    pub fn note_memory_is_back(&mut self) {
        let killed = self.all.iter_mut().filter(|d| d.kill_at.is_none() && !d.pretended);
        for termination in killed.filter(|d| d.signal == Some(Signal::MemoryAvailable)) {
            termination.met = true;
        }
    }

    /// Notes that nothing was found of `target`, which was to be killed. Of what was told to end before this is the end, which the next look sees; anything else is nobody's victim.
    pub fn found_none(&mut self, target: &Target) {
        if !self.get(target).is_some_and(|termination| termination.told) {
            self.cancel(target);
        }
    }

    /// Takes a termination back: it was not carried out. Returns whether an earlier one goes on instead, with the rest of its grace.
    pub fn cancel(&mut self, target: &Target) -> bool {
        let termination = self.all.iter_mut().find(|d| &d.target == target);
        if let Some(termination) = termination
            && let Some(kill_at) = termination.resumes.take()
        {
            termination.kill_at = Some(kill_at);
            termination.deadline = kill_at.plus(KILLED_COUNTS_FOR);
            return true;
        }
        self.all.retain(|d| &d.target != target);
        false
    }

    /// Notes that nothing was done about `target` because of a dry run: what it holds counts as freed for as long as it runs, as it would be had it been evicted.
    pub fn only_pretended(&mut self, target: &Target) {
        if let Some(termination) = self.all.iter_mut().find(|d| &d.target == target) {
            termination.pretended = true;
            termination.kill_at = None;
        }
    }

    /// Notes that `target` could not be ended: it counts for nothing, and is not chosen again for a while.
    pub fn fail(&mut self, target: &Target) {
        if let Some(termination) = self.all.iter_mut().find(|d| &d.target == target) {
            termination.stuck = true;
            termination.kill_at = None;
            termination.deadline = termination.chosen;
        }
    }

    /// Whether nothing is on its way out; a would-be victim of a dry run is not.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.iter().all(|d| d.pretended)
    }

    /// Whether a dry run takes somebody for evicted who runs on.
    #[must_use]
    pub fn has_would_be_victims(&self) -> bool {
        self.all.iter().any(|d| d.pretended)
    }

    /// Whether [`Terminations::look`] has anything to do: something is on its way out, or was a moment ago.
    #[must_use]
    pub fn are_remembered(&self) -> bool {
        !(self.all.is_empty() && self.evicted.is_empty())
    }

    /// Whether somebody who was killed, or is just being, is still to be seen gone, or to miss the deadline.
    #[must_use]
    pub fn are_dying(&self) -> bool {
        self.all.iter().any(|d| d.kill_at.is_none() && !d.stuck && !d.pretended)
    }

    /// Whether somebody who was chosen for `signal` is still to be seen gone, or to miss the deadline.
    #[must_use]
    pub fn awaits(&self, signal: Signal) -> bool {
        let mut own = self.all.iter().filter(|d| d.signals().any(|one| one == signal));
        own.any(|d| !d.stuck && !d.pretended)
    }

    /// Whether one of `workloads` is still to be seen gone, or to miss the deadline.
    #[must_use]
    pub fn awaits_any(&self, workloads: &[WorkloadKey]) -> bool {
        let mut own = self.all.iter().filter(|d| workloads.contains(&d.key));
        own.any(|d| !d.stuck && !d.pretended)
    }

    /// The termination by `target`, if it is on its way.
    #[must_use]
    pub fn get(&self, target: &Target) -> Option<&Termination> {
        self.all.iter().find(|d| &d.target == target)
    }

    /// Begins the grace of `target` at `now`: until then nobody had asked it to end.
    pub fn begin_grace(&mut self, target: &Target, grace: Duration, now: Boot) {
        let waits = |d: &&mut Termination| &d.target == target && d.kill_at.is_some();
        if let Some(termination) = self.all.iter_mut().find(waits) {
            let kill_at = now.plus(grace);
            termination.kill_at = Some(kill_at);
            termination.deadline = kill_at.plus(KILLED_COUNTS_FOR);
        }
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
    ///
    /// Before the node is read: what is given back in between counts twice, rather than not at all.
    pub fn look(&mut self, proc: &Path, now: Boot) -> (Vec<Termination>, Vec<Termination>) {
        let (gone, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.all).into_iter().partition(|d| d.is_gone(proc));
        self.all = rest;
        self.evicted.retain(|evicted| now.since(evicted.at) < EVICTED_FOR);
        for termination in gone.iter().filter(|d| !d.pretended) {
            let mut killed = Vec::new();
            if matches!(termination.target, Target::Pod { .. }) {
                killed.extend(cgroups_of(&termination.target).map(|(id, _)| id));
            }
            self.evicted.push(Evicted { key: termination.key.clone(), at: now, killed });
        }
        let mut stuck = Vec::new();
        for termination in self.all.iter_mut().filter(|d| !d.pretended) {
            if termination.met {
                let known = [termination.expected_free, termination.held()];
                termination.expected_free = known.into_iter().flatten().min();
            }
            if termination.left.is_none() {
                termination.left = Left::of(&termination.target);
                if !termination.stuck && termination.left.is_some() && now > termination.deadline {
                    // It could not be looked at before, so nothing is known of how it goes.
                    termination.deadline = now.plus(KILLED_COUNTS_FOR);
                }
            }
            if !termination.stuck && now > termination.deadline {
                let left = Left::of(&termination.target);
                if left.zip(termination.left).is_some_and(|(now, before)| now.is_less_than(before))
                {
                    termination.left = left;
                    termination.deadline = now.plus(KILLED_COUNTS_FOR);
                    continue;
                }
                termination.stuck = true;
                stuck.push(termination.clone());
            }
        }
        self.all.retain(|d| d.pretended || now.since(d.deadline) < STUCK_FOR);
        (gone, stuck)
    }

    /// When something about the terminations changes by itself.
    #[must_use]
    pub fn next_change(&self) -> Option<Boot> {
        let times = self.all.iter().filter(|d| !d.stuck && !d.pretended);
        times.map(|d| d.kill_at.unwrap_or(d.deadline)).min()
    }

    /// How policy sees what of `workload` is on its way out at `now`; `restarted` says that something of it was started since, and runs.
    #[must_use]
    pub fn of(
        &self,
        workload: &Workload,
        restarted: bool,
        clock: &Clock,
        now: Boot,
    ) -> Option<snapshot::Termination> {
        let own = self.all.iter().filter(|d| d.key == workload.key);
        own.map(|d| d.seen(workload, restarted, clock, now))
            .reduce(together)
            .or_else(|| self.remains(&workload.key, restarted, clock, now))
    }

    /// What an evicted pod of which nothing runs any more has to give: no memory, but its disk until it can be gone.
    fn remains(
        &self,
        key: &WorkloadKey,
        restarted: bool,
        clock: &Clock,
        now: Boot,
    ) -> Option<snapshot::Termination> {
        let is_left = |e: &&Evicted| {
            !e.killed.is_empty() && &e.key == key && now.since(e.at) < REMAINS_COUNT_FOR
        };
        let left = self.evicted.iter().rev().find(is_left).filter(|_| !restarted)?;
        Some(snapshot::Termination {
            since: clock.time(left.at),
            deadline: clock.time(left.at.plus(REMAINS_COUNT_FOR)),
            expected_free: Some(0),
            kill_at: None,
            restarted: false,
            dry_run: false,
        })
    }

    /// When the last victim terminated in whose place `workload` was started.
    #[must_use]
    pub fn evicted(&self, workload: &WorkloadKey) -> Option<Boot> {
        let is_another = |evicted: &&Evicted| {
            // A cgroup with the same id is the victim itself, not what was started in its place.
            evicted.is_by(workload) && (workload.cgroup.is_none() || evicted.key != *workload)
        };
        self.evicted.iter().rev().find(is_another).map(|evicted| evicted.at)
    }

    /// Whether the cgroup `id` is on its way out, or would be but for the dry run.
    #[must_use]
    pub fn has(&self, id: u64) -> bool {
        self.all.iter().any(|d| cgroups_of(&d.target).any(|(own, _)| own == id))
    }

    /// Whether the cgroup `id` was that of a pod's container that was killed, and nothing runs in it any more.
    #[must_use]
    pub fn had(&self, id: u64) -> bool {
        self.evicted.iter().any(|evicted| evicted.killed.contains(&id))
    }

    /// The ids of cgroups that count although nothing runs in them any more: their zombies have task ids that are on their way back.
    #[must_use]
    pub fn being_reaped(&self) -> Vec<u64> {
        let for_ids = self.all.iter().filter(|d| d.is_for_ids() && !d.stuck);
        for_ids.flat_map(|d| cgroups_of(&d.target).map(|(id, _)| id)).collect()
    }
}

/// Two parts of one workload that are on their way out.
fn together(one: snapshot::Termination, other: snapshot::Termination) -> snapshot::Termination {
    let sum = one.expected_free.zip(other.expected_free).map(|(a, b)| a.saturating_add(b));
    snapshot::Termination {
        since: one.since.min(other.since),
        deadline: one.deadline.max(other.deadline),
        expected_free: sum,
        kill_at: one.kill_at.max(other.kill_at),
        restarted: one.restarted,
        dry_run: one.dry_run && other.dry_run,
    }
}

impl Termination {
    /// What it was chosen for, the last first.
    pub fn signals(&self) -> impl Iterator<Item = Signal> + '_ {
        self.signal.into_iter().chain(self.earlier.iter().copied())
    }

    /// How policy sees it.
    fn seen(
        &self,
        workload: &Workload,
        restarted: bool,
        clock: &Clock,
        now: Boot,
    ) -> snapshot::Termination {
        let since = clock.time(self.chosen);
        let of_the_workload = || workload.stats.as_ref().and_then(|s| s.memory?.working_set());
        if self.pretended {
            let held = if restarted { self.held() } else { of_the_workload() };
            return snapshot::Termination {
                since,
                deadline: clock.time(now.plus(PRETENDED_COUNTS_FOR)),
                expected_free: held,
                kill_at: None,
                restarted,
                dry_run: true,
            };
        }
        let mut deadline = clock.time(self.deadline);
        if !self.stuck {
            // A look past the deadline may give it another: it counts until then, also in the millisecond in which that is.
            deadline = clock.time(self.deadline.max(now)).plus(Millis(1));
        }
        let is_for_memory = self.signal.is_none_or(Signal::is_memory);
        let expected_free = if is_for_memory {
            self.expected_free
        } else {
            // What was expected is in another unit.
            of_the_workload().filter(|_| !restarted)
        };
        let kill_at = self.kill_at.map(|at| clock.time(at));
        snapshot::Termination { since, deadline, expected_free, kill_at, restarted, dry_run: false }
    }

    /// Bytes of memory that its cgroups hold now, less page cache that was not used twice of late.
    fn held(&self) -> Option<u64> {
        let of = |(id, path): (u64, &Path)| {
            let mut usage = Usage::default();
            Cgroup::open(path, id).ok()?.read_memory(&mut usage, &mut Vec::new());
            Some(usage.current?.saturating_sub(usage.inactive_file.unwrap_or_default()))
        };
        cgroups_of(&self.target).filter_map(of).reduce(u64::saturating_add)
    }

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

/// Whether all that is ended with `target` is ended with `whole` too.
fn is_part_of(target: &Target, whole: &Target) -> bool {
    match (target, whole) {
        (Target::Process { .. }, _) | (_, Target::Process { .. }) => target == whole,
        _ => cgroups_of(target).all(|(id, _)| cgroups_of(whole).any(|(own, _)| own == id)),
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
            (process.id.pid_t(), process.id.start_time) != (*pid, *start) || process.state == 'Z'
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_journal::Payload;
    use ebb_policy::snapshot::{MemoryUsage, Stats};
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

    fn of(terminations: &Terminations, clock: &Clock) -> Option<snapshot::Termination> {
        of_at(terminations, clock, Boot::now())
    }

    fn of_at(
        terminations: &Terminations,
        clock: &Clock,
        now: Boot,
    ) -> Option<snapshot::Termination> {
        let workload = Workload { key: key("a"), ..Workload::default() };
        terminations.of(&workload, false, clock, now)
    }

    fn pod(cgroups: &[Target]) -> Target {
        let payload = |target: &Target| match target {
            Target::Cgroup { id, path } => Payload { id: *id, path: path.clone() },
            other => panic!("{other:?}"),
        };
        Target::Pod { uid: "u".into(), payloads: cgroups.iter().map(payload).collect() }
    }

    const MEMORY: (Option<Signal>, Option<u64>) = (Some(Signal::MemoryAvailable), Some(7));

    #[test]
    fn a_grace_that_is_cut_short_goes_on_where_nobody_was_killed_after_all() {
        let ((_a, first), (_b, second)) = (cgroup(1), cgroup(1));
        let (both, rest) = (pod(&[first.clone(), second]), pod(&[first]));
        let grace = Duration::from_secs(30);
        let mut terminations = Terminations::default();
        assert!(!terminations.begin(key("a"), both.clone(), grace, MEMORY));
        let kill_at = terminations.get(&both).unwrap().kill_at;
        let clock = Clock::of_process();
        assert_eq!(of(&terminations, &clock).unwrap().kill_at, kill_at.map(|at| clock.time(at)));
        // One of its containers has ended meanwhile.
        assert!(terminations.begin(key("a"), rest.clone(), Duration::ZERO, MEMORY));
        assert_eq!(of(&terminations, &clock).unwrap().kill_at, None);
        assert!(terminations.take_overdue(kill_at.unwrap().plus(grace)).is_empty());
        assert!(terminations.cancel(&rest));
        assert_eq!(terminations.get(&rest).unwrap().kill_at, kill_at);
        // What was started beside it since is another eviction.
        let (_c, third) = cgroup(1);
        assert!(!terminations.begin(key("a"), pod(&[third]), Duration::ZERO, MEMORY));
        assert_eq!(terminations.get(&rest).unwrap().kill_at, kill_at);
    }

    #[test]
    fn who_is_chosen_for_something_else_in_its_grace_is_awaited_by_both() {
        let (_dir, target) = cgroup(1);
        let (memory, disk) = (Signal::MemoryAvailable, Signal::NodeFsAvailable);
        let mut terminations = Terminations::default();
        let grace = Duration::from_secs(1);
        terminations.begin(key("a"), target.clone(), grace, (Some(disk), Some(9)));
        assert!(terminations.awaits(disk) && !terminations.awaits(memory));
        terminations.begin(key("a"), target.clone(), Duration::ZERO, MEMORY);
        assert!(terminations.awaits(disk) && terminations.awaits(memory));
        assert_eq!(
            terminations.get(&target).unwrap().signals().collect::<Vec<_>>(),
            [memory, disk]
        );
        terminations.begin(key("a"), target.clone(), Duration::ZERO, MEMORY);
        assert_eq!(
            terminations.get(&target).unwrap().signals().collect::<Vec<_>>(),
            [memory, disk]
        );
    }

    #[test]
    fn a_termination_counts_until_it_is_seen_to_be_gone() {
        let (dir, target) = cgroup(1);
        let mut terminations = Terminations::default();
        terminations.begin(key("a"), target, Duration::ZERO, MEMORY);
        let clock = Clock::of_process();
        assert_eq!(of(&terminations, &clock).unwrap().expected_free, Some(7));
        assert!(terminations.look(Path::new("/proc"), Boot::now()).0.is_empty());
        fs::write(dir.path().join("cgroup.events"), "populated 0\n").unwrap();
        let (gone, stuck) = terminations.look(Path::new("/proc"), Boot::now());
        assert_eq!((gone.len(), stuck.len()), (1, 0));
        assert!(terminations.is_empty());
    }

    /// One of its processes hangs and holds a byte; the others held six.
    #[test]
    fn for_the_next_need_a_termination_counts_with_what_it_holds_still() {
        let (dir, target) = cgroup(1);
        fs::write(dir.path().join("memory.current"), "1\n").unwrap();
        let mut terminations = Terminations::default();
        terminations.begin(key("a"), target, Duration::ZERO, MEMORY);
        let clock = Clock::of_process();
        let expected = |terminations: &mut Terminations| {
            terminations.look(Path::new("/proc"), Boot::now());
            of(terminations, &clock).unwrap().expected_free
        };
        assert_eq!(expected(&mut terminations), Some(7), "free pages may be counted late");
        terminations.note_memory_is_back();
        assert_eq!(expected(&mut terminations), Some(1));
    }

    #[test]
    fn a_pod_that_has_ended_has_no_memory_to_give_but_counts_until_its_remains_can_be_gone() {
        let (_dir, ended) = cgroup(0);
        let mut terminations = Terminations::default();
        terminations.begin(key("a"), pod(&[ended]), Duration::ZERO, MEMORY);
        let now = Boot::now();
        assert_eq!(terminations.look(Path::new("/proc"), now).0.len(), 1);
        let clock = Clock::of_process();
        let seen = of(&terminations, &clock).unwrap();
        assert_eq!(seen.expected_free, Some(0));
        assert_eq!(seen.deadline, clock.time(now.plus(REMAINS_COUNT_FOR)));
        assert!(terminations.is_empty(), "there is nothing to wait for");
        let later = now.plus(REMAINS_COUNT_FOR);
        assert!(of_at(&terminations, &clock, later).is_none());
    }

    #[test]
    fn what_is_started_again_under_the_same_uid_is_not_terminating_and_the_killed_cgroups_are() {
        let (dir, killed) = cgroup(1);
        let Target::Cgroup { id, .. } = killed else { unreachable!() };
        let mut terminations = Terminations::default();
        terminations.begin(key("a"), pod(&[killed]), Duration::ZERO, MEMORY);
        assert!(terminations.has(id) && !terminations.has(id + 1));
        let workload = Workload { key: key("a"), ..Workload::default() };
        let clock = Clock::of_process();
        let seen = terminations.of(&workload, true, &clock, Boot::now()).unwrap();
        assert!(seen.restarted, "the rest is a candidate");
        assert_eq!(seen.expected_free, Some(7), "what was killed still counts");
        fs::write(dir.path().join("cgroup.events"), "populated 0\n").unwrap();
        terminations.look(Path::new("/proc"), Boot::now());
        assert!(terminations.had(id) && !terminations.has(id));
        assert!(terminations.of(&workload, true, &clock, Boot::now()).is_none(), "it is over");
        assert!(terminations.evicted(&workload.key).is_some());
    }

    #[test]
    fn a_would_be_victim_of_a_dry_run_counts_with_what_it_holds_for_as_long_as_it_runs() {
        let (dir, target) = cgroup(1);
        let mut terminations = Terminations::default();
        terminations.begin(key("a"), target.clone(), Duration::ZERO, MEMORY);
        terminations.only_pretended(&target);
        assert!(terminations.is_empty() && terminations.next_change().is_none());
        let holds = |bytes: u64| Workload {
            key: key("a"),
            stats: Some(Stats {
                memory: Some(MemoryUsage { usage: Some(bytes), ..MemoryUsage::default() }),
                ..Stats::default()
            }),
            ..Workload::default()
        };
        let clock = Clock::of_process();
        let proc = Path::new("/proc");
        for (hours, bytes) in [(0, 7), (1, 900), (100, 3)] {
            let now = Boot::now().plus(Duration::from_secs(hours * 3600));
            assert_eq!(terminations.look(proc, now), (Vec::new(), Vec::new()));
            let seen = terminations.of(&holds(bytes), false, &clock, now).unwrap();
            assert_eq!((seen.expected_free, seen.dry_run), (Some(bytes), true));
            assert!(seen.deadline > clock.time(now));
        }
        fs::write(dir.path().join("cgroup.events"), "populated 0\n").unwrap();
        assert_eq!(terminations.look(proc, Boot::now()).0.len(), 1);
        assert!(terminations.of(&holds(7), false, &clock, Boot::now()).is_none());
        assert!(terminations.evicted(&key("a")).is_none(), "nobody evicted it");
    }

    #[test]
    fn a_termination_past_its_deadline_is_told_once_and_then_remembered_for_a_while() {
        let (_dir, target) = cgroup(1);
        let mut terminations = Terminations::default();
        terminations.begin(key("a"), target, Duration::ZERO, MEMORY);
        terminations.look(Path::new("/proc"), Boot::now());
        let late = Boot::now().plus(KILLED_COUNTS_FOR * 2);
        assert_eq!(terminations.look(Path::new("/proc"), late).1.len(), 1);
        assert_eq!(terminations.look(Path::new("/proc"), late).1.len(), 0);
        assert!(!terminations.is_empty());
        terminations.look(Path::new("/proc"), late.plus(STUCK_FOR));
        assert!(terminations.is_empty());
    }

    /// Its grace is over, and it ends between the look that sees it and the kill.
    #[test]
    fn a_kill_that_finds_nothing_takes_back_only_what_was_not_told_to_end() {
        let proc = Path::new("/proc");
        for (grace, is_shot, ends) in [(0, false, 0), (1, false, 1), (0, true, 1)] {
            let (dir, target) = cgroup(1);
            let mut terminations = Terminations::default();
            let grace = Duration::from_secs(grace);
            terminations.begin(key("a"), target.clone(), grace, MEMORY);
            if is_shot {
                terminations.note_told(&target);
            }
            terminations.take_overdue(Boot::now().plus(grace));
            assert!(terminations.look(proc, Boot::now()).0.is_empty());
            fs::write(dir.path().join("cgroup.events"), "populated 0\n").unwrap();
            terminations.found_none(&target);
            let (gone, _) = terminations.look(proc, Boot::now());
            assert_eq!(gone.len(), ends, "{grace:?}, by the reflex: {is_shot}");
            assert!(terminations.is_empty());
        }
    }

    #[test]
    fn a_termination_that_gets_smaller_is_not_stuck() {
        let (dir, target) = cgroup(1);
        let processes =
            |n: u32| fs::write(dir.path().join("pids.current"), format!("{n}\n")).unwrap();
        let mut terminations = Terminations::default();
        terminations.begin(key("a"), target, Duration::ZERO, MEMORY);
        processes(900);
        let proc = Path::new("/proc");
        terminations.look(proc, Boot::now());
        processes(400);
        let late = Boot::now().plus(KILLED_COUNTS_FOR * 2);
        assert!(terminations.look(proc, late).1.is_empty(), "400 of 900 are left");
        let later = late.plus(KILLED_COUNTS_FOR * 2);
        assert_eq!(terminations.look(proc, later).1.len(), 1, "still 400");
    }

    #[test]
    fn a_termination_that_could_not_be_looked_at_in_time_gets_time_to_be() {
        let (_dir, target) = cgroup(1);
        let mut terminations = Terminations::default();
        terminations.begin(key("a"), target, Duration::ZERO, MEMORY);
        let late = Boot::now().plus(KILLED_COUNTS_FOR * 2);
        assert!(terminations.look(Path::new("/proc"), late).1.is_empty(), "the first look");
        let later = late.plus(KILLED_COUNTS_FOR * 2);
        assert_eq!(terminations.look(Path::new("/proc"), later).1.len(), 1);
    }

    /// Policy counts in milliseconds: in the one of the deadline it must not give up what a look would give more time.
    #[test]
    fn a_termination_counts_for_policy_until_a_look_says_otherwise() {
        let (_dir, target) = cgroup(1);
        let mut terminations = Terminations::default();
        terminations.begin(key("a"), target, Duration::ZERO, MEMORY);
        let clock = Clock::of_process();
        let proc = Path::new("/proc");
        terminations.look(proc, Boot::now());
        let deadline = terminations.all[0].deadline;
        assert!(terminations.look(proc, deadline).1.is_empty());
        assert!(of(&terminations, &clock).unwrap().deadline > clock.time(deadline));
        let late = deadline.plus(Duration::from_millis(5));
        let seen =
            |terminations: &Terminations| of_at(terminations, &clock, late).unwrap().deadline;
        assert!(seen(&terminations) > clock.time(late), "not looked at yet");
        assert_eq!(terminations.look(proc, late).1.len(), 1);
        assert!(seen(&terminations) <= clock.time(late));
    }

    #[test]
    fn for_task_ids_the_dead_count_until_somebody_has_waited_for_them() {
        let (dir, target) = cgroup(0);
        let Target::Cgroup { id, .. } = target else { unreachable!() };
        let ids = |n: u32| fs::write(dir.path().join("pids.current"), format!("{n}\n")).unwrap();
        ids(900);
        let proc = Path::new("/proc");
        let mut terminations = Terminations::default();
        terminations.begin(key("a"), target.clone(), Duration::ZERO, MEMORY);
        assert_eq!(terminations.look(proc, Boot::now()).0.len(), 1, "they hold no memory");
        terminations.begin(
            key("a"),
            target,
            Duration::ZERO,
            (Some(Signal::PidAvailable), Some(900)),
        );
        assert!(terminations.look(proc, Boot::now()).0.is_empty());
        assert_eq!(terminations.being_reaped(), [id]);
        let late = Boot::now().plus(KILLED_COUNTS_FOR * 2);
        assert_eq!(terminations.look(proc, late).1.len(), 1, "nobody waits for them");
        assert!(terminations.being_reaped().is_empty());
        ids(0);
        assert_eq!(terminations.look(proc, late).0.len(), 1);
    }

    #[test]
    fn what_another_resource_should_give_back_is_not_taken_for_memory() {
        let (_dir, target) = cgroup(1);
        let mut terminations = Terminations::default();
        terminations.begin(
            key("a"),
            target,
            Duration::ZERO,
            (Some(Signal::NodeFsAvailable), Some(1 << 40)),
        );
        assert_eq!(of(&terminations, &Clock::of_process()).unwrap().expected_free, None);
    }

    /// A kill that hung for longer than the deadline, and then came through.
    #[test]
    fn what_is_killed_after_its_deadline_counts_from_then_on() {
        let (_dir, target) = cgroup(1);
        let proc = Path::new("/proc");
        let clock = Clock::of_process();
        let mut terminations = Terminations::default();
        terminations.begin(key("a"), target.clone(), Duration::ZERO, MEMORY);
        terminations.look(proc, Boot::now());
        let late = terminations.all[0].deadline.plus(Duration::from_secs(1));
        assert_eq!(terminations.look(proc, late).1.len(), 1);
        let counts = |terminations: &Terminations| {
            of_at(terminations, &clock, late).unwrap().deadline > clock.time(late)
        };
        assert!(!counts(&terminations), "its time is over");
        terminations.note_killed(&target, late);
        assert!(counts(&terminations));
        let later = late.plus(KILLED_COUNTS_FOR * 2);
        assert!(terminations.look(proc, later).1.is_empty(), "it was not looked at since");
        let later = later.plus(KILLED_COUNTS_FOR * 2);
        assert_eq!(terminations.look(proc, later).1.len(), 1, "it does not go");
    }

    #[test]
    fn what_was_asked_is_killed_once_when_its_grace_is_over() {
        let (_dir, target) = cgroup(1);
        let mut terminations = Terminations::default();
        terminations.begin(key("a"), target.clone(), Duration::from_secs(5), MEMORY);
        assert!(terminations.take_overdue(Boot::now()).is_empty() && !terminations.are_dying());
        let after = Boot::now().plus(Duration::from_secs(6));
        assert_eq!(terminations.take_overdue(after), [target]);
        assert!(terminations.take_overdue(after).is_empty() && terminations.are_dying());
    }
}
