//! Printing: the canonical form, which has no fraction and the largest suffix that keeps every digit.
use super::{Format, NANO, Quantity};
use core::fmt;

/// Names of the powers of 1024, from the first.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Names of the powers of 1000, from 10⁻⁹.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        match self.format {
            Format::BinarySi if self.prints_binary() => binary(self.nanos / NANO, f),
            Format::BinarySi | Format::DecimalSi => {
                let (mantissa, thousands) = decimal(self.nanos);
                write!(f, "{mantissa}{}", DECIMAL[thousands])
            }
            Format::DecimalExponent => {
                let (mantissa, thousands) = decimal(self.nanos);
                match thousands {
                    3 => write!(f, "{mantissa}"),
                    0..3 => write!(f, "{mantissa}e-{}", (3 - thousands) * 3),
                    _ => write!(f, "{mantissa}e{}", (thousands - 3) * 3),
                }
            }
        }
    }
}

impl Quantity {
    /// Values under 1024 and values that are not whole print with decimal suffixes instead.
    const fn prints_binary(self) -> bool {
        self.nanos % NANO == 0 && self.nanos.unsigned_abs() >= 1024 * NANO.unsigned_abs()
    }
}

fn binary(mut value: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut power = 0;
    while power < BINARY.len() && value % 1024 == 0 {
        value /= 1024;
        power += 1;
    }
    match power.checked_sub(1) {
        None => write!(f, "{value}"),
        Some(index) => write!(f, "{value}{}", BINARY[index]),
    }
}

/// The mantissa and the index into [`DECIMAL`] of the largest suffix that keeps every digit.
fn decimal(nanos: i128) -> (i128, usize) {
    let mut value = nanos;
    let mut thousands = 0;
    while thousands + 1 < DECIMAL.len() && value % 1000 == 0 {
        value /= 1000;
        thousands += 1;
    }
    (value, thousands)
}

#[cfg(test)]
mod tests {
    use super::Quantity;
    use alloc::string::ToString;

    #[test]
    fn prints_the_largest_suffix_without_a_fraction() {
        for (text, canonical) in [
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("536870920", "536870920"),
            ("1000", "1k"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("1e3", "1e3"),
            ("12000e3", "12e6"),
            ("1023Ki", "1023Ki"),
            ("0.5Ki", "512"),
            ("-1Gi", "-1Gi"),
            ("0", "0"),
        ] {
            let parsed: Quantity = text.parse().unwrap();
            assert_eq!(parsed.to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn bytes_below_a_kibibyte_print_plainly() {
        assert_eq!(Quantity::bytes(1000).to_string(), "1k");
        assert_eq!(Quantity::bytes(1023).to_string(), "1023");
        assert_eq!(Quantity::bytes(1024).to_string(), "1Ki");
        assert_eq!(Quantity::bytes(536_870_920).to_string(), "536870920");
        assert_eq!(Quantity::count(100_000).to_string(), "100k");
    }
}
