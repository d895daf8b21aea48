//! Durations as Go writes them: `5m`, `1h30m`, `300ms`, `-1.5h`.
use core::fmt;

/// A text that is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationError;

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a duration")
    }
}

impl core::error::Error for DurationError {}

/// Units of a duration and their length in nanoseconds, the longer spelling of a prefix first.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The duration in nanoseconds, within the range that Go can hold.
pub fn parse_nanos(text: &str) -> Result<i64, DurationError> {
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(DurationError);
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (part, after) = one_part(rest)?;
        total = total.checked_add(part).ok_or(DurationError)?;
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| DurationError)
}

/// One number with its unit, and what follows.
fn one_part(text: &str) -> Result<(i128, &str), DurationError> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(DurationError);
    }
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, after) = rest.split_at(end);
    let (_, length) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(DurationError)?;
    let whole = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| DurationError)? };
    let mut nanos = length.checked_mul(whole).ok_or(DurationError)?;
    let mut place = *length;
    for digit in fraction.bytes() {
        place /= 10;
        nanos += place * i128::from(digit - b'0');
    }
    Ok((nanos, after))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

#[cfg(test)]
mod tests {
    use super::{DurationError, parse_nanos};

    #[test]
    fn reads_what_go_reads() {
        for (text, nanos) in [
            ("5m", 300_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("300ms", 300_000_000),
            ("-1.5h", -5_400_000_000_000),
            ("0", 0),
            ("+0", 0),
            ("0s", 0),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1\u{b5}s", 1_000),
        ] {
            assert_eq!(parse_nanos(text), Ok(nanos), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in ["", "-", "5", "30mins", "1d", ".s", "1 s", "9999999h", "s", "1h-5m"] {
            assert_eq!(parse_nanos(text), Err(DurationError), "{text}");
        }
    }
}
