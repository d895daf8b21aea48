//! Waiting for a condition with a deadline: nothing sleeps and hopes.
use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// How often is asked again.
const BEAT: Duration = Duration::from_millis(25);

/// Asks until there is an answer; without one in time, fails with what was waited for.
///
/// # Errors
/// When asking fails, or the deadline is past.
pub fn until_some<T>(
    patience: Duration,
    what: impl Fn() -> String,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if begun.elapsed() > patience {
            bail!("not after {} s: {}", patience.as_secs(), what());
        }
        std::thread::sleep(BEAT);
    }
}
