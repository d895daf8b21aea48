//! What the node as a whole says about its memory.
use anyhow::{Context, Result};
use std::fs;

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
