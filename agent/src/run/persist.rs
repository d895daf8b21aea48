//! What outlives a run: when images were first seen and last in use, which pods were ended, and what the API server said of pods.

use super::Agent;
use crate::clock::Boot;
use crate::store::{self, ImageStore, Memory, Remembered};
use anyhow::{Result, ensure};
use ebb_journal::Mode;
use ebb_policy::Time;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long the end waits for what is remembered to be written.
const LAST_WRITE: Duration = Duration::from_secs(2);

impl Agent {
    /// Takes up what is remembered in `dir`, and remembers there what is worth it from now on; where that cannot be, says so and goes on.
    ///
    /// A dry run only reads: what is there is an enforcing agent's, which may run beside it.
    pub(super) fn remember_in(&mut self, dir: &Path) {
        let now = self.state.clock().time(Boot::now());
        let result = match self.mode {
            Mode::DryRun => store::look(dir, now)
                .map(|known| self.take_up(known))
                .map_err(|error| format!("what is remembered of images and of pods: {error}")),
            Mode::Enforce => self.remember_own(dir, now).map_err(|error| {
                format!(
                    "what is remembered of images and of pods does not outlive this run: {error:#}"
                )
            }),
        };
        self.at_start.unavailable.extend(result.err());
    }

    fn remember_own(&mut self, dir: &Path, now: Time) -> anyhow::Result<()> {
        let known = ImageStore::open_own_soon(dir).and_then(|store| {
            let pods = self.cluster.is_some().then(|| store.load_pods()).transpose()?;
            let images = store.load(now)?.map(Arc::new);
            Ok(Remembered { images, evicted: store.load_evicted()?, pods })
        })?;
        self.memory = Some(Memory::start(dir.to_owned(), known.clone())?);
        self.take_up(known);
        Ok(())
    }

    fn take_up(&mut self, known: Remembered) {
        self.decisions.history.images = known.images;
        self.state.pods_mut().remember_evicted(known.evicted);
        self.take_up_pods(known.pods);
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
