//! What the API server is still to be told, on disk, for the next run.
//!
//! ```text
//!  changed ─► kept the newest, whole ─► a thread writes and syncs it ─► done ─► the next, if it has changed since
//!                      ▲                                            └─► why not, and again after a pause ─┐
//!                      └──────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! Telling does not wait for a write: the disk may be what the node is short of. Nor does a write need a thread to be made: that may be what it is short of, too.

use ebb_agent::cluster::Eviction;
use ebb_agent::store::OutboxFile;
use ebb_agent::threads;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::time::{Instant, sleep_until};

/// The pause after a write that failed. What the disk was short of may be freed by what is to be told.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// What became of a write, and what was to be written.
type Written = (io::Result<()>, Vec<Eviction>);

/// Writes the file, one state after the other.
pub(crate) struct Outbox {
    file: OutboxFile,
    /// The thread that writes; `None` while none can be made.
    writer: Option<SyncSender<Vec<Eviction>>>,
    written: mpsc::UnboundedReceiver<Written>,
    said: UnboundedSender<Written>,
    /// What is to be in the file and is not being written.
    unwritten: Option<Vec<Eviction>>,
    is_writing: bool,
    /// When to try again what could not be written.
    again_at: Option<Instant>,
}

impl Outbox {
    /// The one in the directory of what ebb remembers.
    pub(crate) fn in_dir(dir: &Path) -> Self {
        let (said, written) = mpsc::unbounded_channel();
        let file = OutboxFile::in_dir(dir);
        // Where there is no room for a thread now, there may be by the time that there is something to write.
        let writer = start(&file, &said).ok();
        Self { file, writer, written, said, unwritten: None, is_writing: false, again_at: None }
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &OutboxFile {
        &self.file
    }

    /// Has the file hold these and no others, as soon as what is being written is written.
    pub(crate) fn keep(&mut self, all: Vec<Eviction>) {
        self.unwritten = Some(all);
        self.write_next();
    }

    /// Begins to write the newest state, unless one is being written.
    fn write_next(&mut self) {
        if self.is_writing {
            return;
        }
        let Some(all) = self.unwritten.take() else { return };
        (self.is_writing, self.again_at) = (true, None);
        let failed = match self.writer() {
            Ok(writer) => match writer.try_send(all) {
                Ok(()) => return,
                Err(error) => (Err(io::Error::other(error.to_string())), take_back(error)),
            },
            Err(error) => (Err(error), all),
        };
        // Whoever waits for the write hears of it. The receiver is here.
        let _ = self.said.send(failed);
    }

    fn writer(&mut self) -> io::Result<&SyncSender<Vec<Eviction>>> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => start(&self.file, &self.said)?,
        };
        Ok(self.writer.insert(writer))
    }

    /// Waits until something is written, or could not be; for ever while there is nothing to write. May be dropped at any time.
    pub(crate) async fn written(&mut self) -> io::Result<()> {
        if !self.is_writing
            && let Some(at) = self.again_at
        {
            sleep_until(at).await;
            self.write_next();
        }
        if !self.is_writing {
            return std::future::pending().await;
        }
        let Some((done, all)) = self.written.recv().await else {
            return std::future::pending().await;
        };
        self.is_writing = false;
        if done.is_err() {
            // What has changed since is newer.
            self.unwritten.get_or_insert(all);
            self.again_at = Some(Instant::now() + AGAIN_AFTER);
        } else {
            self.write_next();
        }
        done
    }

    /// Waits until the file holds what it is to hold; what cannot be written is tried once more.
    ///
    /// # Errors
    /// Why it could not be written the second time.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        let mut has_failed = false;
        loop {
            self.write_next();
            if !self.is_writing {
                return Ok(());
            }
            if let Err(error) = self.written().await {
                if has_failed {
                    return Err(error);
                }
                has_failed = true;
            }
        }
    }
}

/// Starts the thread that writes: it ends when nothing more can come.
fn start(
    file: &OutboxFile,
    said: &UnboundedSender<Written>,
) -> io::Result<SyncSender<Vec<Eviction>>> {
    let (file, said) = (file.clone(), said.clone());
    let (to_write, states): (_, Receiver<Vec<Eviction>>) = sync_channel(1);
    threads::spawn("ebb-outbox", move || {
        for all in states {
            let done = file.save(&all);
            if said.send((done, all)).is_err() {
                return;
            }
        }
    })?;
    Ok(to_write)
}

fn take_back(error: std::sync::mpsc::TrySendError<Vec<Eviction>>) -> Vec<Eviction> {
    use std::sync::mpsc::TrySendError::{Disconnected, Full};
    match error {
        Full(all) | Disconnected(all) => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evictions(names: &[String]) -> Vec<Eviction> {
        let of = |name: &String| serde_json::json!({ "namespace": "shop", "name": name, "uid": "u", "grace": 1, "reason": "Evicted", "message": "", "condition": true, "annotations": [], "at": 0 });
        names.iter().map(|name| serde_json::from_value(of(name)).unwrap()).collect()
    }

    #[tokio::test]
    async fn what_was_kept_last_is_in_the_file_however_many_came_while_one_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut outbox = Outbox::in_dir(dir.path());
        let names: Vec<String> = (0..50).map(|n| format!("pod-{n}")).collect();
        for n in 0..names.len() {
            outbox.keep(evictions(&names[..=n]));
        }
        outbox.flush().await.unwrap();
        let kept: Vec<Eviction> = outbox.file().look().unwrap();
        assert_eq!(kept.iter().map(|e| e.name.clone()).collect::<Vec<_>>(), names);
        outbox.keep(Vec::new());
        outbox.flush().await.unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_written_is_said_and_written_as_soon_as_it_can_be() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let mut outbox = Outbox::in_dir(&gone);
        outbox.keep(evictions(&["a".to_owned()]));
        assert!(outbox.written().await.is_err());
        assert!(outbox.written().await.is_err(), "again, after a pause");
        assert!(outbox.flush().await.is_err());
        std::fs::create_dir(&gone).unwrap();
        outbox.written().await.unwrap();
        assert_eq!(outbox.file().look::<Eviction>().unwrap()[0].name, "a");
    }

    #[tokio::test]
    async fn what_has_changed_since_a_write_failed_is_written_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let mut outbox = Outbox::in_dir(&gone);
        outbox.keep(evictions(&["a".to_owned()]));
        assert!(outbox.written().await.is_err());
        std::fs::create_dir(&gone).unwrap();
        outbox.keep(evictions(&["b".to_owned()]));
        outbox.flush().await.unwrap();
        let kept = outbox.file().look::<Eviction>().unwrap();
        assert_eq!(kept.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["b"]);
    }
}
