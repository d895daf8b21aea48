//! What the API server is still to be told, on disk, for the next run.
//!
//! ```text
//!  changed ─► kept the newest, whole ─► a thread writes and syncs it ─► done, or why not ─► the next, if it has changed since
//! ```
//! Telling waits for none of this: the disk may be what the node is short of.

use ebb_agent::cluster::Eviction;
use ebb_agent::store::OutboxFile;
use std::io;
use std::path::Path;
use tokio::task::{JoinHandle, spawn_blocking};

/// Writes the file, one state after the other.
pub(crate) struct Outbox {
    file: OutboxFile,
    /// What is to be in the file and is not being written yet.
    unwritten: Option<Vec<Eviction>>,
    writing: Option<JoinHandle<io::Result<()>>>,
}

impl Outbox {
    /// The one in the directory of what ebb remembers.
    pub(crate) fn in_dir(dir: &Path) -> Self {
        Self { file: OutboxFile::in_dir(dir), unwritten: None, writing: None }
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &OutboxFile {
        &self.file
    }

    /// Has the file hold these and no others, as soon as what is being written is written.
    pub(crate) fn keep(&mut self, all: Vec<Eviction>) {
        self.unwritten = Some(all);
        self.go_on();
    }

    fn go_on(&mut self) {
        if self.writing.is_some() {
            return;
        }
        if let Some(all) = self.unwritten.take() {
            let file = self.file.clone();
            self.writing = Some(spawn_blocking(move || file.save(&all)));
        }
    }

    /// Waits until something is written, or could not be; for ever while there is nothing to write. May be dropped at any time.
    pub(crate) async fn written(&mut self) -> io::Result<()> {
        let Some(writing) = &mut self.writing else { return std::future::pending().await };
        let done = writing.await;
        self.writing = None;
        self.go_on();
        done.map_err(io::Error::other)?
    }

    /// Waits until the file holds what it is to hold, or cannot.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        let mut done = Ok(());
        while self.writing.is_some() {
            done = self.written().await;
        }
        done
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

    #[tokio::test]
    async fn that_it_cannot_be_written_is_said_and_the_next_may_be() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let mut outbox = Outbox::in_dir(&gone);
        outbox.keep(evictions(&["a".to_owned()]));
        assert!(outbox.flush().await.is_err());
        std::fs::create_dir(&gone).unwrap();
        outbox.keep(evictions(&["b".to_owned()]));
        outbox.flush().await.unwrap();
        assert_eq!(outbox.file().look::<Eviction>().unwrap().len(), 1);
    }
}
