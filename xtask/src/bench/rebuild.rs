//! How long a developer waits after an edit, and what cargo builds anew for it: a file is touched, and what tests the change is built.
//!
//! Each command has built everything before, so that only the edit is measured.
use super::figure::{Figure, Finding};
use super::host::conditions;
use crate::{bpf, sh};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

const ROUNDS: usize = 3;

/// Where somebody edits: the first of these directories that the tree has. Later ones are where it was in earlier trees.
const EDITS: [&[&str]; 4] =
    [&["policy/node/src", "agent/policy/src"], &["agent/src/act"], &["kube/src"], &["ebb/src"]];

/// One line of `cargo --message-format json`.
#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    package_id: Option<String>,
    fresh: Option<bool>,
}

/// What one edit took.
#[derive(Debug)]
struct Edit {
    dir: &'static str,
    /// What is built for it: the tests of the crate concerned, and the program.
    builds: Vec<Build>,
}

/// What one command of cargo took.
#[derive(Debug)]
struct Build {
    command: String,
    took: Duration,
    /// Of all processors together: what it costs however many others want them.
    used: Duration,
    /// Packages of which something was compiled.
    built: BTreeSet<String>,
}

/// Measure and return the section of `docs/benchmarks.md`.
///
/// # Errors
/// When something cannot be built.
pub(super) fn run() -> Result<Finding> {
    bpf::ensure()?;
    let conditions = conditions()?;
    let mut edits = Vec::new();
    for dirs in EDITS {
        let Some(dir) = dirs.iter().find(|dir| sh::root().join(dir).is_dir()) else { continue };
        let commands = [format!("test --no-run -p {}", package_of(dir)?), "build -p ebb".into()];
        let builds = commands.into_iter().map(|command| measure(dir, command));
        edits.push(Edit { dir, builds: builds.collect::<Result<_>>()? });
    }
    let figures = edits.iter().flat_map(Edit::figures).collect();
    let text = render(&edits, &conditions);
    Ok(Finding { conditions, text, figures })
}

/// The median of some rounds: a file of `dir` is touched, and the command run.
fn measure(dir: &str, command: String) -> Result<Build> {
    let file = first_source(&sh::root().join(dir))?;
    let (mut times, mut costs, mut built) = (Vec::new(), Vec::new(), BTreeSet::new());
    // What nobody has built yet, or an earlier edit has left to be built by this command, is not this edit's.
    println!("rebuild: cargo {command}");
    cargo(&command)?;
    for _ in 0..ROUNDS {
        let touched = File::options().append(true).open(&file);
        touched
            .and_then(|file| file.set_modified(SystemTime::now()))
            .with_context(|| format!("cannot touch {}", file.display()))?;
        let (begun, before) = (Instant::now(), used_by_children()?);
        built.extend(cargo(&command)?);
        let (took, used) = (begun.elapsed(), used_by_children()? - before);
        println!(
            "rebuild: {dir}, cargo {command}: {:.1} s, {:.1} s of processors",
            took.as_secs_f64(),
            used.as_secs_f64()
        );
        times.push(took);
        costs.push(used);
    }
    let median = |mut rounds: Vec<Duration>| {
        rounds.sort_unstable();
        rounds.get(ROUNDS / 2).copied().context("no rounds")
    };
    Ok(Build { command, took: median(times)?, used: median(costs)?, built })
}

/// Processor time of every process that has ended below this one.
fn used_by_children() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    of_children(&stat).with_context(|| format!("an odd /proc/self/stat: {stat:?}"))
}

/// The fields cutime and cstime, in hundredths of a second.
fn of_children(stat: &str) -> Option<Duration> {
    // The name in brackets may have spaces; what follows it are the third field and the others.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(13);
    let mut hundredths = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis(10 * (hundredths()? + hundredths()?)))
}

/// Runs cargo, and returns the packages of which it compiled something.
fn cargo(words: &str) -> Result<BTreeSet<String>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(sh::root()).args(words.split(' '));
    built(&sh::read(cargo.args(["--quiet", "--message-format", "json"]))?)
}

fn built(messages: &str) -> Result<BTreeSet<String>> {
    let mut built = BTreeSet::new();
    for line in messages.lines() {
        let message: Message =
            serde_json::from_str(line).with_context(|| format!("cargo says {line:?}"))?;
        if let ("compiler-artifact", Some(id), Some(false)) =
            (message.reason.as_str(), message.package_id, message.fresh)
        {
            built.insert(name(&id).with_context(|| format!("a package without a name: {id}"))?);
        }
    }
    Ok(built)
}

/// The package of `path+file:///…/agent#ebb-agent@0.1.0` is ebb-agent; that of `path+file:///…/ebb#0.1.0` is called as its directory.
fn name(id: &str) -> Option<String> {
    let (place, rest) = id.split_once('#')?;
    let name = rest.split_once('@').map(|(name, _)| name).or_else(|| place.rsplit('/').next());
    name.map(str::to_owned)
}

/// The name in the manifest that a directory belongs to.
fn package_of(dir: &str) -> Result<String> {
    let full = sh::root().join(dir);
    let manifest = full.ancestors().map(|dir| dir.join("Cargo.toml")).find(|file| file.is_file());
    let manifest = manifest.with_context(|| format!("{dir} is in no package"))?;
    let cannot = || format!("cannot read {}", manifest.display());
    let text = fs::read_to_string(&manifest).with_context(cannot)?;
    let table: toml::Table = toml::from_str(&text).with_context(cannot)?;
    let name = table.get("package").and_then(|package| package.get("name")?.as_str());
    Ok(name.with_context(|| format!("{} names no package", manifest.display()))?.to_owned())
}

/// A file that is the same one in every round.
fn first_source(dir: &Path) -> Result<PathBuf> {
    let cannot = || format!("cannot list {}", dir.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).with_context(cannot)? {
        files.push(entry.with_context(cannot)?.path());
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    files.sort();
    match files.into_iter().next() {
        Some(file) => Ok(file),
        None => bail!("there is no source in {}", dir.display()),
    }
}

impl Edit {
    fn figures(&self) -> impl Iterator<Item = Figure> {
        self.builds.iter().flat_map(|Build { command, took, used, .. }| {
            let name = format!("{}, `cargo {command}`", self.dir);
            let of_processors = format!("{name}, of processors");
            [
                Figure::lower(name, "s", took.as_secs_f64()).main_if(true),
                Figure::lower(of_processors, "s", used.as_secs_f64()).main_if(true),
            ]
        })
    }
}

fn render(edits: &[Edit], conditions: &str) -> String {
    let mut text = format!(
        "## After an edit\n\n\
         Conditions: {conditions}; the debug profile, everything built before.\n\
         A file of the directory is touched, then cargo builds what tests the change: the tests of its crate, and the program. Nothing in the file changes, so the compiler finds most of it done already; an edit that changes much takes longer.\n\
         Medians of {ROUNDS}: how long it took, which is longer the more others want the processors, and the time of processors that cargo and its compilers used. Beside them the packages of which cargo compiled anything; all others stayed as they were.\n\n\
         | edit in | cargo | took | of processors | compiled anew |\n|---|---|---|---|---|\n"
    );
    for Edit { dir, builds } in edits {
        for Build { command, took, used, built } in builds {
            let built = built.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            // Writing to a string cannot fail.
            let [took, used] = [took, used].map(Duration::as_secs_f64);
            let row = format!("| `{dir}` | `{command}` | {took:.1} s | {used:.1} s | {built} |");
            let _ = writeln!(text, "{row}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cargo_compiled_is_what_is_not_fresh() {
        let artifact = |id: &str, fresh: bool| {
            format!(r#"{{"reason":"compiler-artifact","package_id":"{id}","fresh":{fresh}}}"#)
        };
        let messages = [
            artifact("registry+https://example.org/index#zbus@6.0.0", true),
            artifact("path+file:///tree/agent#ebb-agent@0.1.0", false),
            artifact("path+file:///tree/ebb#0.1.0", false),
            artifact("path+file:///tree/kube#ebb-kube@0.1.0", true),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let built = built(&messages.join("\n")).unwrap();
        assert_eq!(built.into_iter().collect::<Vec<_>>(), ["ebb", "ebb-agent"]);
    }

    #[test]
    fn every_place_of_an_edit_is_in_this_tree_and_has_a_package() {
        let names = EDITS.map(|dirs| package_of(dirs[0]).unwrap());
        assert_eq!(names, ["ebb-policy", "ebb-agent", "ebb-kube", "ebb"]);
        for dirs in EDITS {
            assert!(first_source(&sh::root().join(dirs[0])).is_ok(), "{dirs:?}");
        }
    }

    #[test]
    fn what_ended_children_used_is_in_two_fields() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 100 200 0 0 11 12 150 25 20 0 1 0 500";
        assert_eq!(of_children(stat), Some(Duration::from_millis(1750)));
        assert_eq!(of_children("7 (a) S 1"), None);
    }

    #[test]
    fn an_edit_has_a_row_for_each_command() {
        let build = Build {
            command: "build -p ebb".into(),
            took: Duration::from_millis(12_340),
            used: Duration::from_millis(9_870),
            built: ["ebb", "ebb-agent"].map(str::to_owned).into(),
        };
        let edit = Edit { dir: "agent/src/act", builds: vec![build] };
        assert_eq!(edit.figures().next().map(|figure| figure.value), Some(12.34));
        let text = render(&[edit], "here");
        let row = "| `agent/src/act` | `build -p ebb` | 12.3 s | 9.9 s | `ebb`, `ebb-agent` |";
        assert!(text.contains(row), "{text}");
    }
}
