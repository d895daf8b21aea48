//! Runs that the kernel skipped: a program does not run on a CPU on which it is running already.
//!
//! That happens where programs can be preempted (tracepoints on recent kernels) and is counted by the kernel alone: the program
//! that could have counted a lost record never started.
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How many runs of a program were skipped so far; 0 on kernels that never skip any.
pub(crate) fn skipped_runs(program: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: the kernel's structure is made of integers, for which zero is a value; bytes that an older kernel does not
    // know have to be zero, padding included.
    let mut info: libbpf_sys::bpf_prog_info = unsafe { zeroed() };
    let mut len = u32::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: `info` is `len` bytes long and outlives the call; its pointers are null, which asks for nothing behind them.
    let result = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len)
    };
    if result == 0 { Ok(info.recursion_misses) } else { Err(io::Error::last_os_error()) }
}
