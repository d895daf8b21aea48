//! The filter of system calls: those that ebb makes once it runs, and no others.
//!
//! The list has what the code makes, with the other forms of the same calls that a C library may choose.
//! A call that is not on it fails as on a kernel that does not have it (`ENOSYS`), for which libraries have another way: a reclaimer that dies of its own filter is worse than one without.
//! In every mode the kernel's log names what the list lacks, and guest tests fail for a line of it.

use crate::config::Seccomp;
use seccompiler::{BpfProgram, BpfProgramRef, SeccompAction, SeccompFilter, TargetArch};
use std::collections::BTreeMap;
use std::io;

/// Puts the filter on this thread and on those that it starts from here on.
///
/// # Errors
/// What the kernel says, or that there is no list for this architecture.
pub(super) fn filter(mode: Seccomp) -> Result<(), String> {
    let Some(program) = program(mode)? else { return Ok(()) };
    install(&program, libc::SECCOMP_FILTER_FLAG_TSYNC)
}

/// Puts `program` on this thread, or with `SECCOMP_FILTER_FLAG_TSYNC` on all of the process; `no_new_privs` must be set.
///
/// The library's own way does not ask the kernel to log what is refused.
fn install(program: BpfProgramRef<'_>, flags: libc::c_ulong) -> Result<(), String> {
    let len = u16::try_from(program.len()).map_err(|error| error.to_string())?;
    let filter = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    let flags = flags | libc::SECCOMP_FILTER_FLAG_LOG;
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the kernel copies `filter.len` instructions from where `filter.filter` points and writes nothing; seccompiler's instructions have the layout of the kernel's.
    match unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const filter) } {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error().to_string()),
        thread => Err(format!("thread {thread} has a filter of its own")),
    }
}

fn program(mode: Seccomp) -> Result<Option<BpfProgram>, String> {
    let action = match mode {
        Seccomp::Off => return Ok(None),
        Seccomp::Log => SeccompAction::Log,
        Seccomp::Enforce => SeccompAction::Errno(libc::ENOSYS.unsigned_abs()),
    };
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let calls = CALLS.iter().chain(OLD_CALLS);
    let rules: BTreeMap<i64, _> = calls.map(|call| (*call, Vec::new())).collect();
    let filter = SeccompFilter::new(rules, action, SeccompAction::Allow, arch)
        .map_err(|error| error.to_string())?;
    filter.try_into().map(Some).map_err(|error: seccompiler::BackendError| error.to_string())
}

/// What every architecture has.
const CALLS: &[libc::c_long] = &[
    // Files, and what is read and written below /proc and the cgroup tree.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_umask,
    libc::SYS_getcwd,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_utimensat,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_ioctl,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
    libc::SYS_name_to_handle_at,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_eventfd2,
    libc::SYS_signalfd4,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_restart_syscall,
    // Sockets: the runtime, D-Bus, the service manager, the journal; whoever asks for metrics.
    libc::SYS_accept4,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    // An address that somebody else had at the start.
    libc::SYS_listen,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_shutdown,
    // Memory and threads.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_memfd_create,
    libc::SYS_membarrier,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_prctl,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_setitimer,
    libc::SYS_getrandom,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getgroups,
    libc::SYS_prlimit64,
    libc::SYS_getrusage,
    libc::SYS_capget,
    // Killing, and the kernel side.
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_mrelease,
    libc::SYS_bpf,
];

/// What newer architectures have left out.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_chmod,
    libc::SYS_lchown,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_create,
    libc::SYS_eventfd,
    libc::SYS_inotify_init,
    libc::SYS_alarm,
    libc::SYS_time,
    libc::SYS_getrlimit,
    libc::SYS_arch_prctl,
];

/// What newer architectures have left out.
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[libc::c_long] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    /// On a thread of its own, for the filter stays; `Err` is the error number.
    fn under(
        mode: Seccomp,
        call: impl FnOnce() -> libc::c_long + Send + 'static,
    ) -> Result<(), i32> {
        std::thread::spawn(move || {
            let program = program(mode).unwrap().unwrap();
            nix::sys::prctl::set_no_new_privs().unwrap();
            install(&program, 0).unwrap();
            match call() {
                -1 => Err(io::Error::last_os_error().raw_os_error().unwrap()),
                _ => Ok(()),
            }
        })
        .join()
        .unwrap()
    }

    fn personality() -> libc::c_long {
        // SAFETY: this asks for the persona of the process and changes nothing.
        unsafe { libc::syscall(libc::SYS_personality, 0xffff_ffff_u64) }
    }

    #[test]
    fn a_call_that_is_not_listed_fails_as_one_that_is_not_there() {
        assert_eq!(under(Seccomp::Enforce, personality), Err(libc::ENOSYS));
        assert_eq!(under(Seccomp::Log, personality), Ok(()));
        // SAFETY: getppid takes nothing and touches no memory of ours.
        assert_eq!(under(Seccomp::Enforce, || unsafe { libc::syscall(libc::SYS_getppid) }), Ok(()));
    }

    #[test]
    fn nothing_is_executed_mounted_or_traced() {
        for call in [libc::SYS_execve, libc::SYS_mount, libc::SYS_ptrace, libc::SYS_setuid] {
            assert!(!CALLS.contains(&call) && !OLD_CALLS.contains(&call), "call {call}");
        }
    }
}
