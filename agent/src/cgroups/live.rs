//! The tree as it is: the files that a plan speaks of, and the cgroups of pods that are there.
//!
//! Each cgroup's directory is opened once and its files relative to it, so that what is read together belongs together; nothing is read that the plan does not name.

use super::beneath::{Beneath, open_in};
use super::v1::V1;
use crate::sense::Roots;
use crate::sense::file::{KeptFile, read_once};
use crate::sense::host::v2_controllers;
use ebb_policy::cgroups::compare::{Difference, Found, Kind, Live, differences};
use ebb_policy::cgroups::cpu::Curve;
use ebb_policy::cgroups::{Level, Node, Plan};
use nix::fcntl::OFlag;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

/// Processes of a container whose score is looked at.
const PROCESSES: usize = 64;

/// Reads what is there of a plan.
#[derive(Debug)]
pub struct Reader {
    root: Beneath,
    proc: PathBuf,
    buffer: Vec<u8>,
    reads: u64,
    /// Away only while it is read.
    v1: Option<Elsewhere>,
}

/// Controllers that are on cgroup v1.
#[derive(Debug)]
struct Elsewhere {
    v1: V1,
    on_v2: BTreeSet<String>,
    curves: (Curve, Curve),
}

impl Elsewhere {
    /// Whether a file's controller is on cgroup v1; one can only be on one of the hierarchies.
    fn has(&self, file: &str) -> bool {
        let controller = file.split('.').next().unwrap_or_default();
        !self.on_v2.contains(controller) && self.v1.has(file)
    }
}

impl Reader {
    /// A reader for a host of any layout; files of a controller that the v2 hierarchy does not have are read where cgroup v1 has it. `curves` are those of the kubelet's levels and of containers, by which shares are read as weights.
    #[must_use]
    pub fn new(roots: &Roots, curves: (Curve, Curve)) -> Reader {
        let on_v2 = v2_controllers(&roots.cgroup).unwrap_or_default();
        Reader {
            root: Beneath::new(&roots.cgroup),
            proc: roots.proc.clone(),
            buffer: Vec::new(),
            reads: 0,
            v1: Some(Elsewhere { v1: V1::find(&roots.proc), on_v2, curves }),
        }
    }

    /// Whether a file's controller is on cgroup v1, where it is read and not written.
    #[must_use]
    pub fn is_on_v1(&self, file: &str) -> bool {
        self.v1.as_ref().is_some_and(|elsewhere| elsewhere.has(file))
    }

    /// Where `live`, which this reader has read, differs from the plan. On cgroup v1 many files have no counterpart, which is no difference.
    #[must_use]
    pub fn differences(&self, plan: &Plan, live: &Live, node: &Node) -> Vec<Difference> {
        let mut found = differences(plan, live, node);
        found.retain(|difference| {
            let file = difference.file.as_deref();
            let is_told = |file: &str| !self.is_on_v1(file) || V1::tells(file);
            difference.kind != Kind::NoFile || file.is_none_or(is_told)
        });
        found
    }

    /// Files read so far.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Every cgroup of the plan that is there, with the files that the plan names.
    pub fn read(&mut self, plan: &Plan) -> Live {
        let mut live = Live::new();
        for cgroup in &plan.cgroups {
            let Some(path) = &cgroup.path else { continue };
            let files = cgroup.values.keys().map(String::as_str);
            let Ok(mut found) = self.read_at(path, cgroup.level, files) else { continue };
            if cgroup.level == Level::Container && cgroup.oom_score_adj.is_some() {
                found.scores = self.scores(path);
            }
            live.insert(path.clone(), found);
        }
        live
    }

    /// Some files of one cgroup, of which those that are not there are left out.
    ///
    /// # Errors
    /// When there is no such cgroup.
    pub fn read_cgroup<'f>(
        &mut self,
        path: &str,
        files: impl Iterator<Item = &'f str>,
    ) -> io::Result<Found> {
        let dir = self.root.dir(path)?;
        let mut found = Found::default();
        for file in files {
            let Ok(fd) = open_in(&dir, file, OFlag::O_RDONLY) else { continue };
            self.reads += 1;
            if let Ok(text) = KeptFile::from_fd(fd).read_value(&mut self.buffer) {
                found.files.insert(file.to_owned(), text.trim_end().to_owned());
            }
        }
        Ok(found)
    }

    /// The same on a host of any layout: a cgroup is there when one of the hierarchies has it.
    fn read_at<'f>(
        &mut self,
        path: &str,
        level: Level,
        files: impl Iterator<Item = &'f str>,
    ) -> io::Result<Found> {
        let Some(elsewhere) = self.v1.take() else { return self.read_cgroup(path, files) };
        let (on_v1, on_v2): (Vec<&str>, Vec<&str>) = files.partition(|file| elsewhere.has(file));
        let (of_pods, of_containers) = elsewhere.curves;
        let curve = if level == Level::Container { of_containers } else { of_pods };
        let v2 = self.read_cgroup(path, on_v2.into_iter());
        let elsewhere = self.v1.insert(elsewhere);
        if on_v1.is_empty() && v2.is_ok() {
            // To look there all the same takes twelve system calls for each cgroup.
            return v2;
        }
        let v1 = elsewhere.v1.read(path, on_v1.into_iter(), curve, &mut self.reads);
        match (v1, v2) {
            (Ok(mut found), Ok(more)) => {
                found.files.extend(more.files);
                Ok(found)
            }
            (Ok(found), Err(_)) | (Err(_), Ok(found)) => Ok(found),
            (Err(error), Err(_)) => Err(error),
        }
    }

    /// The different scores of a cgroup's own processes.
    fn scores(&mut self, path: &str) -> BTreeSet<i64> {
        let Ok(procs) = self.root.read(path, "cgroup.procs") else { return BTreeSet::new() };
        self.reads += 1;
        let pids = procs.lines().filter(|pid| *pid != "0").take(PROCESSES);
        pids.filter_map(|pid| {
            self.reads += 1;
            read_once(&self.proc.join(pid).join("oom_score_adj")).ok()?.trim().parse().ok()
        })
        .collect()
    }
}
