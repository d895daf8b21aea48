//! ebb's kernel programs in Rust, one family per file.
//!
//! ```text
//!  exit    a process has ended          raw_tp sched_process_exit             ──► VITAL
//!  tasks   forks, execs                 raw_tp sched_process_{fork,exec}      ──► CGROUPS
//!  stall   time lost waiting for memory fentry psi_memstall_{enter,leave}     ──► CGROUPS
//!  reclaim direct reclaim, kswapd       raw_tp mm_vmscan_*                    ──► CGROUPS, NODES, EVENTS
//!  refault page cache read again        fentry workingset_refault             ──► CGROUPS
//! ```
//! A program is here, and not in `ebpf/core`, when helpers, facts about the current task and scalar arguments are enough for
//! it: Rust emits nothing that a loader could adjust to the running kernel's structs. In return these programs load where
//! the others do not, on kernels without type information and under lockdown: none of them reads kernel memory.
//!
//! Where the programs are attached is written once, in the loader's catalogue; the names of the functions are the link.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![expect(
    internal_features,
    reason = "an atomic addition, which this target has no stable function for"
)]

mod exit;
mod maps;
mod reclaim;
mod refault;
mod stall;
mod tasks;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier refuses a program from which this can be reached.
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
