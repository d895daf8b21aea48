//! Percentages as the kubelet reads them: what Go's `strconv.ParseFloat` reads as a number in single precision, then `%`.
//!
//! Beyond Rust's own decimal numbers that is underscores between digits (`1_0.5`) and hexadecimal numbers with a binary exponent (`0x1p3`, which is 8).
//! `Inf` and `NaN`, which Go reads too, are no percentages here: a threshold of such a value could never be met.
use alloc::string::String;

/// The number before the percent signs; `None` when it is none, or beyond single precision.
pub(super) fn parse(text: &str) -> Option<f32> {
    let number = text.trim_end_matches('%');
    let (is_negative, unsigned) = signed(number)?;
    let hex = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X"));
    if !underscores_separate_digits(unsigned, hex.is_some()) {
        return None;
    }
    let value = match hex {
        Some(hex) => hexadecimal(hex)?,
        None => decimal(unsigned)?,
    };
    Some(if is_negative { -value } else { value })
}

/// Whether there is a minus, and what follows the sign.
fn signed(text: &str) -> Option<(bool, &str)> {
    Some(match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    })
}

/// Whether each underscore stands between two digits, or between `0x` and a digit.
fn underscores_separate_digits(text: &str, is_hex: bool) -> bool {
    let bytes = text.as_bytes();
    let is_digit = |place: usize| {
        bytes.get(place).is_some_and(|byte| match byte {
            b'0'..=b'9' => true,
            // The prefix counts as a digit before an underscore.
            b'x' | b'X' => is_hex && place == 1,
            byte => is_hex && byte.is_ascii_hexdigit(),
        })
    };
    let underscores = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_');
    let mut places = underscores.map(|(place, _)| place);
    places.all(|place| place > 0 && is_digit(place - 1) && is_digit(place + 1))
}

fn decimal(text: &str) -> Option<f32> {
    // Beyond Go's decimal numbers Rust reads only words, and here a second sign.
    let is_word = |byte: u8| byte.is_ascii_alphabetic() && !matches!(byte, b'e' | b'E');
    if text.starts_with(['-', '+']) || text.bytes().any(is_word) {
        return None;
    }
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    digits.parse().ok().filter(|value: &f32| value.is_finite())
}

/// Hexadecimal digits with at most one point, then `p` and a decimal exponent of two.
fn hexadecimal(text: &str) -> Option<f32> {
    let (digits, exponent) = text.split_once(['p', 'P'])?;
    let (mut mantissa, mut power, mut is_inexact) = (0_u64, 0_i64, false);
    let (mut has_digits, mut has_point) = (false, false);
    for c in digits.chars().filter(|c| *c != '_') {
        if c == '.' && !has_point {
            has_point = true;
            continue;
        }
        let digit = c.to_digit(16)?;
        has_digits = true;
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | u64::from(digit);
            power -= if has_point { 4 } else { 0 };
        } else {
            is_inexact |= digit != 0;
            power += if has_point { 0 } else { 4 };
        }
    }
    let (is_negative, exponent) = signed(exponent)?;
    if !has_digits || exponent.is_empty() {
        return None;
    }
    let mut by = 0_i64;
    for c in exponent.chars().filter(|c| *c != '_') {
        by = by.saturating_mul(10).saturating_add(c.to_digit(10)?.into());
    }
    rounded(mantissa, power.saturating_add(if is_negative { -by } else { by }), is_inexact)
}

/// `mantissa × 2^power` in single precision, to the nearest, ties to even; `None` when it is beyond. `is_inexact` says that a little more was dropped.
fn rounded(mantissa: u64, power: i64, is_inexact: bool) -> Option<f32> {
    /// Bits of a mantissa, and the power of the last bit of the smallest numbers.
    const BITS: i64 = 24;
    const LEAST: i64 = -149;
    if mantissa == 0 {
        return Some(0.0);
    }
    let length = i64::from(64 - mantissa.leading_zeros());
    if power.saturating_add(length) > 128 {
        return None;
    }
    // So many bits fall off at the end; negative where there is room for more.
    let off = (length - BITS).max(LEAST.saturating_sub(power));
    if off > 64 {
        return Some(0.0);
    }
    let mut power = power.saturating_add(off);
    let mut kept = match u32::try_from(off) {
        Err(_) => mantissa << off.unsigned_abs().min(63),
        Ok(off) => {
            let wide = u128::from(mantissa);
            let (kept, rest, half) = (wide >> off, wide & ((1 << off) - 1), (1_u128 << off) / 2);
            let up = off > 0 && (rest > half || rest == half && (is_inexact || kept & 1 == 1));
            u64::try_from(kept).ok()? + u64::from(up)
        }
    };
    if kept == 1 << BITS {
        (kept, power) = (kept >> 1, power + 1);
    }
    let is_normal = kept >> (BITS - 1) == 1;
    let biased = if is_normal { u32::try_from(power + 150).ok()? } else { 0 };
    let value = f32::from_bits(biased << 23 | u32::try_from(kept).ok()? & 0x007f_ffff);
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn reads_what_go_reads_in_single_precision() {
        for (text, value) in [
            ("5%", 5.0),
            ("5%%", 5.0),
            ("5", 5.0),
            ("+5%", 5.0),
            ("-5%", -5.0),
            (".5%", 0.5),
            ("5.%", 5.0),
            ("1e1%", 10.0),
            ("1E+1%", 10.0),
            ("0.1%", 0.1_f32),
            ("1_0.2_5%", 10.25),
            ("0x1p3%", 8.0),
            ("0X1P3%", 8.0),
            ("0x1p-1%", 0.5),
            ("0x.8p1%", 1.0),
            ("0xA.p+0%", 10.0),
            ("-0x1p3%", -8.0),
            ("0x_1_0p0_1%", 32.0),
            // Halves go to the even neighbour, a little more than a half goes up.
            ("0x1000001p0%", 16_777_216.0),
            ("0x1000003p0%", 16_777_220.0),
            ("0x1000001.0000000000000001p0%", 16_777_218.0),
            ("0x1.fffffep127%", f32::MAX),
            ("0x1p-149%", f32::from_bits(1)),
            ("0x1p-150%", 0.0),
            ("0x1.8p-150%", f32::from_bits(1)),
            ("0x1p-126%", f32::MIN_POSITIVE),
            ("0x0p99999%", 0.0),
            ("0x1p-999999999999999999999%", 0.0),
        ] {
            assert_eq!(parse(text), Some(value), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses_and_what_is_no_number() {
        let shapes = ["", "%", "-%", "abc%", "1 %", " 1%", "1%0%", "--1%", "+-1%", "1f%", "1p3%"];
        let hexadecimal = ["0x1%", "0x%", "0xp3%", "0x1p%", "0x1p+%", "0x1.2.3p1%", "0xg.p1%"];
        let underscores =
            ["_1%", "1_%", "1__0%", "1_.5%", "1._5%", "1_e5%", "1e_5%", "0x1_p3%", "0x1p_3%"];
        let beyond = ["0_x1p3%", "1e400%", "0x1p128%", "0x1.ffffffp127%"];
        let words = ["NaN%", "Inf%", "-inf%", "infinity%", "\u{661}%"];
        let all = shapes.iter().chain(&hexadecimal).chain(&underscores);
        for text in all.chain(&beyond).chain(&words) {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
