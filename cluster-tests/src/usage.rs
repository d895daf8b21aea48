//! What a process takes of the machine.
use anyhow::{Context, Result};
use nix::time::ClockId;
use nix::unistd::Pid;
use std::fs;
use std::time::Duration;

/// The memory of the process `pid` that is resident, in bytes.
///
/// # Errors
/// When there is no such process.
pub fn resident(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let kib = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = kib.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{path} does not say what is resident"))? * 1024)
}

/// The processor time that the process `pid` has used so far, all its threads, in seconds.
///
/// # Errors
/// When there is no such process.
pub fn processor_time(pid: u32) -> Result<f64> {
    let used = ClockId::pid_cpu_clock_id(Pid::from_raw(i32::try_from(pid)?))
        .and_then(ClockId::now)
        .with_context(|| format!("the processor time of process {pid} cannot be read"))?;
    Ok(Duration::from(used).as_secs_f64())
}
