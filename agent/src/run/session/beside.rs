//! Reading what may hang, or takes its time, beside the session: a thread of its own for each kind, and no second one while the first is not back.

use crate::threads;
use std::time::Duration;
use tokio::sync::oneshot::{Receiver, error::TryRecvError};
use tokio::time::timeout;

/// How long the session waits for what it reads this way: filesystems that answer do so within milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// The thread for one kind of reading.
#[derive(Debug)]
pub(super) struct Beside<T> {
    /// A reading that is not back.
    running: Option<Receiver<T>>,
    told: bool,
}

impl<T> Default for Beside<T> {
    fn default() -> Self {
        Self { running: None, told: false }
    }
}

impl<T: Send + 'static> Beside<T> {
    /// What `read` finds; `None` when it does not come back in time, or an earlier one has not.
    pub(super) async fn read(&mut self, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if self.running.as_mut().is_some_and(|it| matches!(it.try_recv(), Err(TryRecvError::Empty)))
        {
            return None;
        }
        // What an earlier reading that hung has found by now is old.
        let running = self.running.insert(threads::beside("ebb-read", read).ok()?);
        let found = timeout(PATIENCE, running).await.ok()?.ok();
        self.running = None;
        self.told = false;
        found
    }

    /// Whether it hangs and that is to be told: once, until it is back.
    pub(super) fn hangs_anew(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[tokio::test]
    async fn what_hangs_is_waited_for_once_and_what_it_finds_later_is_not_believed() {
        let (let_go, hangs) = channel::<()>();
        let mut beside = Beside::default();
        let hung = move || {
            let _ = hangs.recv();
            "old"
        };
        assert_eq!(beside.read(hung).await, None);
        assert!(beside.hangs_anew() && !beside.hangs_anew());
        assert_eq!(beside.read(|| "not begun").await, None);
        drop(let_go);
        let mut found = beside.read(|| "new").await;
        while found.is_none() {
            tokio::task::yield_now().await;
            found = beside.read(|| "new").await;
        }
        assert_eq!(found, Some("new"));
        assert!(beside.hangs_anew(), "the next time it is told again");
    }
}
