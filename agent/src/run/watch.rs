//! The signals that are watched, each with its threshold, its trend and its episode.

use super::episode::Episode;
use crate::act::Need;
use crate::cadence::Cadence;
use crate::clock::Boot;
use ebb_policy::plan::{Strength, ThresholdStatus};
use ebb_policy::{Plan, Signal};
use std::time::Duration;

/// A node that reaches a threshold within this at its present rate has its workloads followed.
const SOON: Duration = Duration::from_secs(2);

/// A threshold that is reached within this is waited for with nothing else in hand.
const IMMINENT: Duration = Duration::from_millis(150);

/// A headroom smaller than this part of the threshold counts as near, whatever the rate.
const NEAR_PART: u64 = 4;

/// A node that has fallen within this while ebb slept is not calm.
const CALM: Duration = Duration::from_secs(2);

/// So much of what was left before ebb slept is no accident when it wakes.
const FALL_PART: u64 = 4;

/// Waits that are longer cost so little that the kernel need not be told.
const WORTH_TELLING: Duration = Duration::from_secs(5);

/// With less left, bytes, the batches in which the kernel counts would wake the loop for nothing.
const LEAST_ROOM: u64 = 64 << 20;

/// One watched signal.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) signal: Signal,
    pub(super) cadence: Cadence,
    pub(super) episode: Option<Episode>,
    /// The highest threshold: the first to be reached.
    pub(super) nearest: Option<u64>,
    /// The highest hard threshold.
    hard: Option<u64>,
    /// What is left of it, for people.
    pub(super) available: Option<u64>,
    /// The second signal that must be short too.
    also: Option<Also>,
    /// What is left of that.
    other: Option<u64>,
    /// It was near its threshold or below it when last looked at.
    is_close: bool,
    /// A fall by half of what was left when it was last looked at wakes the loop.
    is_told: bool,
    /// When much of what was left was found to have gone while the loop slept.
    fell: Option<Boot>,
}

/// The second condition of a threshold on two signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Also {
    pub(super) signal: Signal,
    /// Below this it is short.
    pub(super) below: u64,
}

/// What one look at a signal found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Far from its threshold, or without one.
    Clear,
    /// It may be reached soon.
    Near,
    /// It was crossed since the last look; the estimated moment.
    Crossed(Boot),
    /// Below.
    Below,
}

impl Watch {
    pub(super) fn new(signal: Signal, cadence: Cadence) -> Self {
        Self {
            signal,
            cadence,
            episode: None,
            nearest: None,
            hard: None,
            available: None,
            also: None,
            other: None,
            is_close: false,
            is_told: false,
            fell: None,
        }
    }

    /// Takes over the thresholds that `plan` resolved.
    pub(super) fn take_thresholds(&mut self, plan: &Plan) {
        let of = |strength: Option<Strength>| {
            let own = plan.thresholds.iter().filter(|t| t.signal == self.signal);
            own.filter(|t| strength.is_none_or(|s| t.strength == s)).filter_map(resolved).max()
        };
        self.hard = of(Some(Strength::Hard));
        self.nearest = of(None);
        self.also = also(self.signal, plan);
    }

    /// The second signal that must be short too, if there is one.
    pub(super) fn also(&self) -> Option<Also> {
        self.also
    }

    /// Takes in what is available, and what is left of the second signal.
    pub(super) fn observe(
        &mut self,
        at: Boot,
        available: Option<u64>,
        other: Option<u64>,
    ) -> Finding {
        let before = self.headroom().filter(|_| self.is_told);
        (self.available, self.other) = (available, other);
        self.is_told = false;
        // How fast it fell nobody knows yet, and who took it is known by being followed from now on.
        let has_fallen = before
            .zip(self.headroom())
            .is_some_and(|(before, now)| now <= before - before / FALL_PART);
        let fell = if has_fallen { Some(at) } else { self.fell };
        self.fell = fell.filter(|fell| at.since(*fell) < CALM);
        let finding = self.find(at);
        self.is_close = finding != Finding::Clear;
        finding
    }

    /// Whether it was near its threshold or below it when last looked at.
    pub(super) fn is_close(&self) -> bool {
        self.is_close
    }

    fn find(&mut self, at: Boot) -> Finding {
        let Some(available) = self.left(self.nearest.unwrap_or(0)) else { return Finding::Clear };
        self.cadence.observe(at, available);
        let Some(threshold) = self.nearest else { return Finding::Clear };
        if available < threshold {
            return match &self.episode {
                Some(_) => Finding::Below,
                None => Finding::Crossed(self.cadence.crossed(threshold).unwrap_or(at)),
            };
        }
        if self.is_near() { Finding::Near } else { Finding::Clear }
    }

    /// What is left before `threshold` is met, as a value of this signal: below `threshold` exactly when the threshold is met.
    ///
    /// A threshold on two signals is met when both are short: whichever has more room above its own bound decides.
    fn left(&self, threshold: u64) -> Option<u64> {
        self.left_of(threshold, self.available, self.other)
    }

    fn left_of(&self, threshold: u64, own: Option<u64>, other: Option<u64>) -> Option<u64> {
        let own = own?;
        match (self.also, other) {
            (None, _) => Some(own),
            (Some(also), Some(other)) => {
                Some(own.max(other.saturating_add(threshold).saturating_sub(also.below)))
            }
            // Swap was switched off: memory alone decides.
            (Some(Also { signal: Signal::SwapAvailable, .. }), None) => Some(own),
            (Some(_), None) => None,
        }
    }

    /// The same for the nearest threshold, with that.
    fn nearest_left(&self) -> Option<(u64, u64)> {
        let threshold = self.nearest?;
        Some((self.left(threshold)?, threshold))
    }

    /// What is left above the nearest threshold; 0 below it.
    fn headroom(&self) -> Option<u64> {
        let (left, threshold) = self.nearest_left()?;
        Some(left.saturating_sub(threshold))
    }

    /// Whether the threshold may be reached soon, or has been.
    pub(super) fn is_near(&self) -> bool {
        let (Some(headroom), Some(threshold)) = (self.headroom(), self.nearest) else {
            return false;
        };
        let is_soon = self.cadence.time_left(headroom).is_some_and(|left| left < SOON);
        is_soon || self.fell.is_some() || headroom < threshold / NEAR_PART
    }

    /// Whether the threshold will be crossed any moment, at the present rate.
    pub(super) fn is_imminent(&self) -> bool {
        let headroom = self.nearest_left().and_then(|(a, t)| a.checked_sub(t));
        headroom.and_then(|h| self.cadence.time_left(h)).is_some_and(|left| left < IMMINENT)
    }

    /// Time until `threshold` is met at the present rate; `None` when what is left does not shrink, or is not known.
    pub(super) fn time_left(&self, threshold: u64) -> Option<Duration> {
        self.cadence.time_left(self.left(threshold)?.saturating_sub(threshold))
    }

    /// How long to wait before the next look; `None` when there is nothing to wait for.
    pub(super) fn wait(&self) -> Option<Duration> {
        let headroom = self.headroom()?;
        Some(if self.is_told {
            self.cadence.wait_while_told(headroom)
        } else {
            self.cadence.wait(headroom)
        })
    }

    /// What is left above the nearest threshold, where it is calm enough to sleep until half of that is gone, and that is worth telling the kernel; otherwise `None`.
    pub(super) fn room_to_fall(&self) -> Option<u64> {
        let headroom = self.headroom()?;
        let is_calm = self.episode.is_none() && self.also.is_none() && !self.is_near();
        let is_worth_it = headroom >= LEAST_ROOM && self.cadence.wait(headroom) < WORTH_TELLING;
        (is_calm && is_worth_it).then_some(headroom)
    }

    /// From now on until the next look, a fall by half of what is left wakes the loop, or no longer does.
    pub(super) fn is_told_of_falls(&mut self, is_told: bool) {
        self.is_told = is_told;
    }

    /// The highest hard threshold, in the signal's unit.
    pub(super) fn hard(&self) -> Option<u64> {
        self.hard
    }

    /// The need that the hard threshold stands for.
    pub(super) fn hard_need(&self) -> Option<Need> {
        need(self.signal, self.hard?, self.also)
    }

    /// Whether the hard threshold is met with `available` and, of the second signal, `other`.
    pub(super) fn is_below_hard(&self, available: Option<u64>, other: Option<u64>) -> bool {
        let left = self.hard.and_then(|hard| self.left_of(hard, available, other));
        matches!((left, self.hard), (Some(left), Some(hard)) if left < hard)
    }

    /// Whether the hard threshold was met when last looked at.
    pub(super) fn was_below_hard(&self) -> bool {
        self.is_below_hard(self.available, self.other)
    }

    /// Whether the nearest threshold was met when last looked at.
    pub(super) fn is_below(&self) -> bool {
        self.nearest_left().is_some_and(|(left, threshold)| left < threshold)
    }

    /// Whether it is known that no threshold was met when last looked at.
    pub(super) fn is_above(&self) -> bool {
        self.nearest_left().is_some_and(|(left, threshold)| left >= threshold)
    }
}

/// The second condition of the thresholds on `signal`, as `plan` resolved it.
pub(super) fn also(signal: Signal, plan: &Plan) -> Option<Also> {
    let own = plan.thresholds.iter().filter(|status| status.signal == signal);
    own.filter_map(|status| status.also_below.as_ref()).find_map(|also| {
        let below = u64::try_from(also.threshold?.ceil()).ok()?;
        Some(Also { signal: also.signal, below })
    })
}

/// What must hold of the node while `signal` is below `threshold`, and another signal below its own; only signals that the actor can check have one.
pub(super) fn need(signal: Signal, threshold: u64, also: Option<Also>) -> Option<Need> {
    match (signal, also) {
        (Signal::MemoryAvailable, Some(Also { signal: Signal::SwapAvailable, below })) => {
            return Some(Need::MemoryAndSwapBelow { bytes: threshold, swap: below });
        }
        (Signal::SwapAvailable, Some(Also { signal: Signal::MemoryAvailable, below })) => {
            return Some(Need::MemoryAndSwapBelow { bytes: below, swap: threshold });
        }
        _ => {}
    }
    match signal {
        Signal::MemoryAvailable => Some(Need::MemoryBelow { bytes: threshold }),
        Signal::SwapAvailable => Some(Need::SwapBelow { bytes: threshold }),
        Signal::MemoryWithSwapAvailable => Some(Need::MemoryWithSwapBelow { bytes: threshold }),
        Signal::PidAvailable => Some(Need::PidsBelow { count: threshold }),
        _ => None,
    }
}

fn resolved(status: &ThresholdStatus) -> Option<u64> {
    u64::try_from(status.threshold?.ceil()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn watch(nearest: u64) -> Watch {
        let mut watch = Watch::new(Signal::MemoryAvailable, Cadence::memory());
        watch.nearest = Some(nearest);
        watch
    }

    fn at(ms: u64) -> Boot {
        Boot(ms * 1_000_000)
    }

    #[test]
    fn falls_are_told_of_while_it_is_calm_and_until_the_next_look() {
        let calm = || {
            let mut watch = watch(100 * MIB);
            watch.observe(at(0), Some(1124 * MIB), None);
            watch
        };
        let mut watch = calm();
        assert_eq!(watch.room_to_fall(), Some(1024 * MIB));
        let untold = watch.wait();
        watch.is_told_of_falls(true);
        assert!(watch.wait() > untold);
        watch.observe(at(1000), Some(1124 * MIB), None);
        assert_eq!(watch.wait(), untold, "each look asks anew");
        // It is there in a second.
        watch.observe(at(1500), Some(624 * MIB), None);
        assert_eq!(watch.room_to_fall(), None);
        let mut far = calm();
        far.observe(at(1000), Some(64 << 30), None);
        assert_eq!(far.room_to_fall(), None, "that costs nothing anyway");
        let mut close = calm();
        for (ms, left) in [(600_000, 170), (601_000, 120), (602_000, 90)] {
            close.observe(at(ms), Some(left * MIB), None);
            close.is_told_of_falls(true);
        }
        assert_eq!(close.room_to_fall(), None);
    }

    #[test]
    fn a_node_that_fell_while_ebb_slept_is_followed_until_it_is_calm_again() {
        let mut watch = watch(100 * MIB);
        watch.observe(at(0), Some(1124 * MIB), None);
        watch.is_told_of_falls(true);
        // A quarter, and so long ago that no rate tells of it.
        assert_eq!(watch.observe(at(1900), Some(868 * MIB), None), Finding::Near);
        assert_eq!(watch.room_to_fall(), None, "nobody sleeps on");
        assert_eq!(watch.observe(at(3800), Some(868 * MIB), None), Finding::Near);
        assert_eq!(watch.observe(at(3900), Some(868 * MIB), None), Finding::Clear);
        watch.is_told_of_falls(true);
        assert_eq!(watch.observe(at(5000), Some(700 * MIB), None), Finding::Clear, "a little");
        assert_eq!(watch.observe(at(9000), Some(400 * MIB), None), Finding::Clear, "it was awake");
    }

    #[test]
    fn a_signal_without_a_threshold_or_a_value_asks_for_nothing() {
        let mut watch = Watch::new(Signal::PidAvailable, Cadence::pids());
        assert_eq!(watch.observe(at(0), Some(1), None), Finding::Clear);
        watch.nearest = Some(5);
        assert_eq!(watch.observe(at(1), None, None), Finding::Clear);
        assert_eq!(watch.wait(), None);
    }

    #[test]
    fn it_is_near_when_the_headroom_is_small_or_shrinks_fast() {
        let mut slow = watch(100 * MIB);
        assert_eq!(slow.observe(at(0), Some(500 * MIB), None), Finding::Clear);
        assert_eq!(slow.observe(at(10), Some(120 * MIB), None), Finding::Near);
        let mut fast = watch(100 * MIB);
        assert_eq!(fast.observe(at(0), Some(1000 * MIB), None), Finding::Clear);
        assert_eq!(fast.observe(at(100), Some(800 * MIB), None), Finding::Near, "100 ms more");
    }

    #[test]
    fn a_threshold_that_is_about_to_be_crossed_is_imminent_and_a_steady_one_is_not() {
        let mut watch = watch(100 * MIB);
        watch.observe(at(0), Some(200 * MIB), None);
        assert!(!watch.is_imminent());
        watch.observe(at(100), Some(150 * MIB), None);
        assert!(watch.is_imminent(), "50 MiB left at 500 MiB/s");
        let mut steady = super::tests::watch(100 * MIB);
        steady.observe(at(0), Some(101 * MIB), None);
        steady.observe(at(100), Some(101 * MIB), None);
        assert!(!steady.is_imminent());
    }

    #[test]
    fn the_first_look_below_tells_when_it_was_crossed() {
        let mut watch = watch(100 * MIB);
        watch.observe(at(0), Some(150 * MIB), None);
        assert_eq!(watch.observe(at(10), Some(50 * MIB), None), Finding::Crossed(at(5)));
        watch.episode = Some(Episode::begin(at(5)));
        assert_eq!(watch.observe(at(12), Some(40 * MIB), None), Finding::Below);
    }

    #[test]
    fn a_node_that_was_below_from_the_start_has_crossed_when_it_was_first_seen() {
        let mut watch = watch(100 * MIB);
        assert_eq!(watch.observe(at(7), Some(50 * MIB), None), Finding::Crossed(at(7)));
    }

    #[test]
    fn a_threshold_on_memory_and_swap_is_as_far_as_the_one_that_has_more_room() {
        let mut both = watch(100 * MIB);
        both.also = Some(Also { signal: Signal::SwapAvailable, below: 50 * MIB });
        assert_eq!(both.observe(at(0), Some(10 * MIB), Some(900 * MIB)), Finding::Clear);
        assert!(!both.is_below(), "swap is free");
        let wait = both.wait().unwrap();
        assert!(wait > Duration::from_millis(100), "850 MiB of swap left: {wait:?}");
        assert_eq!(both.observe(at(10_000), Some(10 * MIB), Some(60 * MIB)), Finding::Near);
        assert_eq!(both.observe(at(20_000), Some(500 * MIB), Some(0)), Finding::Clear);
        let crossed = both.observe(at(20_010), Some(99 * MIB), Some(49 * MIB));
        assert!(matches!(crossed, Finding::Crossed(_)), "{crossed:?}");
        both.hard = Some(100 * MIB);
        assert!(both.was_below_hard() && !both.is_below_hard(Some(0), Some(50 * MIB)));
        let swapped_off = both.observe(at(30_000), Some(99 * MIB), None);
        assert!(matches!(swapped_off, Finding::Crossed(_)), "memory alone decides");
        let need = both.hard_need();
        assert_eq!(need, Some(Need::MemoryAndSwapBelow { bytes: 100 * MIB, swap: 50 * MIB }));
    }
}
