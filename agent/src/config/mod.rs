//! Configuration: one YAML file, checked at the edge.
//!
//! ```text
//!  text ─► tree (values with their lines) ─► section (keys asked for by type) ─► Config, with Limits that cannot be wrong
//!                     └────────── every mistake on the way is collected and reported together ──────────┘
//! ```
//! The fields on eviction, garbage collection and cgroups have the kubelet's names and syntax and stand at the top (`eviction`, `cgroups`);
//! what is ebb's own stands under `ebb:` (`options`, `cgroups` and this file). `kubelet` reads a KubeletConfiguration as it is.
//! `capacity` holds a configuration against the machine, `guard_band` against the kubelet beside it.

mod capacity;
mod cgroups;
mod contract;
mod defaults;
mod error;
mod eviction;
mod explain;
mod guard_band;
mod hooks;
mod kubelet;
mod memory_pressure;
mod options;
mod patterns;
mod seccomp;
mod section;
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

use cgroups::CgroupsDraft;
use defaults::{also_below, defaults, hard_memory, standalone_thresholds};
use ebb_journal::GuardBand;
use ebb_policy::Signal;
use ebb_policy::limits::{ConfigError, Limits, Options, RawEviction, RawMemoryPressure};
use globset::Glob;
use section::{Mistakes, Section, TextMaps};
use std::{
    collections::BTreeMap,
    fs,
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

    fn parse_into(mut config: Draft, text: &str) -> Result<Config, ConfigErrors> {
        let root = tree(text)?;
        kubelet::refuse(&root)?;
        let mistakes = Mistakes::default();
        let mut top = Section::top(&root, &mistakes);
        let mut eviction = eviction::read(&mut top);
        config.cgroups.raw = cgroups::read(&mut top);
        if let Some(ebb) = top.section("ebb") {
            config.read(ebb);
        }
        top.finish();
        config.cgroups.raw.eviction_hard_memory = hard_memory(&eviction, config.mode);
        if eviction.eviction_hard.is_none() && config.mode == Mode::Standalone {
            eviction.eviction_hard = Some(standalone_thresholds());
        }
        eviction.also_below =
            config.also_below.take().or_else(|| also_below(&eviction, config.mode));
        eviction.memory_pressure = std::mem::take(&mut config.memory_pressure);
        eviction.options = Some(config.options.clone().unwrap_or_else(|| config.defaults()));
        config.finish(eviction, &root, mistakes)
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
        let text = read(path)?;
        self.parse(&text).map_err(|errors| ConfigErrors { file: Some(path.to_owned()), ..errors })
    }

    /// As [`Config::load_kubelet`].
    ///
    /// # Errors
    /// As there.
    pub fn load_kubelet(self, path: &Path) -> Result<Config, ConfigErrors> {
        let text = read(path)?;
        kubelet::parse(self.draft(), &text)
            .map_err(|errors| ConfigErrors { file: Some(path.to_owned()), ..errors })
    }

    /// As [`Config::parse`].
    ///
    /// # Errors
    /// As there.
    pub fn parse(self, text: &str) -> Result<Config, ConfigErrors> {
        Config::parse_into(self.draft(), text)
    }

    fn draft(self) -> Draft {
        // Pods are the workloads where an API server tells of them.
        let mode = if self.has_api_server { Mode::Kubernetes } else { Mode::default() };
        Draft { mode, has_api_server: self.has_api_server, ..Draft::default() }
    }
}

/// A configuration whose limits are not checked yet.
#[derive(Default)]
struct Draft {
    mode: Mode,
    enforce: bool,
    memory_available: MemoryMeasure,
    patterns: Patterns,
    contract: Contract,
    incidents: Option<Incidents>,
    before_eviction: Option<BeforeEviction>,
    reflex: Option<Duration>,
    seccomp: Seccomp,
    has_api_server: bool,
    options: Option<Options>,
    also_below: Option<TextMaps>,
    memory_pressure: Vec<RawMemoryPressure>,
    cgroups: CgroupsDraft,
    unused: Vec<String>,
    slips: Vec<String>,
}

impl Draft {
    /// ebb's options where the text says nothing; what an API server feeds is on where there is one.
    fn defaults(&self) -> Options {
        let defaults = defaults(self.mode);
        let has = self.has_api_server;
        Options {
            preferences: has || defaults.preferences,
            spread_owners: has || defaults.spread_owners,
            disruption_budgets: has || defaults.disruption_budgets,
            ..defaults
        }
    }

    /// Reads ebb's own section.
    fn read(&mut self, mut section: Section<'_>) {
        self.mode = section.choice("mode", &MODES).unwrap_or(self.mode);
        self.enforce = section.flag("enforce").unwrap_or_default();
        self.memory_available = section.choice("memoryAvailable", &MEASURES).unwrap_or_default();
        self.patterns = patterns(&mut section);
        self.contract = contract::read(&mut section);
        self.also_below = section.text_maps("alsoBelow");
        self.memory_pressure = memory_pressure::read(&mut section);
        self.incidents = section.section("incidents").and_then(incidents);
        self.before_eviction = section.section("hooks").and_then(hooks::read);
        let lease = section.duration("reflexLease");
        let lease = lease.map_or(REFLEX_LEASE, |lease| Duration::from_millis(lease.0));
        let reflex = section.choice("reflex", &REFLEXES).unwrap_or(Reflex::Disabled);
        self.reflex = (reflex == Reflex::Enabled).then_some(lease);
        self.seccomp = section.choice("seccomp", &Seccomp::WORDS).unwrap_or_default();
        self.options = Some(options::read(&mut section, self.defaults()));
        if let Some(cgroups) = section.section("cgroups") {
            self.cgroups.read_own(cgroups);
        }
        section.finish();
    }

    /// Checks the limits and puts everything together, unless there were mistakes.
    fn finish(
        mut self,
        mut eviction: RawEviction,
        root: &Placed,
        mistakes: Mistakes,
    ) -> Result<Config, ConfigErrors> {
        let mut mistakes = mistakes.into_inner();
        let place = |error: ConfigError| Mistake::placed(root, error);
        let limits = Limits::new(&eviction).map_err(|errors| {
            mistakes.extend(errors.into_iter().map(place));
        });
        let raw = &mut self.cgroups.raw;
        raw.enforce_node_allocatable.clone_from(&eviction.enforce_node_allocatable);
        let cgroups = ebb_policy::cgroups::Options::new(raw).map_err(|errors| {
            mistakes.extend(errors.into_iter().map(place));
        });
        // What the kubelet lets pass although it can never take effect is refused where no kubelet has to be matched.
        if let (Ok(limits), Mode::Standalone) = (&limits, self.mode) {
            mistakes.extend(limits.warnings().iter().cloned().map(place));
        }
        mistakes.sort();
        match (limits, cgroups) {
            (Ok(limits), Ok(options)) if mistakes.is_empty() => {
                let Draft {
                    mode,
                    enforce,
                    memory_available,
                    patterns,
                    contract,
                    incidents,
                    before_eviction,
                    reflex,
                    seccomp,
                    has_api_server,
                    options: _,
                    also_below: _,
                    memory_pressure: _,
                    cgroups,
                    unused,
                    slips,
                } = self;
                let rules = limits.memory_pressure().iter();
                eviction.memory_pressure = rules.map(memory_pressure::written).collect();
                Ok(Config {
                    mode,
                    enforce,
                    memory_available,
                    patterns,
                    contract,
                    incidents,
                    before_eviction,
                    cgroups: cgroups.finish(options),
                    reflex,
                    seccomp,
                    has_api_server,
                    eviction,
                    limits,
                    unused,
                    slips,
                    guard_band: None,
                })
            }
            _ => Err(ConfigErrors { file: None, mistakes }),
        }
    }
}

impl Mistake {
    /// With its line, and the signal that was probably meant.
    fn placed(root: &Placed, error: ConfigError) -> Self {
        Self { line: line_of(root, &error.key), error: with_nearest_signal(error) }
    }
}

fn patterns(section: &mut Section<'_>) -> Patterns {
    let mut globs = |key| {
        let globs = section.texts(key).unwrap_or_default();
        for glob in &globs {
            check_glob(section, key, glob);
        }
        globs
    };
    let (workloads, protected) = (globs("workloads"), globs("protected"));
    let (prefer, avoid) = (globs("prefer"), globs("avoid"));
    let mut priorities = Vec::new();
    for mut rule in section.sections("priorities") {
        let glob = rule.text("match");
        let priority = rule.number("priority", "between -2147483648 and 2147483647");
        if let Some(glob) = &glob {
            check_glob(&mut rule, "match", glob);
        }
        if let (Some(glob), Some(priority)) = (glob, priority) {
            priorities.push((glob, priority));
        }
        rule.finish();
    }
    Patterns { workloads, protected, prefer, avoid, priorities }
}

fn check_glob(section: &mut Section<'_>, key: &'static str, glob: &str) {
    if let Err(error) = Glob::new(glob)
        && let Some(place) = section.value(key)
    {
        let problem = format!("{glob:?} is not a glob: {}", error.kind());
        section.refuse(key, place, &problem, "write a path such as \"system.slice/*.service\"");
    }
}

fn incidents(mut section: Section<'_>) -> Option<Incidents> {
    let directory = section.text("directory").map(PathBuf::from);
    let keep = section.number("keep", "from 0 on").unwrap_or(INCIDENTS_KEPT);
    section.finish();
    Some(Incidents { directory: directory?, keep })
}

fn read(path: &Path) -> Result<String, ConfigErrors> {
    fs::read_to_string(path).map_err(|error| {
        let error = ConfigError {
            key: "the file".to_owned(),
            value: None,
            problem: match error.kind() {
                std::io::ErrorKind::InvalidData => "it is not text in UTF-8".to_owned(),
                _ => format!("it cannot be read: {error}"),
            },
            fix: "name a readable file".to_owned(),
        };
        ConfigErrors { file: Some(path.to_owned()), mistakes: vec![Mistake { line: None, error }] }
    })
}

/// The text as a tree; a text that is not YAML is a mistake of its own.
fn tree(text: &str) -> Result<Placed, ConfigErrors> {
    if text.trim().is_empty() {
        return Ok(Node::Null.into());
    }
    let root = tree::read(text).map_err(|error| {
        let line = error.location().map(|location| location.line()).filter(|line| *line > 0);
        let error = ConfigError {
            key: "the file".to_owned(),
            value: None,
            problem: format!("not YAML that can be read: {}", crate::yaml::problem(&error)),
            fix: "correct the syntax".to_owned(),
        };
        ConfigErrors { file: None, mistakes: vec![Mistake { line, error }] }
    })?;
    let twice = tree::given_twice(&root).into_iter().map(|(key, first, second)| Mistake {
        line: (second > 0).then_some(second),
        error: ConfigError {
            key,
            value: None,
            problem: format!("given twice, first in line {first}"),
            fix: "keep one of them".to_owned(),
        },
    });
    let mistakes: Vec<Mistake> = twice.collect();
    if mistakes.is_empty() { Ok(root) } else { Err(ConfigErrors { file: None, mistakes }) }
}

/// Says which signal was probably meant, where the policy crate only knows that there is none of that name.
fn with_nearest_signal(error: ConfigError) -> ConfigError {
    let written = error.key.split_once("[\"").map(|(_, name)| name.trim_end_matches("\"]"));
    let meant = written.filter(|_| error.problem.starts_with("unknown eviction signal"));
    let nearest = meant.and_then(|name| {
        other_name(name).or_else(|| section::nearest(name, Signal::ALL.map(Signal::name)))
    });
    match nearest {
        Some(signal) => {
            ConfigError { fix: format!("did you mean {signal}? {}", error.fix), ..error }
        }
        None => error,
    }
}

/// The signal that goes by another name elsewhere, such as `disk.available`.
fn other_name(written: &str) -> Option<&'static str> {
    let written = written.to_lowercase();
    let subject = written.split(['.', '_', '-']).next().unwrap_or_default();
    let (bytes, inodes) = match subject {
        "disk" | "fs" | "filesystem" | "rootfs" | "root" | "storage" | "ephemeral" | "inodes"
        | "inode" => (Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
        "image" | "images" => (Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
        "container" | "containers" => (Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree),
        "swap" | "zram" | "zswap" => (Signal::SwapAvailable, Signal::SwapAvailable),
        "mem" | "ram" => (Signal::MemoryAvailable, Signal::MemoryAvailable),
        "pids" | "process" | "processes" | "task" | "tasks" | "threads" => {
            (Signal::PidAvailable, Signal::PidAvailable)
        }
        _ => return None,
    };
    Some(if written.contains("inode") { inodes } else { bytes }.name())
}

/// The line of a key such as `evictionHard["memory.available"]`: that of the entry, else that of its section.
fn line_of(root: &Placed, key: &str) -> Option<u64> {
    let (section, entry) = match key.split_once('[') {
        Some((section, entry)) => (section, Some(entry.trim_matches(['[', ']', '"']))),
        None => (key, None),
    };
    let find = |place: &Placed, key: &str| match &place.node {
        Node::Map(entries) => {
            entries.iter().find(|(name, _)| name == key).map(|(_, place)| place.clone())
        }
        _ => None,
    };
    let section = match section.split_once('.') {
        Some(("ebb", own)) => find(&find(root, "ebb")?, own)?,
        _ => find(root, section)?,
    };
    // Of `alsoBelow["memory.available"]["swap.available"]` the inner key, else the outer one.
    let mut line = section.line;
    let mut place = section;
    for key in entry.into_iter().flat_map(|entry| entry.split("\"][\"")) {
        let Some(found) = find(&place, key) else { break };
        (line, place) = (found.line, found);
    }
    Some(line).filter(|line| *line > 0)
}
