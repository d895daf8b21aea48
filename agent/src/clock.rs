//! Time as ebb uses it: nanoseconds of `CLOCK_BOOTTIME`, the clock that BPF records carry too.
//!
//! It never jumps and goes on while the machine is suspended, so that what ebb tells has the right time of day afterwards. What a victim is given, or a threshold, is time in which something could happen: [`StandstillMeter`].
//! Policy sees milliseconds on the same scale, anchored once to the Unix epoch ([`Clock`]), so that ages of images and containers can be compared with it; a later step of the wall clock changes nothing.

use nix::time::{ClockId, clock_gettime};
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment: nanoseconds since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct Boot(pub u64);

impl Boot {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        // CLOCK_BOOTTIME exists on every kernel since 2.6.39, so a failure could only be a sandbox that forbids clocks.
        clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Self(0), |t| {
            let since_boot = Duration::from(t);
            Self(u64::try_from(since_boot.as_nanos()).unwrap_or(u64::MAX))
        })
    }

    /// Time from `earlier` to this moment; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment as the beginning of a wait, as seen at `now` and after nothing could happen for `lasted`: later by that, and never later than now.
    #[must_use]
    pub fn without_standstill(self, lasted: Duration, now: Self) -> Self {
        self.plus(lasted.min(now.since(self)))
    }

    /// The moment `after` later.
    #[must_use]
    pub fn plus(self, after: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Tells for how long nothing could happen: the machine was suspended, or the loop was given no processor, as on a virtual machine that was paused or migrated.
///
/// A second of each delay counts as time all the same. Where every turn is late or long, as where others keep the processors busy, time would stand still otherwise, and with it every grace.
#[derive(Debug)]
pub struct StandstillMeter {
    /// Time spent suspended since boot, as last seen.
    suspended: Duration,
    /// By when the loop should come back at the latest, to wait or from its wait. By a clock that stands still while the machine is suspended.
    due: Instant,
    /// How long it had been held up when it last went to wait.
    held_up: Duration,
}

impl StandstillMeter {
    /// A shorter one changes no grace period that anybody would notice.
    const SHORTEST: Duration = Duration::from_secs(1);

    /// How long a turn may take, and how late one may begin.
    const LATE: Duration = Duration::from_secs(1);

    /// Counts from here on.
    #[must_use]
    pub fn begin() -> Self {
        let due = Instant::now() + Self::LATE;
        Self { suspended: suspended_since_boot(), due, held_up: Duration::ZERO }
    }

    /// Notes that the loop waits for something to do, for `wait` at most; returns until when.
    pub fn rest(&mut self, wait: Duration) -> Instant {
        self.rest_at(Instant::now(), wait)
    }

    fn rest_at(&mut self, now: Instant, wait: Duration) -> Instant {
        // Nobody has asked since that happened.
        self.held_up += now.saturating_duration_since(self.due);
        let until = now + wait;
        self.due = until + Self::LATE;
        until
    }

    /// How long nothing could happen since this was last asked; `None` when that is less than a second.
    pub fn lasted(&mut self) -> Option<Duration> {
        self.compare(suspended_since_boot(), Instant::now())
    }

    fn compare(&mut self, suspended: Duration, now: Instant) -> Option<Duration> {
        let slept = suspended.saturating_sub(self.suspended);
        let held_up = std::mem::take(&mut self.held_up) + now.saturating_duration_since(self.due);
        self.suspended = self.suspended.max(suspended);
        self.due = now + Self::LATE;
        Some(slept + held_up).filter(|lasted| *lasted >= Self::SHORTEST)
    }
}

/// What `CLOCK_BOOTTIME` counts and `CLOCK_MONOTONIC` does not. In this order, so that whoever is kept from a processor between the two reads too little and never too much.
fn suspended_since_boot() -> Duration {
    let read = |clock| clock_gettime(clock).map_or(Duration::ZERO, Duration::from);
    let all = read(ClockId::CLOCK_BOOTTIME);
    all.saturating_sub(read(ClockId::CLOCK_MONOTONIC))
}

/// Turns moments into policy time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Unix time of boot, in milliseconds, as the wall clock said once.
    boot_unix_ms: u64,
}

impl Clock {
    /// The one scale of this process, anchored to the wall clock at its first use: two anchors would differ by a millisecond, and put a cause after its effect.
    #[must_use]
    pub fn of_process() -> Self {
        static CLOCK: LazyLock<Clock> = LazyLock::new(|| {
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let since_boot = Duration::from_nanos(Boot::now().0);
            let boot = unix.saturating_sub(since_boot).as_millis();
            Clock { boot_unix_ms: u64::try_from(boot).unwrap_or(0) }
        });
        *CLOCK
    }

    /// `at` in milliseconds since the Unix epoch, on the scale that never jumps.
    #[must_use]
    pub fn unix_ms(&self, at: Boot) -> u64 {
        self.boot_unix_ms.saturating_add(at.0 / 1_000_000)
    }

    /// `at` as policy time.
    #[must_use]
    pub fn time(&self, at: Boot) -> ebb_policy::Time {
        ebb_policy::Time(self.unix_ms(at))
    }

    /// The moment that `unix_ms` names; the start of boot for anything before it.
    #[must_use]
    pub fn moment(&self, unix_ms: u64) -> Boot {
        Boot(unix_ms.saturating_sub(self.boot_unix_ms).saturating_mul(1_000_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_time_moves_with_boot_time_and_round_trips_to_the_millisecond() {
        let clock = Clock::of_process();
        let at = Boot(5_000_000_000);
        assert_eq!(clock.unix_ms(at.plus(Duration::from_millis(7))), clock.unix_ms(at) + 7);
        assert_eq!(clock.moment(clock.unix_ms(at)), at);
    }

    fn meter(suspended: f64, due: Instant) -> StandstillMeter {
        let suspended = Duration::from_secs_f64(suspended);
        StandstillMeter { suspended, due, held_up: Duration::ZERO }
    }

    #[test]
    fn a_sleep_is_told_once_and_a_late_reading_is_none() {
        let seconds = Duration::from_secs_f64;
        let now = Instant::now();
        let mut meter = meter(5.0, now);
        assert_eq!(meter.compare(seconds(5.0), now), None);
        // Held up between the two clocks, and not the next time.
        assert_eq!(meter.compare(seconds(2.0), now), None);
        assert_eq!(meter.compare(seconds(5.5), now), None);
        assert_eq!(meter.compare(seconds(65.5), now), Some(seconds(60.0)));
        assert_eq!(meter.compare(seconds(65.5), now), None);
        assert_eq!(StandstillMeter::begin().lasted(), None);
    }

    #[test]
    fn a_loop_that_comes_late_was_held_up_and_one_that_works_long_is_not_for_all_of_it() {
        let seconds = Duration::from_secs_f64;
        let mut now = Instant::now();
        let mut meter = meter(0.0, now);
        let mut after = |passed, meter: &mut StandstillMeter| {
            now += seconds(passed);
            meter.compare(Duration::ZERO, now)
        };
        assert_eq!(after(0.9, &mut meter), None);
        assert_eq!(after(5.0, &mut meter), Some(seconds(4.0)), "paused in the middle of a turn");
        assert_eq!(after(0.0, &mut meter), None, "told once");
        assert_eq!(after(1.9, &mut meter), None);
        assert_eq!(after(2.0, &mut meter), Some(seconds(1.0)), "half of it counts as time");
        // Woken at once, when it was to be, and long after that.
        for (late, lasted) in [(-10.0, None), (0.0, None), (1.9, None), (4.0, Some(3.0))] {
            meter.rest_at(now, seconds(10.0));
            now += seconds(10.0 + late);
            assert_eq!(meter.compare(Duration::ZERO, now), lasted.map(seconds), "{late} s late");
        }
        let due = meter.rest_at(now, seconds(10.0));
        assert_eq!(meter.compare(seconds(3.0), due + seconds(5.0)), Some(seconds(7.0)));
    }

    /// What a turn does last is to hand over a kill and to tell of it: a pause then was nobody's.
    #[test]
    fn a_pause_after_the_last_question_of_a_turn_is_told_at_the_next() {
        let seconds = Duration::from_secs_f64;
        let now = Instant::now();
        let mut meter = meter(0.0, now);
        meter.compare(Duration::ZERO, now);
        let woken = now + seconds(6.0);
        let due = meter.rest_at(woken, seconds(0.002));
        assert_eq!(meter.compare(Duration::ZERO, due), Some(seconds(5.0)));
        assert_eq!(meter.compare(Duration::ZERO, due), None, "told once");
    }

    /// As where others keep every processor busy: a grace of a minute is over some time.
    #[test]
    fn time_goes_on_however_late_every_turn_is() {
        let seconds = Duration::from_secs_f64;
        for late in [0.5, 1.2, 3.0, 10.0] {
            let (begun, mut now) = (Instant::now(), Instant::now());
            let (mut meter, mut lasted) = (meter(0.0, now), Duration::ZERO);
            for _ in 0..100 {
                now = meter.rest_at(now, seconds(0.005)) + seconds(late);
                lasted += meter.compare(Duration::ZERO, now).unwrap_or_default();
            }
            let counts = now.duration_since(begun) - lasted;
            assert!(counts >= seconds(50.0), "{counts:?} of {late} s late a hundred times");
        }
    }

    #[test]
    fn what_began_while_nothing_could_happen_begins_when_that_is_over() {
        let lasted = Duration::from_nanos(60);
        assert_eq!(Boot(20).without_standstill(lasted, Boot(100)), Boot(80));
        assert_eq!(Boot(70).without_standstill(lasted, Boot(100)), Boot(100));
        assert_eq!(Boot(100).without_standstill(lasted, Boot(100)), Boot(100));
        assert_eq!(Boot(200).without_standstill(lasted, Boot(100)), Boot(200));
    }

    #[test]
    fn time_before_the_earlier_moment_is_zero_not_an_underflow() {
        assert_eq!(Boot(1).since(Boot(2)), Duration::ZERO);
    }
}
