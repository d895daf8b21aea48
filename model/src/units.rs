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

/// A part of time in hundredths of a percent, 0 to 10000: how the kernel tells pressure (`avg10=72.31`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(transparent)
)]
pub struct StallShare(pub u32);

impl StallShare {
    /// A number of percent with at most two decimals, such as `72.31`; `None` for any other text.
    pub fn parse(text: &str) -> Option<StallShare> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 2 {
            return None;
        }
        let tens = if fraction.len() == 1 { 10 } else { 1 };
        let hundredths = fraction.parse::<u32>().ok()?.checked_mul(tens)?;
        let whole = whole.parse::<u32>().ok()?;
        Some(StallShare(whole.checked_mul(100)?.checked_add(hundredths)?))
    }
}

impl fmt::Display for StallShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 100, self.0 % 100);
        if rest == 0 { write!(f, "{whole}%") } else { write!(f, "{whole}.{rest:02}%") }
    }
}

#[cfg(test)]
mod tests {
    use super::StallShare;
    use alloc::string::ToString as _;

    #[test]
    fn a_stall_share_is_read_as_the_kernel_writes_it_and_shown_as_a_percentage() {
        for (text, share, shown) in [
            ("72.31", 7231, "72.31%"),
            ("0.00", 0, "0%"),
            ("60", 6000, "60%"),
            ("7.5", 750, "7.50%"),
        ] {
            assert_eq!(StallShare::parse(text), Some(StallShare(share)), "{text}");
            assert_eq!(StallShare(share).to_string(), shown);
        }
        for text in ["", "-1", "1.", ".5", "1.234", "60%", "1e2", "99999999999"] {
            assert_eq!(StallShare::parse(text), None, "{text}");
        }
    }
}
