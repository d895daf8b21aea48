//! `cargo xtask bench`: measurements whose results are kept in `docs/benchmarks.md`, and what a change moved (`--compare`).
//!
//! Each section of that file stands between two marker lines and is replaced as a whole by the one command that
//! measures it; the text around the sections is written by people. What a section measured as numbers is kept beside it (`runs`).
use crate::alone::Lock;
use crate::vm::payload::Payload;
use crate::{arch::Arch, sh, vm};
use anyhow::{Context, Result, ensure};
use clap::ValueEnum as _;
use compare::Unit;
use criterion::cargo_bench;
use figure::Finding;
use runs::{Run, Tree};
use std::fs;
use std::path::PathBuf;

pub(crate) mod figure;

mod cascade;
mod compare;
mod criterion;
mod fleet;
mod graph;
mod host;
mod inventory;
mod native;
mod observers;
mod rebuild;
mod runs;

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to measure; everything when nothing is named.
    #[arg(value_enum)]
    sections: Vec<Section>,
    /// Only this contender of the race or the idle watch (ebb, earlyoom, …), or this benchmark of the host (pass, decode, …); then nothing is kept. May be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Keep nothing: measure this tree and BASE in turns, and say what moved by more than 10 %. Fails when something became worse.
    ///
    /// BASE is a revision of git; by default where this branch left main, and on main the commit before.
    #[arg(long, value_name = "BASE", num_args = 0..=1, require_equals = true)]
    compare: Option<Option<String>>,
    /// How many times each tree is measured for --compare.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(3..), requires = "compare")]
    pairs: u8,
    /// Build what is needed, and measure nothing.
    #[arg(long, hide = true)]
    no_run: bool,
    /// Measure for a shorter time: for one of many runs.
    #[arg(long, hide = true)]
    short: bool,
    /// Write the figures of the section to this file, and keep nothing.
    #[arg(long, hide = true, value_name = "FILE")]
    figures: Option<PathBuf>,
    /// Chains of the cascade; a tenth of them at each collector's defaults.
    #[arg(long, default_value_t = 1_000)]
    chains: usize,
    /// Owned objects that are there when a collector of the cascade starts; a twentieth of them at its defaults.
    #[arg(long, default_value_t = 100_000)]
    owned: usize,
    /// Agents of the fleet.
    #[arg(long, default_value_t = 500)]
    agents: usize,
}

/// A section of `docs/benchmarks.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Section {
    /// Guests: from a crossed threshold to the kill, beside earlyoom, nohang and systemd-oomd.
    Race,
    /// Guests: what ebb costs while nothing happens, beside earlyoom and nohang.
    Idle,
    /// This host: from a crossed threshold to the kill of a dry run, with hogs of several speeds, and what looking costs.
    Native,
    /// This host and a guest: what it costs ebb to be scraped and watched, on a calm node and in the race.
    Observers,
    /// Guests: a sweep over the cgroup tree beside the same values from files, on each kernel.
    Kernel,
    /// Guests: the reflex beside the path through user space, and what each program costs, on each kernel.
    Reflex,
    /// Guests: from a new or changed cgroup to its values, on each kernel.
    Reconciler,
    /// A guest: from a container's end to its removal.
    Removal,
    /// This host: listing and planning with 110 pods, 330 containers and 1,000 images.
    Inventory,
    /// This host: the cluster collector beside kube-controller-manager, on a real control plane.
    Cascade,
    /// This host: the Kubernetes part of hundreds of agents beside one API server.
    Fleet,
    /// This host: the cluster collector's graph with up to 1,000,000 objects, without a cluster.
    Graph,
    /// This host: what cargo builds anew after an edit, and how long that takes.
    Rebuild,
    /// This host: deciding, decoding, observing, starting, and a storm of exits (needs root).
    Host,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let sections =
        if args.sections.is_empty() { Section::value_variants() } else { &args.sections };
    if let Some(base) = &args.compare {
        let base = base.clone().map_or_else(compare::default_base, Ok)?;
        let units: Vec<Unit> = sections.iter().flat_map(|section| section.units(args)).collect();
        return compare::run(&base, args.pairs.into(), &units);
    }
    if args.no_run {
        return sections.iter().try_for_each(|section| section.build(args));
    }
    ensure!(args.figures.is_none() || sections.len() == 1, "one file is for one section");
    let _lock = Lock::take(&sh::target().join("bench.lock"), "the benchmarks of this checkout")?;
    let tree = Tree::now()?;
    for section in sections {
        let found = section.measure(args)?;
        println!("\n{}", found.text);
        if let Some(path) = &args.figures {
            let figures = serde_json::to_vec(&found.figures).context("cannot write JSON")?;
            fs::write(path, figures).with_context(|| format!("cannot write {}", path.display()))?;
        } else if args.only.is_empty() {
            keep(&section.name(), &tree, &found)?;
        }
    }
    Ok(())
}

impl Section {
    /// As it is named on the command line and in the document.
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn measure(self, args: &Args) -> Result<Finding> {
        match self {
            Self::Race => vm::race::run(&args.only),
            Self::Idle => vm::idle::run(&args.only),
            Self::Native => native::run(),
            Self::Observers => observers::run(),
            Self::Kernel => vm::costs::run(),
            Self::Reflex => vm::shots::run(),
            Self::Reconciler => vm::reconciler::run(),
            Self::Removal => vm::removal::run(),
            Self::Inventory => inventory::run(args.short),
            Self::Cascade => cascade::run(args.chains, args.owned),
            Self::Fleet => fleet::run(args.agents),
            Self::Graph => graph::run(),
            Self::Rebuild => rebuild::run(),
            Self::Host => host::run(&args.only, args.short),
        }
    }

    /// Build what it runs, as far as that is not part of what it measures.
    fn build(self, args: &Args) -> Result<()> {
        let bench = |package, name| sh::run(cargo_bench(package, name).arg("--no-run"));
        match self {
            Self::Race
            | Self::Idle
            | Self::Kernel
            | Self::Reflex
            | Self::Reconciler
            | Self::Removal => Payload::build(Arch::Amd64).map(drop),
            Self::Observers => {
                bench("ebb-tests", "observers")?;
                Payload::build(Arch::Amd64).map(drop)
            }
            Self::Native => bench("ebb-tests", "native"),
            Self::Inventory => bench("ebb-tests", "inventory"),
            Self::Cascade => bench("ebb-cluster-tests", "cascade"),
            Self::Fleet => bench("ebb-cluster-tests", "fleet"),
            Self::Graph => graph::build(),
            Self::Rebuild => Ok(()),
            Self::Host => host::build(&args.only),
        }
    }

    /// What `--compare` measures in turns: the benchmarks of the host each by itself, guests whole, and of contenders ebb.
    fn units(self, args: &Args) -> Vec<Unit> {
        let unit = |only: &[String]| {
            let mut words = vec![self.name()];
            words.extend(only.iter().flat_map(|name| ["--only".to_owned(), name.clone()]));
            for (option, value) in
                [("--chains", args.chains), ("--owned", args.owned), ("--agents", args.agents)]
            {
                words.extend([option.to_owned(), value.to_string()]);
            }
            Unit { name: [&[self.name()], only].concat().join(" "), words }
        };
        match (self, args.only.as_slice()) {
            (Self::Host, []) => host::benches().map(|(_, name)| unit(&[name.to_owned()])).collect(),
            (Self::Host, only) => only.chunks(1).map(unit).collect(),
            (Self::Race | Self::Idle, []) => vec![unit(&["ebb".to_owned()])],
            (_, only) => vec![unit(only)],
        }
    }
}

/// Replace a section of the document, and keep its figures beside those of the runs before.
fn keep(name: &str, tree: &Tree, found: &Finding) -> Result<()> {
    let path = sh::root().join("docs/benchmarks.md");
    let old =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let lacks = |name: &str| format!("{} has no section {name}", path.display());
    let new = replaced(&old, name, &found.text).with_context(|| lacks(name))?;
    let sections: Vec<String> = Section::value_variants().iter().map(|s| s.name()).collect();
    let last = runs::keep(Run::new(name, tree, found), &sections)?;
    let new = replaced(&new, "runs", &last).with_context(|| lacks("runs"))?;
    fs::write(&path, new).with_context(|| format!("cannot write {}", path.display()))
}

fn replaced(document: &str, name: &str, section: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (before, rest) = document.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{}\n{end}{after}", section.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_nothing_else() {
        let old = "# T\n<!-- a: begin -->\nold\n<!-- a: end -->\nafter\n";
        let new = "# T\n<!-- a: begin -->\nnew\n<!-- a: end -->\nafter\n";
        assert_eq!(replaced(old, "a", "new\n").as_deref(), Some(new));
        assert_eq!(replaced(old, "b", "new"), None);
    }

    #[test]
    fn every_section_has_its_place_in_the_document() {
        let document = fs::read_to_string(sh::root().join("docs/benchmarks.md")).unwrap();
        let names = Section::value_variants().iter().map(|section| section.name());
        for name in names.chain(["runs".to_owned()]) {
            assert!(replaced(&document, &name, "new").is_some(), "{name}");
        }
    }

    #[test]
    fn the_host_is_compared_benchmark_by_benchmark_and_of_a_race_only_ebb() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let units = |words: &str| -> Vec<String> {
            let line: Line = clap::Parser::parse_from(words.split(' '));
            let args = line.args;
            assert!(args.compare.is_some());
            args.sections.iter().flat_map(|section| section.units(&args)).map(|u| u.name).collect()
        };
        assert_eq!(units("bench --compare host race")[..2], ["host pass", "host decode"]);
        assert_eq!(units("bench --compare=HEAD~3 race"), ["race ebb"]);
        assert_eq!(
            units("bench --compare host --only pass --only cgroups"),
            ["host pass", "host cgroups"]
        );
        assert_eq!(units("bench --compare inventory graph"), ["inventory", "graph"]);
    }
}
