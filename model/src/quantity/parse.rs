//! Parsing: Kubernetes' grammar, with its two habits that a stricter reader would not share.
//!
//! Digits may be missing altogether (`Ki` is zero), and what is finer than a billionth is rounded away from zero.
use super::{Format, NANO, Quantity};
use core::{fmt, str::FromStr};

/// Significant digits from which on a fraction only matters as "not zero".
const DIGITS: u32 = 20;

/// Why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// Not a number followed by a suffix.
    Shape,
    /// The suffix is not one that Kubernetes knows.
    Suffix,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuantityError::Shape => "not a number followed by a suffix",
            QuantityError::Suffix => {
                "unknown suffix; use Ki, Mi, Gi, Ti, Pi, Ei, or n, u, m, k, M, G, T, P, E, or an exponent such as e6"
            }
        })
    }
}

impl core::error::Error for QuantityError {}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Quantity, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Shape);
        }
        let (negative, unsigned) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        check_shape(suffix)?;
        let scale = Scale::of(suffix)?;
        let magnitude = scale.apply(Digits::of(whole, fraction));
        let format = scale.format(magnitude);
        Ok(Quantity { nanos: if negative { -magnitude } else { magnitude }, format })
    }
}

/// Leading digits, and what follows them.
fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(end)
}

/// A suffix is letters, then at most one sign, then digits.
fn check_shape(suffix: &str) -> Result<(), QuantityError> {
    let rest = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    if rest.bytes().all(|byte| byte.is_ascii_digit()) { Ok(()) } else { Err(QuantityError::Shape) }
}

/// A number as `mantissa × 10^(beyond - places)`, and whether non-zero digits were dropped behind it.
struct Digits {
    mantissa: i128,
    /// Digits of the fraction that are part of the mantissa.
    places: u32,
    /// Digits before the point that the mantissa has no room for.
    beyond: u32,
    dropped: bool,
}

impl Digits {
    fn of(whole: &str, fraction: &str) -> Digits {
        let mut digits = Digits { mantissa: 0, places: 0, beyond: 0, dropped: false };
        let mut kept = 0;
        for digit in whole.trim_start_matches('0').bytes() {
            if digits.beyond > 0 || !digits.push(digit) {
                digits.beyond = digits.beyond.saturating_add(1);
                digits.dropped |= digit != b'0';
            }
            kept += 1;
        }
        for digit in fraction.bytes() {
            if kept < DIGITS && digits.places < DIGITS && digits.push(digit) {
                digits.places += 1;
                kept += u32::from(digits.mantissa != 0);
            } else {
                digits.dropped |= digit != b'0';
            }
        }
        digits
    }

    /// Puts a digit behind the mantissa, if there is room.
    fn push(&mut self, digit: u8) -> bool {
        let longer = self.mantissa.checked_mul(10);
        match longer.and_then(|longer| longer.checked_add((digit - b'0').into())) {
            Some(longer) => self.mantissa = longer,
            None => return false,
        }
        true
    }
}

/// What a suffix multiplies by.
enum Scale {
    Binary(u32),
    Decimal(i64, Format),
}

impl Scale {
    fn of(suffix: &str) -> Result<Scale, QuantityError> {
        Ok(match suffix {
            "Ki" => Scale::Binary(10),
            "Mi" => Scale::Binary(20),
            "Gi" => Scale::Binary(30),
            "Ti" => Scale::Binary(40),
            "Pi" => Scale::Binary(50),
            "Ei" => Scale::Binary(60),
            "n" => Scale::Decimal(-9, Format::DecimalSi),
            "u" => Scale::Decimal(-6, Format::DecimalSi),
            "m" => Scale::Decimal(-3, Format::DecimalSi),
            "" => Scale::Decimal(0, Format::DecimalSi),
            "k" => Scale::Decimal(3, Format::DecimalSi),
            "M" => Scale::Decimal(6, Format::DecimalSi),
            "G" => Scale::Decimal(9, Format::DecimalSi),
            "T" => Scale::Decimal(12, Format::DecimalSi),
            "P" => Scale::Decimal(15, Format::DecimalSi),
            "E" => Scale::Decimal(18, Format::DecimalSi),
            exponent => {
                let digits = exponent.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
                let power = digits.parse::<i64>().map_err(|_| QuantityError::Suffix)?;
                Scale::Decimal(power, Format::DecimalExponent)
            }
        })
    }

    /// Billionths, rounded up, saturating; binary suffixes stop at the largest signed 64-bit number.
    fn apply(&self, digits: Digits) -> i128 {
        let Digits { mantissa, places, beyond, dropped } = digits;
        let power = i64::from(beyond) - i64::from(places) + 9;
        let nanos = match *self {
            Scale::Binary(bits) => shift(mantissa.saturating_mul(1 << bits), power, dropped),
            Scale::Decimal(exponent, _) => shift(mantissa, power.saturating_add(exponent), dropped),
        };
        match self {
            Scale::Binary(_) => nanos.min(i128::from(i64::MAX) * NANO),
            Scale::Decimal(..) => nanos,
        }
    }

    /// A binary quantity between zero and one prints with decimal suffixes.
    fn format(&self, magnitude: i128) -> Format {
        match *self {
            Scale::Binary(_) if magnitude > 0 && magnitude < NANO => Format::DecimalSi,
            Scale::Binary(_) => Format::BinarySi,
            Scale::Decimal(_, format) => format,
        }
    }
}

/// `mantissa × 10^power`, rounded up, saturating.
fn shift(mantissa: i128, power: i64, dropped: bool) -> i128 {
    if mantissa == 0 {
        return i128::from(dropped);
    }
    let Ok(size) = u32::try_from(power.unsigned_abs()) else {
        return if power > 0 { i128::MAX } else { 1 };
    };
    match (10_i128.checked_pow(size), power >= 0) {
        (Some(factor), true) => mantissa.saturating_mul(factor),
        (None, true) => i128::MAX,
        (Some(divisor), false) => {
            let exact = mantissa % divisor == 0 && !dropped;
            mantissa / divisor + i128::from(!exact)
        }
        (None, false) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::{Quantity, QuantityError};
    use alloc::string::ToString;

    fn nanos(text: &str) -> Result<i128, QuantityError> {
        text.parse::<Quantity>().map(Quantity::nanos)
    }

    #[test]
    fn reads_every_kind_of_suffix() {
        let one = 1_000_000_000;
        for (text, value) in [
            ("100Mi", 104_857_600 * one),
            ("1.5Gi", 1_610_612_736 * one),
            (".5", one / 2),
            ("5.", 5 * one),
            ("+1k", 1000 * one),
            ("-3", -3 * one),
            ("250m", one / 4),
            ("1E3", 1000 * one),
            ("1E", 1_000_000_000_000_000_000 * one),
            ("1e-3", one / 1000),
            ("Ki", 0),
            ("00012", 12 * one),
        ] {
            assert_eq!(nanos(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn rounds_what_is_too_fine_up_and_caps_what_is_too_large() {
        assert_eq!(nanos("0.1n"), Ok(1));
        assert_eq!(nanos("1.0000000000000000000000000000001"), Ok(1_000_000_001));
        assert_eq!(nanos("100Ei"), Ok(i128::from(i64::MAX) * 1_000_000_000));
        assert_eq!(nanos("1e400"), Ok(i128::MAX));
        assert_eq!(nanos("99999999999999999999999999999999999999999999"), Ok(i128::MAX));
    }

    #[test]
    fn numbers_longer_than_any_unit_needs_keep_their_digits() {
        let long: Quantity = ".55Ei".parse().unwrap();
        assert_eq!(long.to_string(), "634106827533765836800m");
        assert_eq!("634106827533765836800m".parse(), Ok(long));
        assert_eq!(nanos("1000000000000000000000000000000000000000000e-42"), Ok(1_000_000_000));
    }

    #[test]
    fn refuses_what_kubernetes_refuses() {
        for (text, error) in [
            ("", QuantityError::Shape),
            ("10 Mi", QuantityError::Shape),
            ("abc", QuantityError::Shape),
            ("1.2.3", QuantityError::Shape),
            ("10MB", QuantityError::Shape),
            ("10ki", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("1Mi5", QuantityError::Suffix),
        ] {
            assert_eq!(nanos(text), Err(error), "{text}");
        }
    }
}
