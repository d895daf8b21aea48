//! What all tests of a run share: the control plane, and the one collector that acts on it.
use crate::kinds;
use anyhow::{Context, Result, ensure};
use ebb_cluster_tests::api::Api;
use ebb_cluster_tests::collector::{Collector, Running};
use ebb_cluster_tests::plane::{Plane, User};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Started when the first test needs it.
#[derive(Debug)]
pub(crate) struct Session {
    assets: PathBuf,
    parts: Mutex<Parts>,
    /// Their number counts over the whole cluster: alone is who has as many as may stay, and the others have one each.
    terminated: RwLock<()>,
    namespaces: AtomicUsize,
}

#[derive(Debug, Default)]
struct Parts {
    // Ended before what it acts on.
    running: Option<Running>,
    plane: Option<Plane>,
}

impl Session {
    pub(crate) fn new(assets: PathBuf) -> Self {
        let parts = Mutex::default();
        Self { assets, parts, terminated: RwLock::default(), namespaces: AtomicUsize::new(0) }
    }

    pub(crate) fn has_kcm(&self) -> bool {
        self.assets.join("kube-controller-manager").is_file()
    }

    /// Whether kube-controller-manager's program has these words in it.
    pub(crate) fn kcm_has(&self, words: &str) -> Result<bool> {
        let mut grep = Command::new("grep");
        grep.args(["-qaF", "--", words]).arg(self.assets.join("kube-controller-manager"));
        let status = grep.status().context("cannot start grep")?;
        ensure!(matches!(status.code(), Some(0 | 1)), "{grep:?}: {status}");
        Ok(status.success())
    }

    /// A client that may do everything.
    pub(crate) fn api(&self) -> Result<Api> {
        self.with_plane(|plane| plane.api(User::Admin))
    }

    pub(crate) fn with_plane<T>(&self, ask: impl FnOnce(&Plane) -> Result<T>) -> Result<T> {
        let mut parts = locked(&self.parts);
        self.plane(&mut parts.plane).and_then(ask)
    }

    /// For what is done to the control plane itself.
    pub(crate) fn with_plane_mut<T>(
        &self,
        change: impl FnOnce(&mut Plane) -> Result<T>,
    ) -> Result<T> {
        let mut parts = locked(&self.parts);
        self.plane(&mut parts.plane)?;
        parts.plane.as_mut().context("no control plane").and_then(change)
    }

    /// Sees to it that this collector runs, and no other.
    pub(crate) fn run(&self, collector: Collector) -> Result<()> {
        let mut parts = locked(&self.parts);
        if parts.running.as_ref().is_some_and(|running| running.collector() == collector) {
            return Ok(());
        }
        if let Some(other) = parts.running.take() {
            other.end()?;
        }
        let Parts { running, plane } = &mut *parts;
        *running = Some(Running::start(collector, self.plane(plane)?, &self.assets)?);
        Ok(())
    }

    /// Sees to it that no collector runs.
    pub(crate) fn stop(&self) -> Result<()> {
        locked(&self.parts).running.take().map_or(Ok(()), Running::end)
    }

    /// The last that the collector complained of, for whoever reads why a case failed.
    pub(crate) fn last_words(&self) -> String {
        locked(&self.parts).running.as_ref().map(Running::last_words).unwrap_or_default()
    }

    /// A namespace that nobody else uses.
    pub(crate) fn namespace(&self, api: &Api) -> Result<String> {
        let name = format!("n{}", self.namespaces.fetch_add(1, Ordering::Relaxed));
        let namespace = serde_json::json!({"metadata": {"name": name}});
        api.create("/api/v1/namespaces", &namespace).context("cannot make a namespace")?;
        Ok(name)
    }

    /// Nobody else has terminated pods meanwhile.
    pub(crate) fn terminates_many(&self) -> RwLockWriteGuard<'_, ()> {
        self.terminated.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody has many terminated pods meanwhile.
    pub(crate) fn terminates_one(&self) -> RwLockReadGuard<'_, ()> {
        self.terminated.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends everything, the collector first.
    pub(crate) fn end(&self) -> Result<()> {
        self.stop()?;
        locked(&self.parts).plane = None;
        Ok(())
    }

    fn plane<'a>(&self, plane: &'a mut Option<Plane>) -> Result<&'a Plane> {
        if plane.is_none() {
            let started = Plane::start(&self.assets).context("cannot start a control plane")?;
            kinds::define_custom(&started.api(User::Admin)?)?;
            *plane = Some(started);
        }
        plane.as_ref().context("no control plane")
    }
}

/// A test that failed while it held a lock has left nothing half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
