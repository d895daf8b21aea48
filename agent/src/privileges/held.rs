//! What a thread holds, as `/proc/PID/task/TID/status` tells it.

use super::TABLE;
use crate::sense::file::read_once;
use serde::Serialize;
use std::fmt;
use std::fs;
use std::path::Path;

/// The privileges of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// Effective capabilities, one bit for each number.
    pub effective: u64,
    /// Those that it could make effective.
    pub permitted: u64,
    /// It gains none by executing a program.
    pub no_new_privs: bool,
    /// Its system calls go through a filter.
    pub seccomp: bool,
}

impl Held {
    /// What the calling thread holds; `None` when procfs does not say.
    #[must_use]
    pub fn of_this_thread(proc: &Path) -> Option<Self> {
        Self::read(&proc.join("thread-self/status"))
    }

    /// What the first thread of the process `pid` holds; `None` when procfs does not say.
    #[must_use]
    pub fn of_process(proc: &Path, pid: i32) -> Option<Self> {
        Self::read(&proc.join(pid.to_string()).join("status"))
    }

    fn read(path: &Path) -> Option<Self> {
        Self::parse(&read_once(path).ok()?)
    }

    /// Reads a `status` file; `None` when it tells no capabilities.
    fn parse(status: &str) -> Option<Self> {
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.map(str::trim)
        };
        let mask = |key| u64::from_str_radix(value(key)?, 16).ok();
        Some(Self {
            effective: mask("CapEff")?,
            permitted: mask("CapPrm")?,
            no_new_privs: value("NoNewPrivs") == Some("1"),
            seccomp: value("Seccomp") == Some("2"),
        })
    }

    /// Whether it may use the capability with this number.
    #[must_use]
    pub fn has(&self, capability: u8) -> bool {
        self.effective & (1 << capability) != 0
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = TABLE.iter().filter(|row| self.has(row.capability.index()));
        let mut names: Vec<String> = known.map(super::Row::name).collect();
        let all = TABLE.iter().fold(0, |mask, row| mask | row.capability.bitmask());
        let others = (self.permitted & !all).count_ones();
        if others > 0 {
            names.push(format!("{others} that ebb has no use for"));
        }
        if names.is_empty() {
            names.push("none".into());
        }
        write!(f, "capabilities {}", names.join(" "))?;
        write!(f, "; no_new_privs {}", if self.no_new_privs { "on" } else { "off" })?;
        write!(f, "; seccomp {}", if self.seccomp { "on" } else { "off" })
    }
}

/// The threads of this process that hold what `held` does not, by their ids.
#[must_use]
pub fn threads_that_hold_more(proc: &Path, held: &Held) -> Vec<String> {
    let tasks = fs::read_dir(proc.join("self/task")).into_iter().flatten().flatten();
    tasks
        .filter(|task| {
            Held::read(&task.path().join("status")).is_some_and(|other| {
                other.permitted & !held.permitted != 0 || held.no_new_privs && !other.no_new_privs
            })
        })
        .map(|task| task.file_name().to_string_lossy().into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tebb\nCapInh:\t0000000000000000\nCapPrm:\t00000000002800a2\nCapEff:\t0000000000280022\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";

    #[test]
    fn a_status_file_tells_what_a_thread_holds() {
        let held = Held::parse(STATUS).unwrap();
        assert_eq!(
            held.to_string(),
            "capabilities CAP_KILL CAP_DAC_OVERRIDE CAP_SYS_PTRACE CAP_SYS_ADMIN 1 that ebb has no use for; no_new_privs on; seccomp on"
        );
        assert_eq!(Held::parse("Name:\tebb\n"), None, "unknown is not nothing");
    }

    #[test]
    fn a_thread_that_holds_more_is_found() {
        let proc = tempfile::tempdir().unwrap();
        for (thread, status) in [("1", STATUS.to_owned()), ("2", STATUS.replace("00a2", "00a3"))] {
            let dir = proc.path().join("self/task").join(thread);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("status"), status).unwrap();
        }
        let held = Held::parse(STATUS).unwrap();
        assert_eq!(threads_that_hold_more(proc.path(), &held), ["2"]);
    }
}
