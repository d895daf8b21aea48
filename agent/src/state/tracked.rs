//! One workload as the agent follows it: a cgroup held open, with what was last read of it.

use super::rules::Rules;
use crate::clock::{Boot, Clock};
use crate::pods::Owner;
use crate::sense::Roots;
use crate::sense::cgroup::id_at;
use crate::sense::cgroup::{Cgroup, Usage};
use crate::sense::custody::{Custody, Marks};
use crate::sense::descriptors::Descriptors;
use crate::sense::file::{number_or_max, read_once};
use crate::sense::process::{Held, Process, is_self, oom_score_adj};
use crate::sense::psi::Stall;
use crate::sense::role::{Role, is_sandbox};
use crate::sense::tree::{Node, Tree};
use ebb_policy::snapshot::{
    CgroupId, KernelCounts, LocalLimit, MemoryUsage, Preference, ProtectedReason, Stats, Workload,
    WorkloadKey, WorkloadKind,
};
use ebb_policy::{Quantity, Time};
use ebb_probes::Swept;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Processes looked at to learn early that a cgroup will be refused: all of them are asked just before it would be killed.
const ASKED_AT_MOST: usize = 4;

/// How long it stands that a cgroup is protected: what protected it may have ended since.
const PROTECTED_FOR: Duration = Duration::from_secs(1);

/// How long it stands that a cgroup is not protected; whoever joins later is found before it would be killed.
const UNPROTECTED_FOR: Duration = Duration::from_secs(60);

/// How long what was known of a cgroup stands when it can be read no more: its controller may have been taken away for good.
const UNREAD_FOR: Duration = Duration::from_secs(10);

/// Reclaim keeps usage a little below the limit itself: within one part in this many counts as being at it.
const NEAR_LIMIT: u64 = 32;

/// A cgroup that is a workload.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) cgroup: Cgroup,
    /// Absolute path, for opening it again by identity.
    pub(super) path: PathBuf,
    /// When it was first read, or was last known to belong to a pod.
    pub(super) since: Boot,
    pub(super) key: WorkloadKey,
    /// The leading part of its path below the mount that the administrator named.
    pub(super) named: PathBuf,
    /// It lies in a tree that was handed to somebody, whose root is `named`.
    pub(super) is_handed_over: bool,
    /// When protection, preference and priority were looked at.
    judged: Boot,
    pub(super) protected: Option<ProtectedReason>,
    preference: Preference,
    priority: Option<i32>,
    /// What was read last, and when.
    last: Option<(Boot, Usage)>,
    /// Of that, `memory.current` is younger than the rest.
    is_read_in_part: bool,
    /// What programs in the kernel counted of it and of all below it.
    pub(super) kernel_counts: Option<KernelCounts>,
    /// The pod that it belongs to, if it does.
    pub(super) owner: Option<Owner>,
    /// What the cgroups above it protect at most.
    pub(super) ceiling: Ceiling,
    /// Whether some process lives in it or below, as last read.
    populated: Option<bool>,
    /// `max` of `memory.events` went up between the last two readings.
    ran_into_limit: bool,
}

impl Tracked {
    /// Takes hold of the cgroup `id`; `None` when it is gone already.
    pub(super) fn new(
        id: u64,
        node: &Node,
        tree: &Tree,
        rules: &Rules,
        roots: &Roots,
        descriptors: &Descriptors,
    ) -> Option<Self> {
        let path = tree.root().join(&node.path);
        let cgroup = Cgroup::follow(&path, id, descriptors).ok()?;
        let mut new = Self {
            cgroup,
            key: WorkloadKey {
                name: format!("/{}", node.path.display()),
                uid: None,
                cgroup: Some(CgroupId(id)),
                process: None,
            },
            named: PathBuf::new(),
            is_handed_over: false,
            judged: Boot::now(),
            protected: None,
            preference: Preference::Neutral,
            priority: None,
            path,
            since: Boot::now(),
            last: None,
            is_read_in_part: false,
            kernel_counts: None,
            owner: None,
            ceiling: Ceiling::default(),
            populated: None,
            ran_into_limit: false,
        };
        new.judge(rules, roots);
        Some(new)
    }

    /// Whether what was found of its protection is too old to stand.
    pub(super) fn is_to_be_judged(&self, now: Boot) -> bool {
        let stands_for = if self.protected.is_some() { PROTECTED_FOR } else { UNPROTECTED_FOR };
        now.since(self.judged) >= stands_for
    }

    /// Looks at whose word its name and marks are, and by that at protection, preference and priority.
    pub(super) fn judge(&mut self, rules: &Rules, roots: &Roots) {
        let below = roots.below_mount(&self.path);
        let custody = Custody::of(&roots.cgroup, below);
        let marks = Marks::of(&self.path);
        let is_marked = |mark| is_marked(&marks, &custody, mark);
        self.protected = rules
            .protected(below, &custody)
            .or_else(|| is_marked("oomd_omit").then_some(ProtectedReason::Configured))
            .or_else(|| part_played(&self.cgroup, below, &custody, roots));
        self.preference = match rules.preference(below, &custody) {
            Preference::Neutral if is_marked("oomd_avoid") => Preference::Avoid,
            told => told,
        };
        self.priority = rules.priority(below, &custody);
        self.key.uid = custody.pod().map(str::to_owned);
        self.named = custody.named_part(below);
        // Of a tree without a name nobody tells where it begins.
        self.is_handed_over = !custody.is_named() && self.named != Path::new("");
        self.judged = Boot::now();
    }

    /// Whether the cgroup's own name still leads to it.
    pub(super) fn is_there(&self) -> bool {
        id_at(&self.path) == Some(self.cgroup.id())
    }

    /// Notes that no process lives in it any more.
    pub(super) fn has_emptied(&mut self) {
        self.populated = Some(false);
    }

    /// Whether some process may live in it or below: none does where that was read.
    pub(super) fn may_run(&self) -> bool {
        self.populated != Some(false)
    }

    /// Memory of processes that is charged to it, as last read; where only its usage was, no more than that of each kind.
    pub(super) fn charged(&self) -> Option<Held> {
        let (_, usage) = self.last?;
        match usage.current.filter(|_| self.is_read_in_part) {
            Some(most) => Some(Held { own: most, shared: most }),
            None => Some(Held { own: usage.anon?, shared: usage.shmem.unwrap_or(0) }),
        }
    }

    /// Whether its usage alone was read last: how much of it is memory of processes is not known.
    pub(super) fn is_read_in_part(&self) -> bool {
        self.is_read_in_part
    }

    /// Everything that was read last.
    pub(super) fn usage(&self) -> Option<Usage> {
        self.last.map(|(_, usage)| usage)
    }

    /// Usage in bytes as last read.
    pub(super) fn current(&self) -> Option<u64> {
        self.last.as_ref()?.1.current
    }

    /// Reads everything there is to know.
    pub(super) fn read(&mut self, buffer: &mut Vec<u8>) {
        let mut usage = self.cgroup.read_usage(buffer);
        // Its owner decides which controllers count below what was handed to him.
        usage.pids = usage.pids.or_else(|| self.cgroup.tasks());
        self.populated = self.cgroup.read_populated(buffer);
        let before = self.last.as_ref().and_then(|(_, u)| u.max_events);
        self.ran_into_limit = match (before, usage.max_events) {
            (Some(before), Some(now)) => now > before,
            _ => false,
        };
        self.took(Boot::now(), usage);
    }

    /// Takes over a reading. Where usage could not be read although the cgroup is there (the kernel had no memory or no descriptor for it), what was known stays for a while, as old as it is: without statistics it would be ranked behind whoever has some.
    fn took(&mut self, at: Boot, usage: Usage) {
        let fell_silent = |before: Option<u64>, now: Option<u64>| before.is_some() && now.is_none();
        let is_lost = self.last.is_some_and(|(then, before)| {
            let is_silent =
                fell_silent(before.current, usage.current) || fell_silent(before.anon, usage.anon);
            is_silent && Boot::now().since(then) < UNREAD_FOR
        });
        if !(is_lost && self.is_there()) {
            self.last = Some((at, usage));
            self.is_read_in_part = false;
        }
    }

    /// Takes over what a sweep told of it, and reads what a ranking needs beside that; of its stall nothing is known then.
    pub(super) fn take(&mut self, swept: &Swept, buffer: &mut Vec<u8>) {
        let before = self.last.map(|(_, usage)| usage);
        let mut usage = before.unwrap_or_default();
        usage.take(swept);
        if swept.anon.is_none() {
            self.cgroup.read_stat(&mut usage, buffer);
        }
        usage.stall = Stall::default();
        let before = before.and_then(|usage| usage.max_events);
        self.ran_into_limit = before.zip(usage.max_events).is_some_and(|(a, b)| b > a);
        self.took(Boot::now(), usage);
    }

    /// Reads what changes by the millisecond; the rest stays as it was read before.
    pub(super) fn read_memory(&mut self, buffer: &mut Vec<u8>) {
        let mut usage = self.last.map(|(_, usage)| usage).unwrap_or_default();
        self.cgroup.read_memory(&mut usage, buffer);
        self.populated = self.cgroup.read_populated(buffer);
        self.took(Boot::now(), usage);
    }

    /// Reads `memory.current` alone. What else is known of it stays as old as it was: growth is measured by that, and taken for younger, what it grew by in an hour would be what it grew by in a moment.
    pub(super) fn read_current(&mut self, buffer: &mut Vec<u8>) {
        let (at, mut usage) = self.last.unwrap_or_else(|| (Boot::now(), Usage::default()));
        usage.current = self.cgroup.read_current(buffer);
        self.took(at, usage);
        self.is_read_in_part = true;
    }

    /// The workload as policy sees it, with what its processes have in other cgroups.
    pub(super) fn workload(&self, clock: &Clock, moved: Held) -> Workload {
        Workload {
            key: self.key.clone(),
            kind: WorkloadKind::Cgroup,
            priority: self.priority,
            protected: self.protected.or_else(|| self.is_empty()),
            preference: self.preference,
            stats: self.last.as_ref().and_then(|(at, usage)| {
                let stats = stats(&with(self.ceiling.over(usage), moved), clock.time(*at))?;
                Some(Stats { kernel_counts: self.kernel_counts, ..stats })
            }),
            local_limit: self.last.as_ref().map(|(_, usage)| self.local_limit(usage)),
            can_reclaim: true,
            // Whether its tmpfs and shared memory outlive it cannot be told from its counters. To believe that they do
            // would end another workload beside it; should they, it is chosen once this one is gone.
            shared_memory: None,
            memory_request: self
                .last
                .as_ref()
                .and_then(|(_, usage)| protected_memory(&self.ceiling.over(usage))),
            ..Workload::default()
        }
    }

    /// What it still holds (page cache, tmpfs) no eviction gives back.
    fn is_empty(&self) -> Option<ProtectedReason> {
        (!self.may_run()).then_some(ProtectedReason::NothingRuns)
    }

    fn local_limit(&self, usage: &Usage) -> LocalLimit {
        let max = usage.max.flatten();
        let is_full = match (usage.current, max) {
            (Some(current), Some(max)) => current >= max - max / NEAR_LIMIT,
            _ => false,
        };
        LocalLimit { max, high: usage.high.flatten(), at_limit: self.ran_into_limit || is_full }
    }
}

/// What the cgroups above one protect at most, in bytes: the kernel gives a cgroup no more than that, whatever its owner wrote.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ceiling {
    /// The least `memory.min`; `None` where no cgroup above has the file.
    pub(super) min: Option<u64>,
    /// The least `memory.low`.
    pub(super) low: Option<u64>,
}

impl Ceiling {
    /// What the cgroup at `path` protects of what is below it.
    pub(super) fn read(path: &Path) -> Self {
        let value = |file: &str| {
            let text = read_once(&path.join(file)).ok()?;
            number_or_max(&text).map(|bytes| bytes.unwrap_or(u64::MAX))
        };
        Self { min: value("memory.min"), low: value("memory.low") }
    }

    /// The lower of both for each file.
    pub(super) fn and(self, other: Self) -> Self {
        let least = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        Self { min: least(self.min, other.min), low: least(self.low, other.low) }
    }

    /// `usage` with what is really protected of it.
    fn over(self, usage: &Usage) -> Usage {
        let bounded = |own: Option<u64>, most: Option<u64>| {
            own.map(|own| most.map_or(own, |most| own.min(most)))
        };
        Usage { min: bounded(usage.min, self.min), low: bounded(usage.low, self.low), ..*usage }
    }
}

/// What the kernel protects of the cgroup stands for a request: the larger of `memory.min` and `memory.low`.
fn protected_memory(usage: &Usage) -> Option<Quantity> {
    usage.min.max(usage.low).map(Quantity::bytes)
}

/// `usage` with so much more, which is all that is known of a cgroup without a memory controller.
fn with(usage: Usage, moved: Held) -> Usage {
    if moved.all() == 0 {
        return usage;
    }
    let more = |bytes: Option<u64>, by: u64| Some(bytes.unwrap_or(0).saturating_add(by));
    Usage {
        current: more(usage.current, moved.all()),
        anon: more(usage.anon, moved.own),
        shmem: more(usage.shmem, moved.shared),
        ..usage
    }
}

/// A workload of which neither memory nor tasks are known has no statistics.
fn stats(usage: &Usage, observed_at: Time) -> Option<Stats> {
    let memory = usage.current.map(|_| memory(usage));
    (memory.is_some() || usage.pids.is_some()).then(|| Stats {
        observed_at: Some(observed_at),
        memory,
        process_count: usage.pids,
        ..Stats::default()
    })
}

/// The figures of memory as policy has them.
pub(super) fn memory(usage: &Usage) -> MemoryUsage {
    MemoryUsage {
        usage: usage.current,
        working_set: None,
        anon: usage.anon,
        file: usage.file,
        active_file: usage.active_file,
        inactive_file: usage.inactive_file,
        shmem: usage.shmem,
        kernel: usage.kernel,
        swap: usage.swap,
        zswap: usage.zswap,
        low: usage.low,
        min: usage.min,
        refaults: usage.refaults,
        stall_us: usage.stall.some_us,
    }
}

/// Whether a wish of a unit (`ManagedOOMPreference=`) is written on its cgroup by somebody who may: `user.*` attributes are the owner's to write, `trusted.*` take `CAP_SYS_ADMIN`.
fn is_marked(marks: &Marks<'_>, custody: &Custody, mark: &str) -> bool {
    let is_set = |space: &str| marks.has(&format!("{space}.{mark}"));
    custody.vouches_for_marks() && is_set("user") || is_set("trusted")
}

/// What the first processes of a cgroup say about ending it.
fn part_played(
    cgroup: &Cgroup,
    below: &Path,
    custody: &Custody,
    roots: &Roots,
) -> Option<ProtectedReason> {
    let first = cgroup.processes(ASKED_AT_MOST);
    if is_sandbox(custody, &roots.cgroup, below, &first, &roots.proc) {
        return Some(ProtectedReason::Runtime);
    }
    let has_daemons = custody.is_for_daemons(below);
    first.into_iter().find_map(|pid| process_protection(pid, has_daemons, roots))
}

/// Why the process `pid` must not be killed, if so; `has_daemons` says that the kubelet and the runtime may live where it does.
fn process_protection(pid: i32, has_daemons: bool, roots: &Roots) -> Option<ProtectedReason> {
    if pid == 1 {
        return Some(ProtectedReason::Init);
    }
    if is_self(pid) {
        return Some(ProtectedReason::Agent);
    }
    if oom_score_adj(&roots.proc, pid) == Some(-1000) {
        return Some(ProtectedReason::OomScoreAdj);
    }
    match has_daemons.then(|| Role::of(pid, &roots.proc)).flatten()? {
        Role::Runtime => Some(ProtectedReason::Runtime),
        Role::Kubelet => Some(ProtectedReason::Kubelet),
    }
}

/// A process as a workload, on hosts where cgroups cannot tell who uses memory.
pub(super) fn process_workload(
    process: &Process,
    rules: &Rules,
    roots: &Roots,
    observed_at: Time,
) -> Option<Workload> {
    let (named, preference, priority) = rules.of_command(&process.comm);
    let memory = MemoryUsage {
        usage: Some(process.rss),
        working_set: Some(process.rss),
        ..MemoryUsage::default()
    };
    Some(Workload {
        key: WorkloadKey {
            name: process.comm.clone(),
            process: Some(process.id),
            ..WorkloadKey::default()
        },
        kind: WorkloadKind::Process,
        priority,
        protected: named.or_else(|| {
            let of_the_kernel = process.is_kernel_thread().then_some(ProtectedReason::KernelThread);
            let has_name = Role::is_name_of_any(&process.comm);
            of_the_kernel.or_else(|| process_protection(process.id.pid_t(), has_name, roots))
        }),
        preference,
        stats: Some(Stats {
            observed_at: Some(observed_at),
            memory: Some(memory),
            process_count: Some(process.threads),
            ..Stats::default()
        }),
        ..Workload::default()
    })
}
