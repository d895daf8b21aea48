//! When to look into the rings unasked. Time is an argument.
//!
//! Exits and memory events come in floods, and waking the reader is the dearest part of sending one. So such an event wakes
//! the reader only if none was sent in the last [`QUIET_NS`]; what follows it within that time is found by looking.
use crate::event::KernelEvent;
use ebb_wire::QUIET_NS;
use std::time::{Duration, Instant};

/// Remembers until when something may have arrived unannounced.
#[derive(Debug)]
pub(crate) struct Polling {
    every: Duration,
    until: Option<Instant>,
}

impl Polling {
    /// One that looks this often while there may be something.
    pub(crate) fn new(every: Duration) -> Self {
        Self { every, until: None }
    }

    /// Take note of events that were read at `now`.
    pub(crate) fn saw(&mut self, events: &[KernelEvent], now: Instant) {
        if events.iter().any(comes_in_floods) {
            // Another can have followed just before the quiet time was over; two looks find it however they fall.
            self.until = Some(now + Duration::from_nanos(QUIET_NS) + 2 * self.every);
        }
    }

    /// After how long to look in again; `None` when whatever comes next will wake the reader.
    pub(crate) fn look_in(&self, now: Instant) -> Option<Duration> {
        self.until.is_some_and(|until| now < until).then_some(self.every)
    }
}

fn comes_in_floods(event: &KernelEvent) -> bool {
    match event {
        KernelEvent::Exit { .. } | KernelEvent::MemoryEvent { .. } => true,
        KernelEvent::OomKill { .. }
        | KernelEvent::Cgroup { .. }
        | KernelEvent::KswapdWake { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(50);

    #[test]
    fn nothing_is_looked_for_on_a_quiet_node() {
        let now = Instant::now();
        let mut polling = Polling::new(EVERY);
        assert_eq!(polling.look_in(now), None);
        polling.saw(&[KernelEvent::KswapdWake { ts_ns: 1, node: 0, folded: 0 }], now);
        assert_eq!(polling.look_in(now), None);
    }

    #[test]
    fn after_an_event_that_may_have_silent_followers_it_looks_past_the_quiet_time() {
        let now = Instant::now();
        let mut polling = Polling::new(EVERY);
        let event = KernelEvent::MemoryEvent { ts_ns: 1, cgroup: 1, which: None, folded: 0 };
        polling.saw(&[event], now);
        let last_follower = now + Duration::from_nanos(QUIET_NS);
        assert_eq!(polling.look_in(now), Some(EVERY));
        // A look that begins just before the last possible follower is itself followed by another.
        assert_eq!(polling.look_in(last_follower + EVERY), Some(EVERY));
        assert_eq!(polling.look_in(last_follower + 2 * EVERY), None);
    }
}
