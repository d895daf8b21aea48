//! A program that does nothing: what is measured of it is what the measuring costs.
use super::runs;
use crate::costs::Cost;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::null_mut;

/// It is attached where a task is made, as long as this is held.
#[derive(Debug)]
pub(crate) struct Nothing {
    program: OwnedFd,
    _link: OwnedFd,
}

impl Nothing {
    /// Load and attach it.
    pub(crate) fn attach() -> io::Result<Self> {
        const RAW_TRACEPOINT: u32 = libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT;
        // r0 = 0; exit
        let code = [instruction(0xb7), instruction(0x95)];
        let name = c"nothing".as_ptr();
        let license = c"Dual MIT/GPL".as_ptr();
        // SAFETY: both texts and the two instructions outlive the call, and no options are passed.
        let program = owned(unsafe {
            libbpf_sys::bpf_prog_load(RAW_TRACEPOINT, name, license, code.as_ptr(), 2, null_mut())
        })?;
        let target = c"sched_process_fork".as_ptr();
        // SAFETY: the name outlives the call, and the descriptor is the program's.
        let link = unsafe { libbpf_sys::bpf_raw_tracepoint_open(target, program.as_raw_fd()) };
        Ok(Self { program, _link: owned(link)? })
    }

    /// What it has cost so far.
    pub(crate) fn cost(&self) -> io::Result<Cost> {
        runs::cost("nothing", self.program.as_fd())
    }
}

/// An instruction with register 0 and no value.
fn instruction(code: u8) -> libbpf_sys::bpf_insn {
    // SAFETY: it is made of integers, for which zero is a value.
    let mut instruction: libbpf_sys::bpf_insn = unsafe { zeroed() };
    instruction.code = code;
    instruction
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
