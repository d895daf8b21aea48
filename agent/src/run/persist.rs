//! What outlives a run: when images were first seen and last in use, which pods were ended, and what the API server said of pods.

use super::Agent;
use crate::clock::Boot;
use crate::store::{ImageStore, Memory, Remembered};
use anyhow::{Result, ensure};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long the end waits for what is remembered to be written.
const LAST_WRITE: Duration = Duration::from_secs(2);

impl Agent {
    /// Remembers what is worth it in `dir` from now on; where that cannot be, says so and goes on.
    pub(super) fn remember_in(&mut self, dir: &Path) {
        let now = self.state.clock().time(Boot::now());
        let known = ImageStore::open_own(dir).and_then(|store| {
            let pods = self.cluster.is_some().then(|| store.load_pods()).transpose()?;
            let images = store.load(now)?.map(Arc::new);
            Ok(Remembered { images, evicted: store.load_evicted()?, pods })
        });
        let memory = known.map_err(anyhow::Error::from).and_then(|known| {
            let memory = Memory::start(dir.to_owned(), known.clone())?;
            self.decisions.history.images = known.images;
            self.state.pods_mut().remember_evicted(known.evicted);
            self.take_up_pods(known.pods);
            Ok(memory)
        });
        match memory {
            Ok(memory) => self.memory = Some(memory),
            Err(error) => self.at_start.unavailable.push(format!(
                "what is remembered of images and of pods does not outlive this run: {error:#}"
            )),
        }
    }

    /// Hands over what has changed.
    pub(super) fn remember(&mut self) {
        let Some(memory) = &mut self.memory else { return };
        if let Some(images) = &self.decisions.history.images {
            memory.note(images);
        }
        memory.note_evicted(self.state.pods().evicted());
        if let Some(cluster) = &mut self.cluster {
            cluster.remember_in(memory);
        }
    }

    /// Writes what is known, and waits for that, but not for ever: the agent ends.
    ///
    /// # Errors
    /// When that takes too long.
    pub(super) fn remember_last(&mut self) -> Result<()> {
        let Some(memory) = self.memory.take() else { return Ok(()) };
        let evicted = self.state.pods().evicted().clone();
        let pods = self.cluster.as_ref().map(|cluster| cluster.pods().clone());
        let images = self.decisions.history.images.clone();
        let is_written = memory.finish(Remembered { images, evicted, pods }, LAST_WRITE);
        ensure!(is_written, "what is remembered of images and of pods was not written in time");
        Ok(())
    }
}
