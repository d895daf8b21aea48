//! A value that JSON carries as words: typed where it was made, the words alone where a record is read back.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Something typed whose place in JSON holds what it says to people.
#[derive(Clone, Debug)]
pub enum Worded<T> {
    /// As it was made.
    Typed(T),
    /// As it was read back.
    Read(String),
}

impl<T> Worded<T> {
    /// What it is; `None` of a record that was read back.
    #[must_use]
    pub fn typed(&self) -> Option<&T> {
        match self {
            Self::Typed(value) => Some(value),
            Self::Read(_) => None,
        }
    }
}

impl<T> From<T> for Worded<T> {
    fn from(value: T) -> Self {
        Self::Typed(value)
    }
}

impl<T: fmt::Display> fmt::Display for Worded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Typed(value) => value.fmt(f),
            Self::Read(words) => f.write_str(words),
        }
    }
}

/// Two that say the same are the same.
impl<T: fmt::Display> PartialEq for Worded<T> {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl<T: fmt::Display> Serialize for Worded<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de, T> Deserialize<'de> for Worded<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self::Read)
    }
}
