//! Quantities as Kubernetes writes them: `100Mi`, `1.5`, `12e6`.
//!
//! A value is held exactly, as whole billionths, with the kind of suffix that it was written with; it prints in the canonical form of that kind.
//! Parsing is in `parse`, printing in `canonical`.
use core::cmp::Ordering;

mod canonical;
mod parse;

pub use parse::QuantityError;

/// Billionths in one.
const NANO: i128 = 1_000_000_000;

/// The kind of suffix that a quantity was written with and prints with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// Powers of 1024: `Ki`, `Mi`, `Gi`, …
    BinarySi,
    /// Powers of 1000: `m`, `k`, `M`, `G`, …
    DecimalSi,
    /// A decimal exponent: `e6`.
    DecimalExponent,
}

/// An exact number with a preferred way of printing.
///
/// Two quantities are equal when their values are, however they were written.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// Zero bytes.
    pub const ZERO: Quantity = Quantity { nanos: 0, format: Format::BinarySi };

    /// A number of bytes.
    pub const fn bytes(bytes: u64) -> Quantity {
        Quantity { nanos: bytes as i128 * NANO, format: Format::BinarySi }
    }

    /// A number of things that are counted: inodes or processes.
    pub const fn count(count: u64) -> Quantity {
        Quantity { nanos: count as i128 * NANO, format: Format::DecimalSi }
    }

    /// A whole number in either format.
    pub const fn whole(value: i128, format: Format) -> Quantity {
        Quantity { nanos: value.saturating_mul(NANO), format }
    }

    /// The kind of suffix it prints with.
    pub const fn format(self) -> Format {
        self.format
    }

    /// The value rounded up to a whole number, as the kubelet's `Value()` rounds.
    pub const fn ceil(self) -> i128 {
        let whole = self.nanos.div_euclid(NANO);
        if self.nanos.rem_euclid(NANO) == 0 { whole } else { whole + 1 }
    }

    /// The value in billionths.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// Whether the value is zero.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether the value is above zero.
    pub const fn is_positive(self) -> bool {
        self.nanos > 0
    }

    /// Whether the value is below zero.
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The sum, saturating, in this quantity's format; a zero takes over the other's.
    #[must_use]
    pub const fn plus(self, other: Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        Quantity { nanos: self.nanos.saturating_add(other.nanos), format }
    }

    /// The difference, saturating, in this quantity's format.
    #[must_use]
    pub const fn minus(self, other: Quantity) -> Quantity {
        Quantity { nanos: self.nanos.saturating_sub(other.nanos), format: self.format }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

#[cfg(feature = "json")]
mod json {
    //! In JSON a quantity is a string in Kubernetes' syntax, or a whole number of bytes (or of whatever is counted).
    use super::Quantity;
    use alloc::{borrow::Cow, string::ToString};
    use core::fmt;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    impl Serialize for Quantity {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_str(&self.to_string())
        }
    }

    impl<'de> Deserialize<'de> for Quantity {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
            struct Visitor;
            impl de::Visitor<'_> for Visitor {
                type Value = Quantity;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a quantity such as \"100Mi\", or a whole number")
                }

                fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
                    // No quantity in binary notation is larger than a signed number can hold.
                    Ok(Quantity::bytes(value.min(i64::MAX.unsigned_abs())))
                }

                fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity, E> {
                    Ok(Quantity::whole(value.into(), super::Format::BinarySi))
                }

                fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                    text.parse().map_err(|error| E::custom(format_args!("{text:?}: {error}")))
                }
            }
            deserializer.deserialize_any(Visitor)
        }
    }

    impl schemars::JsonSchema for Quantity {
        fn schema_name() -> Cow<'static, str> {
            "Quantity".into()
        }

        fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
            schemars::json_schema!({
                "description": "A Kubernetes quantity such as \"100Mi\", or a whole number, which reads as that many bytes and prints with binary suffixes.",
                "anyOf": [
                    { "type": "string", "pattern": "^[+-]?[0-9]*\\.?[0-9]*([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$" },
                    { "type": "integer" }
                ]
            })
        }
    }
}
