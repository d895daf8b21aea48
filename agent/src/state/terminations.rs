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

mod gone;

use crate::clock::{Boot, Clock};
use crate::sense::cgroup::{Cgroup, Usage};
use ebb_journal::Target;
use ebb_policy::snapshot::{self, Workload, WorkloadKey};
use ebb_policy::{Millis, Signal, Time};
use gone::{Left, cgroups_of, is_gone, is_part_of};
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

/// Why a workload was chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// What is short.
    pub signal: Option<Signal>,
    /// What its end should free, in the unit of the signal.
    pub expected_free: Option<u64>,
    /// When that was decided; `None` where no decision of the loop is behind it.
    pub decision: Option<Time>,
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
    /// The decision by which it was chosen.
    pub decision: Option<Time>,
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
    pub fn begin(
        &mut self,
        key: WorkloadKey,
        target: Target,
        grace: Duration,
        Cause { signal, expected_free, decision }: Cause,
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
            decision,
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

    /// Takes in that nothing could happen for `lasted`, as seen at `now`: nobody could end meanwhile, or be seen to have ended, so nobody's time ran.
    ///
    /// Who was chosen within that time has from now on what was given then, and who was chosen after it a moment more.
    pub fn note_standstill(&mut self, lasted: Duration, now: Boot) {
        for termination in &mut self.all {
            let lasted = lasted.min(now.since(termination.chosen));
            let Termination { kill_at, resumes, deadline, .. } = termination;
            let given = kill_at.iter_mut().chain(resumes).chain([deadline]);
            given.for_each(|at| *at = at.plus(lasted));
        }
        for evicted in &mut self.evicted {
            evicted.at = evicted.at.without_standstill(lasted, now);
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

    /// Whether anybody is still to be seen gone, or to miss the deadline: what they give back is on its way.
    #[must_use]
    pub fn awaits_anybody(&self) -> bool {
        self.all.iter().any(|d| !d.stuck && !d.pretended)
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

    /// The decision that the end of `target` carries out, if it is on its way.
    #[must_use]
    pub fn decision_of(&self, target: &Target) -> Option<Time> {
        self.get(target)?.decision
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

#[cfg(test)]
mod tests;
