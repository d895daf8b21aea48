//! Actors that make processes.
use super::ready;
use anyhow::{Context, Result, bail};
use nix::sys::wait::wait;
use nix::unistd::{ForkResult, fork};
use std::time::{Duration, Instant};

/// A bomb must end by itself when nobody ends it, or a failed test takes the guest with it.
const FUSE: Duration = Duration::from_secs(240);

/// Call this process `name`, and make it the user's, with no privileges left.
pub(super) fn become_another(name: &str, user: u32) -> Result<()> {
    let name = std::ffi::CString::new(name).context("a name with a zero byte")?;
    // SAFETY: the kernel reads up to 16 bytes of a string that ends with a zero byte.
    let named = unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    anyhow::ensure!(named == 0, "cannot take a name");
    // SAFETY: these calls take numbers; this process has one thread.
    let left = unsafe { libc::setgroups(0, std::ptr::null()) == 0 && libc::setgid(user) == 0 };
    // SAFETY: as above.
    anyhow::ensure!(left && unsafe { libc::setuid(user) } == 0, "cannot become user {user}");
    Ok(())
}

/// `count` processes that end at once, `width` at a time, each with exit status 7.
pub(super) fn exits(count: u64, width: u64) -> Result<()> {
    ready();
    let mut alive = 0;
    for _ in 0..count {
        if alive == width {
            wait().context("cannot wait for a child")?;
            alive -= 1;
        }
        // SAFETY: this process has one thread, so the child may do anything; it ends at once.
        match unsafe { fork() }.context("cannot fork")? {
            ForkResult::Parent { .. } => alive += 1,
            // Not `process::exit`: the child must not flush what the parent has buffered.
            ForkResult::Child => exit_now(7),
        }
    }
    for _ in 0..alive {
        wait().context("cannot wait for a child")?;
    }
    Ok(())
}

/// Double until there are `most` processes in this cgroup, then keep it at that whoever ends some.
pub(super) fn bomb(cgroup: &str, most: u64) -> Result<()> {
    ready();
    let began = Instant::now();
    let count = format!("{cgroup}/pids.current");
    while began.elapsed() < FUSE {
        let text =
            std::fs::read_to_string(&count).with_context(|| format!("cannot read {count}"))?;
        let now: u64 = text.trim().parse().with_context(|| format!("{count} holds {text}"))?;
        if now < most {
            // SAFETY: this process has one thread, and parent and child go on in the same loop.
            // A refused fork is what a bomb lives with: it tries again.
            let _ = unsafe { fork() };
        } else {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    bail!("nobody ended the bomb")
}

/// Keep a processor busy, and hold no memory.
pub(super) fn spin() -> ! {
    ready();
    loop {
        std::hint::spin_loop();
    }
}

fn exit_now(status: i32) -> ! {
    // SAFETY: _exit takes a number and does not return.
    unsafe { libc::_exit(status) }
}
