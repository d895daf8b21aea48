//! Which capability is for what, and until when. Pure.

use caps::Capability;

/// One capability that ebb has a use for.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Which.
    pub capability: Capability,
    /// What it takes it for, in the words of the operating guide.
    pub for_what: &'static str,
    /// What happens without it, in the words of the operating guide.
    pub without: &'static str,
    /// How long it is kept.
    keep: Keep,
}

impl Row {
    /// Its name, as systemd and Kubernetes write it: `CAP_KILL`.
    #[must_use]
    pub fn name(&self) -> String {
        self.capability.to_string()
    }

    /// How long it is kept, in the words of the operating guide.
    #[must_use]
    pub fn kept(&self) -> &'static str {
        match self.keep {
            Keep::SetUp => "set-up",
            Keep::Always => "kept",
            Keep::WithCgroups => "kept on cgroup v2",
            Keep::WithBpf => "kept with BPF",
            Keep::WithReflex => "set-up; kept with the reflex",
            Keep::ToEnforce => "kept to enforce",
            Keep::ToRehearse => "kept in a dry run",
            Keep::WithoutMemlock => "set-up; kept where RLIMIT_MEMLOCK cannot be raised",
            Keep::ToEnforceOrWithoutRtprio => {
                "kept to enforce, and where RLIMIT_RTPRIO cannot be raised"
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Keep {
    SetUp,
    Always,
    WithCgroups,
    WithBpf,
    WithReflex,
    ToEnforce,
    ToRehearse,
    WithoutMemlock,
    ToEnforceOrWithoutRtprio,
}

/// Every capability that ebb has a use for.
pub const TABLE: &[Row] = &[
    Row {
        capability: Capability::CAP_KILL,
        for_what: "SIGTERM and SIGKILL to processes of other users",
        without: "SIGTERM is refused, and SIGKILL too where there is no cgroup.kill (before Linux 5.14); where there is, the victim is killed and the record says that a signal was refused (`notDone`)",
        keep: Keep::ToEnforce,
    },
    Row {
        capability: Capability::CAP_DAC_OVERRIDE,
        for_what: "write to cgroups that were handed to a user; remove logs and containers of any owner",
        without: "a user's cgroup is not killed by cgroup.kill: its processes are signalled one by one (`freezeAndSignal`)",
        keep: Keep::ToEnforce,
    },
    Row {
        capability: Capability::CAP_DAC_READ_SEARCH,
        for_what: "measure volumes and logs of any owner, where CAP_DAC_OVERRIDE does not do",
        without: "their size is unknown",
        keep: Keep::ToRehearse,
    },
    Row {
        capability: Capability::CAP_SYS_PTRACE,
        for_what: "read the programs and namespaces of other processes, and those that `hidepid` hides",
        without: "a process that is root's, in no pid namespace of its own and named as a kubelet or runtime counts as one; a cgroup with processes that are not shown is not killed",
        keep: Keep::Always,
    },
    Row {
        capability: Capability::CAP_SYS_ADMIN,
        for_what: "read and write `trusted.*` attributes of cgroups",
        without: "what is marked in `trusted.*` alone is not seen; what to put back on a cgroup is noted in `--state`",
        keep: Keep::WithCgroups,
    },
    Row {
        capability: Capability::CAP_BPF,
        for_what: "load BPF programs and read their maps",
        without: "files are read instead (`BPF for …` is unavailable)",
        keep: Keep::WithBpf,
    },
    Row {
        capability: Capability::CAP_PERFMON,
        for_what: "attach BPF programs to the kernel",
        without: "files are read instead (`BPF for …` is unavailable)",
        keep: Keep::WithReflex,
    },
    Row {
        capability: Capability::CAP_SYS_RESOURCE,
        for_what: "a pressure trigger below two seconds; oom_score_adj -999; raised limits",
        without: "the trigger has a window of two seconds, or there is none; the next two are kept",
        keep: Keep::SetUp,
    },
    Row {
        capability: Capability::CAP_IPC_LOCK,
        for_what: "keep itself resident, where RLIMIT_MEMLOCK cannot be raised",
        without: "its memory can be paged out (`mlockall` is unavailable)",
        keep: Keep::WithoutMemlock,
    },
    Row {
        capability: Capability::CAP_SYS_NICE,
        for_what: "run before the hog that keeps every processor busy, the loop too while it has something to do that cannot wait; give those that were killed real-time priority (`SCHED_RR`) on half of the processors until they have ended, for 500 ms at most",
        without: "it waits its turn (`nice -20` is unavailable), and so do those that were killed: on a busy node a pod may take seconds to end",
        keep: Keep::ToEnforceOrWithoutRtprio,
    },
];

/// What the agent is going to do, and what its limits allow without a capability.
#[derive(Clone, Copy, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says of one feature, independent of the others, whether it is in use"
)]
pub struct Features {
    /// It acts.
    pub enforce: bool,
    /// Cgroups are the workloads.
    pub cgroups: bool,
    /// BPF programs are attached.
    pub bpf: bool,
    /// The reflex is wanted and there.
    pub reflex: bool,
    /// Memory that is mapped later may be locked without a capability.
    pub memlock: bool,
    /// A thread may become real-time without a capability.
    pub rtprio: bool,
}

/// The capabilities that `features` need once everything is set up.
pub fn kept(features: &Features) -> impl Iterator<Item = &'static Row> {
    let Features { enforce, cgroups, bpf, reflex, memlock, rtprio } = *features;
    TABLE.iter().filter(move |row| match row.keep {
        Keep::SetUp => false,
        Keep::Always => true,
        Keep::WithCgroups => cgroups,
        Keep::WithBpf => bpf || reflex,
        Keep::WithReflex => reflex,
        Keep::ToEnforce => enforce,
        Keep::ToRehearse => !enforce,
        Keep::WithoutMemlock => !memlock,
        Keep::ToEnforceOrWithoutRtprio => enforce || !rtprio,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(features: &Features) -> Vec<String> {
        kept(features).map(Row::name).collect()
    }

    fn shipped(path: &str) -> String {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        std::fs::read_to_string(root.join(path)).unwrap()
    }

    #[test]
    fn the_operating_guide_has_this_table() {
        let guide = shipped("docs/operating.md");
        let rows: Vec<&str> = guide.lines().filter(|line| line.starts_with("| `CAP_")).collect();
        let expected: Vec<String> = TABLE
            .iter()
            .map(|row| {
                format!(
                    "| `{}` | {} | {} | {} |",
                    row.name(),
                    row.for_what,
                    row.kept(),
                    row.without
                )
            })
            .collect();
        assert_eq!(rows, expected);
    }

    #[test]
    fn the_shipped_unit_has_these_capabilities_and_no_other() {
        let unit = shipped("deploy/systemd/ebb.service");
        let set =
            unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
        let mut set: Vec<String> = set.split(' ').map(str::to_owned).collect();
        let mut table: Vec<String> = TABLE.iter().map(Row::name).collect();
        set.sort();
        table.sort();
        assert_eq!(set, table);
    }

    #[test]
    fn a_dry_run_keeps_nothing_that_kills_or_writes() {
        let features = Features {
            cgroups: true,
            bpf: true,
            memlock: true,
            rtprio: true,
            ..Features::default()
        };
        let expected = ["CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE", "CAP_SYS_ADMIN", "CAP_BPF"];
        assert_eq!(names(&features), expected);
    }

    #[test]
    fn what_is_for_set_up_alone_goes_once_limits_are_raised() {
        let features = Features {
            enforce: true,
            cgroups: true,
            bpf: true,
            memlock: true,
            rtprio: true,
            reflex: false,
        };
        let expected = [
            "CAP_KILL",
            "CAP_DAC_OVERRIDE",
            "CAP_SYS_PTRACE",
            "CAP_SYS_ADMIN",
            "CAP_BPF",
            "CAP_SYS_NICE",
        ];
        assert_eq!(names(&features), expected);
        let limited = Features { memlock: false, rtprio: false, ..features };
        assert!(names(&limited).ends_with(&["CAP_IPC_LOCK".into(), "CAP_SYS_NICE".into()]));
    }

    #[test]
    fn a_feature_that_is_off_costs_its_capability() {
        let nothing =
            Features { enforce: true, memlock: true, rtprio: true, ..Features::default() };
        let expected = ["CAP_KILL", "CAP_DAC_OVERRIDE", "CAP_SYS_PTRACE", "CAP_SYS_NICE"];
        assert_eq!(names(&nothing), expected);
        let reflex = Features { reflex: true, ..nothing };
        assert!(names(&reflex).contains(&"CAP_PERFMON".to_owned()));
    }
}
