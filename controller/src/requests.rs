//! Requests: who waits, who is under way, who is to be asked again later.

use crate::fair::Queue;
use crate::job::Job;
use crate::window::{Ceiling, Window};
use ebb_policy_cluster::Uid;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The queue before the API server, and what keeps it from being stormed.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) queue: Queue<Uid, Job>,
    pub(crate) window: Window,
    ceiling: Option<Ceiling>,
    pub(crate) in_flight: usize,
    /// Objects about which a request is under way: one at a time for each.
    pub(crate) busy: BTreeSet<Uid>,
    /// When a failed request may be tried again, and how often it failed.
    held: BTreeMap<Uid, (Instant, u32)>,
    later: BTreeSet<(Instant, Uid)>,
    /// When an act on an object became due.
    pub(crate) due_since: BTreeMap<Uid, Instant>,
}

impl Requests {
    pub(crate) fn new(max_qps: Option<f64>, now: Instant) -> Self {
        Self {
            queue: Queue::default(),
            window: Window::new(max_qps.is_some(), now),
            ceiling: max_qps.map(|qps| Ceiling::new(qps, now)),
            in_flight: 0,
            busy: BTreeSet::new(),
            held: BTreeMap::new(),
            later: BTreeSet::new(),
            due_since: BTreeMap::new(),
        }
    }

    /// Nothing waits any more: this process may not act.
    pub(crate) fn clear(&mut self) {
        self.queue = Queue::default();
        self.due_since.clear();
    }

    /// Whether a request may be sent now.
    pub(crate) fn may_send(&self, now: Instant) -> bool {
        self.in_flight < self.window.size(now)
            && self.ceiling.as_ref().is_none_or(|ceiling| ceiling.next() <= now)
    }

    /// A request is sent.
    pub(crate) fn sent(&mut self, now: Instant) {
        self.in_flight += 1;
        if let Some(ceiling) = &mut self.ceiling {
            ceiling.take(now);
        }
    }

    /// A request about `uid` failed; returns how often by now.
    pub(crate) fn hold(&mut self, uid: &Uid, at_least: Duration, now: Instant) -> u32 {
        let (until, failures) = self.held.get(uid).copied().unwrap_or((now, 0));
        self.later.remove(&(until, uid.clone()));
        let pause = FIRST_PAUSE.saturating_mul(1 << failures.min(8)).min(LONGEST_PAUSE);
        let until = now + pause.mul_f64(0.75 + fastrand::f64() / 2.0).max(at_least);
        self.held.insert(uid.clone(), (until, failures + 1));
        self.later.insert((until, uid.clone()));
        failures + 1
    }

    /// A request about `uid` was answered, or it is gone.
    pub(crate) fn release(&mut self, uid: &Uid) {
        if let Some((until, _)) = self.held.remove(uid) {
            self.later.remove(&(until, uid.clone()));
        }
    }

    pub(crate) fn is_held(&self, uid: &Uid, now: Instant) -> bool {
        self.held.get(uid).is_some_and(|(until, _)| now < *until)
    }

    /// Those that may be tried again now.
    pub(crate) fn again(&mut self, now: Instant) -> Vec<Uid> {
        let mut due = Vec::new();
        while let Some((until, _)) = self.later.first()
            && *until <= now
            && let Some((_, uid)) = self.later.pop_first()
        {
            due.push(uid);
        }
        due
    }

    /// When something may be sent that may not be now, by time alone.
    pub(crate) fn wake_at(&self, now: Instant) -> Option<Instant> {
        let later = self.later.first().map(|(until, _)| *until);
        let queue = match self.window.closed_until(now) {
            _ if self.queue.len() == 0 => None,
            Some(until) => Some(until),
            // A full window opens with an answer, not by time.
            None if self.in_flight >= self.window.size(now) => None,
            None => self.ceiling.as_ref().map(Ceiling::next),
        };
        [later, queue].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_window_is_not_woken_by_time() {
        let start = Instant::now();
        let mut requests = Requests::new(Some(1_000.0), start);
        assert_eq!(requests.wake_at(start), None);
        requests.queue.push(Uid::new("o"), Job::Object(Uid::new("u")));
        assert_eq!(requests.wake_at(start), Some(start));
        let later = start + Duration::from_secs(1);
        while requests.may_send(later) {
            requests.sent(later);
        }
        requests.in_flight = requests.window.size(later);
        assert_eq!(requests.wake_at(later), None);
        requests.window.close(Duration::from_secs(2), later);
        assert_eq!(requests.wake_at(later), Some(later + Duration::from_secs(2)));
    }

    #[test]
    fn a_failed_request_is_tried_again_later_and_later() {
        let start = Instant::now();
        let mut requests = Requests::new(None, start);
        let uid = Uid::new("u");
        assert_eq!(requests.hold(&uid, Duration::ZERO, start), 1);
        assert!(requests.is_held(&uid, start));
        let soon = start + Duration::from_secs(1);
        assert!(requests.again(soon).contains(&uid));
        assert!(!requests.is_held(&uid, soon));
        assert_eq!(requests.hold(&uid, Duration::from_secs(20), soon), 2);
        assert!(requests.is_held(&uid, soon + Duration::from_secs(19)));
        requests.release(&uid);
        assert_eq!(requests.hold(&uid, Duration::ZERO, soon), 1);
    }
}
