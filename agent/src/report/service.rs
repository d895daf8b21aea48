//! What the service manager is told (sd_notify(3)): that ebb is ready, that it is alive, that it stops.
//!
//! The loop leaves a word here and goes on; a thread of its own sends it, because the manager's socket may be full for as long as the node is short of memory.
//! Without `NOTIFY_SOCKET` in the environment there is no thread, and nothing is sent.

use crate::clock::Boot;
use sd_notify::NotifyState;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Words that may wait: more are not worth sending, since each says the same or less.
const WAITING: usize = 4;

/// How long the end waits for the last word to be sent: a manager that takes nothing in must not hold it up.
const LAST_WORD: Duration = Duration::from_secs(1);

/// One word.
#[derive(Debug)]
enum Word {
    Prepared {
        status: String,
    },
    Alive,
    /// Whoever says so waits a moment for it to be sent: the process is about to end.
    Stopping {
        sent: SyncSender<()>,
    },
}

/// The way to the service manager.
#[derive(Debug, Default)]
pub struct ServiceManager {
    words: Option<SyncSender<Word>>,
    /// Between two signs of life; `None` where the manager does not watch.
    every: Option<Duration>,
    /// When the last sign of life was given.
    alive: Option<Boot>,
}

impl ServiceManager {
    /// The manager that this process was started by, as its environment names it; one to which nothing is sent when there is none.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn from_environment() -> io::Result<Self> {
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            return Ok(Self::default());
        }
        let (words, inbox) = sync_channel(WAITING);
        std::thread::Builder::new().name("ebb-notify".into()).spawn(move || send(&inbox))?;
        // Half of what the manager allows, as sd_watchdog_enabled(3) recommends.
        let every = sd_notify::watchdog_enabled().map(|limit| limit / 2);
        Ok(Self { words: Some(words), every, alive: None })
    }

    /// ebb watches the node from here on; `status` is one line for `systemctl status`.
    pub fn ready(&self, status: String) {
        self.tell(Word::Prepared { status });
    }

    /// The loop's sign of life at `now`; sent as often as the manager asks for and no more.
    pub fn alive(&mut self, now: Boot) {
        if self.due().is_some_and(|due| due <= now) {
            self.alive = Some(now);
            self.tell(Word::Alive);
        }
    }

    /// ebb was told to stop and is about to. Waits a second at most until that is sent.
    pub fn stopping(&self) {
        let (sent, done) = sync_channel(1);
        self.tell(Word::Stopping { sent });
        // Nobody answers where nothing was told, or where nothing can be.
        let _ = done.recv_timeout(LAST_WORD);
    }

    /// When the next sign of life is due; `None` where nobody watches.
    #[must_use]
    pub fn due(&self) -> Option<Boot> {
        let every = self.every?;
        Some(self.alive.map_or(Boot::default(), |at| at.plus(every)))
    }

    fn tell(&self, word: Word) {
        if let Some(words) = &self.words {
            // A manager that takes nothing in is told nothing: deciding goes on.
            let _ = words.try_send(word);
        }
    }
}

fn send(inbox: &Receiver<Word>) {
    for word in inbox {
        let result = match &word {
            Word::Prepared { status } => {
                sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(status)])
            }
            Word::Alive => sd_notify::notify(&[NotifyState::Watchdog]),
            Word::Stopping { .. } => sd_notify::notify(&[NotifyState::Stopping]),
        };
        if let Err(error) = result {
            tracing::warn!(%error, "the service manager (NOTIFY_SOCKET) was not told: {word:?}");
        }
        if let Word::Stopping { sent } = &word {
            // Whoever said so may have waited long enough.
            let _ = sent.try_send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_of_life_is_given_as_often_as_asked_for_and_no_more() {
        let (words, inbox) = sync_channel(100);
        let every = Some(Duration::from_secs(5));
        let mut manager = ServiceManager { words: Some(words), every, alive: None };
        let begun = Boot(1_000_000_000_000);
        for second in 0..=20 {
            manager.alive(begun.plus(Duration::from_secs(second)));
        }
        assert_eq!(inbox.try_iter().count(), 5, "at 0, 5, 10, 15 and 20 seconds");
        assert_eq!(manager.due(), Some(begun.plus(Duration::from_secs(25))));
    }

    #[test]
    fn without_a_watching_manager_no_sign_of_life_is_due() {
        let mut manager = ServiceManager::default();
        manager.alive(Boot(1));
        manager.stopping();
        assert_eq!(manager.due(), None);
    }
}
