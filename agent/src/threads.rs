//! The agent's threads. A panic in any of them is the end of the process, unless whoever calls contains it; the last record then is `report::last_word`'s.

use crate::testing;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::cell::Cell;
use std::io;
use std::panic::AssertUnwindSafe;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// The nice value of threads that the agent can do without.
const BEHIND: libc::c_int = 10;

thread_local! {
    /// A panic of this thread is an error to whoever called.
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Starts a thread of the agent.
///
/// # Errors
/// When no thread can be made.
pub fn spawn(
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(move || {
        panic_if_asked(name);
        work();
    })
}

/// Starts a thread that the agent can do without, behind all others where processors are short: its panic is what `ended` is told, and the agent goes on.
///
/// # Errors
/// When no thread can be made.
pub fn spawn_beside(
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
    ended: impl FnOnce(String) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(move || {
        // SAFETY: setpriority takes integers; 0 is this thread. A kernel that refuses leaves it as it is.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, BEHIND) };
        // Nor has it the short turns of its maker.
        let _ = schedule(0, libc::SCHED_OTHER, 0);
        let done = contain(|| {
            panic_if_asked(name);
            work();
        });
        if let Err(what) = done {
            ended(what);
        }
    })
}

/// Does `work` on a thread of its own and gives what comes of it, so that a task need not wait for what blocks.
///
/// Not by tokio's pool: that panics where no thread can be made, as when task ids have run out.
///
/// # Errors
/// When no thread can be made.
pub fn beside<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (done, result) = oneshot::channel();
    // Whoever asked may have stopped waiting.
    spawn(name, move || drop(done.send(work())))?;
    Ok(result)
}

/// The calling thread, as the kernel numbers it.
#[must_use]
pub fn own_id() -> i32 {
    nix::unistd::gettid().as_raw()
}

/// Which thread goes before which, and all before whatever is not real-time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Those that were killed, for as long as ebb lets them: behind whoever has to end that.
    Killed = 1,
    /// The loop, while it has something to decide or to take in that cannot wait.
    Loop = 2,
    /// Taking back the memory of the killed, and seeing to it that they end.
    AfterTheKill = 3,
    /// Killing.
    Kill = 4,
}

/// Has the calling thread run before whatever is not real-time itself: a hog may keep every processor busy, and so may ebb's own loop.
///
/// # Errors
/// What the kernel says; it takes `CAP_SYS_NICE`, or a limit (`RLIMIT_RTPRIO`) that allows it.
pub(crate) fn run_first(turn: Turn) -> io::Result<()> {
    schedule(0, libc::SCHED_FIFO, turn as i32)
}

/// Has a thread run before whatever is not real-time, as the loop does while something is short, or no more; 0 is the calling thread. What it starts meanwhile does not.
///
/// # Errors
/// What the kernel says; it takes `CAP_SYS_NICE`.
pub fn precede(thread: i32, is_first: bool) -> io::Result<()> {
    if is_first {
        schedule(thread, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, Turn::Loop as i32)
    } else {
        schedule(thread, libc::SCHED_OTHER, 0)?;
        // They were those of the policy before. Where they are refused it waits as others do.
        let _ = take_short_turns(thread);
        Ok(())
    }
}

/// Keeps a thread to the second half of the processors that it may use, so that what runs before others there leaves them the first; 0 is the calling thread.
///
/// Returns those that it had before; `None`, and nothing is changed, where it has but one, and where the kernel refuses: then it may use all.
pub(crate) fn leave_half(thread: i32) -> Option<CpuSet> {
    let before = sched_getaffinity(Pid::from_raw(thread)).ok()?;
    let all: Vec<usize> =
        (0..CpuSet::count()).filter(|cpu| before.is_set(*cpu).unwrap_or(false)).collect();
    let (_, second) = all.split_at(all.len().div_ceil(2));
    let mut half = CpuSet::new();
    for cpu in second {
        half.set(*cpu).ok()?;
    }
    (!second.is_empty() && keep_to(thread, &half)).then_some(before)
}

/// Keeps a thread to these processors; returns whether the kernel does so.
pub(crate) fn keep_to(thread: i32, processors: &CpuSet) -> bool {
    sched_setaffinity(Pid::from_raw(thread), processors).is_ok()
}

/// How long one turn of ebb's is in the kernel's fair schedule: the shortest that it grants.
const TURN: Duration = Duration::from_micros(100);

/// Asks for short turns for a thread and those that it starts from then on, in exchange for which they come soon: who wakes goes before who has longer ones. 0 is the calling thread.
///
/// A nice value alone does not do that. It counts only among those of the same cgroup, or session, and whoever is running keeps the processor for milliseconds.
/// It takes no privilege; kernels before 6.12 do not listen.
///
/// # Errors
/// What the kernel says.
pub fn take_short_turns(thread: i32) -> io::Result<()> {
    let who = libc::id_t::try_from(thread).unwrap_or(0);
    // SAFETY: getpriority takes integers. What it returns for an error is a nice value too, which the call below then refuses or grants.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, who) };
    let runtime = u64::try_from(TURN.as_nanos()).unwrap_or(u64::MAX);
    let attr = libc::sched_attr {
        size: u32::try_from(size_of::<libc::sched_attr>()).unwrap_or(0),
        sched_policy: u32::try_from(libc::SCHED_OTHER).unwrap_or(0),
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: runtime,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads as many bytes as `size` says, all of which are there, and keeps none of them.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attr, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives a thread a policy with its priority, which is 0 for all that are not real-time; 0 is the calling thread.
///
/// # Errors
/// What the kernel says; `ESRCH` where there is no such thread.
pub fn schedule(thread: i32, policy: i32, priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameters outlive the call, which copies them.
    let result = unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Tests have a thread panic by naming it.
fn panic_if_asked(name: &str) {
    if testing::asks("EBB_TEST_PANIC").is_some_and(|asked| asked == *name) {
        std::panic::panic_any(format!("EBB_TEST_PANIC asks {name} for it"));
    }
}

/// Does `work`, whose panic is an error like any other: for a library that panics where a file is damaged.
///
/// # Errors
/// What the panic says.
pub fn contain<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let before = CONTAINED.replace(true);
    // What `work` leaves behind half-done is its caller's to drop.
    let done = std::panic::catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(before);
    done.map_err(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast_ref::<&str>().unwrap_or(&"no text")).to_owned(),
    })
}

/// Whether a panic of this thread is an error to whoever called, and not the end of the process.
pub(crate) fn is_contained() -> bool {
    CONTAINED.get()
}
