//! `ebb check`: what this host offers, what ebb will therefore use, and what to do about what is missing.
//!
//! Facts are gathered first ([`Facts::gather`]); what follows from them is decided by one pure function ([`findings::findings`]), so that the advice can be tested without the host that needs it.
//! Programs are really attached for a moment where that is allowed: a kernel can refuse what it seems to offer.

mod confinement;
mod finding;
mod findings;
mod guard_band;
mod hook;

use super::configured::ConfigArgs;
use super::node::NodeArgs;
use super::on_node::{self, Around};
use super::plan::shown;
use super::{Failure, colour, event_loop};
use anyhow::{Context as _, anyhow};
use caps::Capability;
use ebb_agent::config::Seccomp;
use ebb_agent::config::{Config, Setting};
use ebb_agent::lock::NodeLock;
use ebb_agent::privileges::Held;
use ebb_agent::sense::Roots;
use ebb_agent::sense::host::{CgroupLayout, Interfaces};
use ebb_agent::sense::node::NodeSensor;
use ebb_agent::sense::psi::Trigger;
use ebb_agent::sense::sweep::Sweeper;
use ebb_agent::sense::tree::Tree;
use ebb_journal::GuardBand;
use ebb_journal::Output;
use ebb_journal::text::plain;
use ebb_probes::{
    Fact, FallWatch, HostSupport, Options, Presence, ProbeSet, ProbeState, ProbeStatus, Probes,
    Reflex,
};
use finding::{Finding, Status};
use findings::{findings, is_needed};
use nix::unistd::Uid;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

/// Where an ebb that enforces keeps its lock, unless it was told otherwise.
const STATE: &str = "/var/lib/ebb";

/// Arguments of `ebb check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    config: ConfigArgs,
    /// For `ebb run --kubernetes`: also hold the thresholds against those of the kubelet beside it, from --kubelet-config, else from config.yaml in the kubelet's root directory.
    #[arg(long)]
    kubernetes: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// What was found out, without any opinion.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Facts {
    kernel: HostSupport,
    programs: Vec<ProbeStatus>,
    cgroups: CgroupLayout,
    interfaces: Interfaces,
    /// Window of the shortest pressure trigger that was accepted, in microseconds, or why none was.
    pressure_trigger: Result<u32, String>,
    /// How a sweep tells what all cgroups use, or why there is none.
    sweep: Result<String, String>,
    /// Why the kernel does not tell when memory falls, if it does not.
    fall: Result<(), String>,
    /// Why there is no reflex, if there is none.
    reflex: Result<(), String>,
    /// Swap space of the node, bytes, and how much of it is on zram; `None` when it cannot be told.
    swap: Option<Swap>,
    is_root: bool,
    may_kill: bool,
    /// What this process holds; `None` when procfs does not say.
    privileges: Option<Held>,
    /// The process id of the ebb that enforces on this node, and what it holds.
    running: Option<(i32, Held)>,
    /// Whether the configuration has ebb act.
    enforce: bool,
    seccomp: Seccomp,
    /// How the thresholds stand to those of the kubelet beside ebb; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    guard_band: Option<GuardBand>,
    /// The hook that is called before an eviction; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    hook: Option<hook::Hook>,
}

/// Swap space, bytes.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct Swap {
    total: u64,
    on_zram: u64,
    /// Whether it is told how well zram compresses.
    compression_is_told: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    findings: Vec<Finding>,
    /// Every setting in force with the configuration that was named.
    settings: &'a [Setting],
    facts: &'a Facts,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut of = args.config.clone();
    if args.kubernetes {
        of = of.beside_kubelet(&args.node);
    }
    let config = of.load()?;
    // It is not told how an agent finds its pods.
    let (capacities, beside_kubelet) = (args.node.capacities(), args.kubernetes);
    let around = Around { capacities, beside_kubelet, reconciler: None };
    on_node::refuse(&args.config, &config, &around)?;
    let settings = config.explain(args.config.file());
    let facts = Facts::gather(&args.node, &config)?;
    let findings = findings(&facts);
    let cannot = findings.iter().find(|f| f.status == Status::Unavailable && is_needed(f));
    let cannot = cannot.map(|f| format!("ebb cannot {} here: {}", f.what, f.source));
    match args.output {
        Output::Json => {
            let answer = Answer { findings, settings: &settings, facts: &facts };
            let text = serde_json::to_string(&answer).context("cannot write the answer")?;
            println!("{text}");
        }
        Output::Text => print(&facts, &findings, &settings).context("cannot write the answer")?,
    }
    match cannot {
        Some(why) => Err(Failure::Host(anyhow!(why))),
        None => Ok(()),
    }
}

impl Facts {
    fn gather(node: &NodeArgs, config: &Config) -> Result<Self, Failure> {
        let (roots, cgroups) = node.find().map_err(Failure::Input)?;
        let kernel = ebb_probes::survey();
        let tree = cgroups.v2().and_then(|root| Tree::scan(root).ok());
        let options = Options::default();
        let set = ProbeSet::for_host(&kernel, &options);
        let programs = event_loop()?.block_on(async {
            Probes::attach(&set, &options).map(|probes| probes.status().to_vec())
        });
        let privileges = Held::of_this_thread(Path::new("/proc"));
        let is_root = Uid::effective().is_root();
        Ok(Self {
            programs: programs.context("cannot try the BPF programs")?,
            sweep: match cgroups.unified() {
                Some(root) => {
                    Sweeper::open(root, &kernel).map(|sweeper| sweeper.shown().unwrap_or_default())
                }
                None => Err("the memory controller is not on cgroup v2".into()),
            },
            fall: FallWatch::try_out(&kernel),
            reflex: Reflex::open(&kernel).map(drop),
            interfaces: Interfaces::detect(&roots.proc, tree.as_ref()),
            pressure_trigger: Trigger::best(&roots.proc.join("pressure/memory"))
                .map(|trigger| trigger.window_us)
                .map_err(|e| e.to_string()),
            kernel,
            cgroups,
            swap: swap(&roots),
            is_root,
            may_kill: is_root
                || privileges.as_ref().is_some_and(|held| held.has(Capability::CAP_KILL.index())),
            privileges,
            running: NodeLock::holder(Path::new(STATE), Path::new("/proc"))
                .and_then(|pid| Some((pid, Held::of_process(Path::new("/proc"), pid)?))),
            enforce: config.enforce,
            seccomp: config.seccomp,
            guard_band: config.guard_band.clone(),
            hook: config.before_eviction.as_ref().map(hook::Hook::gather),
        })
    }

    /// Facts that an attached program tells.
    fn told(&self) -> BTreeSet<Fact> {
        let attached = self.programs.iter().filter(|p| p.state == ProbeState::Attached);
        attached.map(|p| p.feeds).collect()
    }

    /// Why no program tells `fact`.
    fn why_not(&self, fact: Fact) -> String {
        let own = self.programs.iter().filter(|p| p.feeds == fact);
        let mut reasons: Vec<&str> = own
            .filter_map(|p| match &p.state {
                ProbeState::Absent(why) | ProbeState::Refused(why) => Some(why.as_str()),
                ProbeState::Attached | ProbeState::Spare => None,
            })
            .collect();
        reasons.dedup();
        reasons.first().map_or_else(|| "no program for it".to_owned(), |why| (*why).to_owned())
    }
}

fn swap(roots: &Roots) -> Option<Swap> {
    let memory = NodeSensor::open(roots).ok()?.read_memory().ok()?;
    Some(Swap {
        total: memory.swap_total?,
        on_zram: memory.zram.map_or(0, |zram| zram.total),
        compression_is_told: memory.zram.is_none_or(|zram| zram.memory.is_some()),
    })
}

fn print(facts: &Facts, findings: &[Finding], settings: &[Setting]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let kernel = &facts.kernel;
    writeln!(out, "kernel {}", kernel.release)?;
    let btf = match &kernel.btf {
        Presence::Present => "present".to_owned(),
        Presence::Absent(why) => format!("absent ({why})"),
    };
    let lockdown =
        kernel.lockdown.map_or_else(|| "not told".into(), |l| format!("{l:?}").to_lowercase());
    writeln!(out, "type information (BTF) {btf}; lockdown {lockdown}; root {}", facts.is_root)?;
    writeln!(out)?;
    for finding in findings {
        let (mark, tint) = match finding.status {
            Status::Live => ("live    ", "\x1b[32m"),
            Status::Degraded => ("degraded", "\x1b[33m"),
            Status::Unavailable => ("missing ", "\x1b[31m"),
        };
        let (tint, reset) = if colour() { (tint, "\x1b[0m") } else { ("", "") };
        writeln!(out, "{tint}{mark}{reset}  {}: {}", finding.what, plain(&finding.source))?;
        if let Some(advice) = &finding.advice {
            writeln!(out, "            {}", plain(advice))?;
        }
    }
    writeln!(out)?;
    let mut families: BTreeMap<&str, Vec<&ProbeStatus>> = BTreeMap::new();
    for program in &facts.programs {
        families.entry(program.family).or_default().push(program);
    }
    for (family, programs) in families {
        writeln!(out, "{family}:")?;
        for program in programs {
            let state = match &program.state {
                ProbeState::Attached => "attached".to_owned(),
                ProbeState::Spare => "spare, a better one is attached".to_owned(),
                ProbeState::Absent(why) => format!("absent: {why}"),
                ProbeState::Refused(why) => format!("refused: {why}"),
            };
            let hook = program.hook.to_string();
            writeln!(out, "  {:<24} {hook:<40} {}", program.name, plain(&state))?;
        }
    }
    writeln!(out)?;
    writeln!(
        out,
        "thresholds (all settings: ebb plan --explain-config, with --config FILE if there is one):"
    )?;
    let is_threshold = |s: &&Setting| {
        s.key.starts_with("eviction") && s.key.ends_with(']')
            || matches!(s.key.as_str(), "ebb.alsoBelow" | "ebb.memoryPressure")
    };
    for setting in settings.iter().filter(is_threshold) {
        writeln!(out, "  {}", plain(&shown(setting)))?;
    }
    Ok(())
}
