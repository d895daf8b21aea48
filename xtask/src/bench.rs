//! `cargo xtask bench`: measurements whose results are kept in `docs/benchmarks.md`.
//!
//! Each section of that file stands between two marker lines and is replaced as a whole by the one command that
//! measures it; the text around the sections is written by people. What a section measured as numbers is kept beside it (`runs`).
use crate::{sh, vm};
use anyhow::{Context, Result};
use clap::ValueEnum as _;
use figure::Finding;
use runs::{Run, Tree};
use std::fs;

pub(crate) mod figure;

mod cascade;
mod criterion;
mod fleet;
mod graph;
mod host;
mod inventory;
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
    /// This host: deciding, decoding, observing, and a storm of exits (needs root).
    Host,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let sections =
        if args.sections.is_empty() { Section::value_variants() } else { &args.sections };
    let tree = Tree::now()?;
    for section in sections {
        let found = section.measure(args)?;
        println!("\n{}", found.text);
        if args.only.is_empty() {
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
            Self::Observers => observers::run(),
            Self::Kernel => vm::costs::run(),
            Self::Reflex => vm::shots::run(),
            Self::Reconciler => vm::reconciler::run(),
            Self::Removal => vm::removal::run(),
            Self::Inventory => inventory::run(),
            Self::Cascade => cascade::run(args.chains, args.owned),
            Self::Fleet => fleet::run(args.agents),
            Self::Graph => graph::run(),
            Self::Rebuild => rebuild::run(),
            Self::Host => host::run(&args.only),
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
}
