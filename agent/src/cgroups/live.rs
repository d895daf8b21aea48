//! The tree as it is: the files that a plan speaks of, and the cgroups of pods that are there.
//!
//! Each cgroup's directory is opened once and its files relative to it, so that what is read together belongs together; nothing is read that the plan does not name.

use super::v1::V1;
use crate::sense::Roots;
use crate::sense::file::{KeptFile, read_once};
use crate::sense::host::CgroupLayout;
use ebb_policy::cgroups::compare::{Found, Live};
use ebb_policy::cgroups::{Level, Plan};
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Processes of a container whose score is looked at.
const PROCESSES: usize = 64;

/// Reads what is there of a plan.
#[derive(Debug)]
pub struct Reader {
    root: PathBuf,
    proc: PathBuf,
    buffer: Vec<u8>,
    reads: u64,
    v1: Option<V1>,
}

impl Reader {
    /// A reader of the hierarchy mounted at `root`; processes are looked up in `proc`.
    #[must_use]
    pub fn new(root: &Path, proc: &Path) -> Reader {
        Reader {
            root: root.to_owned(),
            proc: proc.to_owned(),
            buffer: Vec::new(),
            reads: 0,
            v1: None,
        }
    }

    /// A reader for a host of any layout; where controllers are on cgroup v1, their files there are read.
    #[must_use]
    pub fn of_layout(layout: &CgroupLayout, roots: &Roots) -> Reader {
        let mut reader = Reader::new(&roots.cgroup, &roots.proc);
        if layout.unified().is_none() {
            reader.v1 = Some(V1::find(&roots.proc));
        }
        reader
    }

    /// Whether a file that was not found is missing: on cgroup v1 many have no counterpart, which is no difference.
    #[must_use]
    pub fn tells(&self, file: &str) -> bool {
        self.v1.is_none() || V1::tells(file)
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
            let Ok(mut found) = self.read_cgroup(path, files) else { continue };
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
        if let Some(v1) = &self.v1 {
            return v1.read(path, files, &mut self.reads);
        }
        let dir = open_below(&self.root, path)?;
        let mut found = Found::default();
        for file in files {
            let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
            let Ok(fd) = openat(&dir, file, flags, Mode::empty()) else { continue };
            self.reads += 1;
            if let Ok(text) = KeptFile::from_fd(fd).read_value(&mut self.buffer) {
                found.files.insert(file.to_owned(), text.trim_end().to_owned());
            }
        }
        Ok(found)
    }

    /// The different scores of a cgroup's own processes.
    fn scores(&mut self, path: &str) -> BTreeSet<i64> {
        let procs = join(&self.root, path).join("cgroup.procs");
        let Ok(procs) = read_once(&procs) else { return BTreeSet::new() };
        self.reads += 1;
        let pids = procs.lines().filter(|pid| *pid != "0").take(PROCESSES);
        pids.filter_map(|pid| {
            self.reads += 1;
            read_once(&self.proc.join(pid).join("oom_score_adj")).ok()?.trim().parse().ok()
        })
        .collect()
    }
}

/// The directory of a cgroup by its path below the mount.
#[must_use]
pub fn join(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Opens a cgroup's directory without following links.
///
/// # Errors
/// What the kernel says.
pub fn open_below(root: &Path, path: &str) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    Ok(open(&join(root, path), flags, Mode::empty())?)
}
