//! Units of time, as types: a moment, a length in milliseconds and a grace period in seconds.
//! Sizes in bytes and counts are plain `u64`, named by the field that holds them.
use core::fmt;

/// A moment: milliseconds since the Unix epoch on a scale that never steps back.
///
/// The agent anchors its monotonic clock to the epoch once at start, so that two moments of one run can always be subtracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(transparent)
)]
pub struct Time(pub u64);

impl Time {
    /// How long ago `earlier` was; zero when it lies in the future.
    pub const fn since(self, earlier: Time) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }

    /// The moment `by` later, at most the end of the scale.
    pub const fn plus(self, by: Millis) -> Time {
        Time(self.0.saturating_add(by.0))
    }

    /// The moment `by` earlier, at least the epoch.
    pub const fn minus(self, by: Millis) -> Time {
        Time(self.0.saturating_sub(by.0))
    }
}

/// A length of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(transparent)
)]
pub struct Millis(pub u64);

impl Millis {
    /// `seconds` as milliseconds, saturating.
    pub const fn from_secs(seconds: u64) -> Millis {
        Millis(seconds.saturating_mul(1000))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        if rest == 0 { write!(f, "{whole}s") } else { write!(f, "{whole}.{rest:03}s") }
    }
}

/// A length of time in whole seconds, as Kubernetes counts grace periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(transparent)
)]
pub struct Secs(pub u64);
