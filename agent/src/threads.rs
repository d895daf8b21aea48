//! The agent's threads, and what a panic in any of them means: the end of the process, with a last record that says why.
//!
//! A thread that is missing is worse than an agent that starts again: without the one that kills, ebb looks alive and kills nobody.
//! The unit or DaemonSet starts it again; what it had frozen or slowed down is undone at start.

use crate::clock::{Boot, Clock};
use crate::report::journal::Journal;
use crate::report::queue::Progress;
use crate::report::{self, Output, Record};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, PanicHookInfo};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The exit code of an agent of which a thread has panicked.
pub const PANICKED: i32 = 5;

/// How long the last record waits for those before it, and for a reader.
const PATIENCE: Duration = Duration::from_millis(500);

/// Whatever holds up the last record, the process ends after so many seconds.
const AT_MOST_SECONDS: u32 = 3;

/// How far the records before the last one are.
static RECORDS: OnceLock<Progress> = OnceLock::new();

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

/// In builds for development alone: tests have a thread panic by naming it.
fn panic_if_asked(name: &str) {
    if cfg!(debug_assertions)
        && std::env::var_os("EBB_TEST_PANIC").is_some_and(|asked| asked == *name)
    {
        std::panic::panic_any(format!("EBB_TEST_PANIC asks {name} for it"));
    }
}

/// From here on a panic in any thread, or in a task on one, ends the process with [`PANICKED`], after a last record in the `journal`, else on standard output, and its text on standard error.
pub fn end_on_panic(output: Output, journal: Option<Journal>) {
    let clock = Clock::anchored_now();
    std::panic::set_hook(Box::new(move |panic| end(output, journal.as_ref(), clock, panic)));
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

/// Has the last record wait for those that are queued before it.
pub fn tell_after(records: Progress) {
    // A second agent in one process, which only a test could have, keeps the first one's.
    let _ = RECORDS.set(records);
}

fn end(output: Output, journal: Option<&Journal>, clock: Clock, panic: &PanicHookInfo<'_>) {
    if CONTAINED.get() {
        return;
    }
    static ENDING: AtomicBool = AtomicBool::new(false);
    if ENDING.swap(true, Ordering::SeqCst) {
        // Another thread is at it; this one is not to unwind and let go of what that needs.
        loop {
            std::thread::park();
        }
    }
    // SAFETY: alarm takes an integer; the signal's default action ends the process, which is what is wanted.
    unsafe { libc::alarm(AT_MOST_SECONDS) };
    let current = std::thread::current();
    let thread = current.name().unwrap_or("without a name");
    let what = panic.payload_as_str().unwrap_or("no text").to_owned();
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let text = format!("ebb: thread {thread} panicked at {place}: {what}\n");
    write(io::stderr().as_fd(), text.as_bytes());
    if thread != "ebb-report"
        && let Some(records) = RECORDS.get()
    {
        records.wait(PATIENCE);
    }
    let record = Record::Panicked { thread, what, place };
    if !journal.is_some_and(|journal| journal.last_word(&record)) {
        let line = report::line(output, clock.unix_ms(Boot::now()), &record, false);
        write(io::stdout().as_fd(), &line);
    }
    // SAFETY: _exit takes an integer and does not return. Nothing is unwound and nothing that others hold is waited for.
    unsafe { libc::_exit(PANICKED) };
}

/// Writes past the locks of the standard library, as long as there is a reader with room.
fn write(to: BorrowedFd<'_>, mut bytes: &[u8]) {
    let deadline = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let mut room = [PollFd::new(to, PollFlags::POLLOUT)];
        if !poll(&mut room, timeout).is_ok_and(|ready| ready > 0) {
            return;
        }
        // No more than a pipe takes without waiting once it has told of room.
        let (piece, _) = bytes.split_at(bytes.len().min(libc::PIPE_BUF));
        match nix::unistd::write(to, piece) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(_) => return,
        }
    }
}
