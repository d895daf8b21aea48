//! Whether the loop goes before whatever is not real-time: from the moment on in which memory or another quick signal is about to run out, until what was done about it is taken in, who was killed has ended and enough is there again.
//!
//! A node that is short of memory is short of processor time too. In a container the loop has no more of that than its pod's share, whatever its nice value, and looked, decided and heard of a kill up to two seconds late.
//!
//! While memory comes back the loop looks every few milliseconds, which others pay for: it has that for [`LASTS`] after the last reason at most, so a node that stays short gives it back, and the watchdog takes it from a loop that is stuck.
//! Who was killed goes behind it, who kills before it.

use crate::act::{Mode, Standby};
use crate::clock::Boot;
use crate::threads::{own_id, precede};
use std::sync::Arc;
use std::time::Duration;

/// How long one reason lasts at most: a crossing, a decision, a kill.
const LASTS: Duration = Duration::from_secs(1);

/// The loop's precedence; its thread alone has this.
#[derive(Debug)]
pub(super) struct Precedence {
    standby: Arc<Standby>,
    /// A dry run does nothing that cannot wait, and keeps no right to.
    is_wanted: bool,
    until: Option<Boot>,
}

impl Precedence {
    pub(super) fn new(mode: Mode, standby: Arc<Standby>) -> Self {
        Self { standby, is_wanted: mode == Mode::Enforce, until: None }
    }

    /// There is a reason at `now`.
    pub(super) fn take(&mut self, now: Boot) {
        if !self.is_wanted {
            return;
        }
        if self.until.replace(now.plus(LASTS)).is_some() {
            return;
        }
        match precede(0, true) {
            Ok(()) => self.standby.precedes(Some(own_id())),
            Err(error) => {
                tracing::warn!(%error, "the loop waits for a processor like any other work (no SCHED_RR)");
                (self.is_wanted, self.until) = (false, None);
            }
        }
    }

    /// Gives it back once the last reason is over, at `now`; unless something is short, about to be, or being done, it is.
    pub(super) fn settle(&mut self, now: Boot, is_urgent: bool) {
        if self.until.take_if(|until| !is_urgent || now >= *until).is_none() {
            return;
        }
        self.standby.precedes(None);
        if let Err(error) = precede(0, false) {
            tracing::error!(%error, "the loop keeps its real-time priority");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How the calling thread is scheduled.
    fn policy() -> i32 {
        // SAFETY: sched_getscheduler takes an integer and touches no memory of ours.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn the_loop_goes_first_for_as_long_as_there_is_a_reason_and_never_in_a_dry_run() {
        // On a thread of its own: it is this thread's policy that changes.
        std::thread::spawn(|| {
            let (before, now) = (policy(), Boot::now());
            let of = |mode| Precedence::new(mode, Arc::new(Standby::default()));
            let mut dry = of(Mode::DryRun);
            dry.take(now);
            assert_eq!(policy(), before);
            let mut precedence = of(Mode::Enforce);
            precedence.take(now);
            if !precedence.is_wanted {
                // Where the kernel rations real-time by cgroup, or without the right to, nothing has changed.
                assert_eq!(policy(), before);
                return;
            }
            let first = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
            assert_eq!(policy(), first);
            let later = now.plus(LASTS / 2);
            precedence.take(later);
            precedence.settle(now.plus(LASTS), true);
            assert_eq!(policy(), first, "there was another reason meanwhile");
            precedence.settle(later.plus(LASTS), true);
            assert_eq!(policy(), before, "what stays short gives it back");
            precedence.take(later);
            assert_eq!(policy(), first);
            precedence.settle(later, false);
            assert_eq!(policy(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_stuck_loop_loses_it() {
        let standby = Arc::new(Standby::default());
        let mut precedence = Precedence::new(Mode::Enforce, Arc::clone(&standby));
        let before = policy();
        precedence.take(Boot::now());
        standby.take_precedence_back();
        assert_eq!(policy(), before);
    }
}
