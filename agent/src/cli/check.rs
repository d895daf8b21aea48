//! `ebb check`: what this host offers, what ebb will therefore use, and what to do about what is missing.
//!
//! Facts are gathered first ([`Facts::gather`]); what follows from them is decided by one pure function ([`findings`]), so that the advice can be tested without the host that needs it.
//! Programs are really attached for a moment where that is allowed: a kernel can refuse what it seems to offer.

use super::node::NodeArgs;
use super::{Failure, colour, runtime};
use crate::report::Output;
use crate::sense::host::{CgroupLayout, Interfaces};
use crate::sense::psi::Trigger;
use crate::sense::tree::Tree;
use anyhow::{Context as _, anyhow};
use ebb_probes::{
    Fact, HostSupport, Lockdown, Options, Presence, ProbeSet, ProbeState, ProbeStatus, Probes,
};
use nix::unistd::Uid;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

/// Arguments of `ebb check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    node: NodeArgs,
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
    is_root: bool,
    may_kill: bool,
}

/// How it stands with one thing that ebb does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Standing {
    /// The best way is live.
    Live,
    /// It works, by a lesser way.
    Degraded,
    /// It does not work here.
    Missing,
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    /// What ebb does.
    what: &'static str,
    standing: Standing,
    /// The way that is live, or why none is.
    by: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

#[derive(Serialize)]
struct Answer<'a> {
    findings: Vec<Finding>,
    facts: &'a Facts,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let facts = Facts::gather(&args.node)?;
    let findings = findings(&facts);
    let cannot = findings.iter().find(|f| f.standing == Standing::Missing && is_needed(f));
    let cannot = cannot.map(|f| format!("ebb cannot {} here: {}", f.what, f.by));
    match args.output {
        Output::Json => {
            let answer = Answer { findings, facts: &facts };
            let text = serde_json::to_string_pretty(&answer).context("cannot write the answer")?;
            println!("{text}");
        }
        Output::Text => print(&facts, &findings).context("cannot write the answer")?,
    }
    match cannot {
        Some(why) => Err(Failure::Host(anyhow!(why))),
        None => Ok(()),
    }
}

impl Facts {
    fn gather(node: &NodeArgs) -> Result<Self, Failure> {
        let (roots, cgroups) = node.find().map_err(Failure::Input)?;
        let kernel = ebb_probes::survey();
        let tree = cgroups.v2().and_then(|root| Tree::scan(root).ok());
        let options = Options::default();
        let set = ProbeSet::for_host(&kernel, &options);
        let programs = runtime()?.block_on(async {
            Probes::attach(&set, &options).map(|probes| probes.status().to_vec())
        });
        let is_root = Uid::effective().is_root();
        Ok(Self {
            programs: programs.context("cannot try the BPF programs")?,
            interfaces: Interfaces::detect(&roots.proc, tree.as_ref()),
            pressure_trigger: Trigger::best(&roots.proc.join("pressure/memory"))
                .map(|trigger| trigger.window_us)
                .map_err(|e| e.to_string()),
            kernel,
            cgroups,
            is_root,
            may_kill: is_root || has_cap_kill(&roots.proc),
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

/// What follows from the facts.
fn findings(facts: &Facts) -> Vec<Finding> {
    let told = facts.told();
    let mut findings =
        vec![memory_watch(facts, &told), workloads(facts), tree_changes(facts, &told)];
    findings.push(event(
        "learn of OOM kills",
        Fact::OomKills,
        facts,
        &told,
        "memory.events of each workload, read with it",
    ));
    findings.push(event(
        "learn whose limit an OOM kill was for",
        Fact::OomLimits,
        facts,
        &told,
        "nothing: the limit is reported as unknown",
    ));
    findings.push(event(
        "learn of memory events",
        Fact::MemoryEvents,
        facts,
        &told,
        "memory.events of each workload, read with it",
    ));
    findings.push(event(
        "learn of process exits",
        Fact::Exits,
        facts,
        &told,
        "cgroup.events of what was ended",
    ));
    findings.push(event(
        "attribute memory stall",
        Fact::MemoryStall,
        facts,
        &told,
        "memory.pressure of each workload",
    ));
    findings.push(event(
        "see direct reclaim",
        Fact::DirectReclaim,
        facts,
        &told,
        "nothing: it is reported as unknown",
    ));
    findings.push(ending(facts));
    findings
}

fn memory_watch(facts: &Facts, told: &BTreeSet<Fact>) -> Finding {
    let mut by = vec!["meminfo, read as often as the headroom asks".to_owned()];
    if told.contains(&Fact::KswapdWakes) {
        by.insert(0, "kswapd wakes (BPF)".into());
    }
    let mut advice = None;
    match &facts.pressure_trigger {
        Ok(window) => by.push(format!("pressure trigger with a window of {} ms", window / 1000)),
        Err(why) if facts.interfaces.psi => {
            advice = Some(format!(
                "pressure trigger refused ({why}): run as root or with CAP_SYS_RESOURCE"
            ));
        }
        Err(_) => advice = Some("no PSI: boot with psi=1 for earlier wake-ups".into()),
    }
    let is_full = by.len() == 3;
    let standing = if is_full { Standing::Live } else { Standing::Degraded };
    Finding { what: "watch the node's memory", standing, by: by.join("; "), advice }
}

fn workloads(facts: &Facts) -> Finding {
    let what = "tell workloads apart";
    match &facts.cgroups {
        CgroupLayout::Unified { root } => Finding {
            what,
            standing: Standing::Live,
            by: format!("cgroup v2 at {}", root.display()),
            advice: None,
        },
        CgroupLayout::Hybrid { memory, .. } | CgroupLayout::Legacy { memory } => Finding {
            what,
            standing: Standing::Degraded,
            by: match memory {
                Some(at) => format!("processes by resident memory: the memory controller is on cgroup v1 ({})", at.display()),
                None => "processes by resident memory: no cgroup has the memory controller".into(),
            },
            advice: Some("boot with systemd.unified_cgroup_hierarchy=1 (or cgroup_no_v1=all) to have cgroups as workloads".into()),
        },
    }
}

fn tree_changes(facts: &Facts, told: &BTreeSet<Fact>) -> Finding {
    let needed =
        [Fact::CgroupsCreated, Fact::CgroupsRemoved, Fact::CgroupsRenamed, Fact::CgroupsPopulated];
    let what = "follow the cgroup tree";
    match needed.into_iter().find(|fact| !told.contains(fact)) {
        None => Finding {
            what,
            standing: Standing::Live,
            by: "cgroup events (BPF)".into(),
            advice: None,
        },
        Some(fact) => Finding {
            what,
            standing: Standing::Degraded,
            by: "the tree is read again, at most once a second, while a threshold is near".into(),
            advice: Some(advice(facts, fact)),
        },
    }
}

fn event(
    what: &'static str,
    fact: Fact,
    facts: &Facts,
    told: &BTreeSet<Fact>,
    instead: &str,
) -> Finding {
    if told.contains(&fact) {
        let hook =
            facts.programs.iter().find(|p| p.feeds == fact && p.state == ProbeState::Attached);
        let by = hook.map(|p| format!("{} (BPF)", p.hook)).unwrap_or_default();
        return Finding { what, standing: Standing::Live, by, advice: None };
    }
    Finding {
        what,
        standing: Standing::Degraded,
        by: instead.to_owned(),
        advice: Some(advice(facts, fact)),
    }
}

fn ending(facts: &Facts) -> Finding {
    let what = "end a workload";
    if !facts.may_kill {
        return Finding {
            what,
            standing: Standing::Missing,
            by: "neither root nor CAP_KILL".into(),
            advice: Some("run as root, or with CAP_KILL and write access to the cgroup tree; a dry run works without".into()),
        };
    }
    match (facts.cgroups.unified(), facts.interfaces.cgroup_kill) {
        (Some(_), Some(true)) => {
            Finding { what, standing: Standing::Live, by: "cgroup.kill".into(), advice: None }
        }
        (Some(_), _) => Finding {
            what,
            standing: Standing::Degraded,
            by: "freeze, then SIGKILL to each process by pidfd".into(),
            advice: Some("cgroup.kill came with Linux 5.14".into()),
        },
        (None, _) => Finding {
            what,
            standing: Standing::Degraded,
            by: "SIGKILL to one process by pidfd".into(),
            advice: None,
        },
    }
}

/// What to do about a fact that nothing tells.
fn advice(facts: &Facts, fact: Fact) -> String {
    let kernel = &facts.kernel;
    if kernel.objects.is_empty() {
        return "this binary was built without BPF programs: `cargo xtask build` makes one with them".into();
    }
    if !kernel.capabilities.allow_tracing() {
        return "run as root, or with CAP_BPF and CAP_PERFMON".into();
    }
    if let Presence::Absent(why) = &kernel.btf {
        return format!(
            "the kernel has no type information ({why}): a kernel built with CONFIG_DEBUG_INFO_BTF has"
        );
    }
    if kernel.lockdown == Some(Lockdown::Confidentiality) {
        return "the kernel is locked down for confidentiality: lockdown=integrity would do".into();
    }
    facts.why_not(fact)
}

fn is_needed(finding: &Finding) -> bool {
    finding.what == "end a workload"
}

fn has_cap_kill(proc: &std::path::Path) -> bool {
    const CAP_KILL: u32 = 5;
    let status = crate::sense::file::read_once(&proc.join("self/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let mask = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << CAP_KILL) != 0
}

fn print(facts: &Facts, findings: &[Finding]) -> std::io::Result<()> {
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
        let (mark, tint) = match finding.standing {
            Standing::Live => ("live    ", "\x1b[32m"),
            Standing::Degraded => ("degraded", "\x1b[33m"),
            Standing::Missing => ("missing ", "\x1b[31m"),
        };
        let (tint, reset) = if colour() { (tint, "\x1b[0m") } else { ("", "") };
        writeln!(out, "{tint}{mark}{reset}  {}: {}", finding.what, finding.by)?;
        if let Some(advice) = &finding.advice {
            writeln!(out, "            {advice}")?;
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
            writeln!(out, "  {:<24} {:<40} {state}", program.name, program.hook.to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(cgroups: CgroupLayout) -> Facts {
        Facts {
            kernel: HostSupport {
                release: "6.1".into(),
                btf: Presence::Present,
                capabilities: ebb_probes::Capabilities::default(),
                lockdown: None,
                unprivileged_bpf_disabled: None,
                hooks: BTreeMap::new(),
                objects: vec!["probes".into()],
            },
            programs: Vec::new(),
            cgroups,
            interfaces: Interfaces {
                cgroup_kill: Some(true),
                memory_reclaim: Some(true),
                psi: true,
            },
            pressure_trigger: Ok(500_000),
            is_root: true,
            may_kill: true,
        }
    }

    fn find<'a>(findings: &'a [Finding], what: &str) -> &'a Finding {
        findings.iter().find(|f| f.what == what).unwrap()
    }

    #[test]
    fn a_hybrid_host_is_told_that_processes_are_ranked_and_how_to_change_it() {
        let layout = CgroupLayout::Hybrid { root: "/u".into(), memory: Some("/m".into()) };
        let findings = findings(&facts(layout));
        let finding = find(&findings, "tell workloads apart");
        assert_eq!(finding.standing, Standing::Degraded);
        assert!(finding.by.contains("resident memory") && finding.by.contains("/m"));
        assert!(finding.advice.as_ref().unwrap().contains("unified_cgroup_hierarchy"));
    }

    #[test]
    fn without_capabilities_the_advice_names_them() {
        let findings = findings(&facts(CgroupLayout::Unified { root: "/c".into() }));
        let finding = find(&findings, "learn of OOM kills");
        assert_eq!(finding.standing, Standing::Degraded);
        assert!(finding.advice.as_ref().unwrap().contains("CAP_BPF"));
    }

    #[test]
    fn a_user_who_may_not_kill_cannot_enforce() {
        let mut facts = facts(CgroupLayout::Unified { root: "/c".into() });
        facts.may_kill = false;
        let findings = findings(&facts);
        let finding = find(&findings, "end a workload");
        assert_eq!(finding.standing, Standing::Missing);
        assert!(is_needed(finding));
    }
}
