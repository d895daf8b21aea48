//! What the client of the API server runs on.

use anyhow::{Context as _, Result, anyhow};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// A hundred years.
const ALWAYS: Duration = Duration::from_secs(100 * 365 * 86_400);

/// An executor for one thread, with a second one that stays for what blocks.
///
/// That is the resolution of a host's name, which the client's library gives to the executor's pool. Where no thread can be made,
/// as after a fork bomb, the pool panics if it has none, and waits for one that it has.
///
/// # Errors
/// When the thread cannot be made now.
pub(crate) fn new() -> Result<Runtime> {
    let executor = Builder::new_current_thread().enable_all().thread_keep_alive(ALWAYS).build()?;
    let (up, is_up) = sync_channel(1);
    ebb_agent::threads::contain(|| executor.spawn_blocking(move || up.send(())))
        .map_err(|panic| anyhow!("cannot start a thread for the API server: {panic}"))?;
    // A thread that is still coming up needs memory of its own.
    is_up.recv().context("a thread for the API server did not come up")?;
    Ok(executor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::resource::{Resource, setrlimit};
    use std::process::Command;

    /// Set in the process that gets no more memory for stacks.
    const WITHOUT: &str = "EBB_TEST_WITHOUT_THREADS";

    #[test]
    fn what_blocks_is_done_where_no_thread_can_be_made() {
        if std::env::var_os(WITHOUT).is_none() {
            let name = std::thread::current().name().unwrap().to_owned();
            let mut apart = Command::new(std::env::current_exe().unwrap());
            let done = apart.args(["--exact", &name]).env(WITHOUT, "").output().unwrap();
            let said = [&done.stdout, &done.stderr].map(|said| String::from_utf8_lossy(said));
            assert!(done.status.success(), "{}: {}", done.status, said.concat());
            return;
        }
        let executor = new().unwrap();
        let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = sizes.split(' ').next().unwrap().parse().unwrap();
        // A MiB for what is allocated, which is less than a stack.
        let most = pages * 4096 + (1 << 20);
        setrlimit(Resource::RLIMIT_AS, most, most).unwrap();
        assert!(std::thread::Builder::new().spawn(|| ()).is_err());
        assert_eq!(executor.block_on(executor.spawn_blocking(|| 7)).unwrap(), 7);
    }
}
