//! How many requests may be under way: found by feedback, and bounded.
//!
//! What answers take beyond the fastest of the last minute is time in a queue before the API server, and says how many requests wait there.
//! While few do, one more is let in; when many do, one is taken away, and by 429 and errors half of all.
//! So a server is kept busy whose answers take long by themselves, and other clients of a small one wait behind few requests of ours.
//! Whoever names a rate by hand has said what the server bears: more may wait then, as among other busy clients few in the queue are a small share.
//! Time is an argument.

use std::time::{Duration, Instant};

/// How many there may be before the first answer, and where a rate was named.
const FIRST: (f64, f64) = (2.0, 8.0);
const LEAST: f64 = 1.0;
const MOST: f64 = 48.0;
/// How long a fastest answer counts.
const MEMORY: Duration = Duration::from_secs(60);
/// While fewer wait before the API server, more are let in; while more than the second, fewer.
const FEW: (f64, f64) = (0.5, 1.5);
/// The same where a rate was named.
const MANY: (f64, f64) = (8.0, 16.0);

/// How an answer speaks of the API server's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// It answered.
    Fine,
    /// It refused (429), failed, or did not answer.
    TooMuch,
}

/// Requests that may be under way.
#[derive(Debug)]
pub(crate) struct Window {
    limit: f64,
    /// How many may wait before the API server: from here to there.
    waiting: (f64, f64),
    /// Whether no sign of load has come yet: each answer lets one more in.
    is_new: bool,
    fastest: [Option<Duration>; 2],
    /// What answers take of late: one slow answer among many is no load.
    usual: Option<Duration>,
    rotated: Instant,
    cut: Option<Instant>,
    closed_until: Option<Instant>,
}

impl Window {
    /// `has_ceiling`: somebody has named a rate that the API server bears.
    pub(crate) fn new(has_ceiling: bool, now: Instant) -> Self {
        Self {
            limit: if has_ceiling { FIRST.1 } else { FIRST.0 },
            waiting: if has_ceiling { MANY } else { FEW },
            is_new: true,
            fastest: [None; 2],
            usual: None,
            rotated: now,
            cut: None,
            closed_until: None,
        }
    }

    /// How many requests may be under way now.
    pub(crate) fn size(&self, now: Instant) -> usize {
        if self.closed_until.is_some_and(|until| now < until) {
            return 0;
        }
        // Between 1 and MOST by construction.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded")]
        let size = self.limit as usize;
        size
    }

    /// Until when nothing may be sent, where that is so.
    pub(crate) fn closed_until(&self, now: Instant) -> Option<Instant> {
        self.closed_until.filter(|&until| now < until)
    }

    /// Nothing is to be sent for so long.
    pub(crate) fn close(&mut self, pause: Duration, now: Instant) {
        let until = now + pause;
        self.closed_until = Some(self.closed_until.map_or(until, |old| old.max(until)));
    }

    /// An answer, and how long it took; `in_flight` counts it.
    pub(crate) fn answered(&mut self, took: Duration, load: Load, in_flight: usize, now: Instant) {
        match load {
            Load::TooMuch => self.shrink(0.5, Duration::from_millis(100), now),
            Load::Fine => {
                if now.duration_since(self.rotated) >= MEMORY {
                    (self.fastest, self.rotated) = ([None, self.fastest[0]], now);
                }
                let fastest = self.fastest[0].map_or(took, |fastest| fastest.min(took));
                self.fastest[0] = Some(fastest);
                let fastest = self.fastest[1].map_or(fastest, |old| old.min(fastest));
                let usual = self.usual.map_or(took, |usual| (usual * 7 + took) / 8);
                self.usual = Some(usual);
                let waiting =
                    self.limit * (1.0 - fastest.as_secs_f64() / usual.as_secs_f64().max(1e-9));
                let is_used = in_flight * 2 > self.size(now);
                if waiting > self.waiting.1 && is_used {
                    self.shrink(1.0 - 1.0 / self.limit, usual, now);
                } else if waiting < self.waiting.0 && is_used {
                    let more = if self.is_new { 1.0 } else { 1.0 / self.limit };
                    self.limit = (self.limit + more).min(MOST);
                }
            }
        }
    }

    /// Once in the time that an answer takes: the others under way tell of the same load.
    fn shrink(&mut self, by: f64, once_in: Duration, now: Instant) {
        if self.cut.is_none_or(|cut| now.duration_since(cut) >= once_in) {
            self.limit = (self.limit * by).max(LEAST);
            self.cut = Some(now);
        }
        self.is_new = false;
    }
}

/// A ceiling on requests a second, with a tenth of a second's worth at once.
#[derive(Debug)]
pub(crate) struct Ceiling {
    each: Duration,
    next: Instant,
}

impl Ceiling {
    /// At most so many a second; not zero.
    pub(crate) fn new(per_second: f64, now: Instant) -> Self {
        Self { each: Duration::from_secs_f64(1.0 / per_second), next: now }
    }

    /// When the next request may be sent.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// A request is sent.
    pub(crate) fn take(&mut self, now: Instant) {
        let burst = Duration::from_millis(100);
        self.next = self.next.max(now.checked_sub(burst).unwrap_or(now)) + self.each;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn fast_answers_open_it_up_to_its_bound() {
        let now = Instant::now();
        let mut window = Window::new(false, now);
        (0..1_000).for_each(|_| window.answered(MS, Load::Fine, 48, now));
        assert_eq!(window.size(now), 48);
    }

    #[test]
    fn an_idle_window_does_not_grow() {
        let now = Instant::now();
        let mut window = Window::new(false, now);
        (0..1_000).for_each(|_| window.answered(MS, Load::Fine, 1, now));
        assert_eq!(window.size(now), 2);
    }

    #[test]
    fn a_429_halves_it_once_and_growth_is_slow_after_it() {
        let now = Instant::now();
        let mut window = Window::new(true, now);
        window.answered(MS, Load::TooMuch, 8, now);
        window.answered(MS, Load::TooMuch, 8, now);
        assert_eq!(window.size(now), 4);
        (0..4).for_each(|_| window.answered(MS, Load::Fine, 4, now));
        assert_eq!(window.size(now), 4);
        (0..2).for_each(|_| window.answered(MS, Load::Fine, 4, now));
        assert_eq!(window.size(now), 5);
    }

    #[test]
    fn slow_answers_shrink_it_to_what_may_wait() {
        let mut now = Instant::now();
        let mut window = Window::new(false, now);
        window.answered(MS, Load::Fine, 8, now);
        for _ in 0..100 {
            now += 100 * MS;
            window.answered(50 * MS, Load::Fine, 8, now);
        }
        assert_eq!(window.size(now), 1);
    }

    /// Where it comes to rest before a server that answers two at a time within 2 ms.
    fn settled(has_ceiling: bool) -> usize {
        let mut now = Instant::now();
        let mut window = Window::new(has_ceiling, now);
        window.answered(2 * MS, Load::Fine, 1, now);
        for _ in 0..1_000 {
            let size = window.size(now);
            // What is beyond two at a time waits.
            let took = MS * u32::try_from(size.max(2)).unwrap();
            now += took / u32::try_from(size).unwrap();
            window.answered(took, Load::Fine, size, now);
        }
        window.size(now)
    }

    #[test]
    fn it_settles_where_a_server_of_two_processors_has_hardly_one_waiting() {
        let size = settled(false);
        assert!((2..=3).contains(&size), "{size}");
    }

    #[test]
    fn more_may_wait_where_a_rate_was_named() {
        let size = settled(true);
        assert!((10..=18).contains(&size), "{size}");
    }

    #[test]
    fn a_distant_server_is_kept_busy() {
        let now = Instant::now();
        let mut window = Window::new(false, now);
        for n in 0..1_000 {
            let size = window.size(now);
            window.answered(50 * MS + MS / 10 * (n % 3), Load::Fine, size, now);
        }
        assert_eq!(window.size(now), 48);
    }

    #[test]
    fn errors_shrink_it_down_to_one() {
        let mut now = Instant::now();
        let mut window = Window::new(false, now);
        for _ in 0..10 {
            now += 200 * MS;
            window.answered(MS, Load::TooMuch, 8, now);
        }
        assert_eq!(window.size(now), 1);
    }

    #[test]
    fn retry_after_closes_it() {
        let now = Instant::now();
        let mut window = Window::new(false, now);
        window.close(Duration::from_secs(2), now);
        assert_eq!(window.size(now + Duration::from_secs(1)), 0);
        assert_eq!(window.size(now + Duration::from_secs(2)), 2);
    }

    #[test]
    fn a_ceiling_is_kept_over_a_second() {
        let start = Instant::now();
        let mut ceiling = Ceiling::new(20.0, start);
        let mut sent = 0;
        for ms in 0..1_000 {
            let now = start + ms * MS;
            while ceiling.next() <= now {
                ceiling.take(now);
                sent += 1;
            }
        }
        assert!((20..=22).contains(&sent), "{sent}");
    }
}
