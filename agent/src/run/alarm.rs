//! A wait that ends when it should: the runtime's own timers count in whole milliseconds, and looks may be closer together than that.

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// A timer of the kernel's.
#[derive(Debug)]
pub(super) struct Alarm(AsyncFd<Timer>);

#[derive(Debug)]
struct Timer(TimerFd);

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Alarm {
    /// A timer that is not set. Like every moment of ebb's it goes on while the machine is suspended: what was due meanwhile is done on waking.
    ///
    /// # Errors
    /// When the kernel grants none, or the runtime cannot watch it.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = Timer(TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?);
        // SAFETY: the timer owns its descriptor, keeps it open for as long as it lives, and never exchanges it.
        let registered = unsafe { AsyncFd::register(timer) };
        registered.map(Self).map_err(|error| error.into_parts().1)
    }

    /// Waits for `wait`. May be dropped and called again: only the last call counts.
    pub(super) async fn after(&self, wait: Duration) {
        // A timer set to nothing would never end.
        let wait = TimeSpec::from_duration(wait.max(Duration::from_nanos(1)));
        let once = Expiration::OneShot(wait);
        if self.0.get_ref().0.set(once, TimerSetTimeFlags::empty()).is_err() {
            return;
        }
        while let Ok(mut ready) = self.0.readable().await {
            // What is left of an earlier call reads as "not yet".
            match ready.try_io(|timer| timer.get_ref().0.wait().map_err(io::Error::from)) {
                Ok(_) => return,
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[tokio::test]
    async fn it_never_ends_early_whatever_was_left_of_the_call_before() {
        let alarm = Alarm::new().unwrap();
        for micros in [1, 700, 0, 2500, 300] {
            let wait = Duration::from_micros(micros);
            // The first call is dropped when its time is over, read or not.
            tokio::select! {
                biased;
                () = std::future::ready(()) => {}
                () = alarm.after(Duration::from_micros(1)) => {}
            }
            let began = Instant::now();
            alarm.after(wait).await;
            assert!(began.elapsed() >= wait, "{micros} µs");
        }
    }
}
