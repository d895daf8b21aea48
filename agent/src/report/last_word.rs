//! What a panic in any thread means: the end of the process, with a last record that says why.
//!
//! A thread that is missing is worse than an agent that starts again: without the one that kills, ebb looks alive and kills nobody.
//! The unit or DaemonSet starts it again; what it had frozen or slowed down is undone at start.

use crate::clock::{Boot, Clock};
use crate::threads::is_contained;
use ebb_journal::diagnostics::{Diagnostics, LOG_WRITER};
use ebb_journal::journald::Journal;
use ebb_journal::queue::{Progress, WRITER};
use ebb_journal::stream::write_within;
use ebb_journal::{Entry, Output, Record};
use std::io;
use std::os::fd::AsFd as _;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The exit code of an agent of which a thread has panicked.
pub const PANICKED: i32 = 5;

/// How long the text and the last record each wait for what is before them, and for a reader.
const PATIENCE: Duration = Duration::from_millis(500);

/// Whatever holds up the last record, the process ends after so many seconds.
const AT_MOST_SECONDS: u32 = 3;

/// How far the records before the last one are.
static RECORDS: OnceLock<Progress> = OnceLock::new();

/// Diagnostics before the text.
static DIAGNOSTICS: OnceLock<Diagnostics> = OnceLock::new();

/// From here on a panic in any thread, or in a task on one, ends the process with [`PANICKED`], after a last record in the `journal`, else on standard output, and its text on standard error.
pub fn end_on_panic(output: Output, journal: Option<Journal>) {
    let clock = Clock::of_process();
    std::panic::set_hook(Box::new(move |panic| end(output, journal.as_ref(), clock, panic)));
}

/// Has the last record wait for those that are queued before it.
pub fn tell_after(records: Progress) {
    // A second agent in one process, which only a test could have, keeps the first one's.
    let _ = RECORDS.set(records);
}

/// Has the text wait for the lines that wait to be written before it.
pub fn say_after(lines: Diagnostics) {
    // As above.
    let _ = DIAGNOSTICS.set(lines);
}

fn end(output: Output, journal: Option<&Journal>, clock: Clock, panic: &PanicHookInfo<'_>) {
    if is_contained() {
        return;
    }
    static ENDING: AtomicBool = AtomicBool::new(false);
    if ENDING.swap(true, Ordering::SeqCst) {
        // Another thread is at it; this one is not to unwind and let go of what that needs.
        loop {
            std::thread::park();
        }
    }
    crate::stop::end_within(AT_MOST_SECONDS, PANICKED);
    let current = std::thread::current();
    let thread = current.name().unwrap_or("without a name");
    let what = panic.payload_as_str().unwrap_or("no text").to_owned();
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let text = format!("ebb: thread {thread} panicked at {place}: {what}\n");
    if thread != LOG_WRITER
        && let Some(lines) = DIAGNOSTICS.get()
    {
        lines.flush(PATIENCE);
    }
    write_within(io::stderr().as_fd(), text.as_bytes(), PATIENCE);
    if thread != WRITER
        && let Some(records) = RECORDS.get()
    {
        records.wait(PATIENCE);
    }
    let record = Record::Panicked { thread: thread.to_owned(), what, place };
    let entry = Entry::new(clock.time(Boot::now()), record);
    if !journal.is_some_and(|journal| journal.last_word(&entry)) {
        write_within(io::stdout().as_fd(), &output.line(&entry), PATIENCE);
    }
    // SAFETY: _exit takes an integer and does not return. Nothing is unwound and nothing that others hold is waited for.
    unsafe { libc::_exit(PANICKED) };
}
