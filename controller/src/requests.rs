//! Requests: who waits, who is under way, who is to be asked again later.

use crate::fair::Queue;
use crate::job::Job;
use crate::window::{Ceiling, Window};
use ebb_policy_cluster::Uid;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long nothing is sent after the API server could not be reached: doubled each time, up to the second.
const UNREACHABLE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));

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
    /// Those of `held` about which the API server has said nothing.
    unheard: BTreeSet<Uid>,
    /// How many requests in a row did not reach the API server.
    unreached: u32,
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
            unheard: BTreeSet::new(),
            unreached: 0,
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

    /// A request about `uid` did not reach the API server: it is tried again as soon as the API server answers, however often it failed.
    pub(crate) fn hold_until_heard(&mut self, uid: &Uid, now: Instant) {
        self.hold(uid, Duration::ZERO, now);
        self.unheard.insert(uid.clone());
    }

    /// The API server could not be reached, or the connection broke: a pause for all, so one request finds out for the others.
    pub(crate) fn unreached(&mut self, now: Instant) {
        let (first, longest) = UNREACHABLE;
        self.window.close(first.saturating_mul(1 << self.unreached.min(8)).min(longest), now);
        self.unreached += 1;
    }

    /// The API server answered. Returns those that may be tried again for that.
    ///
    /// After one failure alone that is nobody: a request that breaks its connection each time would be sent without a pause.
    pub(crate) fn reached(&mut self) -> Vec<Uid> {
        let was_away = std::mem::take(&mut self.unreached) > 1;
        if !was_away {
            return Vec::new();
        }
        let due: Vec<Uid> = std::mem::take(&mut self.unheard).into_iter().collect();
        due.iter().for_each(|uid| self.release(uid));
        due
    }

    /// A request about `uid` was answered, or it is gone.
    pub(crate) fn release(&mut self, uid: &Uid) {
        self.unheard.remove(uid);
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

    #[test]
    fn what_an_absent_server_never_heard_is_tried_as_soon_as_it_answers() {
        let start = Instant::now();
        let mut requests = Requests::new(None, start);
        let (a, b) = (Uid::new("a"), Uid::new("b"));
        let mut now = start;
        for _ in 0..10 {
            requests.hold_until_heard(&a, now);
            requests.unreached(now);
            assert!(!requests.may_send(now));
            now += UNREACHABLE.1;
            // One request at a time finds out.
            assert!(requests.may_send(now));
        }
        requests.hold(&b, Duration::ZERO, now);
        assert!(requests.is_held(&a, now));
        assert_eq!(requests.reached(), std::slice::from_ref(&a));
        assert!(!requests.is_held(&a, now) && requests.is_held(&b, now));
    }

    #[test]
    fn a_request_that_breaks_its_connection_alone_is_not_sent_without_a_pause() {
        let now = Instant::now();
        let mut requests = Requests::new(None, now);
        let uid = Uid::new("u");
        for _ in 0..3 {
            requests.hold_until_heard(&uid, now);
            requests.unreached(now);
            assert!(requests.reached().is_empty());
            assert!(requests.is_held(&uid, now));
        }
    }
}
