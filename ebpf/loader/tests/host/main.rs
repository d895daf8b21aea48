//! The programs on the kernel that the tests run on: what attaches tells the truth, and what is lost is counted.
//!
//! Needs root and the objects that `cargo xtask bpf` makes. Without them every test is reported as ignored, with the
//! reason. Kernels that offer more or less than this one are the guests' business (`vm-tests`).
mod fall;
mod reflex;
mod roles;
mod watch;

use ebb_probes::{
    CgroupChange, Comm, ExitScope, ExitStatus, Fact, KernelEvent, OomLimit, Options, ProbeState,
    Sweep, Swept, Tier, Told, read_files, survey,
};
use libtest_mimic::{Arguments, Failed, Trial};
use roles::{ROLE, act, play};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use watch::{Directory, Watch, ends, mount};

type Test = fn() -> Result<(), Failed>;

const TESTS: [(&str, Test); 19] = [
    ("what_is_not_attached_says_why", what_is_not_attached_says_why),
    ("every_exit_is_delivered_once_or_counted_as_lost", every_exit),
    ("a_process_ends_once_whichever_thread_is_last", threads),
    ("the_rust_half_alone_tells_exits_and_says_what_it_cannot_know", rust_half),
    ("the_c_half_alone_tells_exits", c_half),
    ("a_ring_of_one_page_overflows_and_says_so", small_ring),
    ("a_cgroup_is_seen_from_its_making_to_its_release", cgroup),
    ("what_happened_first_is_told_first_whichever_ring_it_is_in", order),
    ("forks_and_execs_are_counted_for_their_cgroup", forks),
    ("an_oom_kill_names_the_victim", oom_kill),
    ("a_sweep_finds_the_tree_that_the_files_show", sweep),
    ("a_fall_of_memory_wakes_who_waits_for_it_once", fall::wakes),
    ("a_fall_of_memory_is_not_told_when_nobody_waits_any_more", fall::ends),
    ("the_reflex_measures_what_the_files_say", reflex::measures),
    ("the_reflex_ends_whom_it_was_told_to_and_nobody_else", reflex::ends),
    ("the_reflex_ends_nobody_when_its_victim_has_moved", reflex::doubts),
    ("the_reflex_keeps_to_whom_it_was_told_of_last_in_peace", reflex::keeps),
    ("the_reflex_ends_nobody_where_who_took_the_memory_is_unknown", reflex::unexplained),
    ("with_every_program_left_out_nothing_is_told_and_nothing_fails", nothing),
];

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(ROLE) {
        return play(&role);
    }
    let obstacle = obstacle();
    if let Some(reason) = &obstacle {
        eprintln!("ignoring {} tests: {reason}", TESTS.len());
    }
    let trials =
        TESTS.map(|(name, test)| Trial::test(name, test).with_ignored_flag(obstacle.is_some()));
    let mut arguments = Arguments::from_args();
    // Each test counts what the whole machine does.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

/// Why no test can run here.
fn obstacle() -> Option<String> {
    let host = survey();
    if !host.capabilities.allow_tracing() {
        return Some("CAP_BPF and CAP_PERFMON are missing; run as root".to_owned());
    }
    host.objects.is_empty().then(|| "no BPF objects; run `cargo xtask bpf` first".to_owned())
}

fn what_is_not_attached_says_why() -> Result<(), Failed> {
    let watch = Watch::start(&Options::default())?;
    for probe in watch.probes.status() {
        if let ProbeState::Absent(reason) | ProbeState::Refused(reason) = &probe.state {
            assert!(!reason.is_empty(), "{} is not attached for no reason", probe.name);
        }
    }
    // What needs only tracepoints is there on every host that takes programs at all, whatever it does with functions.
    for fact in [
        Fact::Exits,
        Fact::Forks,
        Fact::Execs,
        Fact::CgroupsCreated,
        Fact::CgroupsRemoved,
        Fact::CgroupsPopulated,
        Fact::DirectReclaim,
        Fact::KswapdWakes,
        Fact::OomKills,
    ] {
        watch.needs(fact)?;
    }
    Ok(())
}

fn every_exit() -> Result<(), Failed> {
    // The way that keeps its own account of who has been told, where the kernel would do that for us, is held to the same.
    for leave_out in [vec![], vec!["exit_group_dead".to_owned()]] {
        let mut watch = Watch::start(&Options { leave_out, ..Options::default() })?;
        watch.needs(Fact::Exits)?;
        let mut pids = HashSet::new();
        for _ in 0..100 {
            let children: Vec<Child> = (0..20)
                .map(|n| Command::new(if n % 2 == 0 { "true" } else { "false" }).spawn())
                .collect::<Result<_, _>>()?;
            for mut child in children {
                pids.insert(child.id());
                child.wait()?;
            }
            watch.drain()?;
        }
        let all = watch.until(|events| ends(events, &pids).len() == pids.len())?;
        let lost = watch.probes.lost()?;
        // Those that did not wake the reader are found by it all the same.
        assert!(all || lost.exits > 0, "not all exits arrived, and none was lost");
        watch.settle()?;
        let ends = ends(&watch.events, &pids);
        let missing = pids.len() - ends.len();
        assert!(missing as u64 <= lost.exits, "{missing} exits are missing, {lost:?}");
        assert!(ends.values().all(|times| *times == 1), "an exit was delivered twice");
        assert_eq!(lost.corrupt, 0);
        let statuses = watch.events.iter().filter_map(|event| match event {
            KernelEvent::Exit { pid, status, scope: ExitScope::Process, .. }
                if pids.contains(pid) =>
            {
                Some(*status)
            }
            _ => None,
        });
        let failed = statuses.filter(|status| *status == Some(ExitStatus::Code(1))).count();
        assert!(failed + missing >= pids.len() / 2, "{failed} of {} failed", pids.len());
    }
    Ok(())
}

fn threads() -> Result<(), Failed> {
    for leave_out in [vec![], vec!["exit_group_dead".to_owned()]] {
        let mut watch = Watch::start(&Options { leave_out, ..Options::default() })?;
        let mut pids = HashSet::new();
        let roles = [("leader-first", 20), ("together", 500)];
        for role in roles.iter().flat_map(|(role, times)| std::iter::repeat_n(role, *times)) {
            let mut child = act(role).spawn()?;
            pids.insert(child.id());
            child.wait()?;
        }
        watch.until(|events| ends(events, &pids).len() == pids.len())?;
        watch.settle()?;
        let ends = ends(&watch.events, &pids);
        assert_eq!(watch.probes.lost()?.exits, 0);
        assert_eq!(ends.len(), pids.len());
        assert!(ends.values().all(|times| *times == 1), "told more than once: {ends:?}");
    }
    Ok(())
}

/// The names of all programs of one half.
fn half(tier: Tier) -> Result<Vec<String>, Failed> {
    let nothing =
        Watch::start(&Options { leave_out: vec!["all".to_owned()], ..Options::default() })?;
    let programs = nothing.probes.status().iter().filter(|probe| probe.tier == tier);
    Ok(programs.map(|probe| probe.name.to_owned()).collect())
}

/// The event that tells the end of a process which ends now.
fn one_exit(leave_out: Vec<String>) -> Result<(Watch, KernelEvent), Failed> {
    let mut watch = Watch::start(&Options { leave_out, ..Options::default() })?;
    watch.needs(Fact::Exits)?;
    let mut child = Command::new("true").spawn()?;
    let own = child.id();
    child.wait()?;
    let of_it = |event: &KernelEvent| matches!(event, KernelEvent::Exit { pid, .. } if *pid == own);
    watch.until(|events| events.iter().any(of_it))?;
    let event = watch.events.iter().find(|event| of_it(event)).cloned();
    event.map(|event| (watch, event)).ok_or_else(|| format!("no end of {own}").into())
}

fn rust_half() -> Result<(), Failed> {
    let mut leave_out = half(Tier::C)?;
    let (_, event) = one_exit(leave_out.clone())?;
    let KernelEvent::Exit { status, started_ns, ppid, comm, .. } = event else {
        return Err("not an exit".into());
    };
    assert_eq!((status, started_ns, ppid), (None, None, None));
    assert_eq!(comm, Comm::new("true"));
    leave_out.push("exit_dead".to_owned());
    let (_, event) = one_exit(leave_out)?;
    assert!(matches!(event, KernelEvent::Exit { scope: ExitScope::Leader, .. }), "{event:?}");
    Ok(())
}

fn c_half() -> Result<(), Failed> {
    let (watch, event) = one_exit(half(Tier::Rust)?)?;
    let KernelEvent::Exit { status, ppid, scope, .. } = event else {
        return Err("not an exit".into());
    };
    assert_eq!(status, Some(ExitStatus::Code(0)));
    assert_eq!((ppid, scope), (Some(std::process::id()), ExitScope::Process));
    assert_eq!(watch.probes.lost()?.total(), 0);
    // Nothing counts forks, so nobody claims that there were none.
    assert!(watch.probes.totals()?.cgroups.values().all(|totals| totals.forks.is_none()));
    Ok(())
}

fn small_ring() -> Result<(), Failed> {
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.unwrap_or(4096);
    let mut watch =
        Watch::start(&Options { vital_bytes: u32::try_from(page)?, ..Options::default() })?;
    watch.needs(Fact::Exits)?;
    let mut pids = HashSet::new();
    for _ in 0..500 {
        let mut child = Command::new("true").spawn()?;
        pids.insert(child.id());
        child.wait()?;
    }
    // Read empty, it takes records again.
    watch.settle()?;
    let delivered = ends(&watch.events, &pids).len();
    let lost = watch.probes.lost()?;
    assert!(delivered > 0 && delivered < pids.len(), "{delivered} delivered from one page");
    assert!(delivered as u64 + lost.exits >= pids.len() as u64, "{delivered} delivered, {lost:?}");
    Ok(())
}

fn cgroup() -> Result<(), Failed> {
    let mut watch = Watch::start(&Options::default())?;
    let dir = Directory::make(&mount("cgroup2")?, "made")?;
    let id = fs::metadata(&dir.0)?.ino();
    let name = dir.0.file_name().map(|name| name.to_string_lossy().into_owned());
    let mut child = Command::new("sleep").arg("60").spawn()?;
    fs::write(dir.0.join("cgroup.procs"), child.id().to_string())?;
    child.kill()?;
    child.wait()?;
    let populated = |now: bool| move |event: &KernelEvent| matches!(event, KernelEvent::Cgroup { change, .. } if *change == CgroupChange::Populated(now));
    assert!(watch.until(|events| events.iter().any(populated(false)))?);
    drop(dir);
    assert!(watch.until(|events| {
        let mut released = events.iter();
        released.any(|event| matches!(event, KernelEvent::Cgroup { id: it, change: CgroupChange::Released, .. } if *it == id))
    })?);

    let of_it = watch.events.iter().filter_map(|event| match event {
        KernelEvent::Cgroup { id: it, change, path, parent, .. } if *it == id => {
            Some((*change, path.clone(), *parent))
        }
        _ => None,
    });
    let of_it: Vec<_> = of_it.collect();
    let changes: Vec<_> = of_it.iter().map(|(change, ..)| *change).collect();
    assert_eq!(
        changes,
        [
            CgroupChange::Created,
            CgroupChange::Populated(true),
            CgroupChange::Populated(false),
            CgroupChange::Removed,
            CgroupChange::Released,
        ]
    );
    let (_, path, parent) = &of_it[0];
    assert_eq!(path.as_deref().and_then(|path| path.strip_prefix('/')), name.as_deref());
    assert_eq!(*parent, Some(fs::metadata(mount("cgroup2")?)?.ino()));
    Ok(())
}

fn order() -> Result<(), Failed> {
    let mut watch = Watch::start(&Options::default())?;
    watch.settle()?;
    watch.events.clear();
    // Nothing is read meanwhile: all of it is one batch.
    let dir = Directory::make(&mount("cgroup2")?, "order")?;
    for n in 0..20 {
        fs::create_dir(dir.0.join(n.to_string()))?;
        Command::new("true").spawn()?.wait()?;
        fs::remove_dir(dir.0.join(n.to_string()))?;
    }
    watch.drain()?;
    let of = |kind: fn(&KernelEvent) -> bool| watch.events.iter().filter(|e| kind(e)).count();
    assert!(of(|event| matches!(event, KernelEvent::Exit { .. })) >= 20);
    assert!(of(|event| matches!(event, KernelEvent::Cgroup { .. })) >= 40);
    let times: Vec<u64> = watch.events.iter().map(KernelEvent::ts_ns).collect();
    assert!(times.is_sorted(), "{times:?}");
    Ok(())
}

fn forks() -> Result<(), Failed> {
    let watch = Watch::start(&Options::default())?;
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).ok_or("not in cgroup v2")?;
    let id = fs::metadata(mount("cgroup2")?.join(own))?.ino();
    let read = || -> Result<_, Failed> {
        let totals = watch.probes.totals()?;
        Ok(totals.cgroups.get(&id).copied().unwrap_or_default())
    };
    let before = read()?;
    for _ in 0..50 {
        Command::new("true").spawn()?.wait()?;
    }
    let after = read()?;
    let grown = |of: fn(&ebb_probes::CgroupTotals) -> Option<u64>| {
        Some(of(&after)? - of(&before).unwrap_or(0))
    };
    assert!(grown(|totals| totals.forks).is_some_and(|forks| forks >= 50), "{before:?} {after:?}");
    assert!(grown(|totals| totals.execs).is_some_and(|execs| execs >= 50), "{before:?} {after:?}");
    Ok(())
}

fn oom_kill() -> Result<(), Failed> {
    let mut watch = Watch::start(&Options::default())?;
    watch.needs(Fact::OomKills)?;
    // Whichever hierarchy has the memory controller.
    let (dir, limit) = match Directory::make(&mount("cgroup2")?, "oom") {
        Ok(dir) if dir.0.join("memory.max").exists() => (dir, "memory.max"),
        _ => (Directory::make(Path::new("/sys/fs/cgroup/memory"), "oom")?, "memory.limit_in_bytes"),
    };
    fs::write(dir.0.join(limit), "16M")?;
    let mut child = act("eat").env("EBB_TEST_CGROUP", &dir.0).stderr(Stdio::null()).spawn()?;
    let victim = child.id();
    child.wait()?;
    let of_it =
        |event: &KernelEvent| matches!(event, KernelEvent::OomKill { pid, .. } if *pid == victim);
    assert!(watch.until(|events| events.iter().any(of_it))?, "no OOM kill of {victim}");
    let Some(KernelEvent::OomKill { limit, started_ns, .. }) =
        watch.events.iter().find(|e| of_it(e))
    else {
        return Err("unreachable: it was just there".into());
    };
    assert!(*started_ns > 0);
    let id = fs::metadata(&dir.0)?.ino();
    if watch.probes.tells(Fact::OomLimits) {
        assert!([OomLimit::Cgroup(id), OomLimit::CgroupV1(id)].contains(limit), "{limit:?}");
    } else {
        assert_eq!(*limit, OomLimit::Unknown);
    }
    Ok(())
}

fn nothing() -> Result<(), Failed> {
    let mut watch =
        Watch::start(&Options { leave_out: vec!["all".to_owned()], ..Options::default() })?;
    Command::new("true").spawn()?.wait()?;
    watch.drain()?;
    assert!(watch.events.is_empty());
    assert_eq!(watch.probes.lost()?.total(), 0);
    assert!(watch.probes.totals()?.cgroups.is_empty());
    assert!(watch.probes.status().iter().all(|p| matches!(p.state, ProbeState::Absent(_))));
    Ok(())
}

/// Which of the values there are depends on where this machine has its controllers; the tree does not.
fn sweep() -> Result<(), Failed> {
    let top = Directory::make(mount("cgroup2")?.as_path(), "sweep")?;
    let below = Directory::make(&top.0, "below")?;
    let _deep = Directory::make(&below.0, "deep")?;
    let mut sweep = Sweep::open(&top.0, &survey()).map_err(|refused| format!("{refused:?}"))?;
    let (mut swept, mut files) = (Vec::new(), Vec::new());
    sweep.read(&mut swept)?;
    read_files(&top.0, &mut files)?;
    let place = |cgroup: &Swept| (cgroup.id, cgroup.parent, cgroup.depth);
    let tree: Vec<_> = files.iter().map(place).collect();
    assert_eq!(swept.iter().map(place).collect::<Vec<_>>(), tree);
    assert_eq!(tree.len(), 3);
    for (swept, files) in swept.iter().zip(&files) {
        let value = |told: Option<Told>| told.map(|told| told.value);
        assert_eq!(value(swept.usage), value(files.usage));
        assert_eq!(value(swept.pids), value(files.pids));
    }
    // More than there is room for to begin with: room is made, and nothing is left out.
    let many: Vec<_> =
        (0..1500).map(|n| Directory::make(&below.0, &n.to_string())).collect::<Result<_, _>>()?;
    sweep.read(&mut swept)?;
    assert_eq!(swept.len(), many.len() + 3);
    Ok(())
}
