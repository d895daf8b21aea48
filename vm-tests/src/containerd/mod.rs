//! A real containerd in the guest, as tests use it: started once, images imported once, pods run through ebb's own client.
//!
//! ```text
//! ensure ─► modules, /etc, config ─► containerd in system.slice/containerd.service ─► ctr import ─► Containerd
//! ```
//! It outlives the test that started it, so that the next one on the same guest finds it running; each test begins by
//! removing what the one before left. Which version it is depends on the kernel (`matrix.toml`).
mod daemon;
mod leftovers;
mod pods;
mod site;
mod store;

pub(crate) use daemon::{Daemon, SOCKET, ctr, load, version};
pub(crate) use leftovers::Leftovers;
pub(crate) use pods::Pod;
pub(crate) use site::{GATE, GATES, SOON, Site, Wanted, open_gate, until_gate, volume_of};
pub(crate) use store::Store;

use crate::wait;
use anyhow::{Context, Result};
use ebb_cri::{Deadlines, Endpoint, RuntimeEvent, RuntimeEvents};
use std::time::Duration;
use tokio::runtime::Runtime;

/// A running containerd and a connection to it.
pub(crate) struct Containerd {
    /// Carries the client's tasks while the test does other things.
    threads: Runtime,
    pub(crate) cri: ebb_cri::Runtime,
    events: RuntimeEvents,
}

impl Containerd {
    /// Start containerd unless it runs, import the test images unless they are there, and remove all pods.
    pub(crate) fn ensure() -> Result<Self> {
        Daemon::ensure()?;
        let containerd = Self::connect(Deadlines::default())?;
        containerd.import_images()?;
        if containerd.remove_all_pods().is_err() {
            // A test that was killed leaves its pods, and their processes are killed behind it. With that, containerd 1.6
            // and 2 were seen to take a container to be running whose shim is gone, until they were started again.
            Daemon::ensure()?.kill()?;
            Daemon::start()?;
            wait::seldom(SOON, "all pods are removed", || containerd.remove_all_pods().is_ok())?;
        }
        Ok(containerd)
    }

    /// Connect to a containerd that runs.
    pub(crate) fn connect(deadlines: Deadlines) -> Result<Self> {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        let endpoint: Endpoint = SOCKET.parse().context("the socket's path")?;
        let inside = threads.enter();
        let (cri, events) = ebb_cri::Runtime::start(endpoint, deadlines);
        drop(inside);
        Ok(Self { threads, cri, events })
    }

    /// Wait for an answer; other tasks of the client go on meanwhile and afterwards.
    pub(crate) fn wait<T>(&self, answer: impl Future<Output = T>) -> T {
        self.threads.block_on(answer)
    }

    /// The next event that `pick` takes.
    pub(crate) fn event<T>(
        &mut self,
        limit: Duration,
        what: &str,
        pick: impl Fn(&RuntimeEvent) -> Option<T>,
    ) -> Result<T> {
        let Self { threads, events, .. } = self;
        let look = async {
            while let Some(event) = events.next().await {
                if let Some(found) = pick(&event) {
                    return Some(found);
                }
            }
            None
        };
        let found = threads.block_on(async { tokio::time::timeout(limit, look).await });
        let found =
            found.with_context(|| format!("waited {} s in vain for {what}", limit.as_secs()))?;
        found.context("the events ended")
    }

    /// Import all test images, which are one file on the root disk. Those that are there already cost nothing.
    pub(crate) fn import_images(&self) -> Result<()> {
        let there = self.wait(self.cri.images()).context("cannot list images")?;
        let expected = ebb_vm_protocol::images::IMAGES;
        let is_there = |name: &str| there.iter().any(|image| image.is_called(name));
        if expected.iter().all(|image| is_there(image.name)) {
            return Ok(());
        }
        daemon::ctr(&["images", "import", "/opt/images.tar"])?;
        // containerd 2 tells CRI of images one after the other, after the import has ended.
        wait::seldom(SOON, "every image is listed", || {
            let Ok(there) = self.wait(self.cri.images()) else { return false };
            let is_there = |name: &str| there.iter().any(|image| image.is_called(name));
            expected.iter().all(|image| is_there(image.name))
        })?;
        Ok(())
    }

    /// The id of an image by its name.
    pub(crate) fn image_id(&self, name: &str) -> Result<String> {
        let image = self.wait(self.cri.image(name)).context("cannot ask for an image")?;
        Ok(image.with_context(|| format!("no image {name}"))?.id)
    }
}
