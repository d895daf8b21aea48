//! The agent's threads. A panic in any of them is the end of the process, unless whoever calls contains it; the last record then is `report::last_word`'s.

use std::cell::Cell;
use std::io;
use std::panic::AssertUnwindSafe;
use std::thread::JoinHandle;
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

/// Has the calling thread go before whatever is not real-time, or no more, as the loop does while something is short. What it starts meanwhile does not.
///
/// # Errors
/// What the kernel says; it takes `CAP_SYS_NICE`.
pub fn precede(is_first: bool) -> io::Result<()> {
    crate::act::precede(0, is_first)
}

/// In builds for development alone: tests have a thread panic by naming it.
fn panic_if_asked(name: &str) {
    if cfg!(debug_assertions)
        && std::env::var_os("EBB_TEST_PANIC").is_some_and(|asked| asked == *name)
    {
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
