//! When a hard threshold of memory or task ids will be reached, and how sure that is.
use crate::{
    History, Millis, Quantity, Signal,
    limits::{AlsoBelow, Threshold},
    observe::Observations,
    plan::Strength,
};

/// A hard threshold that is being approached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Approach {
    pub(crate) threshold: Threshold,
    pub(crate) available: u64,
    pub(crate) capacity: Option<u64>,
    /// Units a second by which less becomes available.
    pub(crate) fall: u64,
    /// Time until the threshold is reached.
    pub(crate) time_left: Millis,
    /// By how much that may be wrong.
    pub(crate) error: Millis,
}

impl Approach {
    /// Whether the trend varies by less than half of its size: a burst that ends at once does not look like that.
    pub(crate) fn is_steady(&self) -> bool {
        self.error.0 <= self.time_left.0 / 2
    }

    /// Whether there is time for an end that is asked for: with less than a second, whoever goes is killed sooner when the threshold is met.
    pub(crate) fn leaves_time(&self) -> bool {
        self.time_left >= Millis(1_000)
    }
}

/// The hard threshold that will be reached first, among those of memory and task ids that are not met yet.
pub(crate) fn nearest(
    thresholds: &[Threshold],
    observations: &Observations,
    history: &History,
) -> Option<Approach> {
    let approaches = thresholds.iter().filter_map(|threshold| {
        let watched = matches!(threshold.signal, Signal::MemoryAvailable | Signal::PidAvailable);
        if threshold.inert || !watched || threshold.strength() != Strength::Hard {
            return None;
        }
        // With enough of the second signal the threshold is not reached, however fast the first falls.
        if threshold.also.is_some_and(|also| !is_short(also, observations)) {
            return None;
        }
        approach(*threshold, observations, history)
    });
    approaches.min_by_key(|approach| (approach.time_left, approach.threshold.signal))
}

fn is_short(also: AlsoBelow, observations: &Observations) -> bool {
    let seen = observations.get(&also.signal);
    seen.is_some_and(|seen| also.value.resolve(seen.capacity) > Quantity::count(seen.available))
}

fn approach(
    threshold: Threshold,
    observations: &Observations,
    history: &History,
) -> Option<Approach> {
    let seen = observations.get(&threshold.signal)?;
    let trend = history.trends.get(&threshold.signal)?;
    let fall = trend.rate.filter(|rate| *rate < 0)?.unsigned_abs();
    let bound = threshold.value.resolve(seen.capacity).ceil().max(0);
    let left = u128::from(seen.available).checked_sub(bound.unsigned_abs())?;
    let millis = |units: u128| {
        let millis = units.saturating_mul(1000) / u128::from(fall.max(1));
        Millis(u64::try_from(millis).unwrap_or(u64::MAX))
    };
    let time_left = millis(left);
    // Without a second rate to compare with, the trend may be wrong by all of itself and more.
    let error = match trend.deviation {
        Some(deviation) => {
            let error = u128::from(time_left.0) * u128::from(deviation) / u128::from(fall.max(1));
            Millis(u64::try_from(error).unwrap_or(u64::MAX))
        }
        None => Millis(u64::MAX),
    };
    Some(Approach {
        threshold,
        available: seen.available,
        capacity: seen.capacity,
        fall,
        time_left,
        error,
    })
}
