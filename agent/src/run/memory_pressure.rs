//! Memory pressure of the cgroups that the configuration names: read when their triggers fire, and then once a second for as long as it lasts.
//!
//! ```text
//!  full stall of half the limit within 2 s ─► trigger ─► read once a second, with who reclaims below ─► policy
//!  no trigger (no such cgroup yet, no permission) ─► read every 2 s, and tried again
//! ```
//! Without a configured cgroup nothing of this costs anything; with one that does not stall, a reading a minute.

use super::episode::Episode;
use super::{Agent, BACKSTOP};
use crate::clock::Boot;
use crate::sense::Roots;
use crate::sense::cgroup::id_at;
use crate::sense::file::read_once;
use crate::sense::psi::{self, CGROUP_WINDOW_US, Stall, Trigger};
use ebb_journal::Record;
use ebb_journal::incident::About;
use ebb_policy::StallShare;
use ebb_policy::limits::MemoryPressure;
use ebb_policy::plan::PressureGrounds;
use ebb_policy::snapshot::{CgroupPressure, WorkloadKey};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Between two readings while there is pressure, as systemd-oomd has it.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Between two readings without a trigger.
const READ_WITHOUT_TRIGGER: Duration = Duration::from_secs(2);

/// How long a trigger that has fired has a cgroup read once a second: the time over which the kernel averages.
const HEARD_FOR: Duration = Duration::from_secs(10);

/// How old a reading may be when a decision is made on it.
const FRESH: Duration = Duration::from_secs(3);

/// All cgroups that are watched.
pub(super) struct Pressures {
    roots: Roots,
    watches: Vec<Watch>,
    bell: Arc<Notify>,
}

/// One of them.
struct Watch {
    rule: MemoryPressure,
    /// Its `memory.pressure`.
    path: PathBuf,
    trigger: io::Result<Armed>,
    told_missing: bool,
    /// Read once a second until then, whatever is read.
    heard_until: Option<Boot>,
    read_at: Option<Boot>,
    /// What was read last, and when.
    reading: Option<(Boot, CgroupPressure)>,
    episode: Option<Episode>,
    /// Who was chosen in this episode.
    victims: Vec<WorkloadKey>,
}

/// A trigger with the task that waits for it.
struct Armed {
    fired: Arc<AtomicBool>,
    inode: u64,
    task: JoinHandle<()>,
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Armed {
    /// Has `bell` rung when all tasks of the cgroup wait for half of `limit` within the trigger's window.
    fn new(path: &std::path::Path, limit: StallShare, bell: &Arc<Notify>) -> io::Result<Self> {
        // Pressure that is on average above the limit is above half of it within some window.
        let trigger = Trigger::of_cgroup(path, CGROUP_WINDOW_US / 20_000 * limit.0.max(2))?;
        let inode = trigger.inode()?;
        // SAFETY: a trigger owns its descriptor, keeps it open for as long as it lives, and never exchanges it.
        let registered = unsafe { AsyncFd::register_with_interest(trigger, Interest::PRIORITY) };
        let registered = registered.map_err(|error| error.into_parts().1)?;
        let fired = Arc::new(AtomicBool::new(false));
        let (tell, bell) = (Arc::clone(&fired), Arc::clone(bell));
        let task = tokio::spawn(async move {
            // The kernel clears the condition when it is polled; only the runtime's memory of it is left.
            while let Ok(mut ready) = registered.ready(Interest::PRIORITY).await {
                ready.clear_ready();
                tell.store(true, Ordering::Release);
                bell.notify_one();
            }
        });
        Ok(Self { fired, inode, task })
    }
}

impl Watch {
    fn new(roots: &Roots, rule: &MemoryPressure, bell: &Arc<Notify>) -> Self {
        let path = psi::of_cgroup(&roots.cgroup, &rule.cgroup);
        Self {
            trigger: Armed::new(&path, rule.limit, bell),
            rule: rule.clone(),
            path,
            told_missing: false,
            heard_until: None,
            read_at: None,
            reading: None,
            episode: None,
            victims: Vec::new(),
        }
    }

    fn full_avg10(&self) -> Option<StallShare> {
        self.reading.as_ref().and_then(|(_, reading)| reading.full_avg10)
    }

    fn is_above(&self) -> bool {
        self.full_avg10().is_some_and(|share| share > self.rule.limit)
    }

    /// Whether it is read once a second.
    fn is_hot(&self, now: Boot) -> bool {
        let is_heard = self.heard_until.is_some_and(|until| until > now);
        let is_near = self.full_avg10().is_some_and(|share| share.0 >= self.rule.limit.0 / 2);
        is_heard || is_near || self.episode.is_some()
    }

    fn due(&self, now: Boot) -> Boot {
        let wait = match &self.trigger {
            _ if self.is_hot(now) => READ_EVERY,
            Ok(_) => BACKSTOP,
            Err(_) => READ_WITHOUT_TRIGGER,
        };
        self.read_at.map_or(now, |read| read.plus(wait))
    }

    /// Sees to it that the trigger is that of the cgroup which has the name now.
    fn arm(&mut self, bell: &Arc<Notify>) {
        let inode = id_at(&self.path);
        let is_armed = self
            .trigger
            .as_ref()
            .is_ok_and(|armed| Some(armed.inode) == inode && !armed.task.is_finished());
        if !is_armed {
            self.trigger = Armed::new(&self.path, self.rule.limit, bell);
        }
    }
}

impl Pressures {
    pub(super) fn new(roots: &Roots, rules: &[MemoryPressure]) -> Self {
        let mut new =
            Self { roots: roots.clone(), watches: Vec::new(), bell: Arc::new(Notify::new()) };
        new.configure(rules);
        new
    }

    /// What is rung when a trigger has fired.
    pub(super) fn bell(&self) -> Arc<Notify> {
        Arc::clone(&self.bell)
    }

    /// Watches these and no others; what is known of one whose rule stays is kept. Returns the episodes that end with this, with their cgroups.
    pub(super) fn configure(&mut self, rules: &[MemoryPressure]) -> Vec<(String, Episode)> {
        let mut before = std::mem::take(&mut self.watches);
        for rule in rules {
            let known = before.iter().position(|watch| watch.rule == *rule);
            let known = known.map(|place| before.swap_remove(place));
            let new = || Watch::new(&self.roots, rule, &self.bell);
            self.watches.push(known.unwrap_or_else(new));
        }
        let ended = |watch: Watch| Some((watch.rule.cgroup, watch.episode?));
        before.into_iter().filter_map(ended).collect()
    }

    /// Those that are going on.
    pub(super) fn episodes_mut(&mut self) -> impl Iterator<Item = &mut Episode> {
        self.watches.iter_mut().filter_map(|watch| watch.episode.as_mut())
    }

    /// Which triggers there are not, each told once.
    pub(super) fn tell_of_missing(&mut self) -> Vec<String> {
        let missing = |watch: &mut Watch| {
            let error = watch.trigger.as_ref().err().filter(|_| !watch.told_missing)?;
            let what = format!(
                "memory pressure trigger of {}: {error}; its memory.pressure is read every {} s instead",
                watch.rule.cgroup,
                READ_WITHOUT_TRIGGER.as_secs()
            );
            watch.told_missing = true;
            Some(what)
        };
        self.watches.iter_mut().filter_map(missing).collect()
    }

    /// Takes in that triggers have fired.
    pub(super) fn hear(&mut self, now: Boot) {
        for watch in &mut self.watches {
            if watch.trigger.as_ref().is_ok_and(|armed| armed.fired.swap(false, Ordering::AcqRel)) {
                watch.heard_until = Some(now.plus(HEARD_FOR));
            }
        }
    }

    /// When the next is to be read.
    pub(super) fn due(&self) -> Option<Boot> {
        let now = Boot::now();
        self.watches.iter().map(|watch| watch.due(now)).min()
    }

    /// What was read of late.
    pub(super) fn readings(&self, at: Boot) -> Vec<CgroupPressure> {
        let readings = self.watches.iter().filter_map(|watch| watch.reading.as_ref());
        let fresh = readings.filter(|(read, _)| at.since(*read) < FRESH);
        fresh.map(|(_, reading)| reading.clone()).collect()
    }

    /// Every cgroup that is watched, with what was read last.
    pub(super) fn latest(&self) -> Vec<(MemoryPressure, Option<StallShare>)> {
        self.watches.iter().map(|watch| (watch.rule.clone(), watch.full_avg10())).collect()
    }

    /// The episode of the cgroup, if it is going on.
    pub(super) fn episode_in(&mut self, cgroup: &str) -> Option<&mut Episode> {
        let watch = self.watches.iter_mut().find(|watch| watch.rule.cgroup == cgroup)?;
        watch.episode.as_mut()
    }

    /// The episode in which the workload was chosen, if it is going on.
    pub(super) fn episode_of(&mut self, workload: &WorkloadKey) -> Option<&mut Episode> {
        let watch = self.watches.iter_mut().find(|watch| watch.victims.contains(workload))?;
        watch.episode.as_mut()
    }

    /// Notes who was chosen.
    pub(super) fn chose(&mut self, grounds: &PressureGrounds, workload: &WorkloadKey) {
        let watch = self.watches.iter_mut().find(|watch| watch.rule.cgroup == grounds.cgroup);
        watch.into_iter().for_each(|watch| watch.victims.push(workload.clone()));
    }
}

impl Agent {
    /// Whether the node is short of what is looked at by the millisecond, or within moments: memory pressure of cgroups is not read then, and nothing waits for that.
    pub(super) fn is_short_or_soon(&self) -> bool {
        self.watches.quick().any(|watch| watch.is_below() || watch.is_imminent())
    }

    /// Reads what is due; returns whether one of them is under pressure, or may be.
    pub(super) fn read_memory_pressure(&mut self) -> bool {
        let now = Boot::now();
        let mut any = false;
        for watch in &mut self.pressures.watches {
            if watch.due(now) > now {
                continue;
            }
            watch.arm(&self.pressures.bell);
            let text = read_once(&watch.path).ok();
            let full_avg10 = text.as_deref().and_then(psi::full_avg10);
            watch.read_at = Some(now);
            let mut reading = CgroupPressure {
                cgroup: watch.rule.cgroup.clone(),
                observed_at: self.state.clock().time(now),
                full_avg10,
                full_total: text.and_then(|text| Stall::parse(&text).full_us),
                pages: None,
                usage: None,
                workloads: Vec::new(),
            };
            watch.reading = Some((now, reading.clone()));
            let is_hot = watch.is_hot(now);
            any |= is_hot;
            if is_hot && let Some(dir) = watch.path.parent() {
                (reading.pages, reading.usage) = reclaimed_from(dir);
                reading.workloads = self.state.pages_scanned_in(dir);
                watch.reading = Some((now, reading));
            }
            if let (true, None, Some(full_avg10)) = (watch.is_above(), &watch.episode, full_avg10) {
                watch.episode = Some(Episode::of_pressure(now));
                let about = About::MemoryPressure(watch.rule.cgroup.clone());
                self.reporter.episode_begins(about, self.state.clock().unix_ms(now));
                let record = Record::MemoryPressureAboveLimit {
                    cgroup: watch.rule.cgroup.clone(),
                    full_avg10,
                    limit: watch.rule.limit,
                    duration: watch.rule.duration,
                };
                self.reporter.tell_at(now, record);
            }
        }
        any
    }

    /// Ends the episodes of cgroups that are no longer under pressure.
    pub(super) fn close_pressure_episodes(&mut self) {
        let has_jobs = !self.dispatcher.is_idle();
        for watch in &mut self.pressures.watches {
            let Some(read_at) = watch.read_at else { continue };
            let (is_above, full_avg10) = (watch.is_above(), watch.full_avg10());
            let Some(episode) = &mut watch.episode else { continue };
            let is_under_way = has_jobs || self.state.terminations().awaits_any(&watch.victims);
            let shown = full_avg10.map_or_else(String::new, |share| format!("full avg10 {share}"));
            if !episode.observe(!is_above, is_under_way, read_at, &shown) {
                continue;
            }
            let Some(mut episode) = watch.episode.take() else { continue };
            watch.victims.clear();
            let cgroup = watch.rule.cgroup.clone();
            let about = About::MemoryPressure(cgroup.clone());
            let timeline = episode.timeline();
            self.reporter.tell(Record::MemoryPressureRelieved { cgroup, full_avg10, timeline });
            self.reporter.episode_ends(&about);
            let incident = episode.incident(about, self.state.clock(), &self.policy.text);
            incident.into_iter().for_each(|incident| self.queue.store(incident));
            self.told.deferral = None;
        }
    }

    /// Stores the episodes that are going on, because ebb is told to stop.
    pub(super) fn store_open_pressure_episodes(&mut self, at: Boot, why: &str) {
        let watches = self.pressures.watches.iter_mut();
        let open = watches.filter_map(|w| Some((w.rule.cgroup.clone(), w.episode.take()?)));
        for (cgroup, mut episode) in open.collect::<Vec<_>>() {
            episode.note("ebb was stopped", at, Some(why.to_owned()));
            self.store_pressure_episode(cgroup, episode);
        }
    }

    /// Watches the cgroups of another configuration; episodes of those that it does not watch end.
    pub(super) fn watch_memory_pressure(&mut self, rules: &[MemoryPressure]) {
        for (cgroup, mut episode) in self.pressures.configure(rules) {
            episode.note("no longer watched", Boot::now(), None);
            self.store_pressure_episode(cgroup, episode);
        }
    }

    fn store_pressure_episode(&mut self, cgroup: String, mut episode: Episode) {
        let about = About::MemoryPressure(cgroup);
        self.reporter.episode_ends(&about);
        let incident = episode.incident(about, self.state.clock(), &self.policy.text);
        incident.into_iter().for_each(|incident| self.queue.store(incident));
    }

    /// Takes back that somebody was evicted for the pressure of this cgroup: it could not be done, and the next is chosen at once.
    pub(super) fn take_back_pressure_eviction(&mut self, cgroup: &str) {
        let mut watched = self.decisions.history.memory_pressure.iter_mut();
        if let Some(watched) = watched.find(|watched| watched.cgroup == cgroup) {
            watched.forget_eviction();
            self.node.decide_at = Some(Boot::now());
        }
    }
}

/// Pages scanned to reclaim memory from the cgroup `dir` and all below it, and the bytes that it holds.
fn reclaimed_from(dir: &std::path::Path) -> (Option<u64>, Option<u64>) {
    let pages = read_once(&dir.join("memory.stat")).ok().and_then(|text| {
        let pages = text.lines().find_map(|line| line.strip_prefix("pgscan "))?;
        pages.trim().parse().ok()
    });
    let memory = read_once(&dir.join("memory.current")).ok();
    (pages, memory.and_then(|text| text.trim().parse().ok()))
}
