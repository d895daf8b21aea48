//! What the node as a whole says about its memory.
use anyhow::{Context, Result};
use nix::unistd::Pid;
use std::fs;
use std::path::{Path, PathBuf};

/// A field of /proc/meminfo, in bytes.
pub(crate) fn meminfo(field: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.with_context(|| format!("/proc/meminfo has no {field}"))? * 1024)
}

/// A counter of /proc/vmstat.
pub(crate) fn vmstat(field: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/vmstat").context("cannot read /proc/vmstat")?;
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.trim().parse().ok());
    value.with_context(|| format!("/proc/vmstat has no {field}"))
}

/// The kernel's release.
pub(crate) fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// A number of the status file of a process, which is that of its first thread, by its name with the colon.
pub(crate) fn status(process: impl std::fmt::Display, name: &str) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    status_field(&text, name)
}

/// The same of the text of such a file.
pub(crate) fn status_field(status: &str, name: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("no {name} in a status file"))
}

/// Names of a process's threads that wait in a function of the kernel and hear no signal, or only one that ends them.
pub(crate) fn threads_stuck_in(process: Pid, function: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let read = |dir: &Path, name| fs::read_to_string(dir.join(name)).unwrap_or_default();
    let is_stuck = |dir: &PathBuf| {
        let waits = read(dir, "stat").rsplit(") ").next().is_some_and(|rest| rest.starts_with('D'));
        waits && read(dir, "stack").contains(function)
    };
    let stuck = threads.map(|thread| thread.path()).filter(is_stuck);
    stuck.map(|dir| read(&dir, "comm").trim().to_owned()).collect()
}
