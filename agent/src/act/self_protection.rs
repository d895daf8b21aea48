//! Keeping ebb itself alive: its memory stays resident, the kernel's OOM killer leaves it alone, and it may hold enough files.
//!
//! Each measure is its own; one that is refused is reported and costs only itself.

use crate::threads::{Turn, take_short_turns};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use std::path::Path;

/// The value the kubelet and container runtimes give themselves: killed last, but not untouchable.
const OOM_SCORE_ADJ: i32 = -999;

/// What came of [`protect`].
#[derive(Debug)]
pub struct Protected {
    /// What could not be done, each with its reason.
    pub refused: Vec<String>,
    /// Memory that is mapped later is locked without `CAP_IPC_LOCK`.
    pub memlock: bool,
    /// Threads may become real-time without `CAP_SYS_NICE`.
    pub rtprio: bool,
}

/// Protects the calling process and the threads that it starts from here on.
#[must_use]
pub fn protect(proc: &Path) -> Protected {
    give_back_large_blocks();
    release_start_up_memory();
    let mut refused = Vec::new();
    let mut note = |what: &str, result: Result<(), String>| {
        if let Err(why) = result {
            refused.push(format!("{what}: {why}"));
        }
    };
    // What these limits allow takes no capability later.
    let memlock = raise(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY);
    let rtprio = raise(Resource::RLIMIT_RTPRIO, Turn::Kill as libc::rlim_t);
    note("keep memory resident (mlockall)", lock_memory());
    let score = std::fs::write(proc.join("self/oom_score_adj"), OOM_SCORE_ADJ.to_string());
    note("set oom_score_adj to -999", score.map_err(|e| e.to_string()));
    note("run before others (nice -20)", raise_priority().map_err(|e| e.to_string()));
    note("raise the limit of open files", raise_open_files().map_err(|e| e.to_string()));
    Protected { refused, memlock, rtprio }
}

/// Raises a limit to `least` unless it is as high; whether it is then.
fn raise(limit: Resource, least: libc::rlim_t) -> bool {
    getrlimit(limit)
        .is_ok_and(|(soft, hard)| soft >= least || setrlimit(limit, least, hard.max(least)).is_ok())
}

/// Has the allocator return each block from 64 KiB on to the kernel as soon as it is free.
///
/// By itself it keeps them once it has seen a few of a size, and what is locked it cannot give back later: what a list of pods took while it was read would stay for good.
fn give_back_large_blocks() {
    // SAFETY: mallopt takes integers and has no preconditions. It refuses what it does not know, which costs only the memory.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 64 << 10);
    }
}

/// Gives back what reading the kernel's type information took: some ten MiB that would otherwise stay resident for good.
fn release_start_up_memory() {
    // SAFETY: malloc_trim only returns free memory of the allocator to the kernel; it has no preconditions.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Locks pages once they are touched: locking all of the address space would charge every thread's whole stack.
fn lock_memory() -> Result<(), String> {
    let on_fault = MlockAllFlags::from_bits_retain(libc::MCL_ONFAULT);
    mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE | on_fault)
        .map_err(|e| e.to_string())
}

/// A node short of memory is short of processor time too, and every thread of ebb that is started later inherits this.
fn raise_priority() -> std::io::Result<()> {
    // SAFETY: setpriority takes integers and touches no memory of ours.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    let raised = if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
    // Whatever became of the priority; who does not get them waits as others do.
    let _ = take_short_turns(0);
    raised
}

/// To all that may be had: each workload that is followed takes a few.
fn raise_open_files() -> nix::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) }
}
