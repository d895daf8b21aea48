//! Configuration: one YAML file, checked at the edge.
//!
//! ```text
//!  text ─► tree (values with their lines) ─► section (keys asked for by type) ─► Config, with Limits that cannot be wrong
//!                     └────────── every mistake on the way is collected and reported together ──────────┘
//! ```
//! The fields on eviction, garbage collection and cgroups have the kubelet's names and syntax and stand at the top (`eviction`, `cgroups`);
//! what is ebb's own stands under `ebb:` (`options`, `cgroups` and this file). `kubelet` reads a KubeletConfiguration as it is.

mod cgroups;
mod error;
mod eviction;
mod kubelet;
mod options;
mod section;
#[cfg(test)]
mod tests;
mod tree;

pub use cgroups::{Beside, CgroupMode, Cgroups, Dying, Leftovers};
pub use error::{ConfigErrors, Mistake};

use crate::state::rules::Patterns;
use cgroups::CgroupsDraft;
use ebb_policy::Signal;
use ebb_policy::limits::{ConfigError, Limits, Options, RawEviction};
use globset::Glob;
use section::{Mistakes, Section};
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
    /// Where records of incidents are kept, if they are.
    pub incidents: Option<Incidents>,
    /// What is said about cgroups.
    pub cgroups: Cgroups,
    /// How long the kernel may act on what ebb named to it; `None` when it may not.
    pub reflex: Option<Duration>,
    /// The limits as written, with ebb's options filled in.
    pub eviction: RawEviction,
    /// The limits, checked.
    pub limits: Limits,
    /// Fields of a KubeletConfiguration that ebb does not use.
    pub unused: Vec<String>,
}

/// Records of incidents kept when the configuration does not say how many.
const INCIDENTS_KEPT: u32 = 100;

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Every mistake in it, or that it cannot be read.
    pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
        let text = read(path)?;
        Config::parse(&text)
            .map_err(|errors| ConfigErrors { file: Some(path.to_owned()), ..errors })
    }

    /// Reads and checks a KubeletConfiguration (v1beta1) as it is; fields that ebb does not use are listed in [`Config::unused`].
    ///
    /// # Errors
    /// Every mistake in the fields that ebb uses, or that it is not a KubeletConfiguration.
    pub fn load_kubelet(path: &Path) -> Result<Config, ConfigErrors> {
        let text = read(path)?;
        kubelet::parse(&text)
            .map_err(|errors| ConfigErrors { file: Some(path.to_owned()), ..errors })
    }

    /// Checks the text of a configuration.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn parse(text: &str) -> Result<Config, ConfigErrors> {
        let root = tree(text)?;
        let mistakes = Mistakes::default();
        let mut top = Section::top(&root, &mistakes);
        let mut eviction = eviction::read(&mut top);
        let mut config = Draft::default();
        config.cgroups.raw = cgroups::read(&mut top);
        if let Some(ebb) = top.section("ebb") {
            config.read(ebb);
        }
        top.finish();
        config.cgroups.raw.eviction_hard_memory = hard_memory(&eviction, config.mode);
        if eviction.eviction_hard.is_none() && config.mode == Mode::Standalone {
            eviction.eviction_hard = Some(standalone_thresholds());
        }
        eviction.options = Some(config.options.clone().unwrap_or_else(|| defaults(config.mode)));
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
            ("workloads", eviction::texts(workloads)),
            ("protected", eviction::texts(protected)),
            ("prefer", eviction::texts(prefer)),
            ("avoid", eviction::texts(avoid)),
            ("priorities", Node::List(priorities.iter().map(priority).collect())),
        ]);
        own.push(("cgroups".to_owned(), Node::Map(cgroups::print_own(&self.cgroups)).into()));
        if let Some(Incidents { directory, keep }) = &self.incidents {
            let incidents = options::entries([
                ("directory", Node::Text(directory.display().to_string())),
                ("keep", Node::Integer((*keep).into())),
            ]);
            own.push(("incidents".to_owned(), Node::Map(incidents).into()));
        }
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

/// A configuration whose limits are not checked yet.
#[derive(Default)]
struct Draft {
    mode: Mode,
    enforce: bool,
    memory_available: MemoryMeasure,
    patterns: Patterns,
    incidents: Option<Incidents>,
    reflex: Option<Duration>,
    options: Option<Options>,
    cgroups: CgroupsDraft,
    unused: Vec<String>,
}

impl Draft {
    /// Reads ebb's own section.
    fn read(&mut self, mut section: Section<'_>) {
        self.mode = section.choice("mode", &MODES).unwrap_or_default();
        self.enforce = section.flag("enforce").unwrap_or_default();
        self.memory_available = section.choice("memoryAvailable", &MEASURES).unwrap_or_default();
        self.patterns = patterns(&mut section);
        self.incidents = section.section("incidents").and_then(incidents);
        let lease = section.duration("reflexLease");
        let lease = lease.map_or(REFLEX_LEASE, |lease| Duration::from_millis(lease.0));
        let reflex = section.choice("reflex", &REFLEXES).unwrap_or(Reflex::Disabled);
        self.reflex = (reflex == Reflex::Enabled).then_some(lease);
        self.options = Some(options::read(&mut section, defaults(self.mode)));
        if let Some(cgroups) = section.section("cgroups") {
            self.cgroups.read_own(cgroups);
        }
        section.finish();
    }

    /// Checks the limits and puts everything together, unless there were mistakes.
    fn finish(
        mut self,
        eviction: RawEviction,
        root: &Placed,
        mistakes: Mistakes,
    ) -> Result<Config, ConfigErrors> {
        let mut mistakes = mistakes.into_inner();
        let place = |error: ConfigError| Mistake {
            line: line_of(root, &error.key),
            error: with_nearest_signal(error),
        };
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
                    incidents,
                    reflex,
                    options: _,
                    cgroups,
                    unused,
                } = self;
                Ok(Config {
                    mode,
                    enforce,
                    memory_available,
                    patterns,
                    incidents,
                    cgroups: cgroups.finish(options),
                    reflex,
                    eviction,
                    limits,
                    unused,
                })
            }
            _ => Err(ConfigErrors { file: None, mistakes }),
        }
    }
}

/// The hard threshold on available memory, which a kubelet keeps from pods when it checks reservations.
fn hard_memory(eviction: &RawEviction, mode: Mode) -> Option<String> {
    if mode != Mode::Kubernetes {
        return None;
    }
    let merges = eviction.merge_default_eviction_settings == Some(true);
    match &eviction.eviction_hard {
        Some(given) if given.contains_key("memory.available") || !merges => {
            given.get("memory.available").cloned()
        }
        _ => Some("100Mi".to_owned()),
    }
}

/// ebb's options where the configuration says nothing.
fn defaults(mode: Mode) -> Options {
    match mode {
        Mode::Kubernetes => Options::kubelet(),
        Mode::Standalone => Options {
            percentage_at_most: [
                (Signal::MemoryAvailable, ebb_policy::Quantity::bytes(1 << 30)),
                (Signal::PidAvailable, ebb_policy::Quantity::count(4000)),
            ]
            .into(),
            ..Options::standalone()
        },
    }
}

/// Thresholds of a machine without Kubernetes: a twentieth of its memory (but no more than a gibibyte) and of its task ids (but no more than 4000).
fn standalone_thresholds() -> BTreeMap<String, String> {
    [("memory.available", "5%"), ("pid.available", "5%")]
        .map(|(signal, value)| (signal.to_owned(), value.to_owned()))
        .into()
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
            problem: format!("it cannot be read: {error}"),
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
    serde_saphyr::from_str(text).map_err(|error| {
        let line = error.location().map(|location| location.line()).filter(|line| *line > 0);
        let error = ConfigError {
            key: "the file".to_owned(),
            value: None,
            problem: format!("not YAML that can be read: {}", error.without_snippet()),
            fix: "correct the syntax".to_owned(),
        };
        ConfigErrors { file: None, mistakes: vec![Mistake { line, error }] }
    })
}

/// Says which signal was probably meant, where the policy crate only knows that there is none of that name.
fn with_nearest_signal(error: ConfigError) -> ConfigError {
    let written = error.key.split_once("[\"").map(|(_, name)| name.trim_end_matches("\"]"));
    let meant = written.filter(|_| error.problem.starts_with("unknown eviction signal"));
    let nearest = meant.and_then(|name| section::nearest(name, Signal::ALL.map(Signal::name)));
    match nearest {
        Some(signal) => {
            ConfigError { fix: format!("did you mean {signal}? {}", error.fix), ..error }
        }
        None => error,
    }
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
    let section = find(root, section)?;
    let entry = entry.and_then(|entry| find(&section, entry));
    Some(entry.map_or(section.line, |entry| entry.line)).filter(|line| *line > 0)
}
