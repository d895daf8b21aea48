//! Configuration: one YAML file, checked at the edge.
//!
//! ```text
//!  text ─► tree (values with their lines) ─► section (keys asked for by type) ─► Config, with Limits that cannot be wrong
//!                     └────────── every mistake on the way is collected and reported together ──────────┘
//! ```
//! The fields on eviction, garbage collection and cgroups have the kubelet's names and syntax and stand at the top (`eviction`, `cgroups`);
//! what is ebb's own stands under `ebb:` (`options`, `cgroups` and `draft`). `kubelet` reads a KubeletConfiguration as it is.
//! `capacity` holds a configuration against the machine, `guard_band` against the kubelet beside it.

mod capacity;
mod cgroups;
mod contract;
mod defaults;
mod draft;
mod error;
mod eviction;
mod explain;
mod guard_band;
mod hooks;
mod kubelet;
mod meant;
mod memory_pressure;
mod options;
mod patterns;
mod seccomp;
mod section;
mod source;
#[cfg(test)]
mod tests;
mod tree;

pub use capacity::{Capacities, placed};
pub use cgroups::{Beside, CgroupMode, Cgroups, Dying, OrphanedPods};
pub use contract::Contract;
pub use error::{ConfigErrors, Mistake};
pub use explain::Setting;
pub use guard_band::{Kubelet, guard_band};
pub use hooks::BeforeEviction;
pub use patterns::Patterns;
pub use seccomp::Seccomp;

use draft::Draft;
use ebb_journal::GuardBand;
use ebb_policy::limits::{Limits, RawEviction};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};
use tree::{Node, Placed};

/// What the workloads are, which decides on the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Cgroups and processes of any Linux machine.
    #[default]
    Standalone,
    /// Pods.
    Kubernetes,
}

const MODES: [(&str, Mode); 2] =
    [("standalone", Mode::Standalone), ("kubernetes", Mode::Kubernetes)];

/// How `memory.available` is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryMeasure {
    /// As the kubelet does: total less the working set of the root cgroup.
    WorkingSet,
    /// The kernel's own estimate.
    MemAvailable,
    /// The kernel's estimate on its own, the kubelet's measure beside a kubelet.
    #[default]
    Auto,
}

const MEASURES: [(&str, MemoryMeasure); 3] = [
    ("workingSet", MemoryMeasure::WorkingSet),
    ("memAvailable", MemoryMeasure::MemAvailable),
    ("auto", MemoryMeasure::Auto),
];

/// Where records of incidents are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incidents {
    /// Directory.
    pub directory: PathBuf,
    /// How many are kept at most.
    pub keep: u32,
}

/// Whether the kernel may act where ebb cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reflex {
    Enabled,
    Disabled,
}

const REFLEXES: [(&str, Reflex); 2] =
    [("enabled", Reflex::Enabled), ("disabled", Reflex::Disabled)];

/// How long it may when the configuration does not say.
const REFLEX_LEASE: Duration = Duration::from_secs(1);

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What the workloads are.
    pub mode: Mode,
    /// Whether to act, rather than only say what would be done.
    pub enforce: bool,
    /// How `memory.available` is measured.
    pub memory_available: MemoryMeasure,
    /// What the operator says about workloads.
    pub patterns: Patterns,
    /// Which annotations of pods are honoured where.
    pub contract: Contract,
    /// Where records of incidents are kept, if they are.
    pub incidents: Option<Incidents>,
    /// Who is asked before an eviction for a soft threshold, if anybody is.
    pub before_eviction: Option<BeforeEviction>,
    /// What is said about cgroups.
    pub cgroups: Cgroups,
    /// How long the kernel may act on what ebb named to it; `None` when it may not.
    pub reflex: Option<Duration>,
    /// What becomes of system calls that ebb does not make.
    pub seccomp: Seccomp,
    /// An API server tells of owners and budgets.
    pub has_api_server: bool,
    /// The limits as written, with ebb's options filled in.
    pub eviction: RawEviction,
    /// The limits, checked.
    pub limits: Limits,
    /// Fields of a KubeletConfiguration that ebb does not use.
    pub unused: Vec<String>,
    /// Fields of a KubeletConfiguration that the kubelet does not know either, each with the one that was probably meant.
    pub slips: Vec<String>,
    /// How the limits stand to those of the kubelet beside ebb, where they were held against each other.
    pub guard_band: Option<GuardBand>,
}

/// Records of incidents kept when the configuration does not say how many.
const INCIDENTS_KEPT: u32 = 100;

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Every mistake in it, or that it cannot be read.
    pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
        Reader::default().load(path)
    }

    /// Reads and checks a KubeletConfiguration (v1beta1) as it is; fields that ebb does not use are listed in [`Config::unused`].
    ///
    /// # Errors
    /// Every mistake in the fields that ebb uses, or that it is not a KubeletConfiguration.
    pub fn load_kubelet(path: &Path) -> Result<Config, ConfigErrors> {
        Reader::default().load_kubelet(path)
    }

    /// Checks the text of a configuration.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn parse(text: &str) -> Result<Config, ConfigErrors> {
        Reader::default().parse(text)
    }

    /// The configuration of a machine without Kubernetes whose operator has said nothing.
    ///
    /// # Panics
    /// Never: a test holds that the built-in defaults are without mistakes.
    #[must_use]
    pub fn standalone_default() -> Config {
        #[expect(
            clippy::expect_used,
            reason = "an empty file is valid, which a test holds; there is no input that could be wrong"
        )]
        Config::parse("").expect("the built-in defaults are valid")
    }

    /// The configuration as YAML that reads back as the same configuration.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        // A tree of texts, numbers, lists and maps always has a YAML form.
        serde_saphyr::to_string(&self.print()).unwrap_or_default()
    }

    /// The same as JSON, which is YAML too.
    ///
    /// # Errors
    /// Never, since what is printed has a JSON form; the caller need not know that.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&self.print())
    }

    fn print(&self) -> Placed {
        let mut entries: Vec<(String, Placed)> = eviction::print(&self.eviction)
            .into_iter()
            .chain(cgroups::print(&self.cgroups.raw))
            .map(|(key, node)| (key, node.into()))
            .collect();
        entries.push(("ebb".to_owned(), Node::Map(self.print_own()).into()));
        Node::Map(entries).into()
    }

    fn reflex(&self) -> Reflex {
        if self.reflex.is_some() { Reflex::Enabled } else { Reflex::Disabled }
    }

    fn print_own(&self) -> Vec<(String, Placed)> {
        let Patterns { workloads, protected, prefer, avoid, priorities } = &self.patterns;
        let priority = |(glob, priority): &(String, i32)| {
            Node::Map(options::entries([
                ("match", Node::Text(glob.clone())),
                ("priority", Node::Integer((*priority).into())),
            ]))
            .into()
        };
        let mut own = options::entries([
            ("mode", options::word(&MODES, self.mode)),
            ("enforce", Node::Bool(self.enforce)),
            ("memoryAvailable", options::word(&MEASURES, self.memory_available)),
            ("reflex", options::word(&REFLEXES, self.reflex())),
            ("seccomp", options::word(&Seccomp::WORDS, self.seccomp)),
            ("workloads", eviction::texts(workloads)),
            ("protected", eviction::texts(protected)),
            ("prefer", eviction::texts(prefer)),
            ("avoid", eviction::texts(avoid)),
            ("priorities", Node::List(priorities.iter().map(priority).collect())),
            ("evictNeverIn", eviction::texts(&self.contract.evict_never_in)),
            ("evictAvoidIn", eviction::texts(&self.contract.evict_avoid_in)),
        ]);
        if let Some(also_below) = &self.eviction.also_below {
            let entry = |(signal, other): (&String, &BTreeMap<String, String>)| {
                (signal.clone(), eviction::text_map(other).into())
            };
            let map = Node::Map(also_below.iter().map(entry).collect());
            own.push(("alsoBelow".to_owned(), map.into()));
        }
        own.extend(memory_pressure::print(self.limits.memory_pressure()));
        own.push(("cgroups".to_owned(), Node::Map(cgroups::print_own(&self.cgroups)).into()));
        if let Some(Incidents { directory, keep }) = &self.incidents {
            let incidents = options::entries([
                ("directory", Node::Text(directory.display().to_string())),
                ("keep", Node::Integer((*keep).into())),
            ]);
            own.push(("incidents".to_owned(), Node::Map(incidents).into()));
        }
        own.extend(hooks::print(self.before_eviction.as_ref()));
        if let Some(lease) = self.reflex {
            let text = format!("{}ms", lease.as_millis());
            own.extend(options::entries([("reflexLease", Node::Text(text))]));
        }
        if let Some(options) = &self.eviction.options {
            own.extend(options::print(options));
        }
        own
    }
}

/// How a configuration is read: for which agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reader {
    /// An API server tells the agent of owners, budgets and annotations, so that `spreadOwners`, `disruptionBudgets` and `preferences` are on unless the text says otherwise.
    pub has_api_server: bool,
}

impl Reader {
    /// As [`Config::load`].
    ///
    /// # Errors
    /// As there.
    pub fn load(self, path: &Path) -> Result<Config, ConfigErrors> {
        let text = source::read(path)?;
        self.parse(&text).map_err(|errors| ConfigErrors { file: Some(path.to_owned()), ..errors })
    }

    /// As [`Config::load_kubelet`].
    ///
    /// # Errors
    /// As there.
    pub fn load_kubelet(self, path: &Path) -> Result<Config, ConfigErrors> {
        let text = source::read(path)?;
        kubelet::parse(self.draft(), &text)
            .map_err(|errors| ConfigErrors { file: Some(path.to_owned()), ..errors })
    }

    /// As [`Config::parse`].
    ///
    /// # Errors
    /// As there.
    pub fn parse(self, text: &str) -> Result<Config, ConfigErrors> {
        let root = source::tree(text)?;
        kubelet::refuse(&root)?;
        self.draft().parse(&root)
    }

    fn draft(self) -> Draft {
        // Pods are the workloads where an API server tells of them.
        let mode = if self.has_api_server { Mode::Kubernetes } else { Mode::default() };
        Draft { mode, has_api_server: self.has_api_server, ..Draft::default() }
    }
}
