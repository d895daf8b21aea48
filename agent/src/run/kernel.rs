//! What the kernel told: taken into the state, reported where an operator wants to know, and answered by a look where it is urgent.

use super::oom_kills::Place;
use super::watch::Watch;
use super::{Agent, LOCAL_EVERY};
use crate::clock::Boot;
use crate::sense::tree::MAX_DEPTH;
use crate::testing;
use ebb_journal::{Loss, Losses, OomConstraint, Part, Record};
use ebb_policy::snapshot::{CgroupId, OomKill};
use ebb_probes::{CgroupChange, Fact, FallWatch, KernelEvent, Lost, OomLimit, Probes, Totals};
use std::time::Duration;

/// How often at most the counters of the kernel side are read.
const COUNTED_EVERY: Duration = Duration::from_millis(100);

/// The kernel's side: the attached programs, and what they told that was not taken in yet.
pub(super) struct KernelFeed {
    /// `None` without any, or when it is lost for good.
    pub(super) probes: Option<Probes>,
    /// What wakes the loop when memory falls; `None` where the kernel cannot.
    pub(super) fall: Option<FallWatch>,
    pub(super) told: Vec<KernelEvent>,
    /// What was lost, as last read.
    lost: Lost,
    lost_looked: Boot,
    /// Records have come since losses were looked for: where none come none are lost.
    may_have_lost: bool,
    counted: Option<Boot>,
}

impl KernelFeed {
    pub(super) fn new(probes: Option<Probes>, fall: Option<FallWatch>) -> Self {
        Self {
            probes,
            fall,
            told: Vec::new(),
            lost: Lost::default(),
            lost_looked: Boot::now(),
            may_have_lost: true,
            counted: None,
        }
    }

    /// Takes what the kernel has told by now, without waiting for more; returns whether that is anything.
    fn hear(&mut self) -> bool {
        if let Some(probes) = &mut self.probes {
            probes.take_told(&mut self.told);
        }
        !self.told.is_empty()
    }

    /// What it has told, to be taken in.
    fn take_told(&mut self) -> Vec<KernelEvent> {
        self.may_have_lost = true;
        std::mem::take(&mut self.told)
    }

    /// What the programs count of each workload, every [`COUNTED_EVERY`] at most.
    fn totals(&mut self, now: Boot) -> Option<Totals> {
        if self.counted.is_some_and(|at| now.since(at) < COUNTED_EVERY) {
            return None;
        }
        self.counted = Some(now);
        self.probes.as_ref()?.totals().ok()
    }

    /// What was lost since that was last asked, at most once a second and only after records have come: a record is lost when a ring is full of others.
    fn losses(&mut self, now: Boot) -> Option<(u64, Losses)> {
        if !self.may_have_lost || now.since(self.lost_looked) < Duration::from_secs(1) {
            return None;
        }
        self.lost_looked = now;
        self.may_have_lost = false;
        let lost = self.probes.as_ref()?.lost().ok()?;
        let records = lost.total().saturating_sub(self.lost.total());
        if records == 0 {
            return None;
        }
        let kinds = losses(&lost, &self.lost);
        self.lost = lost;
        Some((records, kinds))
    }
}

/// What the kernel spells out paths for.
const OF_CGROUPS: [Fact; 5] = [
    Fact::CgroupsCreated,
    Fact::CgroupsRemoved,
    Fact::CgroupsRenamed,
    Fact::CgroupsReleased,
    Fact::CgroupsPopulated,
];

fn is_about_a_deep_cgroup(event: &KernelEvent) -> bool {
    let KernelEvent::Cgroup { level, .. } = event else { return false };
    usize::try_from(*level).is_ok_and(|level| level >= MAX_DEPTH)
}

impl Agent {
    /// Takes in what the kernel told, and looks at the node when that is urgent.
    pub(super) fn on_kernel(&mut self) {
        let is_urgent = self.take_in_told();
        self.look_for_losses();
        let has_terminations = self.state.has_terminations();
        if is_urgent || self.node.local_due || has_terminations {
            self.count();
            self.look(false);
        }
    }

    /// Takes in what the kernel has told by now, without waiting for more.
    ///
    /// A look does so after it has read the node: whoever took the memory that is gone was there before, and is known then.
    /// In the other order an ebb that got no processor for a while finds the node short and the newcomer missing, and evicts
    /// somebody else.
    pub(super) fn hear_the_kernel(&mut self) {
        if self.kernel.hear() {
            self.take_in_told();
        }
        let storm = oom_storm_in();
        if !storm.is_empty() && self.watches.episodes_mut().next().is_some() {
            storm.into_iter().for_each(|cgroup| self.take_in_storm(cgroup));
        }
    }

    /// As if the kernel had told of twenty kills at this cgroup's own limit.
    fn take_in_storm(&mut self, cgroup: u64) {
        let (now, path) = (Boot::now(), self.state.path_of(cgroup));
        let limit = OomConstraint::Cgroup { id: cgroup, path };
        for _ in 0..20 {
            let kill = OomKill {
                victim: "EBB_TEST_OOM_STORM".to_owned(),
                pid: 7,
                constraint: limit.for_policy(),
                at: None,
                started_at: None,
                oom_score_adj: None,
                cgroup: Some(CgroupId(cgroup)),
            };
            self.take_in_oom_kill(kill, limit.clone(), now, now);
        }
    }

    /// Takes in what the kernel told; returns whether the node is to be looked at for that.
    fn take_in_told(&mut self) -> bool {
        let mut is_urgent = false;
        let mut is_deep = false;
        for event in self.kernel.take_told() {
            self.state.observe_kernel(&event);
            is_deep |= is_about_a_deep_cgroup(&event);
            match event {
                KernelEvent::OomKill {
                    ts_ns,
                    pid,
                    started_ns,
                    comm,
                    victim_cgroup,
                    limit,
                    oom_score_adj,
                } => {
                    is_urgent = true;
                    let limit = match limit {
                        OomLimit::Node => OomConstraint::Node,
                        OomLimit::Cgroup(id) => {
                            OomConstraint::Cgroup { id, path: self.state.path_of(id) }
                        }
                        OomLimit::CgroupV1(id) => OomConstraint::CgroupV1 { id },
                        OomLimit::Unknown => OomConstraint::Unknown,
                    };
                    let clock = self.state.clock();
                    let kill = OomKill {
                        victim: comm.to_string(),
                        pid,
                        constraint: limit.for_policy(),
                        at: Some(clock.time(Boot(ts_ns))),
                        started_at: Some(clock.time(Boot(started_ns))),
                        oom_score_adj: Some(oom_score_adj),
                        cgroup: Some(CgroupId(victim_cgroup)),
                    };
                    self.take_in_oom_kill(kill, limit, Boot(ts_ns), Boot(started_ns));
                }
                KernelEvent::KswapdWake { .. } => is_urgent = true,
                KernelEvent::MemoryEvent { .. } => {
                    let last = self.state.sampled();
                    self.node.local_due |=
                        last.is_none_or(|at| Boot::now().since(at) > LOCAL_EVERY);
                }
                KernelEvent::Cgroup { change: CgroupChange::Created, path: Some(path), .. } => {
                    if let Some(reconciler) = &self.reconciling.running {
                        reconciler.created(&path);
                    }
                }
                // A container has ended. The runtime may tell so too, but not every runtime does.
                KernelEvent::Cgroup { change: CgroupChange::Populated(false), id, .. } => {
                    if let Some(runtime) = &self.runtime
                        && let Some(path) = self.state.path_in_a_pod(id)
                    {
                        runtime.has_ended(path.to_owned());
                    }
                }
                KernelEvent::Cgroup { .. } | KernelEvent::Exit { .. } => {}
            }
        }
        if is_deep {
            self.hear_no_more_of_cgroups();
        }
        is_urgent
    }

    /// Takes the programs out that tell of cgroups, where those are nested too deep to be told of: the tree is read instead.
    ///
    /// While anybody listens, the kernel spells out the path of each cgroup that changes, and of each above it that is filled or emptied with it, with interrupts off. That takes the cube of how deep it lies: half a second for each process that is moved, 800 deep, and whoever was handed a tree nests as deep as he likes.
    pub(super) fn hear_no_more_of_cgroups(&mut self) {
        let Some(probes) = self.kernel.probes.as_mut() else { return };
        let why = format!("cgroups are nested {MAX_DEPTH} deep or more");
        if !OF_CGROUPS.into_iter().any(|fact| probes.tells(fact)) {
            return;
        }
        probes.detach(&OF_CGROUPS, &why);
        self.state.tree_events_are_live(false);
        self.reporter.tell_degraded(
            Part::KernelEvents,
            format!("{why}, and to tell of their changes would hold the kernel up: until ebb is started again the tree is read instead"),
        );
    }

    /// Has a kill by the kernel told, noted in the episodes that are open, and known to the next decision.
    fn take_in_oom_kill(&mut self, kill: OomKill, limit: OomConstraint, at: Boot, started: Boot) {
        let clock = self.state.clock();
        let cgroup = kill.cgroup.map(|id| id.0);
        let path = cgroup.and_then(|id| self.state.path_of(id));
        let place = path.clone().or_else(|| cgroup.map(|id| format!("cgroup {id}")));
        let who = format!("{} (pid {}) in {}", kill.victim, kill.pid, place.unwrap_or_default());
        for episode in self.watches.episodes_mut() {
            episode.note_oom_kill(&limit, at, who.clone());
        }
        if let Some(metrics) = self.reporter.metrics() {
            metrics.count_oom_kill(&limit);
        }
        let place = self.place_of(&limit, cgroup);
        let record = Record::OomKill {
            comm: kill.victim.clone(),
            pid: kill.pid,
            cgroup,
            path,
            limit,
            killed_at: clock.unix_ms(at),
            started_at: clock.unix_ms(started),
            oom_score_adj: kill.oom_score_adj.unwrap_or_default(),
            not_told: 0,
        };
        let entry = self.reporter.entry(at, record);
        if let Some(entry) = self.told.oom_kills.observe(place, at, entry) {
            self.reporter.tell_entry(entry);
        }
        self.state.observe_oom_kill(kill);
    }

    /// Whose limit it was; where that is not known, where the victim was.
    fn place_of(&self, limit: &OomConstraint, victim: Option<u64>) -> Place {
        let below = |id: Option<u64>, or| match id {
            // Of a cgroup that is gone already nobody knows whose it was.
            Some(id) => self.state.named_part(id).map_or(Place::Others, Place::Cgroup),
            None => or,
        };
        match limit {
            OomConstraint::Cgroup { id, .. } => below(Some(*id), Place::Others),
            OomConstraint::CgroupV1 { id } => Place::CgroupV1(*id),
            OomConstraint::Node => Place::Node,
            OomConstraint::Unknown => below(victim, Place::Unknown),
        }
    }

    /// Tells of the kills that were too many to be told one by one, once their minute is over; of all of them when ebb ends.
    pub(super) fn tell_of_oom_kills(&mut self, is_end: bool) {
        let reports = &mut self.told.oom_kills;
        let due = if is_end { reports.take_all() } else { reports.take_due(Boot::now()) };
        for entry in due {
            self.reporter.tell_entry(entry);
        }
    }

    /// Reads what the kernel side counts of each workload while something is near, in one batch.
    pub(super) fn count(&mut self) {
        let is_near = self.watches.quick().any(|watch| watch.is_near() || watch.episode.is_some());
        // Right before the crossing nothing may delay the look: counting is part of deciding ahead then, which keeps to its share of time.
        let is_imminent = self.watches.quick().any(Watch::is_imminent);
        if is_near && !is_imminent {
            self.count_now();
        }
    }

    /// Reads it whether or not anything is near, every [`COUNTED_EVERY`] at most.
    pub(super) fn count_now(&mut self) {
        let now = Boot::now();
        if let Some(totals) = self.kernel.totals(now) {
            self.state.observe_totals(&totals, now);
        }
    }

    /// Compares the losses that the kernel side counted with what was known: after one the tree may be another.
    pub(super) fn look_for_losses(&mut self) {
        if let Some((records, kinds)) = self.kernel.losses(Boot::now()) {
            self.state.forget_tree();
            self.reporter.tell(Record::Lost { records, kinds: kinds.into() });
        }
    }
}

/// A test names cgroups that have the kernel's OOM killer come in all the time while a threshold is crossed, without any privilege.
fn oom_storm_in() -> Vec<u64> {
    let ids = testing::asks("EBB_TEST_OOM_STORM").unwrap_or_default();
    ids.split(',').filter_map(|id| id.parse().ok()).collect()
}

/// What was lost since `before`, by kind.
fn losses(now: &Lost, before: &Lost) -> Losses {
    let kinds = [
        (Loss::Exits, now.exits, before.exits),
        (Loss::OomKills, now.oom_kills, before.oom_kills),
        (Loss::MemoryEvents, now.memory_events, before.memory_events),
        (Loss::CgroupChanges, now.cgroups, before.cgroups),
        (Loss::KswapdWakes, now.kswapd_wakes, before.kswapd_wakes),
        (Loss::Corrupt, now.corrupt, before.corrupt),
    ];
    let lost = kinds.into_iter().filter(|(_, now, before)| now > before);
    Losses(lost.map(|(kind, now, before)| (kind, now - before)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_lost_since_is_told_by_kind() {
        let before = Lost { exits: 5, cgroups: 7, ..Lost::default() };
        let now = Lost { exits: 5, oom_kills: 1, cgroups: 10, ..Lost::default() };
        assert_eq!(losses(&now, &before).to_string(), "1 OOM kills, 3 cgroup changes");
        assert_eq!(losses(&now, &now).to_string(), "");
    }
}
