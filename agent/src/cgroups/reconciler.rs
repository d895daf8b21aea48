//! The way to tell the reconciler something: a thread that holds the tree to its plan for as long as `ebb run` runs.
//!
//! It stands beside the loop, not in it: a write may block, and nothing of it is needed to reclaim. What it does is in `reconcile`.

use super::reconcile::Reconcile;
use super::watch::{Notice, Signs, Watches};
use crate::act::Mode;
use crate::config::Cgroups;
use crate::report::Reporter;
use crate::sense::Roots;
use crate::sense::runtime::Inventory;
use anyhow::{Context as _, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Notices that may wait.
const WAITING: usize = 4096;

/// The way to tell the reconciler something. When it is dropped the thread ends.
#[derive(Debug)]
pub struct Reconciler {
    notices: SyncSender<Notice>,
    signs: Arc<Signs>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

impl Drop for Reconciler {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Reconciler {
    /// Starts the thread; `has_runtime` says that it will be told what a container runtime has; in a dry run (`hand`) it writes, kills and removes nothing and says what it would do.
    ///
    /// # Errors
    /// When the node or the pods cannot be read, the plan is impossible, or there is no thread to be had.
    pub fn start(
        cgroups: Cgroups,
        roots: Roots,
        has_runtime: bool,
        hand: Mode,
        reporter: impl FnOnce() -> Reporter + Send + 'static,
    ) -> Result<Reconciler> {
        let (notices, inbox) = sync_channel(WAITING);
        let watches = Watches::start(notices.clone()).context("cannot watch cgroups")?;
        let signs = Arc::new(Signs::default());
        let seen = Arc::clone(&signs);
        let mut reconcile = Reconcile::new(cgroups, roots, has_runtime, hand, watches)?;
        let (alive, ended) = sync_channel(0);
        crate::threads::spawn("ebb-cgroups", move || {
            reconcile.run(&inbox, &seen, &mut reporter());
            drop(alive);
        })
        .context("cannot start the reconciler of cgroups")?;
        Ok(Reconciler { notices, signs, ended })
    }

    /// Says that a cgroup was made at `path` below the mount. Never waits.
    pub fn created(&self, path: &str) {
        self.tell(Notice::Created(path.to_owned(), Instant::now()));
    }

    /// Says what the container runtime lists; `None` when it is away. Never waits: what does not fit is told by the next list.
    pub fn listed(&self, inventory: Option<Arc<Inventory>>) {
        self.tell(Notice::Listed(inventory));
    }

    /// Says that the configuration has changed. Never waits.
    pub fn configured(&self, cgroups: Cgroups) {
        self.tell(Notice::Configured(Box::new(cgroups)));
    }

    /// Says that it is over, and waits until the thread has told its last, but no longer than `patience`: a write may block.
    pub fn end(&self, patience: Duration) {
        self.stop();
        // Nothing is ever sent: the only news is that the other end is gone.
        let _ = self.ended.recv_timeout(patience);
    }

    /// Says that it is over. Never waits.
    fn stop(&self) {
        self.signs.over.store(true, Ordering::Release);
        self.tell(Notice::Stop);
    }

    fn tell(&self, notice: Notice) {
        if self.notices.try_send(notice).is_err() {
            self.signs.missed.store(true, Ordering::Release);
        }
    }
}
