//! The end of an agent that is told to stop: it comes in time, whatever hangs.
//!
//! ```text
//!  SIGTERM, SIGINT ─► handler: alarm(2) ─► tokio's handler ─► the loop takes its leave ─► exit
//!   a second one ─► _exit          └─► it is over and ebb is still there: SIGALRM ─► _exit
//! ```
//! The loop itself may hang, and so may any thread that its end waits for. So the deadline is the kernel's, and what ends the process then is a signal handler: nobody is waited for, and nothing is left to chance where ebb is the first process of a container, which signals without a handler do not end.
//! What each step of the end waits for by itself is with that step; all of them together are less than this.

use ebb_journal::stream::write_within;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

/// Seconds after which an agent that was told to stop is no more. Whoever stops it allows at least 15 (the DaemonSet) and then kills it.
const AT_MOST_SECONDS: u32 = 12;

/// The exit code of an agent that did not do all that it had to.
const FAILED: i32 = 1;

/// Nothing is to end yet.
const NONE: i32 = 0;

/// The exit code once time is up.
static CODE: AtomicI32 = AtomicI32::new(NONE);

/// Whether ebb was told to stop.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Has SIGTERM and SIGINT end the process in time, whether or not the loop takes them in; the second one at once. For whoever takes them in as well, and does so after this: tokio calls the handler that it finds.
///
/// # Errors
/// When signals cannot be received.
pub(crate) fn limit() -> io::Result<()> {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        handle(signal, told)?;
    }
    Ok(())
}

/// Has the process end with `code` after so many seconds, whatever holds it up.
pub(crate) fn end_within(seconds: u32, code: i32) {
    CODE.store(code, Ordering::SeqCst);
    // Without a handler the signal's own action ends the process, with another code.
    let _ = handle(Signal::SIGALRM, late);
    set_alarm(seconds);
}

fn handle(signal: Signal, handler: extern "C" fn(libc::c_int)) -> io::Result<()> {
    let action = SigAction::new(SigHandler::Handler(handler), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handlers of this file use atomics, and system calls that a handler may make (poll, write, alarm, sigaction, _exit); they allocate nothing, take no lock and do not unwind.
    unsafe { sigaction(signal, &action) }?;
    Ok(())
}

fn set_alarm(seconds: u32) {
    // SAFETY: alarm takes an integer, and whoever sets it has said what its signal does.
    unsafe { libc::alarm(seconds) };
}

extern "C" fn told(_: libc::c_int) {
    if IS_TOLD.swap(true, Ordering::SeqCst) {
        leave(b"ebb: told to stop a second time: what was not written yet is lost\n", FAILED);
    }
    // A panic that is under way ends sooner, and with its own code.
    if CODE.load(Ordering::SeqCst) == NONE {
        end_within(AT_MOST_SECONDS, FAILED);
    }
}

extern "C" fn late(_: libc::c_int) {
    leave(
        b"ebb: its end took too long, something hangs: what was not written yet is lost\n",
        CODE.load(Ordering::SeqCst),
    );
}

/// Ends the process, with a word where there is room for one.
fn leave(word: &[u8], code: i32) -> ! {
    write_within(io::stderr().as_fd(), word, Duration::ZERO);
    // SAFETY: _exit takes an integer and does not return. Nothing is unwound and nothing that others hold is waited for.
    unsafe { libc::_exit(code) };
}
