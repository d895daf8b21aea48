//! What outlives a run: when images were first seen and last in use, and which pods were ended.

use super::Agent;
use crate::clock::Boot;
use crate::store::{ImageStore, Memory};
use std::path::Path;

impl Agent {
    /// Remembers what is worth it in `dir` from now on; where that cannot be, says so and goes on.
    pub(super) fn remember_in(&mut self, dir: &Path) {
        let now = self.state.clock().time(Boot::now());
        let known = ImageStore::open_own(dir)
            .and_then(|store| Ok((store.load(now)?, store.load_evicted()?)));
        let memory = known.map_err(anyhow::Error::from).and_then(|(images, evicted)| {
            let saved = images.clone().unwrap_or_default();
            let memory = Memory::start(dir.to_owned(), saved, evicted.clone())?;
            self.history.images = images;
            self.state.pods_mut().remember_evicted(evicted);
            Ok(memory)
        });
        match memory {
            Ok(memory) => self.memory = Some(memory),
            Err(error) => self.missing.push(format!(
                "what is remembered of images and of ended pods does not outlive this run: {error:#}"
            )),
        }
    }

    /// Hands over what has changed.
    pub(super) fn remember(&mut self) {
        let Some(memory) = &mut self.memory else { return };
        if let Some(images) = &self.history.images {
            memory.note(images);
        }
        memory.note_evicted(self.state.pods().evicted());
    }
}
