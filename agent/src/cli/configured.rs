//! Arguments that say which configuration: shared by every command that decides.

use super::Failure;
use crate::config::{Config, ConfigErrors, MemoryMeasure, Mode};
use crate::run::{Policy, Reload};
use crate::sense::meminfo::Measure;
use crate::state::rules::Rules;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where the configuration comes from.
#[derive(Clone, Debug, clap::Args)]
#[group(required = false, multiple = false)]
pub(super) struct ConfigArgs {
    /// Configuration file; without one, the defaults for a machine without Kubernetes, or with --cri the kubelet's.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A KubeletConfiguration, read as it is; the fields that ebb does not use are named on standard error.
    #[arg(long, value_name = "FILE")]
    kubelet_config: Option<PathBuf>,
}

impl ConfigArgs {
    /// Reads and checks the configuration; warnings and unused fields go to standard error.
    pub(super) fn load(&self) -> Result<Config, Failure> {
        self.load_for(false)
    }

    /// The same; with pods as the workloads, the defaults are the kubelet's.
    pub(super) fn load_for(&self, pods: bool) -> Result<Config, Failure> {
        let config = self.read(pods).map_err(|errors| Failure::Input(errors.into()))?;
        for warning in config.limits.warnings() {
            eprintln!("ebb: warning: {warning}");
        }
        if !config.unused.is_empty() {
            eprintln!("ebb: not used: {}", config.unused.join(", "));
        }
        Ok(config)
    }

    /// Reads the configuration anew when its file has changed since the last time, or was never looked at.
    ///
    /// A link counts by what it points to, so a mounted ConfigMap that is swapped is seen.
    pub(super) fn watch(&self, pods: bool) -> Reload {
        let args = self.clone();
        let mut last = args.file().and_then(changed_at);
        Box::new(move || {
            let now = args.file().and_then(changed_at);
            if now == last {
                return Ok(None);
            }
            last = now;
            let config = args.read(pods).map_err(|errors| {
                errors.to_string().lines().map(str::to_owned).collect::<Vec<_>>()
            })?;
            policy(&config).map(Some).map_err(|error| vec![error.to_string()])
        })
    }

    /// Whether the operator has named a configuration.
    pub(super) fn is_given(&self) -> bool {
        self.file().is_some()
    }

    fn file(&self) -> Option<&Path> {
        self.kubelet_config.as_deref().or(self.config.as_deref())
    }

    fn read(&self, pods: bool) -> Result<Config, ConfigErrors> {
        match (&self.config, &self.kubelet_config) {
            (_, Some(path)) => Config::load_kubelet(path),
            (Some(path), None) => Config::load(path),
            (None, None) if pods => Config::parse("ebb: {mode: kubernetes}"),
            (None, None) => Ok(Config::standalone_default()),
        }
    }
}

/// What the agent decides by.
///
/// # Errors
/// A pattern that is no glob; a checked configuration has none.
pub(super) fn policy(config: &Config) -> Result<Policy, globset::Error> {
    Ok(Policy {
        limits: config.limits.clone(),
        measure: measure(config),
        rules: Rules::new(&config.patterns)?,
        pods_only: config.mode == Mode::Kubernetes,
        cgroups: config.cgroups.clone(),
        text: config.to_yaml(),
    })
}

/// Beside a kubelet the two must agree on what is available; on its own, ebb believes the kernel.
fn measure(config: &Config) -> Measure {
    match (config.memory_available, config.mode) {
        (MemoryMeasure::WorkingSet, _) | (MemoryMeasure::Auto, Mode::Kubernetes) => {
            Measure::WorkingSet
        }
        (MemoryMeasure::MemAvailable, _) | (MemoryMeasure::Auto, Mode::Standalone) => {
            Measure::MemAvailable
        }
    }
}

fn changed_at(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}
