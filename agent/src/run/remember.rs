//! What outlives a run: when images were first seen and last in use.

use super::Agent;
use crate::clock::Boot;
use crate::state::images::{ImageStore, Memory};
use std::path::Path;

impl Agent {
    /// Remembers images in `dir` from now on; where that cannot be, says so and goes on.
    pub(super) fn remember_in(&mut self, dir: &Path) {
        let now = self.state.clock().time(Boot::now());
        let known = ImageStore::open(dir).and_then(|store| store.load(now));
        let memory = known.map_err(anyhow::Error::from).and_then(|known| {
            let memory = Memory::start(dir.to_owned(), known.clone().unwrap_or_default())?;
            self.history.images = known;
            Ok(memory)
        });
        match memory {
            Ok(memory) => self.memory = Some(memory),
            Err(error) => self
                .missing
                .push(format!("what is remembered of images does not outlive this run: {error:#}")),
        }
    }
}
