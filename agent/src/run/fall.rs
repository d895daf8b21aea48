//! Between two looks at a calm node the loop sleeps until the kernel says that memory falls.
//!
//! To find a hog of full speed in time the node would have to be looked at many times a second while nothing happens, and each look wakes a processor and fills its caches. A timer of the kernel's that compares a few counters costs a hundredth of that ([`FallWatch`]).
//! It says when half of what was left is gone; the other half is the time in which this loop sees it and decides. What those counters leave out is found by the loop's own looks, which become rarer and do not cease.

use super::Agent;
use super::reflex::gauge;
use crate::clock::Boot;
use crate::sense::Roots;
use crate::sense::node::is_of_this_kernel;
use ebb_policy::Signal;
use ebb_probes::{FallWatch, HostSupport};

/// The watch of this host.
///
/// # Errors
/// Why there is none.
pub fn open(host: &HostSupport, roots: &Roots) -> Result<FallWatch, String> {
    // The counters are those of the running kernel, and so must be what is read.
    if !is_of_this_kernel(roots) {
        return Err(format!("{} is no procfs", roots.proc.display()));
    }
    FallWatch::open(host)
        .inspect_err(|why| tracing::debug!(why, "the kernel does not tell when memory falls"))
}

/// Returns when memory has fallen, or when nobody tells of that any more.
pub(super) async fn fallen(fall: &mut Option<FallWatch>) {
    let Some(watch) = fall else { return std::future::pending().await };
    if let Err(error) = watch.fallen().await {
        lose(fall, &error);
    }
}

fn lose(fall: &mut Option<FallWatch>, error: &dyn std::fmt::Display) {
    tracing::warn!(%error, "the kernel no longer tells when memory falls: ebb looks for itself");
    *fall = None;
}

impl Agent {
    /// Has a fall of available memory wake the loop, as it was found in the look that has just ended.
    pub(super) fn watch_falls(&mut self) {
        let Some(fall) = &mut self.kernel.fall else { return };
        let Some(watch) = self.watches.of_mut(Signal::MemoryAvailable) else { return };
        let Some(room) = watch.room_to_fall() else { return };
        let per_second = watch.cadence.assumed_per_second();
        let within = watch.cadence.wait_while_told(room).saturating_mul(2);
        match fall.watch(gauge(self.policy.measure), room / 2, per_second, within) {
            Ok(is_told) => watch.is_told_of_falls(is_told),
            Err(error) => lose(&mut self.kernel.fall, &error),
        }
    }

    /// Memory has fallen.
    pub(super) fn on_fall(&mut self) {
        tracing::debug!(at = Boot::now().0, "the kernel tells of a fall of memory");
        self.look(false);
    }
}
