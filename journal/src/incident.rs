//! Incident records: everything needed to answer "why that one, and why not the other?" later and elsewhere.
//!
//! One file for each episode of pressure that led to a decision: the snapshots and histories that went in, the plans that came out, and what was done when.
//! `ebb replay FILE` decides them again, with the same limits or with others.
//! The directory is bounded: the oldest records go when there are more than it may hold.
//! A dry run keeps its records there too, under names of their own: they are counted by themselves, so that what was only rehearsed displaces nothing that was done.

use crate::Mode;
use crate::record::Moment;
use ebb_policy::{History, Plan, Signal, Snapshot};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Version of the file's form.
pub const SCHEMA_VERSION: u32 = 1;

/// Decisions kept of one episode: the first ones, which explain the rest.
pub const DECISIONS: usize = 16;

/// Characters of a cgroup's path in the name of a file.
const LONGEST_NAME: usize = 120;

/// How the name of a dry run's record ends. No other name has this character.
const DRY_RUN: &str = "_dryRun";

/// One decision as it was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Decision {
    /// The configuration it was made by, where another was in force when the episode ended; else that is [`Incident::config`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// What was known.
    pub snapshot: Snapshot,
    /// What was remembered.
    pub history: History,
    /// What was decided.
    pub plan: Plan,
}

impl Decision {
    /// Says that it was made by `config`, as another takes its place; what it says already stays.
    pub fn keep_config(&mut self, config: &str) {
        self.config.get_or_insert_with(|| config.to_owned());
    }
}

/// What an episode is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// This signal was below its threshold.
    Signal(Signal),
    /// The memory pressure of this cgroup was above its limit.
    MemoryPressure(String),
}

/// An episode of pressure.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Incident {
    /// Version of this form; 1.
    pub schema_version: u32,
    /// Version of ebb that wrote it.
    pub ebb_version: String,
    /// The signal that was short; absent when it was a cgroup that was under memory pressure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<Signal>,
    /// The cgroup that was under memory pressure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_pressure: Option<String>,
    /// When it became so: milliseconds since the Unix epoch.
    pub crossed_at: u64,
    /// The configuration in force when the episode ended, as text.
    pub config: String,
    /// The decisions.
    pub decisions: Vec<Decision>,
    /// What happened, in milliseconds since the crossing.
    pub timeline: Vec<Moment>,
}

impl Incident {
    /// What it is called by its file and by the journal.
    #[must_use]
    pub fn name(&self, mode: Mode) -> String {
        let about = match (self.signal, &self.memory_pressure) {
            (Some(signal), _) => About::Signal(signal),
            (None, cgroup) => About::MemoryPressure(cgroup.clone().unwrap_or_default()),
        };
        name(&about, self.crossed_at, mode)
    }
}

/// What an episode is called by its file and by the journal: `crossed_at` (milliseconds since the Unix epoch), what it is about, and that it is a dry run's where it is.
#[must_use]
pub fn name(about: &About, crossed_at: u64, mode: Mode) -> String {
    let what = match about {
        About::Signal(signal) => signal.name().to_owned(),
        About::MemoryPressure(cgroup) => {
            let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
            let path: String = cgroup.chars().map(plain).take(LONGEST_NAME).collect();
            format!("memoryPressure{path}")
        }
    };
    let mark = match mode {
        Mode::DryRun => DRY_RUN,
        Mode::Enforce => "",
    };
    format!("{crossed_at}-{what}{mark}")
}

/// Whose record a name is; `None` where it is not the name of one.
#[must_use]
pub fn mode_of(name: &str) -> Option<Mode> {
    let (crossed_at, what) = name.split_once('-')?;
    crossed_at.parse::<u64>().ok()?;
    Some(if what.ends_with(DRY_RUN) { Mode::DryRun } else { Mode::Enforce })
}

/// What the record of this name is about; `None` where it is not the name of one.
#[must_use]
pub fn about(name: &str) -> Option<&str> {
    mode_of(name)?;
    let (_, what) = name.split_once('-')?;
    Some(what.strip_suffix(DRY_RUN).unwrap_or(what))
}

/// A directory of incident records, and whose records are stored there.
#[derive(Clone, Debug)]
pub struct Incidents {
    dir: PathBuf,
    keep: usize,
    mode: Mode,
}

impl Incidents {
    /// Uses `dir`, which is made if need be, for at most `keep` records of an agent in this mode; those of the other stay as they are.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(dir: &Path, keep: usize, mode: Mode) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        Ok(Self { dir: dir.to_owned(), keep, mode })
    }

    /// Whose records are stored there.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Stores one record, whole or not at all, and lets the oldest of its kind go.
    ///
    /// # Errors
    /// When it cannot be written; then nothing of it is left.
    pub fn store(&self, incident: &Incident) -> io::Result<PathBuf> {
        let path = self.dir.join(format!("{}.json", incident.name(self.mode)));
        let partial = path.with_extension("partial");
        let text = serde_json::to_vec_pretty(incident)?;
        fs::write(&partial, text)
            .and_then(|()| fs::rename(&partial, &path))
            .inspect_err(|_| drop(fs::remove_file(&partial)))?;
        self.forget_oldest()?;
        Ok(path)
    }

    fn forget_oldest(&self) -> io::Result<()> {
        let mut records: Vec<PathBuf> = fs::read_dir(&self.dir)?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|e| e == "json"))
            // What is nobody's record stays, whatever it is.
            .filter(|path| {
                let name = path.file_stem().and_then(|name| name.to_str());
                name.and_then(mode_of) == Some(self.mode)
            })
            .collect();
        // Names begin with the time in milliseconds, which has had 13 digits since 2001.
        records.sort();
        for old in records.iter().rev().skip(self.keep) {
            fs::remove_file(old)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn incident(crossed_at: u64) -> Incident {
        Incident {
            schema_version: SCHEMA_VERSION,
            ebb_version: "0".into(),
            signal: Some(Signal::MemoryAvailable),
            memory_pressure: None,
            crossed_at,
            config: String::new(),
            decisions: Vec::new(),
            timeline: vec![Moment { what: "seen".into(), after_ms: 1.5, detail: None }],
        }
    }

    #[test]
    fn what_is_stored_reads_back_and_only_the_newest_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let incidents = Incidents::open(&dir.path().join("deep/er"), 3, Mode::Enforce).unwrap();
        let mut last = PathBuf::new();
        for n in 0..6 {
            last = incidents.store(&incident(1_700_000_000_000 + n)).unwrap();
        }
        let back: Incident = serde_json::from_slice(&fs::read(&last).unwrap()).unwrap();
        assert_eq!(back.timeline, incident(0).timeline);
        let names: Vec<_> = fs::read_dir(&incidents.dir).unwrap().flatten().collect();
        assert_eq!(names.len(), 3);
        assert!(!names.iter().any(|n| n.file_name().to_string_lossy().contains("1700000000000")));
    }

    #[test]
    fn a_dry_run_and_an_agent_that_acts_let_only_their_own_records_go() {
        let dir = tempfile::tempdir().unwrap();
        let open = |mode| Incidents::open(dir.path(), 2, mode).unwrap();
        let (real, dry) = (open(Mode::Enforce), open(Mode::DryRun));
        fs::write(dir.path().join("0ther.json"), "{}").unwrap();
        for n in 0..4 {
            real.store(&incident(1_700_000_000_000 + n)).unwrap();
        }
        // Later, and about the same millisecond too.
        for n in 3..8 {
            dry.store(&incident(1_700_000_000_000 + n)).unwrap();
        }
        let entries = fs::read_dir(dir.path()).unwrap().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        let expected = [
            "0ther.json",
            "1700000000002-memory.available.json",
            "1700000000003-memory.available.json",
            "1700000000006-memory.available_dryRun.json",
            "1700000000007-memory.available_dryRun.json",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_name_says_what_its_record_is_about_and_whether_it_was_only_rehearsed() {
        let about_cgroup = About::MemoryPressure("/user.slice/x_dryRun".to_owned());
        for (about_it, what) in [
            (About::Signal(Signal::MemoryAvailable), "memory.available"),
            (about_cgroup, "memoryPressure-user.slice-x-dryRun"),
        ] {
            for mode in [Mode::DryRun, Mode::Enforce] {
                let name = name(&about_it, 1_700_000_000_000, mode);
                assert_eq!((mode_of(&name), about(&name)), (Some(mode), Some(what)), "{name}");
            }
        }
        for other in ["", "notes", "notes-1", "leak_dryRun", "-1"] {
            assert_eq!((mode_of(other), about(other)), (None, None), "{other}");
        }
    }
}
