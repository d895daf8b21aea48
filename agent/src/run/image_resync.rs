//! Images are listed anew before any of them is removed.
//!
//! ```text
//!  a decision that removes images ─► dropped, a list and a reading of the disk asked for ─► decided again on these
//! ```
//! What images are made of changes without an event: one that is being unpacked comes to need layers that others have as well.
//! A decision on an older list would count those as free, and what it frees would not be enough.
//! Until the list is there disk is not judged, as it is not while removals are under way.

use super::Agent;
use super::session::Order;
use crate::clock::Boot;
use ebb_policy::Plan;
use ebb_policy::plan::Action;
use std::time::Duration;

/// A list that was asked for is decided on for this long after it came.
const GOOD_FOR: Duration = Duration::from_secs(2);

/// It is waited for this long; then what is known has to do.
const COMES_WITHIN: Duration = Duration::from_secs(15);

/// How fresh what is known of images is.
#[derive(Debug, Default)]
pub(super) struct ImageResync {
    /// When a list was asked for that has not come yet.
    asked: Option<Boot>,
    good_until: Option<Boot>,
}

impl ImageResync {
    /// Whether a list is waited for.
    pub(super) fn are_awaited(&self) -> bool {
        self.asked.is_some()
    }

    /// When that has been long enough.
    pub(super) fn due(&self) -> Option<Boot> {
        self.asked.map(|asked| asked.plus(COMES_WITHIN))
    }

    /// Takes in a list that was begun at `begun` and is there at `now`; returns whether it was waited for.
    pub(super) fn observe(&mut self, begun: Boot, now: Boot) -> bool {
        let is_it = self.asked.is_some_and(|asked| begun >= asked);
        if is_it {
            self.make_do(now);
        }
        is_it
    }

    /// Decides on what is known at `now`, however old that is.
    pub(super) fn make_do(&mut self, now: Boot) {
        self.asked = None;
        self.good_until = Some(now.plus(GOOD_FOR));
    }

    /// The same when the list has been waited for long enough.
    fn give_up(&mut self, now: Boot) {
        if self.due().is_some_and(|due| due <= now) {
            self.make_do(now);
        }
    }

    /// Whether a list is needed for a decision at `now`.
    fn are_old(&self, now: Boot) -> bool {
        self.good_until.is_none_or(|until| until < now)
    }
}

impl Agent {
    /// No longer waits for a list of images that does not come.
    pub(super) fn stop_waiting_for_images(&mut self, at: Boot) {
        if let Some(runtime) = &mut self.runtime {
            runtime.images.give_up(at);
        }
    }

    /// Whether `plan` removes images and has to wait for a fresh list of them, which is asked for.
    pub(super) fn needs_fresh_images(&mut self, plan: &Plan, at: Boot) -> bool {
        let removes = plan.actions.iter().any(|action| matches!(action, Action::RemoveImage(_)));
        let Some(runtime) = self.runtime.as_mut().filter(|runtime| removes && runtime.is_up) else {
            return false;
        };
        if !runtime.images.are_old(at) {
            return false;
        }
        runtime.images.asked = Some(Boot::now());
        runtime.session.ask(Order::List { images: true });
        // What is measured afterwards is compared with what was there just before.
        self.disk_has_changed();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Boot {
        Boot(seconds * 1_000_000_000)
    }

    #[test]
    fn only_a_list_that_was_begun_after_it_was_asked_for_counts() {
        let mut images = ImageResync::default();
        assert!(images.are_old(at(1)));
        images.asked = Some(at(10));
        assert!(!images.observe(at(9), at(11)) && images.are_awaited());
        assert!(images.observe(at(10), at(11)) && !images.are_awaited());
        assert!(!images.are_old(at(13)) && images.are_old(at(14)));
    }

    #[test]
    fn a_list_that_does_not_come_is_not_waited_for_for_ever() {
        let mut images = ImageResync { asked: Some(at(10)), good_until: None };
        images.give_up(at(24));
        assert!(images.are_awaited());
        images.give_up(at(25));
        assert!(!images.are_awaited() && !images.are_old(at(25)));
    }
}
