//! `cargo xtask bench`: measurements whose results are kept in `docs/benchmarks.md`.
//!
//! Each section of that file stands between two marker lines and is replaced as a whole by the one command that
//! measures it; the text around the sections is written by people.
use crate::{sh, vm};
use anyhow::{Context, Result};
use std::fs;

mod cascade;
mod fleet;
mod graph;
mod host;
mod inventory;
mod native;
mod observers;

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to measure; everything when nothing is named.
    #[arg(value_enum)]
    sections: Vec<Section>,
    /// Only this contender of the race or the idle watch (ebb, earlyoom, …); then nothing is kept. May be given several times.
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
    /// This host: deciding, decoding, observing, and a storm of exits (needs root).
    Host,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let all = [
        Section::Race,
        Section::Idle,
        Section::Native,
        Section::Observers,
        Section::Kernel,
        Section::Reflex,
        Section::Reconciler,
        Section::Removal,
        Section::Inventory,
        Section::Cascade,
        Section::Fleet,
        Section::Graph,
        Section::Host,
    ];
    let sections = if args.sections.is_empty() { &all[..] } else { &args.sections };
    for section in sections {
        let (name, text) = match section {
            Section::Race => ("race", vm::race::run(&args.only)?),
            Section::Idle => ("idle", vm::idle::run(&args.only)?),
            Section::Native => ("native", native::run()?),
            Section::Observers => ("observers", observers::run()?),
            Section::Kernel => ("kernel", vm::costs::run()?),
            Section::Reflex => ("reflex", vm::shots::run()?),
            Section::Reconciler => ("reconciler", vm::reconciler::run()?),
            Section::Removal => ("removal", vm::removal::run()?),
            Section::Inventory => ("inventory", inventory::run()?),
            Section::Cascade => ("cascade", cascade::run(args.chains, args.owned)?),
            Section::Fleet => ("fleet", fleet::run(args.agents)?),
            Section::Graph => ("graph", graph::run()?),
            Section::Host => ("host", host::run()?),
        };
        println!("\n{text}");
        if args.only.is_empty() {
            keep(name, &text)?;
        }
    }
    Ok(())
}

/// Replace the section `name` of the document.
fn keep(name: &str, section: &str) -> Result<()> {
    let path = sh::root().join("docs/benchmarks.md");
    let old =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let new = replaced(&old, name, section)
        .with_context(|| format!("{} has no section {name}", path.display()))?;
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
}
