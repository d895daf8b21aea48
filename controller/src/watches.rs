//! The watches that run, each a task of its own.

use ebb_kube::Event;
use ebb_policy_cluster::Resource;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

/// Lists at the same time: a small API server is not to be stormed.
const LISTS: usize = 6;
/// The watches that run.
#[derive(Debug)]
pub(crate) struct Watches {
    pub(crate) running: BTreeMap<u64, (Resource, JoinHandle<()>)>,
    pub(crate) next: u64,
    pub(crate) lists: Arc<Semaphore>,
    pub(crate) to: mpsc::Sender<(u64, Event)>,
    /// Groups of which a version could not be asked.
    pub(crate) failed: BTreeMap<String, String>,
    pub(crate) is_discovered: bool,
}

impl Watches {
    pub(crate) fn new(to: mpsc::Sender<(u64, Event)>) -> Self {
        Self {
            running: BTreeMap::new(),
            next: 0,
            lists: Arc::new(Semaphore::new(LISTS)),
            to,
            failed: BTreeMap::new(),
            is_discovered: false,
        }
    }

    pub(crate) fn stop(&mut self, of: &Resource) {
        self.running.retain(|_, (resource, task)| {
            let keep = resource != of;
            if !keep {
                task.abort();
            }
            keep
        });
    }

    pub(crate) fn stop_all(&mut self) {
        self.running.values().for_each(|(_, task)| task.abort());
        self.running.clear();
    }
}
