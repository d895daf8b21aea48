//! Arguments that say which configuration: shared by every command that decides.

use super::node::NodeArgs;
use super::{Failure, warn};
use anyhow::anyhow;
use ebb_agent::config::{Config, ConfigErrors, Kubelet, MemoryMeasure, Mode, Reader, placed};
use ebb_agent::run::{Policy, Reload};
use ebb_agent::sense::meminfo::Measure;
use ebb_agent::state::rules::Rules;
use ebb_policy::limits::ConfigError;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Between two looks at whether the configuration has changed.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What speaks against obeying a configuration.
pub(super) type Objections = Box<dyn Fn(&Config) -> Vec<ConfigError> + Send>;

/// Where the configuration comes from.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ConfigArgs {
    /// Configuration file; without one, the defaults for a machine without Kubernetes, or with --cri the kubelet's.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A KubeletConfiguration. Without --config ebb itself decides by it: it is read as it is, and the fields that ebb does not use are named on standard error. Beside --config, with --kubernetes, it tells the thresholds of the kubelet, which ebb's are held against.
    #[arg(long, value_name = "FILE")]
    kubelet_config: Option<PathBuf>,
    /// The node whose kubelet ebb runs beside: an API server tells of owners and budgets, and thresholds are held against the kubelet's.
    #[arg(skip)]
    beside: Option<NodeArgs>,
}

impl ConfigArgs {
    /// The same for a command that says otherwise what its configuration is for.
    pub(super) fn of(config: Option<PathBuf>, kubelet_config: Option<PathBuf>) -> Self {
        Self { config, kubelet_config, beside: None }
    }

    /// The same for an agent that runs beside the kubelet of this node, connected to its API server.
    pub(super) fn beside_kubelet(self, node: &NodeArgs) -> Self {
        Self { beside: Some(node.clone()), ..self }
    }

    /// Reads and checks the configuration; warnings and unused fields go to standard error.
    pub(super) fn load(&self) -> Result<Config, Failure> {
        self.load_for(false)
    }

    /// The same; with pods as the workloads, the defaults are the kubelet's.
    pub(super) fn load_for(&self, pods: bool) -> Result<Config, Failure> {
        if self.config.is_some() && self.kubelet_config.is_some() && self.beside.is_none() {
            return Err(Failure::Input(anyhow!(
                "--kubelet-config beside --config: only `ebb run`, `ebb check` and `ebb explain` with --kubernetes hold the two against each other; give one of them"
            )));
        }
        let config = self.peek(pods)?;
        for warning in config.limits.warnings() {
            warn("warning", &warning.to_string());
        }
        for slip in &config.slips {
            let file = self.file().map(|file| format!("{}:", file.display()));
            warn("warning", &format!("{}{slip}", file.unwrap_or_default()));
        }
        if !config.unused.is_empty() {
            warn("not used", &config.unused.join(", "));
        }
        Ok(config)
    }

    /// The same, and nothing is said: for whoever loads it in a moment.
    pub(super) fn peek(&self, pods: bool) -> Result<Config, Failure> {
        self.read(pods).map_err(|errors| Failure::Input(errors.into()))
    }

    /// Reads the configuration anew when its file has changed since the last time, or was never looked at.
    ///
    /// A link counts by what it points to, so a mounted ConfigMap that is swapped is seen.
    /// A change that nobody has asked to be read is read once two looks have seen the same: half of a file that is being written is no configuration.
    /// Beside a kubelet, a change of the kubelet's file is one too.
    /// One that was refused is read again when that is asked for, changed or not; `objections` says what speaks against a new one here.
    pub(super) fn watch(&self, pods: bool, objections: Objections) -> Reload {
        let args = self.clone();
        let mut last = args.seen();
        let mut before = last.clone();
        let mut was_refused = false;
        let read = move |asked: bool| {
            let now = args.seen();
            let is_settled = std::mem::replace(&mut before, now.clone()) == now;
            if now == last && !(asked && was_refused) || !(asked || is_settled) {
                return Ok(None);
            }
            last = now;
            let read = args.read(pods).and_then(|config| match objections(&config) {
                errors if errors.is_empty() => Ok(config),
                errors => Err(placed(args.file(), errors)),
            });
            was_refused = read.is_err();
            let config = read.map_err(|errors| {
                errors.to_string().lines().map(str::to_owned).collect::<Vec<_>>()
            })?;
            policy(&config).map(Some).map_err(|error| vec![error.to_string()])
        };
        let has_file = self.file().is_some() || self.beside.is_some();
        Reload { every: has_file.then_some(LOOK_EVERY), read: Box::new(read) }
    }

    /// Whether the operator has named a configuration.
    pub(super) fn is_given(&self) -> bool {
        self.file().is_some()
    }

    /// The file that was named, by which ebb decides.
    pub(super) fn file(&self) -> Option<&Path> {
        self.config.as_deref().or(self.kubelet_config.as_deref())
    }

    /// The file of the kubelet beside ebb: the one that was named, else where kubeadm has it.
    fn kubelets_file(&self) -> Option<PathBuf> {
        let node = self.beside.as_ref()?;
        Some(self.kubelet_config.clone().unwrap_or_else(|| node.kubelet_config()))
    }

    /// What is there to be read now: the file by which ebb decides, and the kubelet's.
    fn seen(&self) -> [Option<Seen>; 2] {
        [self.file().and_then(Seen::now), self.kubelets_file().as_deref().and_then(Seen::now)]
    }

    fn read(&self, pods: bool) -> Result<Config, ConfigErrors> {
        let reader = Reader { has_api_server: self.beside.is_some() };
        let config = match (&self.config, &self.kubelet_config) {
            (Some(path), _) => reader.load(path),
            (None, Some(path)) => reader.load_kubelet(path),
            (None, None) if pods || self.beside.is_some() => {
                reader.parse("ebb: {mode: kubernetes}")
            }
            (None, None) => Ok(Config::standalone_default()),
        }?;
        let (Some(node), Some(file)) = (&self.beside, self.kubelets_file()) else {
            return Ok(config);
        };
        let capacities = node.capacities();
        let kubelet = Kubelet::load(&file);
        // A KubeletConfiguration by which ebb itself decides is meant as it is.
        let is_own = self.config.is_some() || self.kubelet_config.is_none();
        let config = if is_own { config.above(&kubelet, &capacities) } else { config };
        Ok(config.held_against(&kubelet, &capacities))
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
        contract: config.contract.clone(),
        pods_only: config.mode == Mode::Kubernetes,
        cgroups: config.cgroups.clone(),
        before_eviction: config.before_eviction.clone(),
        guard_band: config.guard_band.clone(),
        text: config.to_yaml(),
    })
}

/// Beside a kubelet the two must agree on what is available; on its own, ebb believes the kernel.
pub(super) fn measure(config: &Config) -> Measure {
    match (config.memory_available, config.mode) {
        (MemoryMeasure::WorkingSet, _) | (MemoryMeasure::Auto, Mode::Kubernetes) => {
            Measure::WorkingSet
        }
        (MemoryMeasure::MemAvailable, _) | (MemoryMeasure::Auto, Mode::Standalone) => {
            Measure::MemAvailable
        }
    }
}

/// What tells one content of a file from another without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    inode: u64,
    length: u64,
    modified: SystemTime,
}

impl Seen {
    /// The file at `path` as it is now; `None` when there is none.
    fn now(path: &Path) -> Option<Self> {
        let about = std::fs::metadata(path).ok()?;
        let modified = about.modified().ok()?;
        Some(Self { inode: about.ino(), length: about.len(), modified })
    }
}
