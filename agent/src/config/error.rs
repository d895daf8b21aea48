//! What is wrong with a configuration file: every mistake at once, each with its place.
use ebb_policy::limits::ConfigError;
use std::{fmt, path::PathBuf};

/// One mistake and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// Line in the file, from 1; absent when what is wrong is not there.
    pub line: Option<u64>,
    /// What is wrong.
    pub error: ConfigError,
}

/// Everything that is wrong with a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The file, if it came from one.
    pub file: Option<PathBuf>,
    /// The mistakes, in the order of the file; never empty.
    pub mistakes: Vec<Mistake>,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Mistake { line, error }) in self.mistakes.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            match &self.file {
                Some(file) => write!(f, "{}", file.display())?,
                None => f.write_str("configuration")?,
            }
            if let Some(line) = line {
                write!(f, ":{line}")?;
            }
            write!(f, ": {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
