//! The victims of an earlier pass, and what waits for them.
//!
//! Ends that were ordered are waited for before anything else is decided, as the kubelet does; what is dead of those victims, for want of disk, keeps thresholds on disk waiting and no others.
use super::Pass;
use crate::{
    Time, choose,
    extensions::fill::{self, Evidence},
    history::Waiting,
    limits::Threshold,
    plan::Note,
    pressure,
    snapshot::{FsLayout, ProtectedReason, Workload},
};

/// Whether the victims of the last pass are waited for.
pub(super) enum Wait {
    /// No.
    Over,
    /// Whatever else is the matter.
    Lasts,
    /// Unless a threshold is met for which one of them is killed before its grace is over.
    ForGrace(Waiting),
}

/// What is dead of the last victims for want of disk is waited for.
pub(super) struct DiskWait {
    /// Until when.
    pub(super) until: Time,
    /// Not only that: some of them have not ended.
    runs: bool,
}

impl<'a> Pass<'a, '_> {
    /// Whether the ends that the last pass ordered are waited for, and nothing else is done.
    pub(super) fn waits(&mut self) -> Wait {
        let Some(waiting) = self.history.waiting.take() else { return Wait::Over };
        if !self.still_runs(&waiting) || self.snapshot.taken_at >= waiting.until {
            return Wait::Over;
        }
        let may_take_its_time =
            |w: &&Workload| waiting.has(w) && choose::has_time_beyond(w, self.snapshot.taken_at);
        if self.active.iter().copied().any(|workload| may_take_its_time(&workload)) {
            return Wait::ForGrace(waiting);
        }
        pressure::repeat_conditions(self.history, self.plan);
        self.plan.notes.push(Note::WaitingForVictims { until: waiting.until });
        self.history.waiting = Some(waiting);
        Wait::Lasts
    }

    /// Whether thresholds on disk wait, because what is dead of the last victims for want of disk has not been removed yet.
    ///
    /// All others go on: the kubelet's memory notifiers do not wait either.
    pub(super) fn disk_wait(&mut self) -> Option<DiskWait> {
        let waiting = self.history.waiting_for_disk.take()?;
        let has_remains =
            |workload: &Workload| workload.termination.is_some() && waiting.has(workload);
        let runs = self.still_runs(&waiting);
        let still_there = runs || self.snapshot.workloads.iter().any(has_remains);
        if !still_there || self.snapshot.taken_at >= waiting.until {
            return None;
        }
        let wait = DiskWait { until: waiting.until, runs };
        self.history.waiting_for_disk = Some(waiting);
        Some(wait)
    }

    /// Whether a threshold on disk does not wait: nothing of the victims runs, and by the end of the wait somebody else has filled the filesystem. To remove what is dead of the victims takes a kubelet up to half a minute.
    pub(super) fn cannot_wait(
        &self,
        threshold: &Threshold,
        layout: Option<FsLayout>,
        wait: &DiskWait,
    ) -> bool {
        let evidence = layout.filter(|_| !wait.runs).and_then(|fs| self.evidence(threshold, fs));
        evidence.is_some_and(|evidence| self.is_filled_by(&evidence, wait.until))
    }

    /// Whether somebody who may go has filled the filesystem `at` that time, or so nearly that an eviction which begins then is too late.
    fn is_filled_by(&self, evidence: &Evidence<'_>, at: Time) -> bool {
        let now = self.snapshot.taken_at;
        let is_in_time = |left| now.plus(left) > at.plus(fill::EVICTION_TAKES);
        evidence.lasts
            && evidence.has_culprit(self.active)
            && fill::steady_time_left(self.snapshot, evidence.signal())
                .is_some_and(|left| !is_in_time(left))
    }

    /// Who uses and who fills the filesystem behind a threshold.
    pub(super) fn evidence(&self, threshold: &Threshold, layout: FsLayout) -> Option<Evidence<'a>> {
        let since = pressure::met_since(&self.history.first_observed, &threshold.id());
        let since = since.unwrap_or(self.snapshot.taken_at);
        let (signal, options) = (threshold.signal, self.limits.options());
        Evidence::gather(self.snapshot, self.active, signal, layout, since, options)
    }

    /// Whether nothing of a victim runs any more, and what is left of it comes back too late.
    pub(super) fn is_late(&self, workload: &Workload, evidence: Option<&Evidence<'_>>) -> bool {
        let runs = |active: &&Workload| {
            core::ptr::eq(*active, workload)
                && workload.protected != Some(ProtectedReason::NothingRuns)
        };
        let ends = workload.termination.filter(|ends| !ends.dry_run);
        ends.zip(evidence).is_some_and(|(ends, evidence)| {
            self.is_filled_by(evidence, ends.deadline) && !self.active.iter().any(runs)
        })
    }

    /// Whether one of these victims has not ended. What is left of a pod of which nothing runs has nothing more to give back but disk, and what cannot be killed gives nothing back.
    fn still_runs(&self, waiting: &Waiting) -> bool {
        let now = self.snapshot.taken_at;
        let ends = |workload: &&&Workload| {
            let counts = workload.termination.is_none_or(|ends| ends.counts_at(now));
            workload.protected != Some(ProtectedReason::NothingRuns) && counts
        };
        self.active.iter().filter(ends).any(|workload| waiting.has(workload))
    }
}
