//! A process has ended. Stands in where `ebpf/core` cannot be loaded: without the exit status and the start time.
use crate::maps::{Hurry, VITAL, current_cgroup, header, lose, send, vital_has_room};
use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use ebb_wire::{COMM_LEN, Exit, exit_flags, kind, unhurried};

/// Where the kernel says itself that this thread is the last of its process.
#[raw_tracepoint]
pub fn exit_dead(ctx: RawTracePointContext) -> i32 {
    let group_dead: u8 = ctx.arg(1);
    if group_dead != 0 {
        exit(0);
    }
    0
}

/// Elsewhere: the first thread of the process, which is not always the last.
#[raw_tracepoint]
pub fn exit_leader(_: RawTracePointContext) -> i32 {
    let ids = bpf_get_current_pid_tgid();
    if (ids >> 32) as u32 == ids as u32 {
        exit(exit_flags::LEADER_ONLY);
    }
    0
}

/// The current task is the one that ends, and still in its cgroup.
#[inline(always)]
fn exit(flags: u32) {
    if !vital_has_room() {
        return lose(kind::EXIT);
    }
    let record = Exit {
        header: header::<Exit>(kind::EXIT),
        cgroup: current_cgroup(),
        start_ns: 0,
        pid: (bpf_get_current_pid_tgid() >> 32) as u32,
        ppid: 0,
        status: 0,
        flags,
        comm: bpf_get_current_comm().unwrap_or([0; COMM_LEN]),
    };
    send(&VITAL, kind::EXIT, record, Hurry::Unhurried(unhurried::VITAL));
}
