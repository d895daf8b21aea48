//! `ebb run` as a process of this host, optimised as users have it: for what it costs.
use crate::children::Child;
use crate::collector::optimised;
use anyhow::{Result, ensure};
use std::path::Path;
use std::time::Duration;

/// An agent that runs.
#[derive(Debug)]
pub struct NodeAgent(Child);

impl NodeAgent {
    /// Starts `ebb run` with these arguments; what it writes is kept in `dir`.
    ///
    /// # Errors
    /// When ebb cannot be built or started.
    pub fn start(arguments: &[String], dir: &Path) -> Result<Self> {
        let arguments = [&["run".to_owned(), "--output=json".to_owned()], arguments].concat();
        Child::start("ebb-run", optimised()?, &arguments, dir).map(Self)
    }

    /// Waits until its output has a line with all of these words.
    ///
    /// # Errors
    /// When it has ended, or has not said so in time.
    pub fn says(&mut self, patience: Duration, words: &[&str]) -> Result<()> {
        self.0.says(patience, words)
    }

    /// What it has resident, in bytes.
    ///
    /// # Errors
    /// When it has ended.
    pub fn resident(&self) -> Result<u64> {
        self.0.resident()
    }

    /// The processor time that it has used so far, in seconds.
    ///
    /// # Errors
    /// When it has ended.
    pub fn processor_time(&self) -> Result<f64> {
        self.0.processor_time()
    }

    /// Asks it to end.
    ///
    /// # Errors
    /// When it does not end in time, or not well.
    pub fn end(mut self) -> Result<()> {
        let status = self.0.end()?;
        ensure!(status.success(), "ebb run ended with {status}: {}", self.0.last_words());
        Ok(())
    }
}
