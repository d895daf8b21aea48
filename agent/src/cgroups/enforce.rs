//! Bringing a tree to its plan: what may be touched, in which order, and what became of it.

use super::beneath::Beneath;
use super::live::Reader;
use super::systemd::{Manager, Properties};
use super::write::{NotWritten, Writer};
use crate::act::Mode;
use crate::config::{Beside, CgroupMode, Cgroups};
use crate::sense::Roots;
use ebb_journal::cgroups::Written;
use ebb_policy::cgroups::compare::{Difference, Live};
use ebb_policy::cgroups::order::{Write, writes};
use ebb_policy::cgroups::systemd::of_file;
use ebb_policy::cgroups::{Cgroup, Driver, Level, Node, Plan};
use nix::sys::statvfs::{FsFlags, statvfs};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// Controllers that a plan's files belong to.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "memory", "pids", "hugetlb"];

/// How long systemd may take to make a slice that it has agreed to make.
const STARTING: Duration = Duration::from_secs(2);

/// What ebb may touch.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Who else writes.
    pub beside: Beside,
    /// Whether missing cgroups of pods are made.
    pub create: bool,
    /// UIDs of pods that are being changed by the kubelet.
    pub resizing: BTreeSet<String>,
    /// UIDs of pods that only the runtime knows: what it gives their containers is its own.
    pub of_runtime: BTreeSet<String>,
    /// Files, by path of the cgroup and name, that somebody else keeps writing.
    pub given_up: BTreeSet<(String, String)>,
}

impl Scope {
    /// Whether a file is ebb's to write.
    ///
    /// Beside a kubelet the weights of classes and everything in containers are not: the kubelet and the runtime write them again and again.
    #[must_use]
    pub fn covers(&self, difference: &Difference) -> bool {
        if let Some(pod) = &difference.pod
            && self.resizing.contains(&pod.uid)
        {
            return false;
        }
        if let Some(pod) = &difference.pod
            && difference.level == Level::Container
            && self.of_runtime.contains(&pod.uid)
        {
            return false;
        }
        if let Some(file) = &difference.file
            && self.given_up.contains(&(difference.path.clone(), file.clone()))
        {
            return false;
        }
        match (self.beside, difference.level) {
            (Beside::Nobody, _)
            | (
                Beside::Kubelet,
                Level::Kubepods | Level::KubeReserved | Level::SystemReserved | Level::Pod,
            ) => true,
            (Beside::Kubelet, Level::Class | Level::Container) => false,
        }
    }
}

/// Why a plan cannot be enforced on this tree at all: a reserved cgroup is missing, or nothing can be written.
///
/// # Errors
/// The field or the mount, and what to do.
pub fn check(plan: &Plan, root: &Path) -> Result<(), String> {
    for (level, key, word) in [
        (Level::KubeReserved, "kubeReservedCgroup", "kube-reserved"),
        (Level::SystemReserved, "systemReservedCgroup", "system-reserved"),
    ] {
        let path = plan.cgroups.iter().find(|cgroup| cgroup.level == level);
        let Some(path) = path.and_then(|cgroup| cgroup.path.as_ref()) else { continue };
        if !Beneath::new(root).is_there(path) {
            return Err(format!(
                "{key} = {path:?}: there is no such cgroup below {}; make it, or take {word} out of enforceNodeAllocatable",
                root.display()
            ));
        }
    }
    let flags = statvfs(root).map(|mount| mount.flags());
    if flags.is_ok_and(|flags| flags.contains(FsFlags::ST_RDONLY)) {
        return Err(format!(
            "{}: the cgroup file system is mounted read-only here; mount it writable",
            root.display()
        ));
    }
    Ok(())
}

/// Whether a missing cgroup is ebb's to make: reserved ones and containers are others'.
fn is_made_here(cgroup: &Cgroup) -> bool {
    matches!(cgroup.level, Level::Kubepods | Level::Class | Level::Pod)
}

/// What became of one round.
#[derive(Debug, Default)]
pub struct Round {
    /// What was different before.
    pub differences: Vec<Difference>,
    /// What was written.
    pub written: Vec<Written>,
    /// What was not, and why.
    pub failed: Vec<NotWritten>,
    /// Cgroups that were made.
    pub created: Vec<String>,
    /// What systemd did not take, and why.
    pub refused: Vec<String>,
    /// Differences that are not ebb's to end.
    pub left: Vec<Difference>,
    /// What a rehearsal would have written.
    pub would_write: Vec<Difference>,
    /// Cgroups that a rehearsal would have made.
    pub would_create: Vec<String>,
}

/// Everything that is needed to enforce a plan.
#[derive(Debug)]
pub struct Enforcer {
    /// Reads the tree.
    pub reader: Reader,
    /// Writes to it.
    pub writer: Writer,
    /// What may be touched.
    pub scope: Scope,
    /// Takes properties, under the systemd driver.
    pub manager: Option<Manager>,
}

impl Enforcer {
    /// What acts, by the configuration.
    #[must_use]
    pub fn by_configuration(cgroups: &Cgroups, roots: &Roots, node: &Node, hand: Mode) -> Self {
        let deadline = Duration::from_millis(cgroups.write_deadline.0);
        let writes = cgroups.mode == CgroupMode::Enforce && hand == Mode::Enforce;
        let options = &cgroups.options;
        let wants_systemd = options.driver == Driver::Systemd && writes;
        let manager = wants_systemd.then(Manager::connect).and_then(|connected| {
            connected.inspect_err(|error| tracing::warn!(%error, "systemd cannot be reached")).ok()
        });
        Self {
            reader: Reader::new(roots, (options.pod_curve, options.container_curve)),
            writer: Writer::new(&roots.cgroup, node.page_size(), deadline),
            scope: Scope { beside: cgroups.beside, create: cgroups.create, ..Scope::default() },
            manager,
        }
    }

    /// Whether a difference is ebb's to end: it may, and the file is on cgroup v2.
    #[must_use]
    pub fn covers(&self, difference: &Difference) -> bool {
        let file = difference.file.as_deref();
        self.scope.covers(difference) && !file.is_some_and(|file| self.reader.is_on_v1(file))
    }

    /// Why a difference that would be ebb's to end is left, if that is because of where its controller is.
    #[must_use]
    pub fn out_of_reach(&self, difference: &Difference) -> Option<String> {
        let is_out = self.scope.covers(difference) && !self.covers(difference);
        let file = difference.file.as_deref().filter(|_| is_out)?;
        let path = &difference.path;
        Some(format!("{path}: {file} is on cgroup v1, which ebb reads and does not write"))
    }

    /// Compares the tree with the plan and only says what [`Enforcer::enforce`] would do.
    pub fn warm_up(&mut self, plan: &Plan, node: &Node) -> Round {
        let live = self.reader.read(plan);
        let missing = plan.cgroups.iter().filter(|cgroup| is_made_here(cgroup));
        let missing = missing.filter_map(|cgroup| cgroup.path.clone());
        let missing = missing.filter(|path| self.scope.create && !live.contains_key(path));
        let found = self.reader.differences(plan, &live, node);
        let is_written =
            |d: &Difference| self.covers(d) && !writes(std::slice::from_ref(d)).is_empty();
        let (would_write, left) = found.iter().cloned().partition(is_written);
        Round {
            would_write,
            left,
            would_create: missing.collect(),
            differences: found,
            ..Round::default()
        }
    }

    /// Compares the tree with the plan and ends the differences that are ebb's to end.
    pub fn enforce(&mut self, plan: &Plan, node: &Node) -> Round {
        let mut round = Round::default();
        let mut live = self.reader.read(plan);
        if self.scope.create {
            self.create(plan, &live, &mut round);
            if !round.created.is_empty() {
                live = self.reader.read(plan);
            }
        }
        self.end_differences(plan, node, &live, &mut round);
        round
    }

    fn end_differences(&mut self, plan: &Plan, node: &Node, live: &Live, round: &mut Round) {
        round.differences = self.reader.differences(plan, live, node);
        let (mine, left) = round.differences.iter().cloned().partition(|d| self.covers(d));
        round.left = left;
        let mut pending = writes(&mine);
        if plan.driver == Driver::Systemd && !pending.is_empty() {
            self.tell_systemd(plan, &pending, round);
            // systemd writes more files of a unit than it was told of, and rounds.
            let live = self.reader.read(plan);
            let mut again = self.reader.differences(plan, &live, node);
            again.retain(|difference| self.covers(difference));
            pending = writes(&again);
        }
        for write in &pending {
            match self.writer.write(write) {
                Ok(written) => {
                    self.tell_lowered(plan, write, &written, round);
                    round.written.push(written);
                }
                Err(error) => round.failed.push(error),
            }
        }
    }

    /// Makes what is missing of the node's, the classes' and the pods' cgroups; reserved ones and containers are others' to make.
    fn create(&mut self, plan: &Plan, live: &Live, round: &mut Round) {
        for cgroup in &plan.cgroups {
            let made_here = is_made_here(cgroup);
            let Some(path) =
                cgroup.path.as_ref().filter(|path| made_here && !live.contains_key(*path))
            else {
                continue;
            };
            let started = match (&self.manager, &cgroup.unit) {
                (Some(manager), Some(unit)) => {
                    let properties: Properties = cgroup.properties.clone().into_iter().collect();
                    manager.start_slice(unit, &properties).and_then(|()| self.wait_for(path))
                }
                _ => Ok(()),
            };
            // Under systemd the directory is there by now; controllers that systemd knows nothing of are still to be enabled.
            let made = started.and_then(|()| {
                let made = self.writer.create(path, &CONTROLLERS);
                made.map_err(|error| format!("{path}: the cgroup cannot be made: {error}"))
            });
            match made {
                Ok(()) => round.created.push(path.clone()),
                Err(error) => round.refused.push(error),
            }
        }
    }

    /// Waits until systemd has made a cgroup.
    fn wait_for(&self, path: &str) -> Result<(), String> {
        let deadline = Instant::now() + STARTING;
        while !self.writer.is_there(path) {
            if Instant::now() > deadline {
                return Err(format!(
                    "{path}: systemd has not made it within {} s",
                    STARTING.as_secs()
                ));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Gives units all of their properties, because systemd writes several files at a time; the exact values are then written to the files.
    ///
    /// A memory limit that goes down is told as it is for now: the writer makes room before it is lowered.
    fn tell_systemd(&self, plan: &Plan, pending: &[Write], round: &mut Round) {
        let Some(manager) = &self.manager else {
            round
                .refused
                .push("systemd cannot be reached, so it may take written values back".to_owned());
            return;
        };
        for cgroup in &plan.cgroups {
            let (Some(unit), Some(path)) = (&cgroup.unit, &cgroup.path) else { continue };
            let mut mine = pending.iter().filter(|write| &write.path == path).peekable();
            if mine.peek().is_none() {
                continue;
            }
            let mut properties = cgroup.properties.clone();
            for write in mine.filter(|write| write.needs_room()) {
                properties.extend(of_file(&write.file, &write.before));
            }
            let properties: Properties = properties.into_iter().collect();
            round.refused.extend(manager.set(unit, &properties).err());
        }
    }

    /// Tells systemd of a memory limit that has been lowered.
    fn tell_lowered(&self, plan: &Plan, write: &Write, written: &Written, round: &mut Round) {
        if !write.needs_room() {
            return;
        }
        let at = |cgroup: &&Cgroup| cgroup.path.as_ref() == Some(&write.path);
        let unit = plan.cgroups.iter().find(at).and_then(|cgroup| cgroup.unit.as_ref());
        if let (Some(unit), Some(manager)) = (unit, &self.manager) {
            let property = of_file(&write.file, &written.now);
            round.refused.extend(manager.set(unit, &property).err());
        }
    }
}
