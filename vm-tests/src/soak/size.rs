//! What ebb itself takes up: memory of its own, descriptors, threads.
use anyhow::{Context, Result, ensure};
use nix::unistd::Pid;
use std::fs;

/// By how much the memory may be larger at the end than when everything had happened once, KiB.
const ALLOWED: u64 = 4096;

/// How many threads more there may be at the end: one may be about to end, and one stand in for another that hangs.
const THREADS_ALLOWED: usize = 2;

/// At one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// Anonymous memory that is resident, KiB.
    pub(super) anon: u64,
    /// Open descriptors.
    pub(super) descriptors: usize,
    /// Threads.
    pub(super) threads: usize,
}

impl Size {
    /// Of a process now.
    pub(super) fn of(pid: Pid) -> Result<Self> {
        let status = format!("/proc/{pid}/status");
        let text = fs::read_to_string(&status).with_context(|| format!("cannot read {status}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let anon = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let entries = |name: &str| {
            let dir = format!("/proc/{pid}/{name}");
            fs::read_dir(&dir).with_context(|| format!("cannot read {dir}")).map(Iterator::count)
        };
        let anon = anon.with_context(|| format!("no RssAnon in {status}"))?;
        Ok(Self { anon, descriptors: entries("fd")?, threads: entries("task")? })
    }
}

/// Sizes after each round: the last third is no larger than the first third, in which everything happened for the first time.
pub(super) fn ensure_no_growth(sizes: &[Size]) -> Result<()> {
    let third = sizes.len().div_ceil(3);
    let most = |sizes: Option<&[Size]>| {
        let sizes = sizes.unwrap_or_default();
        let anon = sizes.iter().map(|size| size.anon).max().unwrap_or_default();
        (anon, sizes.iter().map(|size| size.threads).max().unwrap_or_default())
    };
    let (before, threads_before) = most(sizes.get(..third));
    let (after, threads) = most(sizes.get(sizes.len().saturating_sub(third)..));
    ensure!(after <= before + ALLOWED, "ebb grew from {before} to {after} KiB: {sizes:?}");
    ensure!(
        threads <= threads_before + THREADS_ALLOWED,
        "ebb had {threads_before} threads and has {threads}: {sizes:?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_from_warming_up() {
        let of = |list: &[u64]| {
            let one = |&anon: &u64| Size { anon, descriptors: 1, threads: 9 };
            ensure_no_growth(&list.iter().map(one).collect::<Vec<_>>())
        };
        let with = |threads: &[usize]| {
            let one = |&threads: &usize| Size { anon: 9000, descriptors: 1, threads };
            ensure_no_growth(&threads.iter().map(one).collect::<Vec<_>>())
        };
        assert!(with(&[9, 12, 12, 9, 12, 13]).is_ok());
        assert!(with(&[9, 12, 12, 13, 14, 15]).is_err());
        assert!(of(&[1000, 9000, 9000, 9100, 9000, 9050]).is_ok());
        assert!(of(&[1000, 9000, 11000, 12000, 13500, 15000]).is_err());
    }
}
