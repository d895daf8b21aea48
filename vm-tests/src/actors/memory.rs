//! Actors that hold or take memory.
use super::ready;
use anyhow::{Context, Result};
use nix::sys::signal::{SigHandler, Signal, signal};
use std::fs::{self, File};
use std::io::Write as _;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// Hold `mib` MiB resident and do nothing.
pub(super) fn idle(mib: u64) -> Result<()> {
    let mut held = Vec::new();
    for _ in 0..mib {
        held.push(vec![1_u8; MIB]);
    }
    ready();
    park(&held)
}

/// Hold `mib` MiB of shared memory and do nothing.
pub(super) fn shared(mib: u64) -> Result<()> {
    let mut file = unlinked()?;
    let chunk = vec![1_u8; MIB];
    for _ in 0..mib {
        file.write_all(&chunk).context("cannot grow in tmpfs")?;
    }
    ready();
    park(&[])
}

/// Take memory for ever at `rate` MiB/s; 0 is as fast as it goes.
pub(super) fn hog(rate: u64) -> Result<()> {
    ready();
    grow(rate)
}

/// Take memory at once until only `floor` MiB are available, keep it at that until there is a file `go`, then grow at `rate` MiB/s; 0 is as fast as it goes.
///
/// Kept at, because what was freed before may be counted only seconds later: free pages wait on lists of their processor, and 40 MiB above a threshold become 80.
pub(super) fn gated(floor: u64, go: &str, rate: u64) -> Result<()> {
    let mut held = Vec::new();
    take_down_to(floor, &mut held)?;
    ready();
    while fs::metadata(go).is_err() {
        std::thread::sleep(Duration::from_millis(5));
        take_down_to(floor, &mut held)?;
    }
    let grown = grow(rate);
    drop(held);
    grown
}

fn take_down_to(floor: u64, held: &mut Vec<Vec<u8>>) -> Result<()> {
    while crate::node::meminfo("MemAvailable")? >> 20 > floor {
        held.push(vec![1_u8; MIB]);
    }
    Ok(())
}

/// Take memory at once until only `floor` MiB are available, then grow at `rate` MiB/s.
pub(super) fn rush(floor: u64, rate: u64) -> Result<()> {
    let mut held = Vec::new();
    take_down_to(floor, &mut held)?;
    ready();
    let grown = grow(rate);
    drop(held);
    grown
}

/// Hold `mib` MiB and use all of it again and again.
pub(super) fn thrash(mib: u64) -> Result<()> {
    let mut held: Vec<Vec<u8>> = (0..mib).map(|_| vec![1_u8; MIB]).collect();
    ready();
    loop {
        for page in held.iter_mut().flat_map(|chunk| chunk.iter_mut().step_by(4096)) {
            *page = page.wrapping_add(1);
        }
        std::hint::black_box(&held);
    }
}

/// Take memory until only `floor` MiB are available, then end.
pub(super) fn dier(floor: u64) -> Result<()> {
    ready();
    let mut held = Vec::new();
    take_down_to(floor, &mut held)?;
    Ok(())
}

/// Wait until there is a file `go`, take as many MiB as it says, and do nothing more.
pub(super) fn late(go: &str) -> Result<()> {
    ready();
    let size = loop {
        if let Ok(text) = fs::read_to_string(go) {
            break text;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mib: u64 = size.trim().parse().context("an odd size")?;
    let held: Vec<Vec<u8>> = (0..mib).map(|_| vec![1_u8; MIB]).collect();
    park(&held)
}

/// Take memory until only `floor` MiB are available, and do nothing more, asked to end or not.
pub(super) fn unmoved(floor: u64) -> Result<()> {
    ignore_requests()?;
    let mut held = Vec::new();
    take_down_to(floor, &mut held)?;
    ready();
    park(&held)
}

/// Leave so many KiB in a file of tmpfs, charged to the cgroup, and end.
pub(super) fn leaves(kib: usize) -> Result<()> {
    ready();
    let path = format!("/tmp/left.{}", std::process::id());
    fs::write(&path, vec![1_u8; kib << 10]).with_context(|| format!("cannot write {path}"))
}

/// A hog that does not end when asked to.
pub(super) fn stubborn(rate: u64) -> Result<()> {
    ignore_requests()?;
    hog(rate)
}

fn ignore_requests() -> Result<()> {
    for polite in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        // SAFETY: SIG_IGN is not a handler, so nothing of ours runs in signal context.
        unsafe { signal(polite, SigHandler::SigIgn) }.context("cannot ignore a signal")?;
    }
    Ok(())
}

/// A hog whose first thread has ended: /proc shows a zombie with no memory, and the memory grows.
pub(super) fn leaderless(rate: u64) -> Result<()> {
    std::thread::spawn(move || {
        ready();
        grow(rate)
    });
    // SAFETY: exit(2) ends this thread only; what its stack owns is leaked, and the other thread borrows none of it.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    anyhow::bail!("the first thread did not end")
}

/// Grow in tmpfs at `rate` MiB/s: in no process's resident set, in no file that can be found.
pub(super) fn shmer(rate: u64) -> Result<()> {
    shmer_from(u64::MAX, rate)
}

/// The same, once it has taken so much at once that only `floor` MiB are available.
pub(super) fn shmer_from(floor: u64, rate: u64) -> Result<()> {
    let mut file = unlinked()?;
    let chunk = vec![1_u8; MIB];
    while crate::node::meminfo("MemAvailable")? >> 20 > floor {
        file.write_all(&chunk).context("cannot grow in tmpfs")?;
    }
    ready();
    paced(rate, |_| file.write_all(&chunk).context("cannot grow in tmpfs"))
}

/// A file in tmpfs that no directory names.
fn unlinked() -> Result<File> {
    let path = format!("/dev/shm/shmer.{}", std::process::id());
    let file = File::create_new(&path).with_context(|| format!("cannot create {path}"))?;
    fs::remove_file(&path).with_context(|| format!("cannot unlink {path}"))?;
    Ok(file)
}

fn grow(rate: u64) -> Result<()> {
    let mut held = Vec::new();
    paced(rate, |_| {
        held.push(vec![1_u8; MIB]);
        Ok(())
    })
}

/// Call for the first, second, … MiB, `rate` times a second.
fn paced(rate: u64, mut step: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let began = Instant::now();
    for taken in 1_u64.. {
        step(taken)?;
        if let Some(nanos) = (taken * 1_000_000_000).checked_div(rate) {
            std::thread::sleep(Duration::from_nanos(nanos).saturating_sub(began.elapsed()));
        }
    }
    Ok(())
}

/// Keep what is held until somebody ends us.
pub(super) fn park(held: &[Vec<u8>]) -> ! {
    loop {
        std::hint::black_box(held);
        std::thread::park();
    }
}
