//! What is wrong with a configuration: which key, which value, why, and what would be right.
use alloc::string::String;
use core::fmt;

/// One mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigError {
    /// Path of the key, such as `evictionHard["memory.available"]`.
    pub key: String,
    /// The value as written; absent when a key is missing.
    pub value: Option<String>,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub fix: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigError { key, value, problem, fix } = self;
        f.write_str(key)?;
        if let Some(value) = value {
            write!(f, " = {value:?}")?;
        }
        write!(f, ": {problem}; {fix}")
    }
}

impl core::error::Error for ConfigError {}
