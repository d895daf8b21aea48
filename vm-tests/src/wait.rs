//! Waiting for a condition with a deadline, which is how every test waits: never for a fixed time.
use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// Between two looks. Short, because what is waited for is often the end of a race.
const PAUSE: Duration = Duration::from_millis(10);

/// Between two looks that ask a container runtime: an emulated one is kept from its work by more.
const SELDOM: Duration = Duration::from_millis(300);

/// Look until `holds` or the deadline has passed, and once more after it: who looks may have been held up all the while. `what` completes "waited N s until …".
pub(crate) fn until(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    until_some(limit, what, || holds().then_some(()))
}

/// The same for what a container runtime is asked.
pub(crate) fn seldom(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    look_every(SELDOM, limit, what, || holds().then_some(()))
}

/// The same until there is an answer.
pub(crate) fn seldom_some<T>(
    limit: Duration,
    what: &str,
    look: impl FnMut() -> Option<T>,
) -> Result<T> {
    look_every(SELDOM, limit, what, look)
}

/// Look until there is an answer.
pub(crate) fn until_some<T>(
    limit: Duration,
    what: &str,
    look: impl FnMut() -> Option<T>,
) -> Result<T> {
    look_every(PAUSE, limit, what, look)
}

/// The same with a pause of one's own, which is for who measures how long it takes.
pub(crate) fn look_every<T>(
    pause: Duration,
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> Option<T>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        let is_last = Instant::now() > deadline;
        if let Some(found) = look() {
            return Ok(found);
        }
        if is_last {
            bail!("waited {} s in vain until {what}", limit.as_secs());
        }
        std::thread::sleep(pause);
    }
}
