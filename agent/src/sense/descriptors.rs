//! How many workloads may be held open: descriptors run out before workloads do, and those that act must find some.

use nix::sys::resource::{Resource, getrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What one followed cgroup takes: its directory and the two files that are read most.
const FOR_ONE: u64 = 3;

/// Kept free for everything else: victims that are held, the runtime, files that are read once.
const RESERVED: u64 = 512;

/// The descriptors that may be spent on following workloads.
#[derive(Clone, Debug)]
pub struct Descriptors(Arc<AtomicU64>);

/// The descriptors of one cgroup; given back when dropped.
#[derive(Debug)]
pub struct Permit(Arc<AtomicU64>);

impl Descriptors {
    /// What the limit of this process leaves, as it is now: all but a reserve, or half of a limit that is that small.
    #[must_use]
    pub fn of_this_process() -> Self {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        Self::of(limit - RESERVED.min(limit / 2))
    }

    /// So many.
    #[must_use]
    pub fn of(number: u64) -> Self {
        Self(Arc::new(AtomicU64::new(number)))
    }

    /// Takes what one cgroup needs; `None` when that is not left.
    #[must_use]
    pub fn take(&self) -> Option<Permit> {
        let order = Ordering::Relaxed;
        let taken = self.0.fetch_update(order, order, |left| left.checked_sub(FOR_ONE));
        taken.ok().map(|_| Permit(Arc::clone(&self.0)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_add(FOR_ONE, Ordering::Relaxed);
    }
}
