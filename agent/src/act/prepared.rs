//! A victim held before it is needed: when a threshold is about to be crossed, what takes longest is done already.
//!
//! Holding kills nobody. When the job comes, a hold that is young and whose cgroup nobody has joined who is protected
//! is used; in any other case the victim is taken hold of anew.

use super::Target;
use super::victim::Victim;
use crate::clock::Boot;
use crate::sense::Roots;
use std::time::Duration;

/// How long a hold may wait for its job.
pub(super) const HELD_FOR: Duration = Duration::from_millis(100);

/// At most one victim, with the moment since which it is held.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    held: Option<(Target, Boot, Victim)>,
}

impl Prepared {
    /// Takes hold of `target`, and lets go of whoever was held before.
    pub(super) fn hold(&mut self, target: &Target, roots: &Roots) {
        self.held = None;
        let since = Boot::now();
        // One that cannot be held now says why when its job comes.
        self.held = Victim::hold(target, roots).ok().map(|victim| (target.clone(), since, victim));
    }

    /// The victim for `target` if it can be relied on; afterwards none is held.
    pub(super) fn take(&mut self, target: &Target, roots: &Roots) -> Option<Victim> {
        let (held, since, mut victim) = self.held.take()?;
        let is_young = Boot::now().since(since) <= HELD_FOR;
        (held == *target && is_young && victim.still_stands(roots)).then_some(victim)
    }

    /// Whether somebody is held.
    pub(super) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Lets go.
    pub(super) fn release(&mut self) {
        self.held = None;
    }
}
