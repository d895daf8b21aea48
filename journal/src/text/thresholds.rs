//! Thresholds in force, as they would be written.

use crate::threshold::InForce;
use ebb_policy::Signal;
use ebb_policy::limits::MemoryPressure;
use ebb_policy::plan::{Strength, ThresholdStatus};
use std::fmt;

impl fmt::Display for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolved(status) => resolved(status, f),
            Self::Configured(threshold) => {
                let strength = strength(threshold.strength());
                write!(f, "{} < {} ({strength})", threshold.signal, threshold.written())
            }
            Self::MemoryPressure(MemoryPressure { cgroup, limit, duration }) => {
                write!(f, "memory pressure of {cgroup}: full avg10 > {limit} for {duration}")
            }
        }
    }
}

fn resolved(status: &ThresholdStatus, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (signal, strength) = (status.signal, strength(status.strength));
    match &status.threshold {
        Some(threshold) => {
            write!(f, "{signal} < {threshold}")?;
            if let Some(also) = &status.also_below {
                let bound = also.threshold.as_ref().map_or("?".to_owned(), ToString::to_string);
                write!(f, " while {} < {bound}", also.signal)?;
            }
            write!(f, " ({strength})")
        }
        None if signal == Signal::SwapAvailable => {
            write!(f, "{signal} ({strength}) not observed: there is no swap, so it is never met")
        }
        None => write!(f, "{signal} ({strength}) not observed"),
    }
}

fn strength(strength: Strength) -> &'static str {
    match strength {
        Strength::Hard => "hard",
        Strength::Soft => "soft",
    }
}
