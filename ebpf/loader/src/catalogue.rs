//! Everything ebb would like to know from the kernel, and the programs that can tell it: the one list of them.
//!
//! A [`Fact`] has one or more ways, in order of preference; a way is one program or a pair that only makes sense
//! together, from one object. Deciding which ways a host offers is [`ProbeSet`](crate::ProbeSet), attaching them is
//! `attach`. A program's name is that of its function in `ebpf/probes` or `ebpf/core`.
use Arg::{Pointer, Scalar};
use Fact::{
    CgroupsCreated, CgroupsPopulated, CgroupsReleased, CgroupsRemoved, CgroupsRenamed,
    DirectReclaim, Execs, Exits, Forks, KswapdWakes, MemcgReclaim, MemoryEvents, MemoryStall,
    OomKills, OomLimits, Refaults,
};
use Strings::{Avoided, Read};
use serde::{Serialize, Serializer};
use std::fmt;

/// The names of all programs, sorted: what [`Options::leave_out`](crate::Options::leave_out) may name, beside `all`.
#[must_use]
pub fn program_names() -> Vec<&'static str> {
    let programs = WAYS.iter().flat_map(|way| way.programs.iter());
    let mut names: Vec<&str> = programs.map(|program| program.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Something that programs can tell about the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// A process has ended: [`KernelEvent::Exit`](crate::KernelEvent::Exit).
    Exits,
    /// The OOM killer has chosen: [`KernelEvent::OomKill`](crate::KernelEvent::OomKill).
    OomKills,
    /// Whose shortage that was; without it `limit` is unknown.
    OomLimits,
    /// A cgroup's `memory.events` has changed: [`KernelEvent::MemoryEvent`](crate::KernelEvent::MemoryEvent).
    MemoryEvents,
    /// Reclaim of a cgroup by its own limit: counters.
    MemcgReclaim,
    /// Cgroups being made.
    CgroupsCreated,
    /// Cgroups being removed.
    CgroupsRemoved,
    /// Cgroups being renamed.
    CgroupsRenamed,
    /// Cgroups that the kernel has let go of.
    CgroupsReleased,
    /// Cgroups getting their first and losing their last process.
    CgroupsPopulated,
    /// New tasks: counters.
    Forks,
    /// New programs: counters.
    Execs,
    /// Time lost waiting for memory: counters.
    MemoryStall,
    /// Reclaim by whoever needed memory because the node was short: counters.
    DirectReclaim,
    /// kswapd at work: [`KernelEvent::KswapdWake`](crate::KernelEvent::KswapdWake) and counters.
    KswapdWakes,
    /// Page cache that was evicted too early: counters.
    Refaults,
}

/// Which half of the kernel side a program belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Rust, loaded by aya: helpers, facts about the current task, scalar arguments.
    Rust,
    /// C with CO-RE, loaded by libbpf: what follows a kernel pointer.
    C,
}

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// At the entry of a kernel function.
    Fentry,
    /// At the return of a kernel function.
    Fexit,
    /// At a tracepoint, with typed arguments.
    TpBtf,
    /// At a tracepoint, with arguments as plain numbers; works without BTF.
    RawTp,
}

/// Where in the kernel a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hook {
    /// How.
    pub point: Point,
    /// Name of the function or tracepoint.
    pub target: &'static str,
}

/// Shape of an argument that a hook passes, as far as a program depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arg {
    /// A pointer.
    Pointer,
    /// An integer, an enum or a flag.
    Scalar,
}

/// Whether a program copies strings out of kernel memory, which lockdown for confidentiality forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strings {
    /// It does.
    Read,
    /// It does not.
    Avoided,
}

/// One BPF program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Its function's name.
    pub name: &'static str,
    /// Where it is attached.
    pub hook: Hook,
    /// The leading arguments of the hook that it reads.
    pub reads: &'static [Arg],
    /// Whether it reads strings.
    pub strings: Strings,
}

/// One way of learning a fact: all of its programs, or none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// What it tells.
    pub fact: Fact,
    /// Which half it is in.
    pub tier: Tier,
    /// Name of the object file that holds its programs.
    pub object: &'static str,
    /// In the order in which they must be attached.
    pub programs: &'static [Program],
}

/// Name of the object with all Rust programs; each family of C programs has one of its own.
pub(crate) const RUST_OBJECT: &str = "probes";

/// Kernel functions and helpers that programs call, the one that stands for the iterator they run in, and the type of a tracepoint that some do without.
pub(crate) static CALLED: &[&str] = &[
    "bpf_get_mem_cgroup",
    "bpf_iter_cgroup",
    "bpf_loop",
    "bpf_mem_cgroup_flush_stats",
    "bpf_mem_cgroup_memory_events",
    "bpf_mem_cgroup_page_state",
    "bpf_mem_cgroup_vm_events",
    "bpf_put_mem_cgroup",
    "bpf_send_signal_task",
    "bpf_task_from_pid",
    "bpf_task_release",
    "btf_trace_page_fault_user",
    "cgroup_rstat_flush",
];

/// All ways; those of one fact stand in order of preference.
pub(crate) static WAYS: &[Way] = &[
    // The kernel says itself which thread was the last (6.16 and later).
    c(Exits, "exit", &[tp_btf("exit_group_dead", "sched_process_exit", &[Pointer, Scalar])]),
    c(Exits, "exit", &[tp_btf("exit_live", "sched_process_exit", &[Pointer])]),
    rust(Exits, &[raw_tp("exit_dead", "sched_process_exit", &[Pointer, Scalar])]),
    rust(Exits, &[raw_tp("exit_leader", "sched_process_exit", &[])]),
    // Before the kills, so that none is reported without its limit; and in every pair the end before the begin, so that
    // nothing begins that is never ended.
    c(
        OomLimits,
        "oom",
        &[fexit("oom_end", "out_of_memory", &[]), fentry("oom_begin", "out_of_memory", &[Pointer])],
    ),
    c(OomKills, "oom", &[fentry("oom_victim", "mark_oom_victim", &[Pointer])]),
    // Passes the task only where the tracepoint has its longer form; some kernels pass a bare pid.
    c(OomKills, "oom", &[tp_btf("oom_victim_tp", "mark_victim", &[Pointer])]),
    c(
        MemoryEvents,
        "memory_events",
        &[fentry("memory_event", "__memcg_memory_event", &[Pointer, Scalar])],
    ),
    c(
        MemoryEvents,
        "memory_events",
        &[Program {
            strings: Read,
            ..fentry("memory_file_notify", "cgroup_file_notify", &[Pointer])
        }],
    ),
    c(
        MemcgReclaim,
        "memcg_reclaim",
        &[
            tp_btf("memcg_reclaim_end", "mm_vmscan_memcg_reclaim_end", &[Scalar]),
            fentry("memcg_reclaim_begin", "try_to_free_mem_cgroup_pages", &[Pointer]),
        ],
    ),
    c(
        CgroupsCreated,
        "cgroup",
        &[Program {
            strings: Read,
            ..tp_btf("cgroup_created_at", "cgroup_mkdir", &[Pointer, Pointer])
        }],
    ),
    c(CgroupsCreated, "cgroup", &[tp_btf("cgroup_created", "cgroup_mkdir", &[Pointer])]),
    c(CgroupsRemoved, "cgroup", &[tp_btf("cgroup_removed", "cgroup_rmdir", &[Pointer])]),
    c(
        CgroupsRenamed,
        "cgroup",
        &[Program {
            strings: Read,
            ..tp_btf("cgroup_renamed_to", "cgroup_rename", &[Pointer, Pointer])
        }],
    ),
    c(CgroupsRenamed, "cgroup", &[tp_btf("cgroup_renamed", "cgroup_rename", &[Pointer])]),
    c(CgroupsReleased, "cgroup", &[tp_btf("cgroup_released", "cgroup_release", &[Pointer])]),
    c(
        CgroupsPopulated,
        "cgroup",
        &[tp_btf("cgroup_populated", "cgroup_notify_populated", &[Pointer, Pointer, Scalar])],
    ),
    rust(Forks, &[raw_tp("fork", "sched_process_fork", &[])]),
    rust(Execs, &[raw_tp("exec", "sched_process_exec", &[])]),
    rust(
        MemoryStall,
        &[
            fentry("memstall_leave", "psi_memstall_leave", &[]),
            fentry("memstall_enter", "psi_memstall_enter", &[]),
        ],
    ),
    rust(
        DirectReclaim,
        &[
            raw_tp("direct_reclaim_end", "mm_vmscan_direct_reclaim_end", &[]),
            raw_tp("direct_reclaim_begin", "mm_vmscan_direct_reclaim_begin", &[]),
        ],
    ),
    rust(KswapdWakes, &[raw_tp("kswapd_wake", "mm_vmscan_kswapd_wake", &[Scalar])]),
    rust(Refaults, &[fentry("refault", "workingset_refault", &[])]),
];

const fn c(fact: Fact, object: &'static str, programs: &'static [Program]) -> Way {
    Way { fact, tier: Tier::C, object, programs }
}

const fn rust(fact: Fact, programs: &'static [Program]) -> Way {
    Way { fact, tier: Tier::Rust, object: RUST_OBJECT, programs }
}

const fn fentry(name: &'static str, target: &'static str, reads: &'static [Arg]) -> Program {
    Program { name, hook: Hook { point: Point::Fentry, target }, reads, strings: Avoided }
}

const fn fexit(name: &'static str, target: &'static str, reads: &'static [Arg]) -> Program {
    Program { name, hook: Hook { point: Point::Fexit, target }, reads, strings: Avoided }
}

const fn tp_btf(name: &'static str, target: &'static str, reads: &'static [Arg]) -> Program {
    Program { name, hook: Hook { point: Point::TpBtf, target }, reads, strings: Avoided }
}

const fn raw_tp(name: &'static str, target: &'static str, reads: &'static [Arg]) -> Program {
    Program { name, hook: Hook { point: Point::RawTp, target }, reads, strings: Avoided }
}

impl Point {
    /// Whether attaching needs the kernel's BTF.
    pub(crate) const fn needs_btf(self) -> bool {
        !matches!(self, Self::RawTp)
    }

    /// Whether the target is a function, as opposed to a tracepoint.
    pub(crate) const fn is_function(self) -> bool {
        matches!(self, Self::Fentry | Self::Fexit)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fentry => "fentry",
            Self::Fexit => "fexit",
            Self::TpBtf => "tp_btf",
            Self::RawTp => "raw_tp",
        })
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.point, self.target)
    }
}

impl Serialize for Hook {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn program_names_are_unique() {
        let mut seen = BTreeSet::new();
        for program in WAYS.iter().flat_map(|way| way.programs) {
            assert!(seen.insert(program.name), "{} stands twice", program.name);
        }
    }

    #[test]
    fn ways_of_one_fact_stand_together_so_that_their_order_is_visible() {
        let mut seen = Vec::new();
        for way in WAYS {
            if seen.last() != Some(&way.fact) {
                assert!(!seen.contains(&way.fact), "{:?} is split", way.fact);
                seen.push(way.fact);
            }
        }
    }
}
