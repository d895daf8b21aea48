//! What the kernel knows of a program: what its runs took, while somebody has that measured, and how many it skipped.
//!
//! A program does not run on a CPU on which it is running already. That happens where programs can be preempted (tracepoints on
//! recent kernels) and is counted by the kernel alone: the program that could have counted a lost record never started.
use crate::costs::Cost;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// How many runs of a program were skipped so far; 0 on kernels that never skip any.
pub(crate) fn skipped_runs(program: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(info(program)?.recursion_misses)
}

/// What the runs of a program took so far.
pub(crate) fn cost(name: &'static str, program: BorrowedFd<'_>) -> io::Result<Cost> {
    let info = info(program)?;
    let time = Duration::from_nanos(info.run_time_ns);
    Ok(Cost { program: name, runs: info.run_cnt, time })
}

/// Have the kernel run a program that takes no argument, as if what it waits for had happened.
pub(crate) fn play(program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the structure is made of integers and pointers, for which zero is a value: no data is passed.
    let mut run: libbpf_sys::bpf_test_run_opts = unsafe { zeroed() };
    run.sz = size_of_val(&run) as libbpf_sys::size_t;
    // SAFETY: the request is of the size that it says, and outlives the call.
    let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut run) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn info(program: BorrowedFd<'_>) -> io::Result<libbpf_sys::bpf_prog_info> {
    // SAFETY: the kernel's structure is made of integers, for which zero is a value; bytes that an older kernel does not
    // know have to be zero, padding included.
    let mut info: libbpf_sys::bpf_prog_info = unsafe { zeroed() };
    let mut len = u32::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: `info` is `len` bytes long and outlives the call; its pointers are null, which asks for nothing behind them.
    let result = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len)
    };
    if result == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}
