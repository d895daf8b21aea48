//! From facts about a host to the programs worth attaching there. Pure: the rules, with their reasons as text.
use crate::Options;
use crate::catalogue::{Program, Strings, WAYS, Way};
use crate::host::{HookSupport, HostSupport, Lockdown, Presence};

/// For every way of learning a fact: whether this host offers it, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSet {
    pub(crate) verdicts: Vec<(&'static Way, Verdict)>,
}

/// What the facts say about one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Worth trying; the kernel has the last word.
    Offered,
    /// Not worth trying, for this reason.
    Absent(String),
}

impl ProbeSet {
    /// Decide for one host.
    pub fn for_host(host: &HostSupport, options: &Options) -> Self {
        let verdict = |way: &Way| match obstacle(way, host, options) {
            None => Verdict::Offered,
            Some(reason) => Verdict::Absent(reason),
        };
        Self { verdicts: WAYS.iter().map(|way| (way, verdict(way))).collect() }
    }
}

/// The first reason against a way: the one whose removal would help most comes first.
fn obstacle(way: &Way, host: &HostSupport, options: &Options) -> Option<String> {
    if let Some(program) = way.programs.iter().find(|p| options.leaves_out(p.name)) {
        return Some(format!("{} is left out by configuration", program.name));
    }
    if !host.objects.iter().any(|object| object == way.object) {
        return Some(format!(
            "this build has no object `{}`; `cargo xtask bpf` makes it",
            way.object
        ));
    }
    if !host.capabilities.allow_tracing() {
        return Some("CAP_BPF and CAP_PERFMON are missing".to_owned());
    }
    way.programs.iter().find_map(|program| obstacle_to(program, host))
}

fn obstacle_to(program: &Program, host: &HostSupport) -> Option<String> {
    if program.strings == Strings::Read && host.lockdown >= Some(Lockdown::Confidentiality) {
        return Some("lockdown forbids reading strings from the kernel".to_owned());
    }
    if let Presence::Absent(reason) = &host.btf {
        // A raw tracepoint can still be tried: attaching is then the only way to find out.
        return program.hook.point.needs_btf().then(|| reason.clone());
    }
    match host.hooks.get(&program.hook) {
        None => Some(format!("{} was not looked up", program.hook)),
        Some(HookSupport::Absent(reason)) => Some(reason.clone()),
        Some(HookSupport::Passes(args)) if args.starts_with(program.reads) => None,
        Some(HookSupport::Passes(_)) => {
            Some(format!("{} does not pass what {} reads", program.hook, program.name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{Arg, CALLED, Fact, Hook, Point};
    use crate::host::Capabilities;

    /// A host that offers everything.
    fn host() -> HostSupport {
        let programs = WAYS.iter().flat_map(|way| way.programs);
        HostSupport {
            release: "6.18".to_owned(),
            btf: Presence::Present,
            capabilities: Capabilities { bpf: true, perfmon: true, ..Capabilities::default() },
            lockdown: Some(Lockdown::Integrity),
            unprivileged_bpf_disabled: Some(2),
            hooks: programs
                .map(|p| {
                    (p.hook, HookSupport::Passes(vec![Arg::Pointer, Arg::Pointer, Arg::Scalar]))
                })
                .chain([
                    passes(Point::TpBtf, "sched_process_exit", &[Arg::Pointer, Arg::Scalar]),
                    passes(Point::RawTp, "sched_process_exit", &[Arg::Pointer, Arg::Scalar]),
                    passes(Point::Fentry, "__memcg_memory_event", &[Arg::Pointer, Arg::Scalar]),
                    passes(Point::TpBtf, "mm_vmscan_memcg_reclaim_end", &[Arg::Scalar]),
                    passes(Point::RawTp, "mm_vmscan_kswapd_wake", &[Arg::Scalar]),
                ])
                .collect(),
            functions: CALLED.iter().copied().collect(),
            objects: WAYS.iter().map(|way| way.object.to_owned()).collect(),
        }
    }

    fn passes(point: Point, target: &'static str, args: &[Arg]) -> (Hook, HookSupport) {
        (Hook { point, target }, HookSupport::Passes(args.to_vec()))
    }

    /// The first program of every way on offer for a fact, in order of preference.
    fn offered(host: &HostSupport, options: &Options, fact: Fact) -> Vec<&'static str> {
        ProbeSet::for_host(host, options)
            .verdicts
            .iter()
            .filter(|(way, verdict)| way.fact == fact && *verdict == Verdict::Offered)
            .map(|(way, _)| way.programs[0].name)
            .collect()
    }

    fn reasons(host: &HostSupport) -> Vec<String> {
        let set = ProbeSet::for_host(host, &Options::default());
        set.verdicts
            .into_iter()
            .filter_map(|(_, verdict)| match verdict {
                Verdict::Offered => None,
                Verdict::Absent(reason) => Some(reason),
            })
            .collect()
    }

    #[test]
    fn a_host_with_everything_is_offered_everything_best_first() {
        assert_eq!(reasons(&host()), Vec::<String>::new());
        assert_eq!(
            offered(&host(), &Options::default(), Fact::Exits),
            ["exit_group_dead", "exit_live", "exit_dead", "exit_leader"]
        );
    }

    #[test]
    fn an_older_exit_tracepoint_leaves_the_ways_that_need_no_second_argument() {
        let mut host = host();
        for point in [Point::TpBtf, Point::RawTp] {
            host.hooks.extend([passes(point, "sched_process_exit", &[Arg::Pointer])]);
        }
        assert_eq!(offered(&host, &Options::default(), Fact::Exits), ["exit_live", "exit_leader"]);
    }

    #[test]
    fn a_mark_victim_that_passes_a_pid_is_not_read_as_a_task() {
        let mut host = host();
        host.hooks.extend([passes(Point::TpBtf, "mark_victim", &[Arg::Scalar])]);
        assert_eq!(offered(&host, &Options::default(), Fact::OomKills), ["oom_victim"]);
    }

    #[test]
    fn a_function_that_does_not_exist_costs_only_its_own_way() {
        let mut host = host();
        let hook = Hook { point: Point::Fentry, target: "__memcg_memory_event" };
        host.hooks.insert(hook, HookSupport::Absent("no such function".to_owned()));
        assert_eq!(offered(&host, &Options::default(), Fact::MemoryEvents), ["memory_file_notify"]);
        assert_eq!(reasons(&host), ["no such function"]);
    }

    #[test]
    fn without_btf_only_raw_tracepoints_are_tried() {
        let mut host = host();
        host.btf = Presence::Absent("no BTF".to_owned());
        host.hooks.clear();
        let set = ProbeSet::for_host(&host, &Options::default());
        for (way, verdict) in &set.verdicts {
            let raw = way.programs.iter().all(|p| p.hook.point == Point::RawTp);
            assert_eq!(*verdict == Verdict::Offered, raw, "{:?}", way.programs);
        }
    }

    #[test]
    fn lockdown_for_confidentiality_keeps_what_reads_no_strings() {
        let mut host = host();
        host.lockdown = Some(Lockdown::Confidentiality);
        assert_eq!(offered(&host, &Options::default(), Fact::CgroupsCreated), ["cgroup_created"]);
        assert_eq!(offered(&host, &Options::default(), Fact::MemoryEvents), ["memory_event"]);
        assert_eq!(offered(&host, &Options::default(), Fact::OomKills).len(), 2);
    }

    #[test]
    fn one_capability_of_the_two_is_not_enough_and_sys_admin_alone_is() {
        let mut host = host();
        host.capabilities = Capabilities { bpf: true, ..Capabilities::default() };
        assert_eq!(reasons(&host).len(), WAYS.len());
        host.capabilities = Capabilities { sys_admin: true, ..Capabilities::default() };
        assert!(reasons(&host).is_empty());
    }

    #[test]
    fn what_the_operator_leaves_out_is_left_out_by_name_or_altogether() {
        let one = Options { leave_out: vec!["exit_group_dead".to_owned()], ..Options::default() };
        assert_eq!(offered(&host(), &one, Fact::Exits)[0], "exit_live");
        let all = Options { leave_out: vec!["all".to_owned()], ..Options::default() };
        for way in WAYS {
            assert!(offered(&host(), &all, way.fact).is_empty());
        }
    }

    #[test]
    fn a_build_without_objects_says_how_to_make_them() {
        let mut host = host();
        host.objects.clear();
        let reasons = reasons(&host);
        assert_eq!(reasons.len(), WAYS.len());
        assert!(reasons.iter().all(|reason| reason.contains("cargo xtask bpf")));
    }
}
