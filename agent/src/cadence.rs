//! When to look at the node again: pure arithmetic over what was seen, so that an idle node costs next to nothing and a falling one is watched by the millisecond.
//!
//! The wait is the time in which the headroom above the nearest threshold could be used up, at twice the rate seen of late or at an assumed worst rate, whichever is faster.
//! Kernel events and pressure triggers come on top: they end the wait early.

use crate::clock::Boot;
use std::collections::VecDeque;
use std::time::Duration;

/// Between two looks while headroom shrinks.
pub const SHORTEST: Duration = Duration::from_micros(250);

/// Between two looks close to a threshold while nothing shrinks, where nothing takes much within that.
const STEADY: Duration = Duration::from_millis(25);

/// The same of memory, of which a hog takes hundreds of MiB in that time. At 50 µs a look it is 1 % of a core, for a node that rests within 40 MiB a processor of its threshold.
const STEADY_MEMORY: Duration = Duration::from_millis(5);

/// Bytes of memory a second that one processor faults in and clears: 1 to 2 GiB in small pages, up to 10 in huge ones.
const TAKEN_BY_A_PROCESSOR: u64 = 8 << 30;

/// What all of them are assumed to take: beyond it they wait for one another and for the memory, and what is left when so many may take it is more than a few GiB.
const TAKEN_AT_MOST: u64 = 32 << 30;

/// The same where a fall wakes whoever looks: looks of its own are for what the kernel's counters leave out.
const TAKEN_UNTOLD: u64 = 512 << 20;

/// Between two looks when a threshold is far away.
pub const LONGEST: Duration = Duration::from_secs(10);

/// Time over which a fall counts as recent.
const RECENT: Duration = Duration::from_millis(500);

/// Between two readings that are remembered: the kernel takes free pages off its count in batches, so that a steady fall looks like steps of tens of milliseconds.
const APART: Duration = Duration::from_millis(25);

/// Readings that are remembered; more than [`RECENT`] is never of use.
const REMEMBERED: usize = 21;

/// A resource whose headroom is watched, with the rate at which it may vanish without warning.
#[derive(Debug)]
pub struct Cadence {
    /// Units a second: what the fastest load of a common machine can take.
    assumed_per_second: u64,
    /// A fall slower than this is noise, in units a second.
    noise_per_second: u64,
    /// Between two looks close to a threshold while nothing shrinks.
    steady: Duration,
    /// At least [`APART`] from one another, oldest first.
    remembered: VecDeque<(Boot, u64)>,
    before: Option<(Boot, u64)>,
    latest: Option<(Boot, u64)>,
}

impl Cadence {
    /// For bytes of memory, on a machine of one processor until [`Self::taken_by`] says otherwise.
    #[must_use]
    pub fn memory() -> Self {
        Self { steady: STEADY_MEMORY, ..Self::new(TAKEN_BY_A_PROCESSOR, 4 << 20) }
    }

    /// For bytes of swap. Two GiB a second is what reclaim compresses, and more than a disk takes.
    #[must_use]
    pub fn swap() -> Self {
        Self::new(2 << 30, 4 << 20)
    }

    /// For threads. One processor can fork some ten thousand times a second.
    #[must_use]
    pub fn pids() -> Self {
        Self::new(20_000, 100)
    }

    /// For bytes of disk. One GiB a second is what a fast local disk takes.
    #[must_use]
    pub fn disk() -> Self {
        Self::new(1 << 30, 1 << 20)
    }

    /// For inodes. One processor can make some fifty thousand files a second.
    #[must_use]
    pub fn inodes() -> Self {
        Self::new(50_000, 100)
    }

    fn new(assumed_per_second: u64, noise_per_second: u64) -> Self {
        let remembered = VecDeque::with_capacity(REMEMBERED);
        let (before, latest, steady) = (None, None, STEADY);
        Self { assumed_per_second, noise_per_second, steady, remembered, before, latest }
    }

    /// Takes in how many processors may take memory at once.
    pub fn taken_by(&mut self, processors: u64) {
        let taken = TAKEN_BY_A_PROCESSOR.saturating_mul(processors.max(1));
        self.assumed_per_second = taken.min(TAKEN_AT_MOST);
    }

    /// Takes in what is available at `at`.
    pub fn observe(&mut self, at: Boot, available: u64) {
        if self.remembered.back().is_none_or(|(last, _)| at.since(*last) >= APART) {
            if self.remembered.len() == REMEMBERED {
                self.remembered.pop_front();
            }
            self.remembered.push_back((at, available));
        }
        self.before = self.latest.replace((at, available));
    }

    /// The fastest recent fall, in units a second; 0 when nothing fell.
    #[must_use]
    pub fn fall_per_second(&self) -> u64 {
        let Some((last_at, last)) = self.latest else { return 0 };
        let recent = self.remembered.iter().chain(&self.before).filter(|(at, _)| {
            let age = last_at.since(*at);
            !age.is_zero() && age <= RECENT
        });
        let rates = recent.filter_map(|&(at, available)| {
            per_second(available.checked_sub(last)?, last_at.since(at))
        });
        let fastest = rates.max().unwrap_or(0);
        if fastest < self.noise_per_second { 0 } else { fastest }
    }

    /// Time until the headroom is gone at the rate seen; `None` when it does not shrink.
    #[must_use]
    pub fn time_left(&self, headroom: u64) -> Option<Duration> {
        let rate = self.fall_per_second();
        (rate > 0).then(|| seconds(headroom, rate))
    }

    /// How long to wait with `headroom` units left above the nearest threshold.
    #[must_use]
    pub fn wait(&self, headroom: u64) -> Duration {
        let rate = self.fall_per_second();
        let pessimistic = rate.saturating_mul(2).max(self.assumed_per_second);
        let shortest = if rate > 0 { SHORTEST } else { self.steady };
        seconds(headroom, pessimistic).clamp(shortest, LONGEST)
    }

    /// The same where who looks is woken when half of the headroom is gone.
    #[must_use]
    pub fn wait_while_told(&self, headroom: u64) -> Duration {
        let pessimistic = self.fall_per_second().saturating_mul(2).max(TAKEN_UNTOLD);
        seconds(headroom, pessimistic).clamp(STEADY, LONGEST)
    }

    /// Units a second that may be taken at most.
    #[must_use]
    pub fn assumed_per_second(&self) -> u64 {
        self.assumed_per_second
    }

    /// When the value fell through `threshold`, by a straight line between the last two readings; `None` when it did not.
    #[must_use]
    pub fn crossed(&self, threshold: u64) -> Option<Boot> {
        let ((before_at, before), (at, now)) = (self.before?, self.latest?);
        if now >= threshold || before < threshold {
            return None;
        }
        let above = u128::from(before - threshold);
        let part = u128::from(at.0.saturating_sub(before_at.0)) * above / u128::from(before - now);
        Some(Boot(before_at.0.saturating_add(u64::try_from(part).unwrap_or(0))))
    }
}

fn per_second(fallen: u64, over: Duration) -> Option<u64> {
    u64::try_from(u128::from(fallen) * 1_000_000_000 / over.as_nanos().max(1)).ok()
}

fn seconds(units: u64, per_second: u64) -> Duration {
    let nanos = u128::from(units) * 1_000_000_000 / u128::from(per_second.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at_ms(ms: u64) -> Boot {
        Boot(ms * 1_000_000)
    }

    #[test]
    fn far_from_the_threshold_it_hardly_ever_looks() {
        let mut cadence = Cadence::memory();
        cadence.observe(at_ms(0), 128 << 30);
        assert_eq!(cadence.wait(100 << 30), LONGEST);
    }

    #[test]
    fn the_wait_shortens_with_the_headroom_even_when_nothing_falls_yet() {
        let mut cadence = Cadence::memory();
        cadence.observe(at_ms(0), 1 << 30);
        assert_eq!(cadence.wait(1 << 30), Duration::from_millis(125));
        assert_eq!(cadence.wait(1), STEADY_MEMORY);
        let mut pids = Cadence::pids();
        pids.observe(at_ms(0), 10_000);
        assert_eq!(pids.wait(10_000), Duration::from_millis(500));
        assert_eq!(pids.wait(1), STEADY);
    }

    #[test]
    fn who_is_woken_by_a_fall_looks_seldom_and_never_not_at_all() {
        let mut cadence = Cadence::memory();
        cadence.observe(at_ms(0), 8 << 30);
        assert_eq!(cadence.wait_while_told(1 << 30), Duration::from_secs(2));
        assert_eq!(cadence.wait_while_told(100 << 30), LONGEST);
        assert_eq!(cadence.wait_while_told(1), STEADY);
        // A leak that is too slow to wake anybody soon: 1 GiB a second.
        cadence.observe(at_ms(500), (8 << 30) - (512 << 20));
        assert_eq!(cadence.wait_while_told(1 << 30), Duration::from_millis(500));
    }

    #[test]
    fn the_more_processors_there_are_the_sooner_it_is_looked_at_up_to_a_bound() {
        let mut cadence = Cadence::memory();
        cadence.observe(at_ms(0), 64 << 30);
        let mut wait = |processors| {
            cadence.taken_by(processors);
            cadence.wait(16 << 30)
        };
        assert_eq!(wait(0), wait(1));
        assert_eq!([wait(1), wait(2)], [2000, 1000].map(Duration::from_millis));
        assert_eq!([wait(4), wait(1024)], [Duration::from_millis(500); 2]);
    }

    #[test]
    fn a_hog_on_every_processor_is_seen_long_before_it_is_through() {
        // Two processors that take 4 GiB/s each. They begin right after a look at a calm node, and half of the way is left at the next.
        for headroom in [96, 128, 1024, 8192].map(|mib| mib * MIB) {
            let mut cadence = Cadence::memory();
            cadence.taken_by(2);
            cadence.observe(at_ms(0), headroom);
            let wait = u64::try_from(cadence.wait(headroom).as_micros()).unwrap();
            let taken = (8 << 30) * wait / 1_000_000;
            assert!(taken <= headroom / 2, "{taken} of {headroom} in {wait} µs");
        }
    }

    #[test]
    fn a_fast_fall_is_looked_at_before_half_of_the_time_left_has_passed() {
        let mut cadence = Cadence::memory();
        cadence.observe(at_ms(0), 8 << 30);
        cadence.observe(at_ms(100), 7 << 30);
        let left = cadence.time_left(6 << 30).unwrap();
        assert!(cadence.wait(6 << 30) <= left / 2);
        assert_eq!(cadence.wait(0), SHORTEST);
    }

    #[test]
    fn a_fall_that_is_over_no_longer_counts() {
        let mut cadence = Cadence::memory();
        cadence.observe(at_ms(0), 8 << 30);
        cadence.observe(at_ms(100), 7 << 30);
        assert!(cadence.fall_per_second() > 0);
        cadence.observe(at_ms(2000), 7 << 30);
        assert_eq!(cadence.fall_per_second(), 0);
    }

    #[test]
    fn a_fall_in_steps_is_watched_closely_between_them() {
        let mut cadence = Cadence::memory();
        // 100 MiB a second, told 6 MiB at a time and looked at every 2 ms.
        for ms in (0..600).step_by(2) {
            cadence.observe(at_ms(ms), (500 - ms / 60 * 6) * MIB);
            if ms >= 60 {
                assert_eq!(cadence.wait(MIB), SHORTEST, "at {ms} ms");
            }
        }
        assert!(cadence.remembered.len() <= REMEMBERED);
    }

    #[test]
    fn the_crossing_is_placed_between_the_two_readings_around_it() {
        let mut cadence = Cadence::memory();
        cadence.observe(at_ms(0), 140 * MIB);
        assert_eq!(cadence.crossed(100 * MIB), None);
        cadence.observe(at_ms(10), 60 * MIB);
        assert_eq!(cadence.crossed(100 * MIB), Some(at_ms(5)));
        cadence.observe(at_ms(20), 50 * MIB);
        assert_eq!(cadence.crossed(100 * MIB), None, "it was below already");
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        let mut cadence = Cadence::memory();
        cadence.observe(Boot(0), u64::MAX);
        cadence.observe(Boot(1), 0);
        assert!(cadence.wait(u64::MAX) >= SHORTEST);
        assert!(cadence.crossed(u64::MAX).is_some());
    }
}
