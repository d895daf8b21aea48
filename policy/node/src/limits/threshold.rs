//! A threshold: when less than its value is left of a signal, it is met.
use crate::{Millis, Quantity, Signal, history::ThresholdId, plan::Strength};
use alloc::{
    format,
    string::{String, ToString},
};
use ebb_model::quantity::Format;

/// How much of a signal: an amount, or a share of the capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThresholdValue {
    /// An amount.
    Amount(Quantity),
    /// A share of the capacity, 0 to 1, in the single precision that the kubelet computes with.
    Share {
        /// The share.
        share: f32,
        /// An upper bound of the result.
        at_most: Option<Quantity>,
    },
}

impl ThresholdValue {
    /// The amount, given the capacity of the signal.
    ///
    /// A share of an unknown capacity is zero, so that a threshold nobody can evaluate is never met.
    pub fn resolve(self, capacity: Option<u64>) -> Quantity {
        match self {
            ThresholdValue::Amount(amount) => amount,
            ThresholdValue::Share { share, at_most } => {
                let capacity = i64::try_from(capacity.unwrap_or(0)).unwrap_or(i64::MAX);
                // Single precision widened to double, then truncated: the kubelet's arithmetic, whose results differ from exact ones.
                let amount = (capacity as f64 * f64::from(share)) as i64;
                let amount = Quantity::whole(amount.into(), Format::BinarySi);
                at_most.map_or(amount, |bound| amount.min(bound))
            }
        }
    }
}

/// A threshold on a signal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// Its signal.
    pub signal: Signal,
    /// Which list it was configured in.
    pub list: Strength,
    /// What must be left for it not to be met.
    pub value: ThresholdValue,
    /// How long it must be met before it acts.
    pub grace: Millis,
    /// What must be reclaimed beyond its value once it was met.
    pub min_reclaim: Option<ThresholdValue>,
    /// Another signal that must be below a value of its own too.
    pub also: Option<AlsoBelow>,
    /// Never met: derived from a threshold that does not exist.
    pub inert: bool,
}

/// The second condition of a threshold on two signals, such as memory and swap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlsoBelow {
    /// The other signal.
    pub signal: Signal,
    /// What must be left of it for the threshold not to be met.
    pub value: ThresholdValue,
}

impl Threshold {
    /// How it acts: one without a grace period acts at once, whichever list it was configured in.
    pub fn strength(&self) -> Strength {
        if self.grace.0 == 0 { Strength::Hard } else { Strength::Soft }
    }

    /// Whether less than its value (with the minimum reclaim on top, if asked for) is left.
    pub fn is_met(&self, available: u64, capacity: Option<u64>, with_min_reclaim: bool) -> bool {
        let bound =
            if with_min_reclaim { self.goal(capacity) } else { self.value.resolve(capacity) };
        !self.inert && bound > Quantity::count(available)
    }

    /// The signal by which candidates are ranked: where memory counts as short only together with swap, what is swapped out is used as well.
    pub fn ranked_by(&self) -> Signal {
        match (self.signal, self.also) {
            (Signal::MemoryAvailable, Some(AlsoBelow { signal: Signal::SwapAvailable, .. })) => {
                Signal::MemoryWithSwapAvailable
            }
            (signal, _) => signal,
        }
    }

    /// What must be left for it to be resolved once it was met.
    pub fn goal(&self, capacity: Option<u64>) -> Quantity {
        let value = self.value.resolve(capacity);
        self.min_reclaim.map_or(value, |extra| value.plus(extra.resolve(capacity)))
    }

    /// Its value as somebody would write it: a share is kept in single precision, and shown without what that adds.
    pub fn written(&self) -> String {
        match self.value {
            ThresholdValue::Amount(amount) => amount.to_string(),
            ThresholdValue::Share { share, .. } => {
                let percent = f64::from(share) * 100.0;
                let text = format!("{percent:.5}");
                let text = text.trim_end_matches('0').trim_end_matches('.');
                if text == "0" { format!("{percent}%") } else { format!("{text}%") }
            }
        }
    }

    /// What makes it the same threshold in the next pass.
    pub fn id(&self) -> ThresholdId {
        let value = match self.value {
            ThresholdValue::Amount(amount) => amount.to_string(),
            ThresholdValue::Share { share, .. } => format!("{}%", share * 100.0),
        };
        ThresholdId { signal: self.signal, strength: self.list, value, grace: self.grace }
    }
}
