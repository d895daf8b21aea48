//! What the reconciler does: it holds the tree to its plan.
//!
//! ```text
//!  inotify ──► written · made ─┐
//!  BPF ──────► created ────────┼─► what is concerned is read again ─► differences ─► writes ─► record
//!  time ─────► everything ─────┘
//! ```
//! Pods come from manifests, which are read again when a cgroup appears that no known pod explains, and at every look at the whole tree; and from the container runtime, whenever it was listed.
//! What somebody else keeps writing is not fought over for ever: after some repairs of a file it is left until the next look at the whole tree, and that is said.

use super::beneath::Beneath;
use super::cleanup::{Cleanup, May};
use super::detect::of_tree;
use super::enforce::{Enforcer, Round, check};
use super::node;
use super::orphans::Ground;
use super::scope::{Files, Scope, Woken, add};
use super::watch::Signs;
use super::watch::{Notice, Watches};
use crate::act::Mode;
use crate::config::{CgroupMode, Cgroups, Dying, OrphanedPods};
use crate::pods::sources::{Sources, of_runtime_alone};
use crate::report::Reporter;
use crate::sense::Roots;
use crate::sense::manifests::Manifests;
use anyhow::{Context as _, Result, anyhow};
use ebb_journal::{Part, Record};
use ebb_policy::cgroups::compare::Difference;
use ebb_policy::cgroups::{Driver, Level, Node, Plan, PodTree, plan};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Cgroups that are looked at before the next look at what has happened.
const AT_ONCE: usize = 32;
/// Repairs of one file between two looks at the whole tree.
const REPAIRS: u32 = 20;

/// The reconciler's own state.
pub(super) struct Reconcile {
    cgroups: Cgroups,
    roots: Roots,
    node: Node,
    tree: PodTree,
    sources: Sources,
    plan: Plan,
    /// Place in the plan, by path.
    places: BTreeMap<String, usize>,
    watches: Watches,
    enforcer: Enforcer,
    /// Without `--enforce` everything is only said.
    hand: Mode,
    repairs: BTreeMap<(String, String), u32>,
    reported: Vec<Difference>,
    cleanup: Cleanup,
    trouble: Option<String>,
    /// Why nothing counted as left over at the last look.
    hindrance: Option<String>,
    /// The plan is to be worked out anew even if the pods are the same.
    is_stale: bool,
}

impl Reconcile {
    /// Reads the node and the pods and works out the plan.
    ///
    /// # Errors
    /// When one of them cannot be had, or the tree cannot be enforced at all.
    pub(super) fn new(
        cgroups: Cgroups,
        roots: Roots,
        has_runtime: bool,
        hand: Mode,
        watches: Watches,
    ) -> Result<Reconcile> {
        let node = node::of_this_machine(&roots).context("this machine")?;
        let mut cgroups = cgroups;
        of_tree(&mut cgroups, &Beneath::new(&roots.cgroup))?;
        let tree = PodTree::below(&cgroups.options.root, cgroups.options.driver)
            .map_err(|problem| anyhow!("cgroupRoot: {problem}"))?;
        let enforcer = Enforcer::by_configuration(&cgroups, &roots, &node, hand);
        let plan = plan(&cgroups.options, &node, &[]).map_err(joined)?;
        if cgroups.mode == CgroupMode::Enforce && hand == Mode::Enforce {
            check(&plan, &roots.cgroup).map_err(anyhow::Error::msg)?;
        }
        let mut reconcile = Reconcile {
            plan,
            cgroups,
            roots,
            node,
            tree,
            sources: Sources::new(has_runtime),
            places: BTreeMap::new(),
            watches,
            enforcer,
            hand,
            repairs: BTreeMap::new(),
            reported: Vec::new(),
            cleanup: Cleanup::default(),
            trouble: None,
            hindrance: None,
            is_stale: true,
        };
        reconcile.read_pods()?;
        Ok(reconcile)
    }

    /// Goes round until it is over.
    pub(super) fn run(&mut self, inbox: &Receiver<Notice>, signs: &Signs, reporter: &mut Reporter) {
        let mut woken = Woken { everything: true, ..Woken::default() };
        let mut looked = Instant::now();
        loop {
            if woken.stop || signs.over.load(Ordering::Acquire) {
                return;
            }
            if woken.everything || signs.missed.swap(false, Ordering::AcqRel) {
                looked = Instant::now();
                let next = self.look_at_everything(inbox, reporter);
                if next.stop || next.everything {
                    woken = next;
                    continue;
                }
            } else if !woken.part.is_empty() {
                self.look_at(&woken, reporter);
            }
            let period = Duration::from_millis(self.cgroups.period.0);
            woken = self.wait(inbox, period.saturating_sub(looked.elapsed()));
        }
    }

    /// Waits for something to happen; takes in everything that has happened by then.
    fn wait(&mut self, inbox: &Receiver<Notice>, at_most: Duration) -> Woken {
        let mut woken = Woken::default();
        match inbox.recv_timeout(at_most) {
            Ok(notice) => {
                self.take_in(notice, &mut woken);
                self.take_in_all(inbox, &mut woken);
            }
            Err(RecvTimeoutError::Timeout) => woken.everything = true,
            Err(RecvTimeoutError::Disconnected) => woken.stop = true,
        }
        woken
    }

    /// Takes in everything that has happened by now.
    fn take_in_all(&mut self, inbox: &Receiver<Notice>, woken: &mut Woken) {
        while let Ok(notice) = inbox.try_recv() {
            self.take_in(notice, woken);
        }
    }

    fn take_in(&mut self, notice: Notice, woken: &mut Woken) {
        let mut concerned = |path: String, files: Option<Files>, at: Instant| {
            woken.is_new |= files.is_none();
            add(&mut woken.part, path, files.unwrap_or(Files::All));
            woken.noticed = Some(woken.noticed.map_or(at, |noticed| noticed.min(at)));
        };
        match notice {
            Notice::Written { watch, file, at } => {
                let Some(path) = self.watches.path(watch).map(str::to_owned) else { return };
                let place = self.places.get(&path).and_then(|place| self.plan.cgroups.get(*place));
                let (Some(cgroup), Some(file)) = (place, file.to_str()) else { return };
                if !cgroup.values.contains_key(file) {
                    return;
                }
                let files = match self.plan.driver {
                    Driver::Cgroupfs => Files::Some(BTreeSet::from([file.to_owned()])),
                    // systemd writes, and rounds, more of a unit than the one that is repaired.
                    Driver::Systemd => Files::All,
                };
                concerned(path, Some(files), at);
            }
            Notice::Made { watch, name, at } => {
                let parent = self.watches.path(watch).map(|parent| parent.trim_end_matches('/'));
                if let (Some(parent), Some(name)) = (parent, name.to_str()) {
                    concerned(format!("{parent}/{name}"), None, at);
                }
            }
            Notice::Created(path, at) => {
                let top = self.tree.kubepods().path(self.tree.driver());
                if path.starts_with(&top) {
                    concerned(path, None, at);
                }
            }
            Notice::Listed(None) => self.sources.is_up = false,
            Notice::Listed(Some(inventory)) => {
                self.sources.is_up = true;
                if self.sources.observe(inventory) {
                    self.is_stale = true;
                    woken.everything = true;
                }
            }
            Notice::Gone(watch) => self.watches.forget(watch),
            Notice::Lost => woken.everything = true,
            Notice::Configured(mut cgroups) => {
                // The configuration was checked; one that is wrong for the tree's driver stays as it is.
                let _ = of_tree(&mut cgroups, &Beneath::new(&self.roots.cgroup));
                self.enforcer =
                    Enforcer::by_configuration(&cgroups, &self.roots, &self.node, self.hand);
                let options = &cgroups.options;
                if let Ok(tree) = PodTree::below(&options.root, options.driver) {
                    self.tree = tree;
                }
                self.cgroups = *cgroups;
                // The plan is another now, whether or not the pods are.
                self.is_stale = true;
                woken.everything = true;
            }
            Notice::Stop => woken.stop = true,
        }
    }

    /// Looks at the cgroups that something happened to.
    fn look_at(&mut self, woken: &Woken, reporter: &mut Reporter) {
        let mut part = woken.part.clone();
        let is_unknown =
            |path: &String| self.tree.parse_pod(path).is_some() && !self.places.contains_key(path);
        if woken.is_new {
            if part.keys().any(is_unknown) {
                let read = self.read_pods();
                self.say_trouble(read, reporter);
                // Another pod changes what classes and all pods together are given.
                let upper = |level| matches!(level, Level::Kubepods | Level::Class);
                let uppers = self.plan.cgroups.iter().filter(|cgroup| upper(cgroup.level));
                let uppers = uppers.filter_map(|cgroup| cgroup.path.clone());
                uppers.for_each(|path| add(&mut part, path, Files::All));
            }
            for path in woken.part.keys() {
                self.watch_with_children(path, &mut part);
            }
        }
        let round = self.round(&part);
        self.tell(&round, woken.noticed, reporter);
    }

    /// Looks at the whole tree, and at what is left over in it; what happens meanwhile is not kept waiting. Returns what is still to be done.
    fn look_at_everything(&mut self, inbox: &Receiver<Notice>, reporter: &mut Reporter) -> Woken {
        self.repairs.clear();
        self.read_node();
        let read = self.read_pods();
        self.say_trouble(read, reporter);
        let mut next = Woken::default();
        let paths: Vec<String> = self.places.keys().cloned().collect();
        let mut different = Scope::new();
        for some in paths.chunks(AT_ONCE) {
            some.iter().for_each(|path| self.watch(path));
            let part = some.iter().map(|path| (path.clone(), Files::All)).collect();
            for difference in self.found(&self.of_plan(&part)) {
                add(&mut different, difference.path, Files::All);
            }
            let mut woken = Woken::default();
            self.take_in_all(inbox, &mut woken);
            next.stop |= woken.stop;
            next.everything |= woken.everything;
            if next.stop {
                return next;
            }
            if !woken.part.is_empty() {
                self.look_at(&woken, reporter);
            }
        }
        // Together, because the order of writes is right only for all of them.
        let round = self.round(&different);
        self.tell(&round, None, reporter);
        self.look_at_orphaned_pods(reporter);
        next
    }

    /// Watches a cgroup, and takes in what was made below it before it was watched.
    fn watch_with_children(&mut self, path: &str, part: &mut Scope) {
        self.watch(path);
        for name in Beneath::new(&self.roots.cgroup).children(path) {
            let child = format!("{path}/{name}");
            self.watch(&child);
            add(part, child, Files::All);
        }
    }

    fn watch(&mut self, path: &str) {
        // A cgroup that is not there yet is watched when it is made.
        let held = Beneath::new(&self.roots.cgroup).dir(path);
        if let Err(error) = held.and_then(|dir| self.watches.add(path, &dir))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path, "a cgroup cannot be watched; it is looked at from time to time");
        }
    }

    /// What the plan says of a part of the tree, in its own order.
    fn of_plan(&self, part: &Scope) -> Plan {
        let place = |(path, files)| Some((*self.places.get(path)?, files));
        let mut places: Vec<(usize, &Files)> = part.iter().filter_map(place).collect();
        places.sort_unstable_by_key(|(place, _)| *place);
        let cgroup =
            |(place, files): (usize, &Files)| Some(files.of(self.plan.cgroups.get(place)?));
        Plan {
            schema_version: self.plan.schema_version,
            driver: self.plan.driver,
            cgroups: places.into_iter().filter_map(cgroup).collect(),
            notes: Vec::new(),
        }
    }

    /// Where the tree differs from a part of the plan.
    fn found(&mut self, part: &Plan) -> Vec<Difference> {
        let live = self.enforcer.reader.read(part);
        self.enforcer.reader.differences(part, &live, &self.node)
    }

    /// Compares a part of the tree with the plan and, when that is wanted, puts it right.
    fn round(&mut self, part: &Scope) -> Round {
        let part = self.of_plan(part);
        if self.cgroups.mode != CgroupMode::Enforce {
            let found = self.found(&part);
            return Round { left: found.clone(), differences: found, ..Round::default() };
        }
        if self.hand == Mode::DryRun {
            return self.enforcer.warm_up(&part, &self.node);
        }
        self.enforcer.scope.given_up = self
            .repairs
            .iter()
            .filter(|(_, n)| **n >= REPAIRS)
            .map(|(key, _)| key.clone())
            .collect();
        let round = self.enforcer.enforce(&part, &self.node);
        for written in &round.written {
            *self.repairs.entry((written.path.clone(), written.file.clone())).or_default() += 1;
        }
        round
    }

    fn tell(&mut self, round: &Round, noticed: Option<Instant>, reporter: &mut Reporter) {
        let mut trouble: Vec<String> = round.failed.iter().map(super::chain).collect();
        trouble.extend(round.refused.iter().cloned());
        let is_news = !round.written.is_empty() || !round.created.is_empty() || !trouble.is_empty();
        // What is only found is told when it is another than before.
        let found: Vec<Difference> = round.would_write.iter().chain(&round.left).cloned().collect();
        let is_other = match noticed {
            None => found != self.reported,
            Some(_) => !round.would_write.is_empty(),
        };
        if noticed.is_none() {
            self.reported = found;
        }
        if is_news || is_other {
            reporter.tell(Record::Cgroups {
                written: round.written.clone(),
                created: round.created.clone(),
                remaining: round.left.clone(),
                would_write: round.would_write.clone(),
                would_create: round.would_create.clone(),
                errors: trouble,
                after_ms: noticed.map(|at| ebb_journal::ms(at.elapsed())),
            });
        }
    }

    fn look_at_orphaned_pods(&mut self, reporter: &mut Reporter) {
        let ground = Ground {
            root: self.roots.cgroup.clone(),
            proc: self.roots.proc.clone(),
            kubelet: self.cgroups.kubelet_root.clone(),
        };
        let acts = self.cgroups.mode == CgroupMode::Enforce;
        let may = May {
            remove: acts
                && self.cgroups.orphaned_pods == OrphanedPods::Remove
                && self.sources.is_complete(),
            reclaim: acts && self.cgroups.dying == Dying::Reclaim,
            warm_up: self.hand == Mode::DryRun,
        };
        let known = self.sources.known(self.cgroups.beside);
        if self.cgroups.orphaned_pods == OrphanedPods::Remove {
            self.say_hindrance(&ground, known.as_ref().err(), reporter);
        }
        let known = known.ok();
        let is_planned = |path: &str| self.places.contains_key(path);
        let writer = &self.enforcer.writer;
        let tidied =
            self.cleanup.look(&ground, &self.tree, known.as_ref(), is_planned, may, writer);
        if let Some(tidied) = tidied {
            reporter.tell(tidied.into_record());
        }
    }

    /// Reads anew what the machine has: memory and processors come and go, limits of task ids and huge pages are set. What was known stays where it cannot be told.
    fn read_node(&mut self) {
        match node::of_this_machine(&self.roots) {
            Ok(node) if node != self.node => {
                self.node = node;
                self.enforcer =
                    Enforcer::by_configuration(&self.cgroups, &self.roots, &self.node, self.hand);
                self.is_stale = true;
            }
            Ok(_) => {}
            Err(error) => tracing::warn!("this machine: {error:#}; what was known of it stays"),
        }
    }

    /// Reads the manifests anew and works out the plan; the old one stays when that fails.
    fn read_pods(&mut self) -> Result<()> {
        let read = match &self.cgroups.pod_manifests {
            Some(path) => Manifests::read(path, self.node.name.as_deref()).map(Some),
            None if self.sources.has_runtime => Ok(None),
            None => Err(anyhow!(
                "ebb.cgroups.podManifests: there is none, nor a container runtime (--cri)"
            )),
        };
        self.sources.are_read = read.is_ok();
        let manifests = read?;
        if manifests != self.sources.manifests {
            self.sources.manifests = manifests;
            self.is_stale = true;
        }
        if self.is_stale {
            let pods = self.sources.pods(&self.tree);
            self.plan = plan(&self.cgroups.options, &self.node, &pods).map_err(joined)?;
            if !self.sources.has_spoken() {
                // Sums over no pods would be taken for the truth.
                self.plan.cgroups.clear();
            }
            let path = |(place, cgroup): (usize, &ebb_policy::cgroups::Cgroup)| {
                Some((cgroup.path.clone()?, place))
            };
            self.places = self.plan.cgroups.iter().enumerate().filter_map(path).collect();
            self.enforcer.scope.resizing = self.sources.resizing();
            self.enforcer.scope.of_runtime = of_runtime_alone(&pods);
            self.is_stale = false;
        }
        Ok(())
    }

    /// Says why nothing counts as left over while something runs in cgroups of pods: once, until it is another reason.
    fn say_hindrance(&mut self, ground: &Ground, why: Option<&String>, reporter: &mut Reporter) {
        let why = why.filter(|_| ground.runs_something(&self.tree)).cloned();
        if why != self.hindrance
            && let Some(why) = &why
        {
            let what = format!("cgroups: no pod cgroup is removed: {why}");
            reporter.tell_degraded(Part::Cgroups, what);
        }
        self.hindrance = why;
    }

    fn say_trouble(&mut self, result: Result<()>, reporter: &mut Reporter) {
        let trouble = result.err().map(|error| format!("{error:#}"));
        if trouble != self.trouble
            && let Some(what) = &trouble
        {
            let what = format!("cgroups: {what}; the last plan stays in force");
            reporter.tell_degraded(Part::Cgroups, what);
        }
        self.trouble = trouble;
    }
}

fn joined(errors: Vec<ebb_policy::limits::ConfigError>) -> anyhow::Error {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    anyhow!(lines.join("\n"))
}
