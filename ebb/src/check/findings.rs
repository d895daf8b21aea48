//! What follows from the facts about a host: one finding for each thing that ebb does. Pure.

use super::finding::{Finding, Status};
use super::{Facts, Swap};
use ebb_agent::sense::host::CgroupLayout;
use ebb_journal::text::bytes;
use ebb_probes::{Fact, Lockdown, Presence, ProbeState};
use std::collections::BTreeSet;

/// What follows from the facts.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let told = facts.told();
    let mut findings =
        vec![memory_watch(facts, &told), swap(facts), workloads(facts), tree_changes(facts, &told)];
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
    findings.push(usage(facts));
    findings.push(ending(facts));
    findings.push(fall(facts));
    findings.push(reflex(facts));
    findings.push(super::confinement::finding(facts));
    findings.extend(facts.hook.iter().map(|hook| super::hook::finding(hook, facts.enforce)));
    findings.extend(facts.guard_band.iter().flat_map(super::guard_band::findings));
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
    let status = if is_full { Status::Live } else { Status::Degraded };
    Finding { what: "watch the node's memory", status, source: by.join("; "), advice }
}

fn swap(facts: &Facts) -> Finding {
    let what = "count swap";
    let (status, by, advice) = match facts.swap {
        None => (
            Status::Degraded,
            "nothing: meminfo does not tell of swap, so memory alone decides".to_owned(),
            None,
        ),
        Some(Swap { total: 0, .. }) => (
            Status::Live,
            "there is none: memory alone decides, and a threshold on swap.available is never met"
                .to_owned(),
            None,
        ),
        Some(Swap { total, on_zram, compression_is_told }) => {
            let mut by = format!("meminfo: {}", bytes(total));
            if on_zram > 0 {
                by += &format!(", of which {} on zram", bytes(on_zram));
            }
            let advice = "zram's mm_stat cannot be read: half of what is swapped out is taken to stay in memory; let ebb read /sys/block";
            let status = if compression_is_told { Status::Live } else { Status::Degraded };
            (status, by, (!compression_is_told).then(|| advice.to_owned()))
        }
    };
    Finding { what, status, source: by, advice }
}

fn workloads(facts: &Facts) -> Finding {
    let what = "tell workloads apart";
    match &facts.cgroups {
        CgroupLayout::Unified { root } => Finding {
            what,
            status: Status::Live,
            source: format!("cgroup v2 at {}", root.display()),
            advice: None,
        },
        CgroupLayout::Hybrid { memory, .. } | CgroupLayout::Legacy { memory } => Finding {
            what,
            status: Status::Degraded,
            source: match memory {
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
            status: Status::Live,
            source: "cgroup events (BPF)".into(),
            advice: None,
        },
        Some(fact) => Finding {
            what,
            status: Status::Degraded,
            source: "the tree is read again, at most once a second, while a threshold is near"
                .into(),
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
        return Finding { what, status: Status::Live, source: by, advice: None };
    }
    Finding {
        what,
        status: Status::Degraded,
        source: instead.to_owned(),
        advice: Some(advice(facts, fact)),
    }
}

fn usage(facts: &Facts) -> Finding {
    let found = facts.sweep.as_deref();
    by_kernel(
        "read what workloads use",
        found.map_err(|why| format!("{why}; programs iterate over cgroups from Linux 6.1 on")),
        "files of each workload",
    )
}

fn fall(facts: &Facts) -> Finding {
    let found = facts.fall.as_ref().map(|()| "a timer of the kernel compares its counters (BPF)");
    by_kernel(
        "sleep while memory does not fall",
        found.map_err(|why| format!("{why}; programs have timers and loops from Linux 5.17 on")),
        "looks at meminfo, as many as the headroom asks for",
    )
}

fn reflex(facts: &Facts) -> Finding {
    let found = facts.reflex.as_ref().map(
        |()| "SIGKILL by the kernel itself, where `ebb.reflex` is `enabled`; a watchdog thread",
    );
    by_kernel(
        "kill a workload while ebb is held up",
        found.map_err(|why| format!("no reflex: {why}")),
        "a watchdog thread",
    )
}

/// What the kernel does where it `found` that it can, by this; what is done `instead` where it cannot, for that reason.
fn by_kernel(what: &'static str, found: Result<&str, String>, instead: &str) -> Finding {
    let (status, source, advice) = match found {
        Ok(source) => (Status::Live, source, None),
        Err(why) => (Status::Degraded, instead, Some(why)),
    };
    Finding { what, status, source: source.to_owned(), advice }
}

fn ending(facts: &Facts) -> Finding {
    let what = "kill a workload";
    if !facts.may_kill {
        return Finding {
            what,
            status: Status::Unavailable,
            source: "neither root nor CAP_KILL".into(),
            advice: Some("run as root, or with CAP_KILL and write access to the cgroup tree; a dry run works without".into()),
        };
    }
    match (facts.cgroups.unified(), facts.interfaces.cgroup_kill) {
        (Some(_), Some(true)) => {
            Finding { what, status: Status::Live, source: "cgroup.kill".into(), advice: None }
        }
        (Some(_), _) => Finding {
            what,
            status: Status::Degraded,
            source: "freeze, then SIGKILL to each process by pidfd".into(),
            advice: Some("cgroup.kill came with Linux 5.14".into()),
        },
        (None, _) => Finding {
            what,
            status: Status::Degraded,
            source: "SIGKILL to one process by pidfd".into(),
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

/// Whether ebb cannot do its job without it.
pub(super) fn is_needed(finding: &Finding) -> bool {
    finding.what == "kill a workload"
}

#[cfg(test)]
mod tests {
    use super::super::confinement::CONFINED;
    use super::*;
    use ebb_agent::config::Seccomp;
    use ebb_agent::privileges::Held;
    use ebb_agent::sense::host::Interfaces;
    use ebb_probes::HostSupport;
    use std::collections::BTreeMap;

    fn facts(cgroups: CgroupLayout) -> Facts {
        Facts {
            kernel: HostSupport {
                release: "6.1".into(),
                btf: Presence::Present,
                capabilities: ebb_probes::Capabilities::default(),
                lockdown: None,
                unprivileged_bpf_disabled: None,
                hooks: BTreeMap::new(),
                functions: BTreeSet::new(),
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
            sweep: Ok("one sweep".into()),
            fall: Ok(()),
            reflex: Ok(()),
            swap: Some(Swap { total: 0, on_zram: 0, compression_is_told: true }),
            is_root: true,
            may_kill: true,
            privileges: Some(Held { effective: u64::MAX, ..Held::default() }),
            running: None,
            enforce: true,
            seccomp: Seccomp::Enforce,
            guard_band: None,
            hook: None,
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
        assert_eq!(finding.status, Status::Degraded);
        assert!(finding.source.contains("resident memory") && finding.source.contains("/m"));
        assert!(finding.advice.as_ref().unwrap().contains("unified_cgroup_hierarchy"));
    }

    #[test]
    fn what_is_in_force_is_told_of_the_ebb_that_runs_and_not_only_of_one_that_would() {
        let mut facts = facts(CgroupLayout::Unified { root: "/c".into() });
        let would = findings(&facts);
        assert!(!find(&would, CONFINED).source.contains("In force"));
        let kill = 1 << caps::Capability::CAP_KILL.index();
        let held = Held { effective: kill, permitted: kill, seccomp: true, ..Held::default() };
        facts.running = Some((4711, held));
        let is = findings(&facts);
        let source = &find(&is, CONFINED).source;
        let told = "In force in the running ebb (pid 4711): capabilities CAP_KILL; no_new_privs off; seccomp on";
        assert!(source.ends_with(told), "{source}");
    }

    #[test]
    fn without_capabilities_the_advice_names_them() {
        let findings = findings(&facts(CgroupLayout::Unified { root: "/c".into() }));
        let finding = find(&findings, "learn of OOM kills");
        assert_eq!(finding.status, Status::Degraded);
        assert!(finding.advice.as_ref().unwrap().contains("CAP_BPF"));
    }

    #[test]
    fn what_swap_there_is_and_where_is_said() {
        let said = |total, on_zram, compression_is_told| {
            let mut facts = facts(CgroupLayout::Unified { root: "/c".into() });
            facts.swap = Some(Swap { total, on_zram, compression_is_told });
            let findings = findings(&facts);
            let finding = find(&findings, "count swap");
            (finding.status, finding.source.clone(), finding.advice.is_some())
        };
        assert!(said(0, 0, true).1.contains("swap.available is never met"));
        let all = "meminfo: 3.0 GiB, of which 1.0 GiB on zram".to_owned();
        assert_eq!(said(3 << 30, 1 << 30, true), (Status::Live, all.clone(), false));
        assert_eq!(said(3 << 30, 1 << 30, false), (Status::Degraded, all, true));
    }

    #[test]
    fn a_kernel_without_sweep_or_reflex_names_what_is_used_and_why() {
        let mut facts = facts(CgroupLayout::Unified { root: "/c".into() });
        facts.sweep = Err("this kernel has no function bpf_iter_cgroup".into());
        facts.reflex = Err("this kernel has no function bpf_send_signal_task".into());
        facts.fall = Err("this kernel has no function bpf_loop".into());
        let findings = findings(&facts);
        for (what, by) in [
            ("read what workloads use", "files of each workload"),
            ("kill a workload while ebb is held up", "a watchdog thread"),
            (
                "sleep while memory does not fall",
                "looks at meminfo, as many as the headroom asks for",
            ),
        ] {
            let finding = find(&findings, what);
            assert_eq!((finding.status, finding.source.as_str()), (Status::Degraded, by));
            assert!(finding.advice.as_ref().unwrap().contains("no function"));
        }
    }

    #[test]
    fn what_a_missing_capability_costs_is_told() {
        let mut facts = facts(CgroupLayout::Unified { root: "/c".into() });
        let whole = find(&findings(&facts), CONFINED).clone();
        assert_eq!(whole.status, Status::Live);
        assert!(
            !whole.source.contains("CAP_SYS_RESOURCE"),
            "it is for set-up alone: {}",
            whole.source
        );
        let ptrace = 1_u64 << 19;
        facts.privileges = Some(Held { effective: !ptrace, ..Held::default() });
        let less = find(&findings(&facts), CONFINED).clone();
        assert_eq!(less.status, Status::Degraded);
        let advice = less.advice.unwrap();
        assert!(advice.contains("CAP_SYS_PTRACE") && advice.contains("is not killed"), "{advice}");
        assert!(!less.source.contains("CAP_SYS_PTRACE"), "{}", less.source);
    }

    #[test]
    fn a_user_who_may_not_kill_cannot_enforce() {
        let mut facts = facts(CgroupLayout::Unified { root: "/c".into() });
        facts.may_kill = false;
        let findings = findings(&facts);
        let finding = find(&findings, "kill a workload");
        assert_eq!(finding.status, Status::Unavailable);
        assert!(is_needed(finding));
    }
}
