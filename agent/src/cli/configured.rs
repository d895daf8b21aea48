//! Arguments that say which configuration: shared by every command that decides.

use super::Failure;
use crate::run::{Policy, Reload};
use crate::sense::meminfo::Measure;
use crate::state::rules::{Patterns, Rules};
use anyhow::anyhow;
use ebb_policy::Limits;
use ebb_policy::limits::{Options, RawEviction};
use std::path::PathBuf;

/// Where the configuration comes from.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ConfigArgs {
    /// Configuration file; without one, the defaults for a machine without Kubernetes.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArgs {
    pub(super) fn load(&self) -> Result<Policy, Failure> {
        let hard = [("memory.available", "100Mi"), ("pid.available", "5%")];
        let raw = RawEviction {
            eviction_hard: Some(
                hard.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect(),
            ),
            options: Some(Options::standalone()),
            ..RawEviction::default()
        };
        let limits = Limits::new(&raw).map_err(|e| Failure::Input(anyhow!("{e:?}")))?;
        let rules = Rules::new(&Patterns::default()).map_err(|e| Failure::Input(e.into()))?;
        Ok(Policy { limits, measure: Measure::MemAvailable, rules, text: String::new() })
    }

    pub(super) fn watch(&self) -> Reload {
        Box::new(|| Ok(None))
    }
}
