//! Processes that do what a test wants to see told: this program again, in another role.
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Set in a child of this program: what it is to do.
pub(crate) const ROLE: &str = "EBB_TEST_ROLE";

/// This program again, in another role.
pub(crate) fn act(role: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.env(ROLE, role);
    command
}

pub(crate) fn play(role: &str) -> ExitCode {
    match role {
        // The first thread ends before the others.
        "leader-first" => {
            for _ in 0..3 {
                std::thread::spawn(|| std::thread::sleep(Duration::from_millis(20)));
            }
            // SAFETY: ends the calling thread only; what it holds is not needed by the others.
            unsafe { nix::libc::syscall(nix::libc::SYS_exit, 0) };
            ExitCode::FAILURE
        }
        // Two threads end at the same time, again and again in different distances.
        "together" => {
            static READY: AtomicUsize = AtomicUsize::new(0);
            let end = || {
                READY.fetch_add(1, Ordering::SeqCst);
                while READY.load(Ordering::SeqCst) < 2 {
                    std::hint::spin_loop();
                }
                // SAFETY: ends the calling thread only; what it holds is not needed by the other.
                unsafe { nix::libc::syscall(nix::libc::SYS_exit, 0) };
            };
            std::thread::spawn(end);
            end();
            ExitCode::FAILURE
        }
        "eat" => {
            let Some(cgroup) = std::env::var_os("EBB_TEST_CGROUP") else {
                return ExitCode::FAILURE;
            };
            let entered = fs::write(Path::new(&cgroup).join("cgroup.procs"), "0");
            if entered.is_err() {
                return ExitCode::FAILURE;
            }
            let mut eaten = Vec::new();
            // Ends at 256 MiB if no limit does.
            for _ in 0..256 {
                eaten.push(vec![1u8; 1 << 20]);
            }
            ExitCode::FAILURE
        }
        _ => ExitCode::FAILURE,
    }
}
