//! The state on a fake node: what a snapshot says of it, and what kernel events change.
use super::sample::{READ_IN_FULL, TREE_MAX_AGE};
use super::targets::{EMPTY_FOR, PROTECTED_FOR};
use super::*;
use crate::config::Patterns;
use crate::sense::node::NodeSensor;
use crate::sense::runtime::PodSeen;
use ebb_policy::Signal;
use ebb_policy::snapshot::{OomKill, Preference, Sandbox};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

mod moved;

struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["proc", "cgroup"] {
            fs::create_dir(dir.path().join(sub)).unwrap();
        }
        fs::write(dir.path().join("cgroup/cgroup.controllers"), "memory pids\n").unwrap();
        let meminfo = "MemTotal: 1000 kB\nMemAvailable: 400 kB\nAnonPages: 500 kB\nCached: 200 kB\nBuffers: 0 kB\nInactive(file): 100 kB\n";
        fs::write(dir.path().join("proc/meminfo"), meminfo).unwrap();
        Self { dir }
    }

    fn roots(&self) -> Roots {
        Roots { proc: self.dir.path().join("proc"), cgroup: self.dir.path().join("cgroup") }
    }

    /// Adds a cgroup and returns its id.
    fn add(&self, path: &str, usage: u64) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        let dir = self.roots().cgroup.join(path);
        fs::create_dir_all(&dir).unwrap();
        // A pid that no process can have.
        fs::write(dir.join("cgroup.procs"), "4194305\n").unwrap();
        fs::write(dir.join("cgroup.events"), "populated 1\n").unwrap();
        fs::write(dir.join("memory.current"), format!("{usage}\n")).unwrap();
        fs::metadata(&dir).unwrap().ino()
    }

    fn state(&self, patterns: &Patterns) -> NodeState {
        let layout = CgroupLayout::Unified { root: self.roots().cgroup };
        let rules = Rules::new(patterns).unwrap();
        let mut state = NodeState::new(self.roots(), layout, Measure::MemAvailable, rules);
        state.observe_node(NodeSensor::open(&self.roots()).unwrap().read().unwrap());
        state.sample(Boot::now(), Depth::Full).unwrap();
        state
    }
}

fn event(change: CgroupChange, id: u64, path: Option<&str>) -> KernelEvent {
    let path = path.map(str::to_owned);
    KernelEvent::Cgroup { ts_ns: 1, change, id, parent: None, level: 1, path }
}

fn names(state: &NodeState) -> Vec<String> {
    let mut names: Vec<_> =
        state.snapshot(Boot::now()).workloads.into_iter().map(|w| w.key.name).collect();
    names.sort();
    names
}

#[test]
fn a_snapshot_says_what_was_read_and_leaves_the_rest_unknown() {
    let fake = Fake::new();
    fake.add("apps/a", 4096);
    let patterns = Patterns { prefer: vec!["apps/*".into()], ..Patterns::default() };
    let snapshot = fake.state(&patterns).snapshot(Boot::now());
    let signal = snapshot.signals[&Signal::MemoryAvailable];
    assert_eq!((signal.available, signal.capacity), (400 * 1024, Some(1000 * 1024)));
    assert!(!snapshot.signals.contains_key(&Signal::PidAvailable), "there is no loadavg");
    let workload = &snapshot.workloads[0];
    assert_eq!((workload.key.name.as_str(), workload.preference), ("/apps/a", Preference::Prefer));
    let memory = workload.stats.as_ref().unwrap().memory.unwrap();
    assert_eq!((memory.usage, memory.anon, memory.swap), (Some(4096), None, None));
}

#[test]
fn a_new_cgroup_is_followed_from_its_event_without_reading_the_tree() {
    let fake = Fake::new();
    fake.add("apps/a", 1);
    let mut state = fake.state(&Patterns::default());
    state.tree_events_are_live(true);
    let unseen = fake.add("apps/unseen", 1);
    let told = fake.add("apps/told", 1);
    state.observe_kernel(&event(CgroupChange::Created, told, Some("/apps/told")));
    state.sample(Boot::now(), Depth::Full).unwrap();
    assert_eq!(names(&state), ["/apps/a", "/apps/told"]);
    // An event about a cgroup that was never seen shows that something was missed.
    state.observe_kernel(&event(CgroupChange::Populated(true), unseen, None));
    state.sample(Boot::now(), Depth::Full).unwrap();
    assert_eq!(names(&state), ["/apps/a", "/apps/told", "/apps/unseen"]);
}

#[test]
fn a_tree_that_is_to_be_read_again_knows_a_new_cgroup_by_its_event_all_the_same() {
    let fake = Fake::new();
    fake.add("apps/a", 1);
    let mut state = fake.state(&Patterns::default());
    state.forget_tree();
    let told = fake.add("apps/told", 1);
    state.observe_kernel(&event(CgroupChange::Created, told, Some("/apps/told")));
    assert_eq!(state.path_of(told).as_deref(), Some("/apps/told"));
}

#[test]
fn a_new_cgroup_below_one_that_was_never_seen_has_the_tree_read_again() {
    let fake = Fake::new();
    fake.add("apps/a", 1);
    let mut state = fake.state(&Patterns::default());
    state.tree_events_are_live(true);
    let below = fake.add("missed/below", 1);
    state.observe_kernel(&event(CgroupChange::Created, below, Some("/missed/below")));
    state.sample(Boot::now(), Depth::Full).unwrap();
    assert_eq!(names(&state), ["/apps/a", "/missed/below"]);
}

#[test]
fn what_is_removed_is_forgotten_at_once_and_cannot_be_a_target() {
    let fake = Fake::new();
    let id = fake.add("apps/a", 1);
    let mut state = fake.state(&Patterns::default());
    let key = state.snapshot(Boot::now()).workloads[0].key.clone();
    assert!(state.target(&key).is_some());
    state.observe_kernel(&event(CgroupChange::Removed, id, None));
    assert_eq!(state.target(&key), None);
    assert!(names(&state).is_empty());
}

/// What `name` uses of memory, in MiB, as policy sees it.
fn mib_of(state: &NodeState, name: &str) -> Option<u64> {
    let snapshot = state.snapshot(Boot::now());
    let workload = snapshot.workloads.iter().find(|workload| workload.key.name.ends_with(name))?;
    let stats = workload.stats.as_ref().filter(|_| workload.protected.is_none())?;
    Some(stats.memory?.usage? >> 20)
}

/// Whoever was handed a tree decides which controllers count below.
#[test]
fn tasks_that_no_controller_counts_are_counted() {
    let fake = Fake::new();
    fake.add("counted", 1);
    fake.add("bare/below", 1);
    let dir = |name: &str| fake.roots().cgroup.join(name);
    fs::write(dir("counted").join("pids.current"), "7\n").unwrap();
    for name in ["bare", "bare/below"] {
        fs::write(dir(name).join("cgroup.procs"), "4194305\n").unwrap();
        fs::write(dir(name).join("cgroup.threads"), "4194305\n4194306\n").unwrap();
        fs::write(dir(name).join("cgroup.events"), "populated 1\n").unwrap();
    }
    fs::remove_file(dir("bare/below").join("memory.current")).unwrap();
    let snapshot = fake.state(&Patterns::default()).snapshot(Boot::now());
    let tasks = snapshot.workloads.iter().map(|workload| {
        let stats = workload.stats.as_ref().unwrap();
        (workload.key.name.as_str(), stats.process_count, stats.memory.is_some())
    });
    let mut tasks: Vec<_> = tasks.collect();
    tasks.sort_unstable();
    assert_eq!(tasks, [("/bare", Some(4), false), ("/counted", Some(7), true)]);
}

#[test]
fn after_a_loss_the_tree_is_read_again() {
    let fake = Fake::new();
    fake.add("apps/a", 1);
    let mut state = fake.state(&Patterns::default());
    state.tree_events_are_live(true);
    fake.add("apps/lost", 1);
    state.sample(Boot::now(), Depth::Full).unwrap();
    assert_eq!(names(&state), ["/apps/a"]);
    state.forget_tree();
    state.sample(Boot::now(), Depth::Full).unwrap();
    assert_eq!(names(&state), ["/apps/a", "/apps/lost"]);
}

#[test]
fn what_was_found_protected_at_the_last_moment_is_protected_for_a_second_and_not_for_ever() {
    let fake = Fake::new();
    fake.add("apps/a", 1);
    let mut state = fake.state(&Patterns::default());
    let key = state.snapshot(Boot::now()).workloads[0].key.clone();
    let target = state.target(&key).unwrap();
    state.protect(&target, ProtectedReason::Runtime, None);
    let protected = |at| state.snapshot(at).workloads[0].protected;
    assert_eq!(protected(Boot::now()), Some(ProtectedReason::Runtime));
    assert_eq!(protected(Boot::now().plus(PROTECTED_FOR)), None);
}

/// It protected its cgroup when that was first read; since then it has gone, and a leak is left.
#[test]
fn protection_does_not_outlast_the_process_that_it_was_found_by() {
    let fake = Fake::new();
    fake.add("apps/a", 1 << 30);
    let score = fake.dir.path().join("proc/4194305");
    fs::create_dir(&score).unwrap();
    fs::write(score.join("oom_score_adj"), "-1000\n").unwrap();
    let mut state = fake.state(&Patterns::default());
    let protected = |state: &NodeState| state.snapshot(Boot::now()).workloads[0].protected;
    assert_eq!(protected(&state), Some(ProtectedReason::OomScoreAdj));
    fs::write(score.join("oom_score_adj"), "0\n").unwrap();
    let later = Boot::now().plus(Duration::from_secs(2));
    state.sample(later, Depth::Memory).unwrap();
    assert_eq!(protected(&state), None);
}

/// Its cgroup is still there, and nobody has told that it is empty.
#[test]
fn a_cgroup_in_which_nothing_lives_is_no_candidate() {
    let fake = Fake::new();
    fake.add("apps/killed", 4096);
    fake.add("apps/lives", 4096);
    let mut state = fake.state(&Patterns::default());
    state.tree_events_are_live(true);
    let dir = fake.roots().cgroup.join("apps/killed");
    fs::write(dir.join("cgroup.procs"), "").unwrap();
    fs::write(dir.join("cgroup.events"), "populated 0\n").unwrap();
    state.sample(Boot::now(), Depth::Memory).unwrap();
    // Workloads are in the order of their ids, which are what inode numbers the file system gives.
    let protected: BTreeMap<_, _> = state
        .snapshot(Boot::now())
        .workloads
        .into_iter()
        .map(|workload| (workload.key.name, workload.protected))
        .collect();
    let empty = Some(ProtectedReason::NothingRuns);
    let expected = [("/apps/killed".to_owned(), empty), ("/apps/lives".to_owned(), None)];
    assert_eq!(protected, expected.into());
}

#[test]
fn what_an_owner_wrote_protects_no_more_than_the_cgroups_above_allow() {
    let fake = Fake::new();
    fake.add("user.slice/user@7.service/leak", 1 << 30);
    let user = fake.roots().cgroup.join("user.slice/user@7.service");
    fs::write(user.join("leak/memory.low"), "max\n").unwrap();
    let request = |most: &str| {
        fs::write(user.join("memory.low"), most).unwrap();
        let snapshot = fake.state(&Patterns::default()).snapshot(Boot::now());
        let leak = snapshot.workloads.into_iter().find(|w| w.key.name.ends_with("leak")).unwrap();
        (leak.memory_request, leak.stats.unwrap().memory.unwrap().low)
    };
    let bytes = ebb_policy::Quantity::bytes;
    assert_eq!(request("0\n"), (Some(bytes(0)), Some(0)));
    assert_eq!(request("4096\n"), (Some(bytes(4096)), Some(4096)));
}

/// Attributes of the `user` space are the owner's to write.
#[test]
fn a_mark_counts_only_on_a_cgroup_that_nobody_else_owns() {
    let fake = Fake::new();
    let paths = ["system.slice/web.service", "user.slice/user@7.service/web.service"];
    for path in paths {
        fake.add(path, 1);
        let dir = fake.roots().cgroup.join(path);
        if xattr::set(&dir, "user.oomd_omit", b"1").is_err() {
            // A kernel whose tmpfs keeps no attributes for users; the guest test does it on a real tree.
            return;
        }
    }
    let snapshot = fake.state(&Patterns::default()).snapshot(Boot::now());
    let protected = |path: &str| {
        let name = format!("/{path}");
        snapshot.workloads.iter().find(|w| w.key.name == name).unwrap().protected
    };
    assert_eq!(protected(paths[0]), Some(ProtectedReason::Configured));
    assert_eq!(protected(paths[1]), None);
}

#[test]
fn of_whom_nothing_was_found_to_end_is_not_chosen_again_at_once() {
    let fake = Fake::new();
    fake.add("apps/a", 1);
    let mut state = fake.state(&Patterns::default());
    let now = Boot::now();
    let protected = |state: &NodeState, at| state.snapshot(at).workloads[0].protected;
    let key = state.snapshot(now).workloads[0].key.clone();
    state.found_empty(&key);
    assert_eq!(protected(&state, Boot::now()), Some(ProtectedReason::NothingRuns));
    assert_eq!(protected(&state, Boot::now().plus(EMPTY_FOR)), None);
}

/// The watchdog kills whom the loop has not chosen, and it is told whom.
#[test]
fn a_pod_has_a_name_though_it_is_not_on_its_way_out() {
    let mut state = Fake::new().state(&Patterns::default());
    let sandbox = Sandbox { id: "s".into(), pod_uid: "u".into(), ready: true, created_at: Time(1) };
    let pod = PodSeen {
        sandbox,
        name: "shop/web".into(),
        is_static: false,
        is_of_api_server: false,
        cgroup: None,
    };
    state.observe_inventory(Inventory {
        at: Boot(0),
        pods: vec![pod],
        containers: Vec::new(),
        exited: Default::default(),
        images: None,
    });
    let target = Target::Pod { uid: "u".into(), payloads: Vec::new() };
    assert_eq!(state.key_of(&target).unwrap().name, "shop/web");
}

/// It was killed by the watchdog, and its cgroup was removed before the loop took that in.
#[test]
fn a_cgroup_that_is_gone_is_told_by_the_name_that_it_had() {
    let fake = Fake::new();
    fake.add("apps/leak", 1);
    let mut state = fake.state(&Patterns::default());
    let known = state.snapshot(Boot::now()).workloads[0].key.clone();
    let target = state.target(&known).unwrap();
    fs::remove_dir_all(fake.roots().cgroup.join("apps/leak")).unwrap();
    state.forget_removed(&target);
    assert_eq!(state.key_of(&target), None);
    assert_eq!(state.name_of(&target), Some(known));
}

/// A fork bomb that was killed leaves zombies: nobody else is to be ended for task ids that only wait for their parent.
#[test]
fn what_was_ended_for_task_ids_counts_with_those_that_its_zombies_have() {
    let fake = Fake::new();
    fake.add("apps/a", 1);
    let dir = fake.roots().cgroup.join("apps/a");
    let mut state = fake.state(&Patterns::default());
    let key = state.snapshot(Boot::now()).workloads[0].key.clone();
    let target = state.target(&key).unwrap();
    let cause =
        Cause { signal: Some(Signal::PidAvailable), expected_free: Some(900), decision: None };
    state.terminations().begin(key, target, Duration::ZERO, cause);
    fs::write(dir.join("cgroup.procs"), "").unwrap();
    fs::write(dir.join("cgroup.events"), "populated 0\n").unwrap();
    fs::write(dir.join("pids.current"), "900\n").unwrap();
    state.forget_tree();
    state.sample(Boot::now(), Depth::Full).unwrap();
    let snapshot = state.snapshot(Boot::now());
    let dead = &snapshot.workloads[0];
    assert_eq!(dead.stats.as_ref().unwrap().process_count, Some(900));
    assert!(dead.termination.is_some());
    fs::write(dir.join("pids.current"), "0\n").unwrap();
    let (gone, _) = state.terminations().look(Path::new("/proc"), Boot::now());
    assert_eq!(gone.len(), 1);
    state.sample(Boot::now(), Depth::Full).unwrap();
    assert!(state.snapshot(Boot::now()).workloads.is_empty());
}

#[test]
fn a_cgroup_root_that_has_gone_away_is_an_error_and_what_was_known_stands() {
    let fake = Fake::new();
    fake.add("apps/a", 1);
    let mut state = fake.state(&Patterns::default());
    let away: PathBuf = fake.dir.path().join("away");
    fs::rename(fake.roots().cgroup, away).unwrap();
    state.forget_tree();
    assert!(state.sample(Boot::now(), Depth::Full).is_err());
    assert_eq!(names(&state), ["/apps/a"]);
}

#[test]
fn a_cgroup_that_was_removed_without_a_word_is_forgotten_with_the_next_sample() {
    let fake = Fake::new();
    fake.add("apps/stays", 10);
    fake.add("apps/goes", 20);
    let mut state = fake.state(&Patterns::default());
    state.tree_events_are_live(true);
    let gone = fake.roots().cgroup.join("apps/goes");
    // What is held open of a removed cgroup can be read no more; of a removed file it can.
    fs::write(gone.join("memory.current"), "").unwrap();
    for file in ["cgroup.procs", "cgroup.events", "memory.current"] {
        fs::remove_file(gone.join(file)).unwrap();
    }
    fs::remove_dir(&gone).unwrap();
    state.sample(Boot::now(), Depth::Memory).unwrap();
    assert_eq!(names(&state), ["/apps/stays"]);
}

#[test]
fn the_next_decision_knows_of_the_last_kills_by_the_kernel_and_the_one_after_of_none() {
    let fake = Fake::new();
    let mut state = fake.state(&Patterns::default());
    let kill = |pid| OomKill { victim: "leak".into(), pid, ..OomKill::default() };
    (1..=100).for_each(|pid| state.observe_oom_kill(kill(pid)));
    let pids = |state: &NodeState| -> Vec<u32> {
        state.snapshot(Boot::now()).oom_kills.iter().map(|kill| kill.pid).collect()
    };
    assert_eq!(pids(&state), (37..=100).collect::<Vec<_>>(), "the last 64");
    state.forget_oom_kills();
    assert!(pids(&state).is_empty());
}

#[test]
fn without_kernel_events_the_tree_is_read_again_when_it_is_old() {
    let fake = Fake::new();
    fake.add("apps/a", 4096);
    let mut state = fake.state(&Patterns::default());
    state.tree_events_are_live(true);
    fake.add("apps/b", 4096);
    state.tree_events_are_live(false);
    state.sample(Boot::now().plus(TREE_MAX_AGE * 2), Depth::Full).unwrap();
    assert_eq!(names(&state), ["/apps/a", "/apps/b"]);
}

/// What is made just before the threshold is crossed is who fills the node; reading the tree must not take all the time for it.
#[test]
fn without_kernel_events_the_tree_is_read_sooner_while_something_is_near_as_far_as_it_is_cheap() {
    let fake = Fake::new();
    let mut state = fake.state(&Patterns::default());
    let mut now = Boot::now();
    state.sample(now.plus(TREE_MAX_AGE * 2), Depth::Swept).unwrap();
    now = now.plus(TREE_MAX_AGE * 2);
    let later = Duration::from_millis(200);
    let took = |ms| Duration::from_millis(ms);
    for (name, depth, tree_took, is_seen) in [
        ("apps/a", Depth::Swept, took(2), false),
        ("apps/b", Depth::Memory, took(2), true),
        ("apps/c", Depth::Full, took(2), true),
        ("apps/d", Depth::Full, took(30), false),
    ] {
        fake.add(name, 4096);
        state.tree_took = tree_took;
        now = now.plus(later);
        state.sample(now, depth).unwrap();
        let is_found = names(&state).contains(&format!("/{name}"));
        assert_eq!(is_found, is_seen, "{name} {depth:?}");
    }
}

/// Of small workloads among many only `memory.current` is read. Taken for as young as that, an hour's growth would be what one grew by in a moment.
#[test]
fn what_was_not_read_again_is_as_old_as_it_was() {
    let fake = Fake::new();
    fake.add("apps/late", 4096);
    let late = fake.roots().cgroup.join("apps/late");
    let stat = |anon: u64| fs::write(late.join("memory.stat"), format!("anon {anon}\n")).unwrap();
    stat(4096);
    let mut state = fake.state(&Patterns::default());
    let seen = |state: &NodeState| {
        let all = state.snapshot(Boot::now()).workloads;
        let late = all.into_iter().find(|w| w.key.name == "/apps/late").unwrap();
        let stats = late.stats.unwrap();
        (stats.observed_at.unwrap(), stats.memory.unwrap().usage, stats.memory.unwrap().anon)
    };
    let (read, ..) = seen(&state);
    for n in 0..READ_IN_FULL {
        fake.add(&format!("apps/large-{n}"), 1 << 30);
    }
    stat(8192);
    fs::write(late.join("memory.current"), "8192\n").unwrap();
    // A moment later by policy's clock, which counts milliseconds.
    let moment = state.clock().time(Boot::now());
    while state.clock().time(Boot::now()) <= moment {
        std::hint::spin_loop();
    }
    state.forget_tree();
    state.sample(Boot::now(), Depth::Memory).unwrap();
    assert_eq!(seen(&state), (read, Some(8192), Some(4096)));
    fs::write(late.join("memory.current"), "2147483648\n").unwrap();
    state.sample(Boot::now(), Depth::Memory).unwrap();
    let (again, usage, anon) = seen(&state);
    assert!(again > read, "now it is one of those that are read");
    assert_eq!((usage, anon), (Some(2 << 30), Some(8192)));
}

/// Without statistics it would be ranked behind whoever has some, and another would go in its place.
#[test]
fn of_whom_a_reading_fails_what_was_known_stays() {
    let fake = Fake::new();
    fake.add("apps/large", 1 << 30);
    fake.add("apps/small", 4096);
    let mut state = fake.state(&Patterns::default());
    let large = fake.roots().cgroup.join("apps/large");
    let seen = |state: &NodeState| {
        let all = state.snapshot(Boot::now()).workloads;
        let large = all.into_iter().find(|w| w.key.name == "/apps/large");
        large.map(|large| large.stats.and_then(|stats| stats.memory?.usage))
    };
    for depth in [Depth::Memory, Depth::Full] {
        // What the kernel answers when it has no memory or no descriptor for the reading, as far as it can be played.
        fs::write(large.join("memory.current"), "").unwrap();
        state.sample(Boot::now(), depth).unwrap();
        assert_eq!(seen(&state), Some(Some(1 << 30)), "{depth:?}");
        fs::write(large.join("memory.current"), "2147483648\n").unwrap();
        state.sample(Boot::now(), depth).unwrap();
        assert_eq!(seen(&state), Some(Some(2 << 30)), "{depth:?}");
        fs::write(large.join("memory.current"), "1073741824\n").unwrap();
        state.sample(Boot::now(), depth).unwrap();
    }
    // A file that is held open can be read here for longer than one of a removed cgroup can.
    fs::write(large.join("memory.current"), "").unwrap();
    fs::remove_dir_all(&large).unwrap();
    state.sample(Boot::now(), Depth::Memory).unwrap();
    assert_eq!(seen(&state), None, "it is gone");
}
